"""`mx.test_utils`, as far as scripts that load data use it: `download`, known data sets, and comparisons of arrays.

The data sets are read from local files. Only `download` downloads anything.
"""

from __future__ import annotations

import contextlib
import importlib
import os
import shutil
from typing import TYPE_CHECKING, Any
from urllib.parse import unquote, urlsplit

import numpy as np

from aioloader.mxnet import ndarray
from aioloader.mxnet.base import MXNetError, exported
from aioloader.mxnet.context import Context, current_context
from aioloader.mxnet.io.iterator import DataIter
from recordio._partial_files import published

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_SCHEMES = ("file", "http", "https")
# numpy's letter of a dtype: relative and absolute tolerance.
_TOLERANCES = {"e": (1e-2, 1e-1), "f": (1e-4, 1e-3), "d": (1e-5, 1e-20)}


def download(
    url: str,
    fname: str | None = None,
    dirname: str | None = None,
    overwrite: bool = False,
    retries: int = 5,
    timeout: float = 60,
) -> str:
    """Fetch a file; blocks. Nothing else in this package downloads anything by itself.

    Args:
        url: ``file:``, ``http:`` or ``https:``.
        fname: the file to write; default: the last part of the URL.
        dirname: folder of the file, created if necessary; default: the current one.
        overwrite: fetch it even if the file exists.
        retries: number of attempts, at least one.
        timeout: seconds without an answer after which an attempt fails.

    Returns:
        Path of the file. It appears only when it is complete.

    Raises:
        ValueError: the URL is of another kind, or ends in "/" and no `fname` is given.
        MXNetError: it could not be fetched.
    """
    import http.client
    import urllib.error
    import urllib.request

    parts = urlsplit(url)
    if parts.scheme not in _SCHEMES:
        raise ValueError(f"download takes {', '.join(f'{s}:' for s in _SCHEMES)} URLs, not {url!r}")
    path = fname or os.path.basename(unquote(parts.path))
    if not path:
        raise ValueError(f"{url} names no file: give fname")
    if dirname is not None:
        path = os.path.join(dirname, path)
    os.makedirs(os.path.dirname(os.path.abspath(path)), exist_ok=True)
    if os.path.exists(path) and not overwrite:
        return path
    left = retries
    while True:
        try:
            with published(path) as (part,):
                with open(part, "wb") as file, urllib.request.urlopen(url, timeout=timeout) as source:
                    shutil.copyfileobj(source, file)
                    missing = getattr(source, "length", None)
                if missing:
                    raise OSError(f"the answer ended {missing} bytes too early")
            return path
        except (OSError, http.client.HTTPException) as error:  # urllib's errors are OSErrors
            left -= 1
            refused = False
            if isinstance(error, urllib.error.HTTPError):
                refused = error.code < 500
                error.close()  # it holds the connection
            if left < 1 or refused:
                raise MXNetError(f"{url} could not be fetched: {error}") from error


# The published files, without .gz.
_MNIST = (
    "train-images-idx3-ubyte",
    "train-labels-idx1-ubyte",
    "t10k-images-idx3-ubyte",
    "t10k-labels-idx1-ubyte",
)
_CIFAR = ("train.rec", "test.rec", "train.lst", "test.lst")


def _mnist_files(*folders: str) -> list[str]:
    """Return the paths of the four files in the first of the folders that has them, gzipped or not.

    Raises:
        DatasetFilesError: none has.
    """
    found: list[str | None] = []
    for folder in folders:
        paths = [os.path.join(folder, name) for name in _MNIST]
        found = [next((p for p in (path, f"{path}.gz") if os.path.exists(p)), None) for path in paths]
        if None not in found:
            return [path for path in found if path is not None]
    raise DatasetFilesError(_MNIST, folders)


class DatasetFilesError(MXNetError, FileNotFoundError):
    """Error raised when the files of a data set are in none of the folders where they are expected.

    Attributes:
        names: the names of the files.
        folders: the folders.
    """

    def __init__(self, names: Sequence[str], folders: Sequence[str]) -> None:
        super().__init__(
            f"there are no files {', '.join(names)} in {' or '.join(map(os.path.abspath, folders))}: put them there; "
            "nothing is downloaded"
        )
        self.names, self.folders = tuple(names), tuple(folders)


