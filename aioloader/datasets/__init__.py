"""Datasets: records, image files, arrays, streams, and views of any dataset."""

from aioloader.formats.arrays.dataset import ArrayDataset
from aioloader.datasets.base import ConcatDataset, Dataset, SimpleDataset
from aioloader.formats.folder.dataset import ImageFolderDataset
from aioloader.formats.list.dataset import ImageListDataset
from aioloader.formats.insightface.dataset import InsightFaceDataset
from aioloader.datasets.iterable import IterableDataset
from aioloader.formats.mds.dataset import MDSDataset
from aioloader.formats.parquet.dataset import ParquetDataset
from aioloader.formats.recordio.dataset import ImageRecordDataset, RecordFileDataset
from aioloader.formats.tar.dataset import TarDataset
from aioloader.formats.tfrecord.dataset import TFRecordDataset
from aioloader.formats.insightface.verification import read_verification_pairs
from aioloader.formats.arrays.vision import CIFAR10, CIFAR100, MNIST, FashionMNIST

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
