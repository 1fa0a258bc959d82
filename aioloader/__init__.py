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
import sys
import warnings
from typing import TYPE_CHECKING, Any

from aioloader.foundation.version import __version__

if TYPE_CHECKING:
    from aioloader import abc, batchify, samplers, transforms
    from aioloader.costs import image_costs, image_sizes
    from aioloader.datasets import (
        ArrayDataset,
        ConcatDataset,
        Dataset,
        ImageFolderDataset,
        ImageListDataset,
        ImageRecordDataset,
        IterableDataset,
        MDSDataset,
        ParquetDataset,
        RecordFileDataset,
        SimpleDataset,
        TarDataset,
        TFRecordDataset,
    )
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
    from aioloader.executors import ForeignRandomnessWarning
    from aioloader.formats.opening import open_dataset
    from aioloader.images import images
    from aioloader.loader.async_loader import AsyncDataLoader
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

# A worker process needs few of these names and starts faster if each is loaded at its first use. Everywhere else all
# are loaded at once: a later import could block a running event loop.
_NAMES_OF = {
    "aioloader.costs": "image_costs image_sizes",
    "aioloader.datasets": (
        "ArrayDataset ConcatDataset Dataset ImageFolderDataset ImageListDataset ImageRecordDataset IterableDataset "
        "MDSDataset ParquetDataset RecordFileDataset SimpleDataset TarDataset TFRecordDataset"
    ),
    "aioloader.formats.opening": "open_dataset",
    "aioloader.errors": (
        "DecodeError ImageError ImageFetchError ImageNotAllowedError ImageReferenceError ImageServiceError "
        "ImageTimeoutError ImageTooLargeError LayoutError LoaderClosedError "
        "LoaderError NotResumableError ReceiptError ResumeError SampleError ServiceClosedError ServiceMemoryError "
        "ServiceOverloadedError TooManyErrorsError WorkerError"
    ),
    "aioloader.executors": "ForeignRandomnessWarning",
    "aioloader.images": "images",
    "aioloader.loader.async_loader": "AsyncDataLoader",
    "aioloader.receipts": "Receipt",
    "aioloader.rng": "Rng",
    "aioloader.loader.sync_loader": "DataLoader",
    "aioloader.service.async_service": "AsyncImageService",
    "aioloader.service.sync_service": "ImageService",
}
_MODULE_OF = {name: module for module, names in _NAMES_OF.items() for name in names.split()}
# Datasets of well-known files have their names in `aioloader.datasets` only; here for one more version.
_DEPRECATED = frozenset({"CIFAR10", "CIFAR100", "MNIST", "FashionMNIST", "InsightFaceDataset"})
_SUBMODULES = (
    *("abc", "batchify", "datasets", "errors", "executors"),
    *("metrics", "samplers", "storage", "transforms"),
)


def __getattr__(name: str) -> Any:
    if name in _SUBMODULES:
        return importlib.import_module(f"aioloader.{name}")
    if name in _DEPRECATED:
        warnings.warn(
            f"aioloader.{name} will not exist in aioloader 0.2: use aioloader.datasets.{name}",
            DeprecationWarning,
            stacklevel=2,
        )
        return getattr(importlib.import_module("aioloader.datasets"), name)
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'aioloader' has no attribute {name!r}")
    value = globals()[name] = getattr(importlib.import_module(_MODULE_OF[name]), name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})


if "aioloader_worker" not in sys._xoptions:
    for _name in (*_MODULE_OF, *_SUBMODULES):
        __getattr__(_name)