def _mnist_folders() -> tuple[str, ...]:
    home = os.environ.get("MXNET_HOME", os.path.join("~", ".mxnet"))
    return ".", "data", os.path.expanduser(os.path.join(home, "datasets", "mnist"))


def get_mnist() -> dict[str, Any]:
    """Return MNIST: `train_data` and `test_data`, float32 (n, 1, 28, 28) up to 1; `train_label`, `test_label`, int8.

    The four published files, gzipped or not, are expected in the current folder, in ``data``, or where
    `gluon.data.vision.MNIST` expects them.

    Raises:
        DatasetFilesError: they are not there.
    """
    images, labels, test_images, test_labels = map(_plain_bytes, _mnist_files(*_mnist_folders()))
    return {
        "train_data": _idx_images(images),
        "train_label": np.frombuffer(labels, np.int8, offset=8),
        "test_data": _idx_images(test_images),
        "test_label": np.frombuffer(test_labels, np.int8, offset=8),
    }


def _plain_bytes(path: str) -> bytes:
    import gzip

    with gzip.open(path) if path.endswith(".gz") else open(path, "rb") as file:
        return file.read()


def _idx_images(data: bytes) -> Any:
    count, height, width = np.frombuffer(data, ">u4", 3, offset=4).tolist()
    pixels = np.frombuffer(data, np.uint8, offset=16).reshape(count, 1, height, width)
    return pixels.astype(np.float32) / 255


def get_mnist_ubyte() -> None:
    """Make sure that the files of MNIST are in the folder ``data``: unpack ``data/mnist.zip`` or gzipped files.

    Raises:
        DatasetFilesError: there is nothing to unpack.
    """
    if all(os.path.exists(os.path.join("data", name)) for name in _MNIST):
        return
    if os.path.exists(os.path.join("data", "mnist.zip")):
        _unpack(os.path.join("data", "mnist.zip"), "data")
        return
    for source, name in zip(_mnist_files(*_mnist_folders()[1:]), _MNIST, strict=True):
        os.makedirs("data", exist_ok=True)
        with published(os.path.join("data", name)) as (part,), open(part, "wb") as file:
            file.write(_plain_bytes(source))


def get_cifar10() -> None:
    """Make sure that ``data/cifar`` has the record files of CIFAR-10: unpack ``data/cifar10.zip``.

    Raises:
        DatasetFilesError: it is not there either.
    """
    folder = os.path.join("data", "cifar")
    if all(os.path.exists(os.path.join(folder, name)) for name in _CIFAR):
        return
    archive = os.path.join("data", "cifar10.zip")
    if not os.path.exists(archive):
        raise DatasetFilesError([f"cifar/{name}" for name in _CIFAR] + ["cifar10.zip"], ["data"])
    _unpack(archive, "data")


def _unpack(archive: str, folder: str) -> None:
    import zipfile

    with zipfile.ZipFile(archive) as members:
        members.extractall(folder)


def get_mnist_iterator(
    batch_size: int, input_shape: Sequence[int], num_parts: int = 1, part_index: int = 0
) -> tuple[Any, Any]:
    """Return two `mx.io.MNISTIter`, for training and for tests, of the files in ``data``; see `get_mnist_ubyte`.

    Args:
        batch_size: images of a batch.
        input_shape: three numbers for images, (1, 28, 28); one for vectors of 784 numbers.
        num_parts, part_index: the part of the images.
    """
    get_mnist_ubyte()
    io = importlib.import_module("aioloader.mxnet.io")
    made = [
        io.MNISTIter(
            image=os.path.join("data", f"{part}-images-idx3-ubyte"),
            label=os.path.join("data", f"{part}-labels-idx1-ubyte"),
            batch_size=batch_size,
            shuffle=part == "train",
            flat=len(input_shape) != 3,
            num_parts=num_parts,
            part_index=part_index,
        )
        for part in ("train", "t10k")
    ]
    return made[0], made[1]


def get_zip_data(data_dir: str, url: str, data_origin_name: str) -> None:
    """Fetch a zip file into a folder and unpack it there, unless it is there already; see `download`."""
    archive = os.path.join(data_dir, data_origin_name)
    if not os.path.exists(archive):
        download(url, dirname=data_dir)
        _unpack(archive, data_dir)


