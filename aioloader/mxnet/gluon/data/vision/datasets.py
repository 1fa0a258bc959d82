"""`mx.gluon.data.vision.datasets`: image datasets, whose images are NDArrays. They read local files only.

Labels have MXNet's types: Python's numbers from folders, float64 scalars or float32 arrays from records, float32 arrays
from lists, int32 from MNIST and CIFAR.
"""

from __future__ import annotations

import importlib
import os
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader import datasets
from aioloader.crop_index.lookup import ItemCrops
from aioloader.datasets.decoding import ImageFileDecoder
from aioloader.datasets.files import FileDataset
from aioloader.datasets.stage import stage_of_argument
from aioloader.formats.arrays.vision import default_root, read_whole
from aioloader.formats.image_files import MXNET, ImageFiles, Rule
from aioloader.foundation.stacks import warn_caller
from aioloader.foundation.validation import require
from aioloader.mxnet.base import exported, methods_of, overrides
from aioloader.mxnet.gluon.data._ndarray_stage import image_as_nd
from aioloader.mxnet.gluon.data.dataset import (
    Dataset,
    RecordFileDataset,
    WithTransform,
    _DownloadedDataset,
)
from aioloader.mxnet.ndarray.ndarray import NDArray
from aioloader.rng import default_rng
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS
from recordio._partial_files import published

if TYPE_CHECKING:
    from collections.abc import Sequence
    from typing import Self

    from aioloader.foundation.types import Array

