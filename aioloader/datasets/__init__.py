"""Datasets: records, image files, arrays, streams, and views of any dataset.

Those of files are in the folders of their formats, and are imported when they are first asked for.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordio._lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader.datasets.arrays import ArrayDataset as ArrayDataset
    from aioloader.datasets.base import ConcatDataset as ConcatDataset
    from aioloader.datasets.base import Dataset as Dataset
    from aioloader.datasets.base import SimpleDataset as SimpleDataset
    from aioloader.datasets.iterable import IterableDataset as IterableDataset
    from aioloader.formats.arrays.vision import CIFAR10 as CIFAR10
    from aioloader.formats.arrays.vision import CIFAR100 as CIFAR100
    from aioloader.formats.arrays.vision import MNIST as MNIST
    from aioloader.formats.arrays.vision import FashionMNIST as FashionMNIST
    from aioloader.formats.folder.dataset import ImageFolderDataset as ImageFolderDataset
    from aioloader.formats.insightface.dataset import InsightFaceDataset as InsightFaceDataset
    from aioloader.formats.insightface.verification import read_verification_pairs as read_verification_pairs
    from aioloader.formats.list.dataset import ImageListDataset as ImageListDataset
    from aioloader.formats.mds.dataset import MDSDataset as MDSDataset
    from aioloader.formats.parquet.dataset import ParquetDataset as ParquetDataset
    from aioloader.formats.recordio.dataset import ImageRecordDataset as ImageRecordDataset
    from aioloader.formats.recordio.dataset import RecordFileDataset as RecordFileDataset
    from aioloader.formats.tar.dataset import TarDataset as TarDataset
    from aioloader.formats.tfrecord.dataset import TFRecordDataset as TFRecordDataset

__getattr__, __dir__, __all__ = lazy_names(
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
