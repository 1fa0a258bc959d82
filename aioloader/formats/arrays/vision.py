"""IDX files of bytes, the format of MNIST.

Reads have a size limit: a compressed megabyte can unpack to a gigabyte, and a header can announce any size.

Format: two zero bytes, type 8 (uint8), number of axes, big-endian uint32 extents, values in C order.
"""

from __future__ import annotations

import gzip
import hashlib
import math
import os
import sys
import tarfile
import zlib
from typing import TYPE_CHECKING, Any, ClassVar, Protocol

import numpy as np

from aioloader.datasets.arrays import ArrayDataset
from aioloader.datasets.stage import Stage, stage_of_argument
from aioloader.rng import default_rng
from aioloader.storage.local.descriptors import open_regular
from aioloader.storage.urls import path_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array


MOST_NBYTES = 1 << 31
"""Largest unpacked size in bytes of one file of arrays: forty times that of MNIST."""

_PIECE = 1 << 20


class Readable(Protocol):
    """Object with `read(size)`."""

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end."""
        ...


def read_up_to(file: Readable, most: int) -> bytes:
    """Return the bytes of a file, at most the first `most`; memory grows with the bytes read, not those announced."""
    data = bytearray()
    while piece := file.read(min(most - len(data), _PIECE)):
        data += piece
    return bytes(data)


def read_idx(path: str, axes: int) -> Array:
    """Read the array in an IDX file, uint8.

    Args:
        path: the file; gzipped if its name ends in ".gz".
        axes: the number of axes that it must have.

    Raises:
        FileNotFoundError: there is no such file.
        ValueError: it is not in this format, is corrupt, or has more than 2 GiB.
    """
    size = 4 + 4 * axes
    try:
        with open(open_regular(path), "rb") as raw, gzip.open(raw) if path.endswith(".gz") else raw as file:
            head = file.read(size)
            if len(head) < size or head[:4] != bytes((0, 0, 8, axes)):
                raise ValueError(f"{path} is not an IDX file of bytes with {axes} axes")
            shape = tuple(np.frombuffer(head, ">u4", axes, 4).tolist())
            count = math.prod(shape)
            if max(count, *shape) > MOST_NBYTES:
                raise ValueError(f"{path} announces shape {shape}; more than {MOST_NBYTES} bytes are refused")
            # One byte more, to find out whether the file is longer than announced.
            data = read_up_to(file, count + 1)
    except (gzip.BadGzipFile, EOFError, zlib.error) as error:
        raise ValueError(f"{path} is damaged: {error}") from error
    if len(data) != count:
        held = "more" if len(data) > count else str(size + len(data))
        raise ValueError(f"{path} should hold {size + count} bytes for shape {shape}, but has {held}")
    return np.frombuffer(data, np.uint8).reshape(shape).copy()


_PIXELS = 32 * 32 * 3
_MOST_VAIN_READS = 1000
_MOST_ARCHIVE_NBYTES = 1 << 29  # unpacked: three times the size of the published archives


class _Bounded:
    """Unpacked archive; limits the bytes that are read from it, and the number of reads past its end.

    Args:
        file: the unpacked archive.
        path: path of the archive, for the error.
    """

    def __init__(self, file: Readable, path: str) -> None:
        self._file = file
        self._path = path
        self._left = _MOST_ARCHIVE_NBYTES
        self._vain = 0

    def read(self, size: int, /) -> bytes:
        """Return up to `size` bytes; none at the end.

        Raises:
            ValueError: the stream has more bytes than allowed; or the caller reads on and on past the end.
        """
        # One byte more than allowed shows whether the limit is exceeded.
        data = self._file.read(min(size, self._left + 1))
        self._left -= len(data)
        self._vain += not data
        if self._vain > _MOST_VAIN_READS:
            raise ValueError(f"{self._path} is damaged: it ends too early")
        if self._left < 0:
            raise ValueError(
                f"{self._path} has more than {_MOST_ARCHIVE_NBYTES} bytes when unpacked, which is the limit"
            )
        return data


class _VisionDataset(ArrayDataset):
    """Base class: images uint8 (n, height, width, channels) and labels int32 (n,)."""

    _name = ""
    _classes: tuple[str, ...] = ()
    # SHA-1 of each published file, by name.
    _sha1: ClassVar[dict[str, str]] = {}

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        train: bool = True,
        transform: Callable[..., Any] | None = None,
        *,
        check_sha1: bool = False,
    ) -> None:
        self._root = path_of(default_root(self._name) if root is None else root)
        self._train = train
        self._own_stage = stage_of_argument(self, transform)
        self._check_sha1 = check_sha1
        super().__init__(*self._load())

    @property
    def arrays(self) -> Sequence[Array]:
        """Return images and labels without the effect of `transform`; see `GatherDataset.arrays`."""
        return super().arrays

    @property
    def own_stage(self) -> Stage | None:
        """Return the stage of the argument `transform`, which runs before all other stages; None without one."""
        return self._own_stage

    def _load(self) -> tuple[Array, Array]:
        raise NotImplementedError

    def __getitem__(self, index: int) -> Any:
        """Return (image, label): uint8 (height, width, channels), int32."""
        sample = super().__getitem__(index)
        return sample if self._own_stage is None else self._own_stage.apply(sample, default_rng())

    def class_names(self) -> list[str]:
        """Return the names of the classes, as torchvision spells them."""
        return list(self._classes)

    def _verify(self, path: str) -> None:
        """Verify that a file is the published one, if `check_sha1` is set.

        Raises:
            ValueError: it is another file, or the SHA-1 of a file of this name is unknown.
        """
        if not self._check_sha1:
            return
        name = os.path.basename(path)
        if name not in self._sha1:
            raise ValueError(
                f"{path} cannot be checked: only the SHA-1 of {name}.gz is known; put that file there, or pass "
                "check_sha1=False"
            )
        with open(open_regular(path), "rb") as file:
            found = hashlib.file_digest(file, "sha1").hexdigest()
        if found != self._sha1[name]:
            raise ValueError(
                f"{path} is not the published file: its SHA-1 is {found}, not {self._sha1[name]}; download it again"
            )

    def _missing(self, names: Sequence[str]) -> FileNotFoundError:
        return FileNotFoundError(
            f"{type(self).__name__} needs {' or '.join(names)} in {os.path.abspath(self._root)}; "
            "nothing is downloaded: put the published file there, or pass root="
        )


class MNIST(_VisionDataset):
    """Handwritten digits: (image uint8 (28, 28, 1), label int32), 60,000 to train on and 10,000 to test.

    Args:
        root: folder with the published IDX files, gzipped or not; None: ``$MXNET_HOME/datasets/mnist``.
        train: the training part; False: the test part.
        transform: deprecated; use ``.transform(fn)``.
        check_sha1: verify that the gzipped files are the published ones.

    Raises:
        FileNotFoundError: a file is missing; the message contains its name and folder.
        ValueError: a file is not in the published format, or has another SHA-1.
    """

    _name = "mnist"
    _classes = (
        *("0 - zero", "1 - one", "2 - two", "3 - three", "4 - four"),
        *("5 - five", "6 - six", "7 - seven", "8 - eight", "9 - nine"),
    )
    _sha1: ClassVar[dict[str, str]] = {
        "train-images-idx3-ubyte.gz": "6c95f4b05d2bf285e1bfb0e7960c31bd3b3f8a7d",
        "train-labels-idx1-ubyte.gz": "2a80914081dc54586dbdf242f9805a6b8d2a15fc",
        "t10k-images-idx3-ubyte.gz": "c3a25af1f52dad7f726cce8cacb138654b760d48",
        "t10k-labels-idx1-ubyte.gz": "763e7fa3757d93b0cdec073cef058b2004252c17",
    }

    def _load(self) -> tuple[Array, Array]:
        part = "train" if self._train else "t10k"
        images = self._read_idx(f"{part}-images-idx3-ubyte", 3)
        labels = self._read_idx(f"{part}-labels-idx1-ubyte", 1)
        return images[..., np.newaxis], labels.astype(np.int32)

    def _read_idx(self, name: str, axes: int) -> Array:
        for file in (f"{name}.gz", name):
            path = os.path.join(self._root, file)
            if os.path.exists(path):
                self._verify(path)
                return read_idx(path, axes)
        raise self._missing([f"{name}.gz", name])


class FashionMNIST(MNIST):
    """Images of clothes in MNIST's format; see `MNIST`. Default root:
    ``$MXNET_HOME/datasets/fashion-mnist``."""

    _name = "fashion-mnist"
    _classes = (
        *("T-shirt/top", "Trouser", "Pullover", "Dress", "Coat"),
        *("Sandal", "Shirt", "Sneaker", "Bag", "Ankle boot"),
    )
    _sha1: ClassVar[dict[str, str]] = {
        "train-images-idx3-ubyte.gz": "0cf37b0d40ed5169c6b3aba31069a9770ac9043d",
        "train-labels-idx1-ubyte.gz": "236021d52f1e40852b06a4c3008d8de8aef1e40b",
        "t10k-images-idx3-ubyte.gz": "626ed6a7c06dd17c0eec72fa3be1740f146a2863",
        "t10k-labels-idx1-ubyte.gz": "17f9ab60e7257a1620f4ad76bbbaf857c3920701",
    }


class CIFAR10(_VisionDataset):
    """Small photographs of 10 classes: (image uint8 (32, 32, 3) RGB, label int32), 50,000 and 10,000.

    Args:
        root: folder with the published .bin files, or with ``cifar-10-binary.tar.gz``; None:
            ``$MXNET_HOME/datasets/cifar10``.
        train: the training part; False: the test part.
        transform: deprecated; use ``.transform(fn)``.
        check_sha1: verify that the files, or the archive, are the published ones.

    Raises:
        FileNotFoundError: a file is missing; the message contains its name and folder.
        ValueError: a file is not in the published format, or has another SHA-1.
    """

    _name = "cifar10"
    _classes: tuple[str, ...] = (
        "airplane",
        "automobile",
        "bird",
        "cat",
        "deer",
        "dog",
        "frog",
        "horse",
        "ship",
        "truck",
    )
    _archive = "cifar-10-binary.tar.gz"
    _sha1: ClassVar[dict[str, str]] = {
        "cifar-10-binary.tar.gz": "fab780a1e191a7eda0f345501ccd62d20f7ed891",
        "data_batch_1.bin": "aadd24acce27caa71bf4b10992e9e7b2d74c2540",
        "data_batch_2.bin": "c0ba65cce70568cd57b4e03e9ac8d2a5367c1795",
        "data_batch_3.bin": "1dd00a74ab1d17a6e7d73e185b69dbf31242f295",
        "data_batch_4.bin": "aab85764eb3584312d3c7f65fd2fd016e36a258e",
        "data_batch_5.bin": "26e2849e66a845b7f1e4614ae70f4889ae604628",
        "test_batch.bin": "67eb016db431130d61cd03c7ad570b013799c88c",
    }
    _train_files = tuple(f"data_batch_{number}.bin" for number in range(1, 6))
    _test_files: tuple[str, ...] = ("test_batch.bin",)
    _label_bytes = 1
    _label_column = 0

    @property
    def _files(self) -> tuple[str, ...]:
        return self._train_files if self._train else self._test_files

    def _load(self) -> tuple[Array, Array]:
        batches = [
            self._batch_of(name, data) for name, data in zip(self._files, self._read_files(), strict=True)
        ]
        images, labels = zip(*batches, strict=True)
        return np.concatenate(images), np.concatenate(labels)

    def _batch_of(self, name: str, data: bytes) -> tuple[Array, Array]:
        """Return images and labels of one file's content."""
        width = self._label_bytes + _PIXELS
        if not data or len(data) % width:
            raise ValueError(
                f"{name} in {self._root} has {len(data)} bytes, which is not a multiple of {width}"
            )
        table = np.frombuffer(data, np.uint8).reshape(-1, width)
        planes = table[:, self._label_bytes :].reshape(-1, 3, 32, 32)
        images = np.ascontiguousarray(planes.transpose(0, 2, 3, 1))
        return images, table[:, self._label_column].astype(np.int32)

    def _read_files(self) -> list[bytes]:
        paths = [os.path.join(self._root, name) for name in self._files]
        if all(map(os.path.exists, paths)):
            for path in paths:
                self._verify(path)
            return [read_whole(path) for path in paths]
        archive = os.path.join(self._root, self._archive)
        if not os.path.exists(archive):
            missing = next(path for path in paths if not os.path.exists(path))
            raise self._missing([os.path.basename(missing), self._archive])
        self._verify(archive)
        found: dict[str, bytes] = {}
        try:
            # As a stream, a corrupt archive that refers backwards is an error instead of an endless loop.
            with gzip.open(archive) as unpacked:
                stream: Any = _Bounded(unpacked, archive)  # tarfile needs only `read`
                with tarfile.open(fileobj=stream, mode="r|") as tar:
                    for member in tar:
                        name = os.path.basename(member.name)
                        # The header of a sparse file can announce gaps of any length.
                        if name in self._files and member.isreg() and not member.issparse():
                            content = tar.extractfile(member)
                            assert content is not None
                            found[name] = content.read()
                # gzip compares the checksum at the very end.
                while stream.read(1 << 20):
                    pass
        except (tarfile.TarError, EOFError, gzip.BadGzipFile, zlib.error, RecursionError) as error:
            raise ValueError(f"{archive} is damaged: {error}") from error
        lacking = [name for name in self._files if name not in found]
        if lacking:
            raise ValueError(f"{archive} does not contain {lacking[0]}; it is not the published archive")
        return [found[name] for name in self._files]


