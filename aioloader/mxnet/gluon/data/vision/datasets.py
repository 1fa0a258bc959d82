"""`mx.gluon.data.vision.datasets`: image datasets, whose images are NDArrays. They read local files only.

Labels have MXNet's types: Python's numbers from folders, float64 scalars or float32 arrays from records, float32 arrays
from lists, int32 from MNIST and CIFAR.
"""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader import datasets
from aioloader.datasets.image_files import MXNET, ImageFiles
from aioloader.datasets.stage import Stage, stage_of_argument
from aioloader.foundation.caller import warn_caller
from aioloader.mxnet.gluon.data._ndarray_stage import ImageStage, image_as_nd, image_stage
from aioloader.mxnet.gluon.data.dataset import Dataset, RecordFileDataset

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array

__all__ = (
    "CIFAR10",
    "CIFAR100",
    "MNIST",
    "FashionMNIST",
    "ImageFolderDataset",
    "ImageListDataset",
    "ImageRecordDataset",
)


def __getattr__(name: str) -> Any:
    # Modules and functions that MXNet's module imports, and libraries take from it.
    if name in ("base", "image", "nd", "recordio"):
        return importlib.import_module("aioloader.mxnet." + {"nd": "ndarray"}.get(name, name))
    if name == "dataset":
        return importlib.import_module("aioloader.mxnet.gluon.data.dataset")
    if name in ("_get_repo_file_url", "check_sha1", "download"):
        return getattr(importlib.import_module("aioloader.mxnet.gluon.utils"), name)
    raise AttributeError(f"module {__name__!r} has no attribute {name!r}")


def _own_stage(stage: Stage | None) -> ImageStage | None:
    """Return the stage of the deprecated argument `transform`."""
    return None if stage is None else image_stage(stage.fn, first=False, given=True)


class _DecodedImages:
    """Common part of the datasets of encoded images: a sample is (image, label), the image an NDArray."""

    _has_images = True

    @property
    def decoder(self) -> Any:
        # Defined next to `__getitem__`, so that loaders decode themselves and do not call it for each sample.
        return super().decoder  # type: ignore[misc]  # of the dataset that this is mixed into

    def __getitem__(self, index: int) -> Any:
        """Return (image, label) of one image."""
        return image_as_nd(super().__getitem__(index))  # type: ignore[misc]  # the same


class ImageRecordDataset(_DecodedImages, datasets.ImageRecordDataset, RecordFileDataset):
    """(image, label) of every record; see `aioloader.ImageRecordDataset`.

    The image is uint8 (height, width, 3) RGB. A scalar label is float64, several are float32 (n,).

    Args:
        filename: the .rec file; the .idx next to it is used, or without one the records are found by a scan.
        flag: 1 for colour, 0 for grey, (height, width, 1).
        transform: deprecated; use ``.transform(fn)``.
        **options: `exif` ("apply" turns images upright, "ignore" leaves them as stored), `max_pixels` (larger images
            are refused), `label_dtype`, `dct_scaling`; as of `aioloader.ImageRecordDataset`.

    Raises:
        FileNotFoundError: there is no such file.
    """

    def __init__(self, filename: Any, flag: int = 1, transform: Any = None, **options: Any) -> None:
        super().__init__(filename, flag, None, **options)
        self._own_stage = _own_stage(stage_of_argument(self, transform))
        if self._label_dtype is None:
            # The packed label is a float32; as a Python float it makes a batch of float64.
            self._scalar_dtype = "float64"


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

    _rule = MXNET

    def __init__(self, root: Any, flag: int = 1, transform: Any = None, **options: Any) -> None:
        super().__init__(root, flag, None, **options)
        self._own_stage = _own_stage(stage_of_argument(self, transform))

    def _warn(self, found: ImageFiles) -> None:
        """Warn of each entry that is not read, in Gluon's words."""
        left_out = found.left_out
        for path, why in left_out.first:
            advice = f" Only support {', '.join(sorted(MXNET.suffixes))}" if why.startswith(" of") else ""
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
        return super().decoder

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


class _Published:
    """Common part of the datasets with published files."""

    _has_images = True
    _own_stage: Stage | None

    def __init__(
        self, root: Any = None, train: bool = True, transform: Any = None, *, check_sha1: bool = False
    ) -> None:
        super().__init__(root, train, check_sha1=check_sha1)  # type: ignore[call-arg]  # of the dataset that this is mixed into
        self._own_stage = _own_stage(stage_of_argument(self, transform))

    @property
    def arrays(self) -> Sequence[Array]:
        """Return images and labels; see `GatherDataset.arrays`."""
        found: Sequence[Array] = super().arrays  # type: ignore[misc]  # of the dataset that this is mixed into
        return found

    def __getitem__(self, index: Any) -> Any:
        """Return (image, label): uint8 (height, width, channels), int32. A slice returns arrays of both."""
        return image_as_nd(super().__getitem__(index))  # type: ignore[misc]  # the same


class MNIST(_Published, datasets.MNIST, Dataset):
    """Handwritten digits: (image uint8 (28, 28, 1), label int32); see `aioloader.MNIST`.

    Args:
        root: folder with the published IDX files; None: ``$MXNET_HOME/datasets/mnist``.
        train: the training part; False: the test part.
        transform: deprecated; use ``.transform(fn)``.
        check_sha1: verify that the files are the published ones; MXNet always does.

    Raises:
        FileNotFoundError: a file is missing; the message names it and its place.
    """


class FashionMNIST(_Published, datasets.FashionMNIST, Dataset):
    """Images of clothes in MNIST's format; see `MNIST`. Default root: ``$MXNET_HOME/datasets/fashion-mnist``."""


class CIFAR10(_Published, datasets.CIFAR10, Dataset):
    """Small photographs of 10 classes: (image uint8 (32, 32, 3), label int32); see `aioloader.CIFAR10`.

    Args:
        root: folder with the published .bin files or their archive; None: ``$MXNET_HOME/datasets/cifar10``.
        train: the training part; False: the test part.
        transform: deprecated; use ``.transform(fn)``.
        check_sha1: verify that the files are the published ones; MXNet always does.

    Raises:
        FileNotFoundError: a file is missing; the message names it and its place.
    """


class CIFAR100(_Published, datasets.CIFAR100, Dataset):
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
        datasets.CIFAR100.__init__(self, root, fine_label, train, check_sha1=check_sha1)
        self._own_stage = _own_stage(stage_of_argument(self, transform))
