"""aioloader: an asyncio-native streaming loader for training data.

The path of a sample, in the order of the packages and modules:

- `aioloader.samplers`: the order of the indices
- `aioloader.datasets`: the items
- `aioloader.storage`: the source of their bytes
- `aioloader.executors`: the workers, which run the CPU work
- `aioloader.transforms`: the functions applied to one sample, decoding included
- `aioloader.batchify`: the functions that make one batch of samples
- `aioloader.pipeline`: the async core with the stages plan, fetch, dispatch, collate, reorder, deliver
- `aioloader.loader`: `AsyncDataLoader`, and its blocking counterpart `DataLoader`

`aioloader.abc` contains the contracts between them. The file format is a separate package, `recordio`.
"""

from __future__ import annotations

import importlib
import warnings
from typing import TYPE_CHECKING, Any

from aioloader.foundation.version import __version__ as __version__
from recordio._lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader import abc as abc
    from aioloader import batchify as batchify
    from aioloader import samplers as samplers
    from aioloader import transforms as transforms
    from aioloader.costs import image_costs as image_costs
    from aioloader.costs import image_sizes as image_sizes
    from aioloader.datasets.arrays import ArrayDataset as ArrayDataset
    from aioloader.datasets.base import ConcatDataset as ConcatDataset
    from aioloader.datasets.base import Dataset as Dataset
    from aioloader.datasets.base import SimpleDataset as SimpleDataset
    from aioloader.datasets.base import cache_samples as cache_samples
    from aioloader.datasets.iterable import IterableDataset as IterableDataset
    from aioloader.errors import DecodeError as DecodeError
    from aioloader.errors import ImageError as ImageError
    from aioloader.errors import ImageFetchError as ImageFetchError
    from aioloader.errors import ImageNotAllowedError as ImageNotAllowedError
    from aioloader.errors import ImageReferenceError as ImageReferenceError
    from aioloader.errors import ImageServiceError as ImageServiceError
    from aioloader.errors import ImageTimeoutError as ImageTimeoutError
    from aioloader.errors import ImageTooLargeError as ImageTooLargeError
    from aioloader.errors import LayoutError as LayoutError
    from aioloader.errors import LoaderClosedError as LoaderClosedError
    from aioloader.errors import LoaderError as LoaderError
    from aioloader.errors import NotResumableError as NotResumableError
    from aioloader.errors import ReceiptError as ReceiptError
    from aioloader.errors import ResumeError as ResumeError
    from aioloader.errors import SampleCacheWarning as SampleCacheWarning
    from aioloader.errors import SampleError as SampleError
    from aioloader.errors import ServiceClosedError as ServiceClosedError
    from aioloader.errors import ServiceMemoryError as ServiceMemoryError
    from aioloader.errors import ServiceOverloadedError as ServiceOverloadedError
    from aioloader.errors import TooManyErrorsError as TooManyErrorsError
    from aioloader.errors import WorkerError as WorkerError
    from aioloader.formats.folder.dataset import ImageFolderDataset as ImageFolderDataset
    from aioloader.formats.list.dataset import ImageListDataset as ImageListDataset
    from aioloader.formats.mds.dataset import MDSDataset as MDSDataset
    from aioloader.formats.opening import open_dataset as open_dataset
    from aioloader.formats.parquet.dataset import ParquetDataset as ParquetDataset
    from aioloader.formats.recordio.dataset import ImageRecordDataset as ImageRecordDataset
    from aioloader.formats.recordio.dataset import RecordFileDataset as RecordFileDataset
    from aioloader.formats.tar.dataset import TarDataset as TarDataset
    from aioloader.formats.tfrecord.dataset import TFRecordDataset as TFRecordDataset
    from aioloader.foundation.foreign_generators import ForeignRandomnessWarning as ForeignRandomnessWarning
    from aioloader.loader.async_loader import AsyncDataLoader as AsyncDataLoader
    from aioloader.loader.images import images as images
    from aioloader.loader.sync_loader import DataLoader as DataLoader
    from aioloader.receipts import Receipt as Receipt
    from aioloader.rng import Rng as Rng
    from aioloader.service.async_service import AsyncImageService as AsyncImageService
    from aioloader.service.sync_service import ImageService as ImageService

_get, __dir__, __all__ = lazy_names(
    __name__,
    {
        "aioloader.costs": "image_costs image_sizes",
        "aioloader.datasets.base": "ConcatDataset Dataset SimpleDataset cache_samples",
        "aioloader.datasets.iterable": "IterableDataset",
        "aioloader.errors": (
            "DecodeError ImageError ImageFetchError ImageNotAllowedError ImageReferenceError ImageServiceError "
            "ImageTimeoutError ImageTooLargeError LayoutError LoaderClosedError LoaderError NotResumableError "
            "ReceiptError ResumeError SampleCacheWarning SampleError ServiceClosedError ServiceMemoryError "
            "ServiceOverloadedError TooManyErrorsError WorkerError"
        ),
        "aioloader.foundation.foreign_generators": "ForeignRandomnessWarning",
        "aioloader.datasets.arrays": "ArrayDataset",
        "aioloader.formats.folder.dataset": "ImageFolderDataset",
        "aioloader.formats.list.dataset": "ImageListDataset",
        "aioloader.formats.mds.dataset": "MDSDataset",
        "aioloader.formats.opening": "open_dataset",
        "aioloader.formats.parquet.dataset": "ParquetDataset",
        "aioloader.formats.recordio.dataset": "ImageRecordDataset RecordFileDataset",
        "aioloader.formats.tar.dataset": "TarDataset",
        "aioloader.formats.tfrecord.dataset": "TFRecordDataset",
        "aioloader.loader.async_loader": "AsyncDataLoader",
        "aioloader.loader.images": "images",
        "aioloader.loader.sync_loader": "DataLoader",
        "aioloader.receipts": "Receipt",
        "aioloader.rng": "Rng",
        "aioloader.service.async_service": "AsyncImageService",
        "aioloader.service.sync_service": "ImageService",
    },
    "__version__ abc batchify samplers transforms",
)
# Datasets of well-known files have their names in `aioloader.datasets` only; here for one more version.
_DEPRECATED = frozenset({"CIFAR10", "CIFAR100", "MNIST", "FashionMNIST", "InsightFaceDataset"})


def __getattr__(name: str) -> Any:
    if name not in _DEPRECATED:
        return _get(name)
    warnings.warn(
        f"aioloader.{name} will not exist in aioloader 0.2: use aioloader.datasets.{name}",
        DeprecationWarning,
        stacklevel=2,
    )
    return getattr(importlib.import_module("aioloader.datasets"), name)
