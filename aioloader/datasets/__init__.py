"""Datasets: records, image files, arrays, streams, and views of any dataset."""

from aioloader.datasets.arrays import ArrayDataset
from aioloader.datasets.base import ConcatDataset, Dataset, SimpleDataset
from aioloader.datasets.folder import ImageFolderDataset
from aioloader.datasets.imagelist import ImageListDataset
from aioloader.datasets.insightface import InsightFaceDataset
from aioloader.datasets.iterable import IterableDataset
from aioloader.datasets.mds import MDSDataset
from aioloader.datasets.parquet import ParquetDataset
from aioloader.datasets.record import ImageRecordDataset, RecordFileDataset
from aioloader.datasets.tar import TarDataset
from aioloader.datasets.tfrecord import TFRecordDataset
from aioloader.datasets.verification import read_verification_pairs
from aioloader.datasets.vision import CIFAR10, CIFAR100, MNIST, FashionMNIST

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
