"""Datasets: records, image files, arrays, streams, and views of any dataset.

Those of files are in the folders of their formats, and are imported when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.foundation.lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader.datasets.arrays import ArrayDataset
    from aioloader.datasets.base import ConcatDataset, Dataset, SimpleDataset
    from aioloader.datasets.iterable import IterableDataset
    from aioloader.formats.arrays.vision import CIFAR10, CIFAR100, MNIST, FashionMNIST
    from aioloader.formats.folder.dataset import ImageFolderDataset
    from aioloader.formats.insightface.dataset import InsightFaceDataset
    from aioloader.formats.insightface.verification import read_verification_pairs
    from aioloader.formats.list.dataset import ImageListDataset
    from aioloader.formats.mds.dataset import MDSDataset
    from aioloader.formats.parquet.dataset import ParquetDataset
    from aioloader.formats.recordio.dataset import ImageRecordDataset, RecordFileDataset
    from aioloader.formats.tar.dataset import TarDataset
    from aioloader.formats.tfrecord.dataset import TFRecordDataset

__all__ = (
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "ArrayDataset",
    "ConcatDataset",
    "Dataset",
    "FashionMNIST",
    "ImageFolderDataset",
    "ImageListDataset",
    "ImageRecordDataset",
    "InsightFaceDataset",
    "IterableDataset",
    "MDSDataset",
    "ParquetDataset",
    "RecordFileDataset",
    "SimpleDataset",
    "TFRecordDataset",
    "TarDataset",
    "read_verification_pairs",
)

__getattr__, __dir__ = lazy_names(
    __name__,
    {
        "aioloader.datasets.base": "ConcatDataset Dataset SimpleDataset",
        "aioloader.datasets.iterable": "IterableDataset",
        "aioloader.datasets.arrays": "ArrayDataset",
        "aioloader.formats.arrays.vision": "CIFAR10 CIFAR100 MNIST FashionMNIST",
        "aioloader.formats.folder.dataset": "ImageFolderDataset",
        "aioloader.formats.insightface.dataset": "InsightFaceDataset",
        "aioloader.formats.insightface.verification": "read_verification_pairs",
        "aioloader.formats.list.dataset": "ImageListDataset",
        "aioloader.formats.mds.dataset": "MDSDataset",
        "aioloader.formats.parquet.dataset": "ParquetDataset",
        "aioloader.formats.recordio.dataset": "ImageRecordDataset RecordFileDataset",
        "aioloader.formats.tar.dataset": "TarDataset",
        "aioloader.formats.tfrecord.dataset": "TFRecordDataset",
    },
)