def get_bz2_data(data_dir: str, data_name: str, url: str, data_origin_name: str) -> None:
    """Fetch a file compressed with bzip2 into a folder and decompress it, unless it is there; see `download`."""
    import bz2

    path, packed = (os.path.join(data_dir, name) for name in (data_name, data_origin_name))
    if not os.path.exists(path):
        download(url, fname=data_origin_name, dirname=data_dir)
        with published(path) as (part,), bz2.open(packed) as source, open(part, "wb") as file:
            shutil.copyfileobj(source, file)
        os.remove(packed)


def get_im2rec_path(home_env: str = "MXNET_HOME") -> str:
    """Return the path of im2rec.py: that of this package."""
    del home_env  # of a checkout of MXNet, which is not needed
    return os.path.join(os.path.dirname(os.path.abspath(__file__)), "tools", "im2rec.py")


def list_gpus() -> list[int]:
    """Return no numbers: arrays are in the memory of this host."""
    return []


def default_context() -> Context:
    """Return the current context."""
    return current_context()


def rand_ndarray(
    shape: Sequence[int],
    stype: str = "default",
    density: float | None = None,
    dtype: Any = None,
    ctx: Context | None = None,
) -> Any:
    """Return normal random numbers of `numpy.random`, float32 by default.

    Args:
        shape: of the array.
        stype: "default", or "csr" for a sparse matrix.
        density: share of the elements of a sparse matrix that are not 0; None: a random one.
        dtype, ctx: as for `mx.nd.array`.
    """
    values = np.random.randn(*shape).astype(np.float32)
    if stype == "csr":
        values *= np.random.rand(*shape) < (np.random.rand() if density is None else density)
    made = ndarray.array(values, dtype=dtype, ctx=ctx)
    return made if stype == "default" else made.tostype(stype)


@contextlib.contextmanager
def environment(*args: Any) -> Iterator[None]:
    """Set environment variables in a ``with`` block: a name and its value, or a dict of them; None: absent."""
    changes: Mapping[str, str | None] = dict([args]) if len(args) == 2 else args[0]
    before = {name: os.environ.get(name) for name in changes}
    try:
        _set_environment(changes)
        yield
    finally:
        _set_environment(before)


def _set_environment(values: Mapping[str, str | None]) -> None:
    for name, value in values.items():
        if value is None:
            os.environ.pop(name, None)
        else:
            os.environ[name] = value


class DummyIter(DataIter):
    """Iterator that returns the first batch of another one again and again, to measure everything except loading.

    Args:
        real_iter: the other one.

    Attributes:
        real_iter: as given; the_batch: its first batch.
    """

    def __init__(self, real_iter: Any) -> None:
        super().__init__(real_iter.batch_size)
        self.real_iter = real_iter
        self.provide_data, self.provide_label = real_iter.provide_data, real_iter.provide_label
        self.the_batch = next(real_iter)

    def next(self) -> Any:
        """Return the batch."""
        return self.the_batch


def same(a: Any, b: Any) -> bool:
    """Return whether two arrays have the same shape and elements."""
    return bool(np.array_equal(np.asarray(a), np.asarray(b)))


def almost_equal(
    a: Any, b: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = False
) -> bool:
    """Return whether two arrays are equal up to ``atol + rtol * abs(b)``, by default 1e-20 and 1e-5."""
    rtol, atol = 1e-5 if rtol is None else rtol, 1e-20 if atol is None else atol
    return bool(np.allclose(np.asarray(a), np.asarray(b), rtol, atol, equal_nan))


def assert_almost_equal(
    a: Any, b: Any, rtol: float | None = None, atol: float | None = None, equal_nan: bool = False, **_: Any
) -> None:
    """Raise an AssertionError that shows the difference if there is one of more than ``atol + rtol * abs(b)``.

    Args:
        a, b: arrays or numbers.
        rtol, atol: default: MXNet's for the dtypes, the larger of the two. 1e-2 and 1e-1 for float16, 1e-4 and 1e-3 for
            float32, 1e-5 and 1e-20 for float64, 0 for integers.
        equal_nan: NaNs are equal.
    """
    one, other = np.asarray(a), np.asarray(b)
    relative, absolute = map(max, zip(_tolerances(one), _tolerances(other), strict=True))
    np.testing.assert_allclose(
        one,
        other,
        rtol=relative if rtol is None else rtol,
        atol=absolute if atol is None else atol,
        equal_nan=equal_nan,
    )


def _tolerances(array: Any) -> tuple[float, float]:
    return _TOLERANCES.get(array.dtype.char, (0.0, 0.0))


__all__ = exported(globals(), module=__name__)
