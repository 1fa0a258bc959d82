"""`mx.gluon.data.vision`: image datasets, and transforms of images."""

from aioloader.mxnet.base import exported as _exported
from aioloader.mxnet.gluon.data.vision import datasets as datasets
from aioloader.mxnet.gluon.data.vision import transforms as transforms
from aioloader.mxnet.gluon.data.vision.datasets import CIFAR10 as CIFAR10
from aioloader.mxnet.gluon.data.vision.datasets import CIFAR100 as CIFAR100
from aioloader.mxnet.gluon.data.vision.datasets import MNIST as MNIST
from aioloader.mxnet.gluon.data.vision.datasets import FashionMNIST as FashionMNIST
from aioloader.mxnet.gluon.data.vision.datasets import ImageFolderDataset as ImageFolderDataset
from aioloader.mxnet.gluon.data.vision.datasets import ImageListDataset as ImageListDataset
from aioloader.mxnet.gluon.data.vision.datasets import ImageRecordDataset as ImageRecordDataset

__all__ = _exported(globals(), "datasets", "transforms")
