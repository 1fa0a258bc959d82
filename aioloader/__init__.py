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

from aioloader.foundation.lazy_names import lazy_names
from aioloader.foundation.version import __version__

if TYPE_CHECKING:
    from aioloader import abc, batchify, samplers, transforms
    from aioloader.costs import image_costs, image_sizes
    from aioloader.datasets.arrays import ArrayDataset
    from aioloader.datasets.base import ConcatDataset, Dataset, SimpleDataset
    from aioloader.datasets.iterable import IterableDataset
    from aioloader.errors import (
        DecodeError,
        ImageError,
        ImageFetchError,
        ImageNotAllowedError,
        ImageReferenceError,
        ImageServiceError,
        ImageTimeoutError,
        ImageTooLargeError,
        LayoutError,
        LoaderClosedError,
        LoaderError,
        NotResumableError,
        ReceiptError,
        ResumeError,
        SampleError,
        ServiceClosedError,
        ServiceMemoryError,
        ServiceOverloadedError,
        TooManyErrorsError,
        WorkerError,
    )
    from aioloader.executors.foreign_generators import ForeignRandomnessWarning
    from aioloader.formats.folder.dataset import ImageFolderDataset
    from aioloader.formats.list.dataset import ImageListDataset
    from aioloader.formats.mds.dataset import MDSDataset
    from aioloader.formats.opening import open_dataset
    from aioloader.formats.parquet.dataset import ParquetDataset
    from aioloader.formats.recordio.dataset import ImageRecordDataset, RecordFileDataset
    from aioloader.formats.tar.dataset import TarDataset
    from aioloader.formats.tfrecord.dataset import TFRecordDataset
    from aioloader.loader.async_loader import AsyncDataLoader
    from aioloader.loader.images import images
    from aioloader.loader.sync_loader import DataLoader
    from aioloader.receipts import Receipt
    from aioloader.rng import Rng
    from aioloader.service.async_service import AsyncImageService
    from aioloader.service.sync_service import ImageService

__all__ = (
    "ArrayDataset",
    "AsyncDataLoader",
    "AsyncImageService",
    "ConcatDataset",
    "DataLoader",
    "Dataset",
    "DecodeError",
    "ForeignRandomnessWarning",
    "ImageError",
    "ImageFetchError",
    "ImageFolderDataset",
    "ImageListDataset",
    "ImageNotAllowedError",
    "ImageRecordDataset",
    "ImageReferenceError",
    "ImageService",
    "ImageServiceError",
    "ImageTimeoutError",
    "ImageTooLargeError",
    "IterableDataset",
    "LayoutError",
    "LoaderClosedError",
    "LoaderError",
    "MDSDataset",
    "NotResumableError",
    "ParquetDataset",
    "Receipt",
    "ReceiptError",
    "RecordFileDataset",
    "ResumeError",
    "Rng",
    "SampleError",
    "ServiceClosedError",
    "ServiceMemoryError",
    "ServiceOverloadedError",
    "SimpleDataset",
    "TFRecordDataset",
    "TarDataset",
    "TooManyErrorsError",
    "WorkerError",
    "__version__",
    "abc",
    "batchify",
    "image_costs",
    "image_sizes",
    "images",
    "open_dataset",
    "samplers",
    "transforms",
)

_get, __dir__ = lazy_names(
    __name__,
    {
        "aioloader.costs": "image_costs image_sizes",
        "aioloader.datasets.base": "ConcatDataset Dataset SimpleDataset",
        "aioloader.datasets.iterable": "IterableDataset",
        "aioloader.errors": (
            "DecodeError ImageError ImageFetchError ImageNotAllowedError ImageReferenceError ImageServiceError "
            "ImageTimeoutError ImageTooLargeError LayoutError LoaderClosedError LoaderError NotResumableError "
            "ReceiptError ResumeError SampleError ServiceClosedError ServiceMemoryError ServiceOverloadedError "
            "TooManyErrorsError WorkerError"
        ),
        "aioloader.executors.foreign_generators": "ForeignRandomnessWarning",
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
