"""`mx.gluon.data.vision`: image datasets, and transforms of images."""

from aioloader.mxnet.gluon.data.vision import datasets, transforms
from aioloader.mxnet.gluon.data.vision.datasets import (
    CIFAR10,
    CIFAR100,
    MNIST,
    FashionMNIST,
    ImageFolderDataset,
    ImageListDataset,
    ImageRecordDataset,
)

__all__ = (
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "FashionMNIST",
    "ImageFolderDataset",
    "ImageListDataset",
    "ImageRecordDataset",
    "datasets",
    "transforms",
)