class CIFAR100(CIFAR10):
    """Small photographs of 100 classes in 20 groups; see `CIFAR10`. Archive: ``cifar-100-binary.tar.gz``.

    Args:
        root: folder with the published files; None: ``$MXNET_HOME/datasets/cifar100``.
        fine_label: label by class; False: by group.
        train: the training part; False: the test part.
        transform: deprecated; use ``.transform(fn)``.
        check_sha1: verify that the file, or the archive, is the published one.

    Raises:
        FileNotFoundError: a file is missing; the message contains its name and folder.
        ValueError: a file is not in the published format, or has another SHA-1.
    """

    _name = "cifar100"
    _groups = (
        *("aquatic_mammals", "fish", "flowers", "food_containers", "fruit_and_vegetables"),
        *("household_electrical_devices", "household_furniture", "insects", "large_carnivores"),
        *("large_man-made_outdoor_things", "large_natural_outdoor_scenes"),
        *("large_omnivores_and_herbivores", "medium_mammals", "non-insect_invertebrates", "people"),
        *("reptiles", "small_mammals", "trees", "vehicles_1", "vehicles_2"),
    )
    _classes = (
        *("apple", "aquarium_fish", "baby", "bear", "beaver", "bed", "bee", "beetle", "bicycle"),
        *("bottle", "bowl", "boy", "bridge", "bus", "butterfly", "camel", "can", "castle"),
        *("caterpillar", "cattle", "chair", "chimpanzee", "clock", "cloud", "cockroach", "couch"),
        *("crab", "crocodile", "cup", "dinosaur", "dolphin", "elephant", "flatfish", "forest", "fox"),
        *("girl", "hamster", "house", "kangaroo", "keyboard", "lamp", "lawn_mower", "leopard"),
        *("lion", "lizard", "lobster", "man", "maple_tree", "motorcycle", "mountain", "mouse"),
        *("mushroom", "oak_tree", "orange", "orchid", "otter", "palm_tree", "pear", "pickup_truck"),
        *("pine_tree", "plain", "plate", "poppy", "porcupine", "possum", "rabbit", "raccoon", "ray"),
        *("road", "rocket", "rose", "sea", "seal", "shark", "shrew", "skunk", "skyscraper", "snail"),
        *("snake", "spider", "squirrel", "streetcar", "sunflower", "sweet_pepper", "table", "tank"),
        *("telephone", "television", "tiger", "tractor", "train", "trout", "tulip", "turtle"),
        *("wardrobe", "whale", "willow_tree", "wolf", "woman", "worm"),
    )
    _archive = "cifar-100-binary.tar.gz"
    _train_files = ("train.bin",)
    _test_files = ("test.bin",)
    _label_bytes = 2
    _sha1: ClassVar[dict[str, str]] = {
        "cifar-100-binary.tar.gz": "a0bb982c76b83111308126cc779a992fa506b90b",
        "train.bin": "e207cd2e05b73b1393c74c7f5e7bea451d63e08e",
        "test.bin": "8fb6623e830365ff53cf14adec797474f5478006",
    }

    def __init__(
        self,
        root: str | os.PathLike[str] | None = None,
        fine_label: bool = False,
        train: bool = True,
        transform: Callable[..., Any] | None = None,
        *,
        check_sha1: bool = False,
    ) -> None:
        self._label_column = int(fine_label)
        stage = stage_of_argument(self, transform)  # before the files are read, which takes longer
        super().__init__(root, train, check_sha1=check_sha1)
        self._own_stage = stage

    def class_names(self) -> list[str]:
        """Return the names of the classes, or of the groups, as torchvision spells them."""
        return list(self._classes if self._label_column else self._groups)


def read_whole(path: str) -> bytes:
    """Return the content of a file.

    Raises:
        ValueError: it has more bytes than a published file can have.
    """
    with open(open_regular(path), "rb") as file:
        data = read_up_to(file, MOST_NBYTES + 1)
    if len(data) > MOST_NBYTES:
        raise ValueError(f"{path} has more than {MOST_NBYTES} bytes, which is the limit")
    return data


def mxnet_home() -> str:
    """Return the folder of MXNet's data, perhaps with ``~``."""
    windows = sys.platform == "win32"
    usual = os.path.join(os.environ.get("APPDATA", "~"), "mxnet") if windows else "~/.mxnet"
    return os.environ.get("MXNET_HOME") or usual


def default_root(name: str) -> str:
    """Return the folder in which MXNet stores a data set."""
    return os.path.join(mxnet_home(), "datasets", name)