# What MXNet's module imports, and libraries take from it.
_MODULES = {
    "base": "aioloader.mxnet.base",
    "dataset": "aioloader.mxnet.gluon.data.dataset",
    "image": "aioloader.mxnet.image",
    "nd": "aioloader.mxnet.ndarray",
    "recordio": "aioloader.mxnet.recordio",
}


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(_MODULES[name])
    if name in ("_get_repo_file_url", "check_sha1", "download"):
        return getattr(importlib.import_module("aioloader.mxnet.gluon.utils"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


class _DecodedImages(WithTransform):
    """Common part of the datasets of encoded images: a sample is (image, label), the image an NDArray."""

    _has_images = True

    @property
    def decoder(self) -> Any:
        # Defined next to `__getitem__`, so that loaders decode themselves and do not call it for each sample.
        return super().decoder  # type: ignore[misc]  # of the dataset that this is mixed into

    def __getitem__(self, index: int) -> Any:
        """Return (image, label) of one image."""
        return image_as_nd(super().__getitem__(index))


class ImageRecordDataset(WithTransform, datasets.ImageRecordDataset, RecordFileDataset):
    """(image, label) of every record; see `aioloader.ImageRecordDataset`.

    The image is uint8 (height, width, 3) RGB. A scalar label is float64, several are float32 (n,).

    Args:
        filename: the record file; the .idx next to it is used, or without one the records are found by a scan.
        flag: 1 for colour, 0 for grey, (height, width, 1).
        transform: deprecated; use ``.transform(fn)``.
        **options: `exif` ("apply" turns images upright, "ignore" leaves them as stored), `max_pixels` (larger images
            are refused), `label_dtype`, `dct_scaling`; as of `aioloader.ImageRecordDataset`.

    Raises:
        FileNotFoundError: there is no such file.
    """

    _has_images = True

    def __init__(self, filename: Any, flag: int = 1, transform: Any = None, **options: Any) -> None:
        super().__init__(filename, flag, None, **options)
        stage_of_argument(self, transform)  # which warns
        self._transform = transform
        if self._label_dtype is None:
            # The packed label is a float32; as a Python float it makes a batch of float64.
            self._scalar_dtype = "float64"

    @property
    def _flag(self) -> int:
        return self._options.flag

    @_flag.setter
    def _flag(self, flag: int) -> None:
        self._options = replace(self._options, flag=flag)

    def contents(self) -> Sequence[Any]:
        return *super().contents(), self.own_stage, self._options

    @property
    def decoder(self) -> Any:
        return super().decoder

    def __getitem__(self, index: int) -> Any:
        """Return (image, label) of one record."""
        sample = self._item(self._line(index), self.decoder)
        stage = self.own_stage
        return image_as_nd(sample if stage is None else stage.apply(sample, default_rng()))


class ImageFolderDataset(_DecodedImages, datasets.ImageFolderDataset, Dataset):
    """(image, label) of every image in ``root/<class>/``; see `aioloader.ImageFolderDataset`.

    The image is uint8 (height, width, 3) RGB, the label the number of the class in the order of sorted names. As in
    MXNet, every directory is a class, and images are the .jpg, .jpeg and .png files directly in it.

    Args:
        root: the folder; ``~`` is expanded.
        flag: 1 for colour, 0 for grey, (height, width, 1).
        transform: deprecated; use ``.transform(fn)``.
        **options: `exif` ("apply" turns images upright, "ignore" leaves them as stored), `synsets` (names of the
            classes in the order of their numbers), `max_pixels`, `label_dtype`, `dct_scaling`; as of
            `aioloader.ImageFolderDataset`.

    Attributes:
        synsets: names of the classes.
        items: (path, label) of every image.
    """

    # Of a derived class that does not call this constructor.
    _decoder = ImageFileDecoder(1, "apply", DEFAULT_MAX_PIXELS)
    _label_dtype = np.dtype(np.int64)
    _flag = 1
    _exts: Sequence[str] = (".jpg", ".jpeg", ".png")  # those of the rule, in MXNet's order

    def __new__(cls, *_: Any, **__: Any) -> Self:
        self = super().__new__(cls)
        FileDataset.__init__(self)
        self._crops, self._versions = ItemCrops(None, ""), {}
        return self

    def __init__(self, root: Any, flag: int = 1, transform: Any = None, **options: Any) -> None:
        self._flag, self._exts = flag, list(ImageFolderDataset._exts)
        stage_of_argument(self, transform)  # which warns
        super().__init__(root, flag, None, **options)
        self._transform = transform

    @property
    def _rule(self) -> Rule:  # type: ignore[override]  # the caller's attribute decides
        return replace(MXNET, suffixes=frozenset(self._exts))

    def contents(self) -> Sequence[Any]:
        return self._items, self._flag, self.own_stage

    def _warn(self, found: ImageFiles) -> None:
        """Issue a warning for each entry that is not read, in Gluon's words."""
        left_out = found.left_out
        for path, why in left_out.first:
            advice = f" Only support {', '.join(self._exts)}" if why.startswith(" of") else ""
            warn_caller(f"Ignoring {path}{why}.{advice}", UserWarning)
        if left_out.count > len(left_out.first):
            more = left_out.count - len(left_out.first)
            warn_caller(f"Ignoring {more} more files and directories.", UserWarning)
        if not found.items:
            warn_caller(f"There are no images in {self._root}: this dataset is empty", UserWarning)
        elif found.empty:
            warn_caller(f"{len(found.empty)} of {len(found.classes)} classes have no images", UserWarning)

    @property
    def decoder(self) -> Any:
        decoder = super().decoder
        return decoder if decoder.flag == self._flag else replace(decoder, flag=self._flag)

    def __getitem__(self, index: int) -> Any:
        """Return (image, label), the label a Python int."""
        sample = super().__getitem__(index)
        if type(sample) is tuple and len(sample) == 2 and isinstance(sample[1], np.integer):
            return sample[0], int(sample[1])
        return sample


class ImageListDataset(_DecodedImages, datasets.ImageListDataset, Dataset):
    """(image, label) of every entry of a list; see `aioloader.ImageListDataset`.

    The image is uint8 (height, width, 3) RGB, the label float32 (n,), also where n is 1.

    Args:
        root: the folder that paths are relative to.
        imglist: name of a .lst file, relative to `root` (lines of id, labels and path, separated by TABs), or a list of
            ``[label, path]`` or ``[[label, ...], path]``.
        flag: 1 for colour, 0 for grey, (height, width, 1).
        label_dtype: another dtype of the labels.
        **options: `exif` ("apply" turns images upright, "ignore" leaves them as stored), `max_pixels`, `dct_scaling`;
            as of `aioloader.ImageListDataset`.

    Raises:
        ValueError: the list is malformed, or a path leads out of the root.
    """

    _list_rule = "imglist must be filename or list of valid entries, given"

    def __init__(
        self, root: Any = ".", imglist: Any = None, flag: int = 1, *, label_dtype: Any = None, **options: Any
    ) -> None:
        super().__init__(root, imglist, flag, label_dtype=label_dtype or np.float32, **options)
        if self._labels.ndim == 1:
            self._labels = self._labels[:, None]


class MNIST(_DownloadedDataset, datasets.MNIST):
    """Handwritten digits: (image uint8 (28, 28, 1), label int32); see `aioloader.MNIST`.

    A derived class may override `_get_data`, which sets `_data` and `_label`, or pass other names of files.

    Args:
        root: folder with the published IDX files; None: ``$MXNET_HOME/datasets/mnist``.
        train: the training part; False: the test part.
        transform: deprecated; use ``.transform(fn)``.
        check_sha1: verify that the files are the published ones; MXNet always does.

    Raises:
        FileNotFoundError: a file is missing; the message names it and its place.
    """

    _check_sha1 = False

    def __init__(
        self, root: Any = None, train: bool = True, transform: Any = None, *, check_sha1: bool = False
    ) -> None:
        self._train = train
        self._check_sha1 = check_sha1
        self._train_data, self._train_label, self._test_data, self._test_label = self._sha1.items()
        self._namespace = self._name
        stage_of_argument(self, transform)  # which warns
        super().__init__(default_root(self._name) if root is None else root, transform)

    def _get_data(self) -> None:
        files = (self._train_data, self._train_label) if self._train else (self._test_data, self._test_label)
        data, label = (
            self._read_idx(name.removesuffix(".gz"), axes)
            for (name, _), axes in zip(files, (3, 1), strict=True)
        )
        require(
            len(data) == len(label), f"there are {len(data)} images and {len(label)} labels in {self._root}"
        )
        self._data, self._label = data[..., np.newaxis].view(NDArray), label.astype(np.int32)


class FashionMNIST(MNIST, datasets.FashionMNIST):
    """Images of clothes in MNIST's format; see `MNIST`. Default root: ``$MXNET_HOME/datasets/fashion-mnist``."""


class CIFAR10(_DownloadedDataset, datasets.CIFAR10):
    """Small photographs of 10 classes: (image uint8 (32, 32, 3), label int32); see `aioloader.CIFAR10`.

    A derived class may override `_get_data`, which sets `_data` and `_label`, or `_read_batch`, which returns those of
    one file, or pass other names of files.

    Args:
        root: folder with the published .bin files or their archive; None: ``$MXNET_HOME/datasets/cifar10``.
        train: the training part; False: the test part.
        transform: deprecated; use ``.transform(fn)``.
        check_sha1: verify that the files are the published ones; MXNet always does.

    Raises:
        FileNotFoundError: a file is missing; the message names it and its place.
    """

    _check_sha1 = False

    def __init__(
        self, root: Any = None, train: bool = True, transform: Any = None, *, check_sha1: bool = False
    ) -> None:
        self._train = train
        self._check_sha1 = check_sha1
        self._archive_file, self._train_data, self._test_data = (
            (self._archive, self._sha1[self._archive]),
            [(name, self._sha1[name]) for name in self._train_files],
            [(name, self._sha1[name]) for name in self._test_files],
        )
        self._namespace = self._name
        stage_of_argument(self, transform)  # which warns
        super().__init__(default_root(self._name) if root is None else root, transform)

    @property
    def _files(self) -> tuple[str, ...]:
        return tuple(name for name, _ in (self._train_data if self._train else self._test_data))

    def _read_batch(self, filename: str) -> tuple[Array, Array]:
        return self._batch_of(os.path.basename(filename), read_whole(filename))

    def _get_data(self) -> None:
        self._archive = self._archive_file[0]
        if overrides(self, _READS):
            paths = [os.path.join(self._root, name) for name in self._files]
            if not all(map(os.path.exists, paths)):  # they are in the archive, or it is an error
                for path, content in zip(paths, self._read_files(), strict=True):
                    with published(path) as (part,), open(part, "wb") as file:
                        file.write(content)
            batches = map(self._read_batch, paths)
            data, label = map(np.concatenate, zip(*batches, strict=True))
        else:
            data, label = self._load()
        self._data, self._label = data.view(NDArray), label


_READS = methods_of(CIFAR10, "_read_batch")


class CIFAR100(CIFAR10, datasets.CIFAR100):
    """Small photographs of 100 classes in 20 groups; see `CIFAR10`. Default root: ``$MXNET_HOME/datasets/cifar100``.

    Args:
        root, train, transform, check_sha1: see `CIFAR10`.
        fine_label: label by class; False: by group.
    """

    def __init__(
        self,
        root: Any = None,
        fine_label: bool = False,
        train: bool = True,
        transform: Any = None,
        *,
        check_sha1: bool = False,
    ) -> None:
        self._fine_label = fine_label
        super().__init__(root, train, transform, check_sha1=check_sha1)

    @property
    def _label_column(self) -> int:  # type: ignore[override]  # the caller's attribute decides
        return int(self._fine_label)


__all__ = exported(globals(), module=__name__)
