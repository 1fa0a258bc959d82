"""aioloader: an asyncio-native streaming loader for training data.

The path of a sample, station by station, is the list of folders and files:

- `aioloader.samplers`: which indices, in what order
- `aioloader.datasets`: what an item is
- `aioloader.storage`: where its bytes come from
- `aioloader.executors`: where the CPU work runs
- `aioloader.transforms`: what is done to one sample, decoding included
- `aioloader.batchify`: samples to one batch
- `aioloader._pipeline`: the async core that moves them: plan, fetch, dispatch, collate, reorder, deliver
- `aioloader.loader`: `AsyncDataLoader`; `aioloader.sync`: `DataLoader`

The contracts between them stand in `aioloader.abc`. The file format is a package of its own, `recordio`.
"""

from aioloader import abc, batchify, samplers, transforms
from aioloader._version import __version__
from aioloader.datasets import (
    CIFAR10,
    CIFAR100,
    MNIST,
    ArrayDataset,
    Dataset,
    FashionMNIST,
    ImageFolderDataset,
    ImageListDataset,
    ImageRecordDataset,
    RecordFileDataset,
    SimpleDataset,
)
from aioloader.errors import (
    DecodeError,
    LoaderClosedError,
    LoaderError,
    ResumeError,
    SampleError,
    TooManyErrorsError,
    WorkerError,
)
from aioloader.executors import ForeignRandomnessWarning
from aioloader.images import images
from aioloader.loader import AsyncDataLoader
from aioloader.rng import Rng
from aioloader.sync import DataLoader

__all__ = (
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "ArrayDataset",
    "AsyncDataLoader",
    "DataLoader",
    "Dataset",
    "DecodeError",
    "FashionMNIST",
    "ForeignRandomnessWarning",
    "ImageFolderDataset",
    "ImageListDataset",
    "ImageRecordDataset",
    "LoaderClosedError",
    "LoaderError",
    "RecordFileDataset",
    "ResumeError",
    "Rng",
    "SampleError",
    "SimpleDataset",
    "TooManyErrorsError",
    "WorkerError",
    "__version__",
    "abc",
    "batchify",
    "images",
    "samplers",
    "transforms",
)
