"""Tests of the classic sets, from small files in the published formats."""

import gzip
import hashlib
import pickle
import tracemalloc
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, ClassVar

import numpy as np
import pytest

from aioloader import abc
from aioloader.datasets import CIFAR10, CIFAR100, MNIST, FashionMNIST
from aioloader.datasets.resolve import resolve
from aioloader.formats.arrays import vision
from tests.aioloader.datasets.vision_files import cifar_rows, idx, write_cifar, write_mnist
from tests.aioloader.formats.tars import header
from tests.cases import with_cases


@pytest.mark.parametrize(("cls", "part", "packed"), [(MNIST, "train", True), (FashionMNIST, "t10k", False)])
def test_mnist_is_read_as_published(tmp_path: Path, cls: Any, part: str, packed: bool) -> None:
    images, labels = write_mnist(tmp_path, part, 5, packed)
    dataset = cls(tmp_path, part == "train")

    assert len(dataset) == 5
    image, label = dataset[3]
    assert (image.shape, image.dtype, label.dtype) == ((28, 28, 1), np.uint8, np.int32)
    assert np.array_equal(image[..., 0], images[3])
    assert label == labels[3]
    assert isinstance(dataset, abc.GatherDataset)
    assert resolve(dataset).base_kind == "gather"
    assert pickle.loads(pickle.dumps(dataset))[3][1] == label


@with_cases(
    "data",
    [
        b"",
        b"\0\0\x08\x01\0\0\0\x05",
        idx(np.zeros((5, 28, 28), np.uint8))[:-1],
        idx(np.zeros((5, 28, 28), np.uint8)) + b"x",
    ],
)
def test_a_damaged_idx_file_is_refused(tmp_path: Path, data: bytes) -> None:
    write_mnist(tmp_path, "train", 5, False)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(data)

    with pytest.raises(ValueError, match="train-images-idx3-ubyte"):
        MNIST(tmp_path)


def test_a_damaged_gz_file_is_refused(tmp_path: Path) -> None:
    write_mnist(tmp_path, "train", 5, True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    data = path.read_bytes()
    for damaged in (data[:20], data[:-10]):
        path.write_bytes(damaged)
        with pytest.raises(ValueError, match="damaged"):
            MNIST(tmp_path)


@pytest.mark.parametrize("archive", [None, "cifar-10-binary.tar.gz"], ids=["flat", "archive"])
def test_cifar10_is_read_as_published(tmp_path: Path, archive: str | None) -> None:
    files = {f"data_batch_{number}.bin": cifar_rows(3, 1, number) for number in range(1, 6)}
    files["test_batch.bin"] = cifar_rows(2, 1, 9)
    write_cifar(tmp_path, files, archive)
    train, test = CIFAR10(tmp_path), CIFAR10(tmp_path, train=False)

    assert (len(train), len(test)) == (15, 2)
    image, label = train[7]
    row = files["data_batch_3.bin"][1]
    assert (image.shape, image.dtype, label.dtype) == ((32, 32, 3), np.uint8, np.int32)
    assert label == row[0]
    assert image[4, 5].tolist() == [row[1 + plane * 1024 + 4 * 32 + 5] for plane in range(3)]
    assert train.arrays[0].flags.c_contiguous


@pytest.mark.parametrize("archive", [None, "cifar-100-binary.tar.gz"], ids=["flat", "archive"])
def test_cifar100_has_fine_and_coarse_labels(tmp_path: Path, archive: str | None) -> None:
    rows = cifar_rows(4, 2, 1)
    write_cifar(tmp_path, {"train.bin": rows, "test.bin": rows[:1]}, archive)

    assert [int(label) for _, label in CIFAR100(tmp_path)] == rows[:, 0].tolist()
    assert [int(label) for _, label in CIFAR100(tmp_path, True)] == rows[:, 1].tolist()
    assert len(CIFAR100(tmp_path, fine_label=True, train=False)) == 1
    assert CIFAR100(tmp_path)[0][0][0, 0, 0] == rows[0, 2]


def sha1(path: Path) -> str:
    return hashlib.sha1(path.read_bytes()).hexdigest()


def test_other_files_than_the_published_ones_are_refused_where_asked(tmp_path: Path) -> None:
    write_mnist(tmp_path, "t10k", 2, True)

    class Published(MNIST):
        """As if these had been published."""

        _sha1: ClassVar[dict[str, str]] = {path.name: sha1(path) for path in tmp_path.iterdir()}

    assert len(Published(tmp_path, False, check_sha1=True)) == len(MNIST(tmp_path, False)) == 2
    for cls in (MNIST, FashionMNIST):
        with pytest.raises(ValueError, match=r"t10k-images.*is not the published file: its SHA-1 is"):
            cls(tmp_path, False, check_sha1=True)
    write_cifar(tmp_path, {"train.bin": cifar_rows(4, 2, 1)}, "cifar-100-binary.tar.gz")
    with pytest.raises(ValueError, match=r"cifar-100-binary.tar.gz is not the published file"):
        CIFAR100(tmp_path, check_sha1=True)
    write_mnist(tmp_path, "train", 2, False)
    with pytest.raises(ValueError, match=r"only the SHA-1 of train-images-idx3-ubyte\.gz is known"):
        MNIST(tmp_path, check_sha1=True)


@pytest.mark.parametrize(
    ("cls", "names"),
    [
        (MNIST, r"train-images-idx3-ubyte\.gz"),
        (CIFAR10, r"data_batch_1\.bin or cifar-10-binary\.tar\.gz"),
        (CIFAR100, r"train\.bin or cifar-100-binary\.tar\.gz"),
    ],
)
def test_a_missing_file_is_named_with_its_place(tmp_path: Path, cls: Any, names: str) -> None:
    with pytest.raises(FileNotFoundError, match=rf"{names}.* in {tmp_path}; nothing is downloaded"):
        cls(tmp_path)


def test_the_default_place_is_mxnets(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    folder = tmp_path / "datasets" / "fashion-mnist"
    folder.mkdir(parents=True)
    write_mnist(folder, "train", 2, True)
    monkeypatch.setenv("MXNET_HOME", str(tmp_path))

    assert len(FashionMNIST()) == 2


def test_damaged_cifar_files_are_refused(tmp_path: Path) -> None:
    archive = tmp_path / "cifar-10-binary.tar.gz"
    archive.write_bytes(b"no archive")
    with pytest.raises(ValueError, match="is damaged"):
        CIFAR10(tmp_path, train=False)
    write_cifar(tmp_path, {"other.bin": cifar_rows(1, 1, 0)}, archive.name)
    with pytest.raises(ValueError, match="does not contain test_batch"):
        CIFAR10(tmp_path, train=False)
    for data in (bytes(3072), b""):
        (tmp_path / "test_batch.bin").write_bytes(data)
        with pytest.raises(ValueError, match="bytes, which is not a multiple"):
            CIFAR10(tmp_path, train=False)


def test_the_argument_transform_is_deprecated_and_still_works(tmp_path: Path) -> None:
    write_mnist(tmp_path, "train", 2, False)
    with pytest.warns(DeprecationWarning, match="MNIST") as caught:
        dataset = MNIST(tmp_path, True, lambda image, label: int(label) + 100)

    assert dataset[0] >= 100
    assert caught[0].filename == __file__


@contextmanager
def little_memory() -> Iterator[None]:
    """Fail if more than 4 MB are taken inside."""
    tracemalloc.start()
    try:
        yield
        assert tracemalloc.get_traced_memory()[1] < 4_000_000
    finally:
        tracemalloc.stop()


def test_what_follows_the_announced_values_is_not_unpacked(tmp_path: Path) -> None:
    write_mnist(tmp_path, "train", 5, True)
    path = tmp_path / "train-images-idx3-ubyte.gz"
    path.write_bytes(gzip.compress(idx(np.zeros((5, 28, 28), np.uint8)) + bytes(20_000_000), 1))
    with little_memory(), pytest.raises(ValueError, match="but has more"):
        MNIST(tmp_path)


@with_cases("shape", [(0xFFFFFFFF, 28, 28), (0, 0xFFFFFFFF, 0xFFFFFFFF), (60_000, 28, 28)])
def test_memory_is_not_taken_for_what_is_only_announced(tmp_path: Path, shape: tuple[int, ...]) -> None:
    write_mnist(tmp_path, "train", 5, False)
    head = bytes((0, 0, 8, 3)) + b"".join(extent.to_bytes(4, "big") for extent in shape)
    (tmp_path / "train-images-idx3-ubyte").write_bytes(head + bytes(100))
    with little_memory(), pytest.raises(ValueError, match=r"train-images-idx3-ubyte (announces|should hold)"):
        MNIST(tmp_path)


BACKWARDS = b"\xff" * 10 + b"\xf4\x00"  # a negative number


@with_cases(
    "archive",
    [
        header(b"x", size_field=BACKWARDS) + bytes(1024),
        header(b"x", 512) + bytes(512) + header(b"y", size_field=BACKWARDS) + bytes(1024),
        b"".join(header(b"././@LongLink", kind=b"L") for _ in range(5000)),
        header(b"test_batch.bin", 3073) + bytes(1000),
        header(b"x", size_field=b"\x80" + b"0" * 11) + bytes(1024),
        header(b"././@LongLink", kind=b"L", size_field=b"\x80" + b"0" * 11) + bytes(1024),
    ],
)
def test_archives_that_lead_astray_are_refused(tmp_path: Path, archive: bytes) -> None:
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(archive))
    with pytest.raises(
        ValueError, match=r"cifar-10-binary\.tar\.gz (is damaged|does not contain test_batch)"
    ):
        CIFAR10(tmp_path, train=False)


def test_an_archive_whose_stream_is_damaged_is_refused(tmp_path: Path) -> None:
    path = tmp_path / "cifar-10-binary.tar.gz"
    write_cifar(tmp_path, {"test_batch.bin": cifar_rows(20, 1, 0)}, path.name)
    data = bytearray(path.read_bytes())
    data[2000:2100] = b"\xff" * 100
    path.write_bytes(data)
    with pytest.raises(ValueError, match="is damaged"):
        CIFAR10(tmp_path, train=False)


def test_an_archive_that_unpacks_to_too_much_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(vision, "_MOST_ARCHIVE_NBYTES", 50_000)
    write_cifar(tmp_path, {"test_batch.bin": cifar_rows(10, 1, 0)}, "cifar-10-binary.tar.gz")
    assert len(CIFAR10(tmp_path, train=False)) == 10
    files = {"data_batch_1.bin": cifar_rows(20, 1, 0), "test_batch.bin": cifar_rows(1, 1, 0)}
    write_cifar(tmp_path, files, "cifar-10-binary.tar.gz")
    with pytest.raises(ValueError, match="has more than 50000 bytes when unpacked"):
        CIFAR10(tmp_path, train=False)


def test_a_sparse_member_is_no_member(tmp_path: Path) -> None:
    # Its header may announce any size although the data are missing.
    sparse = bytearray(header(b"test_batch.bin", kind=b"S"))
    sparse[483:495] = b"%011o\0" % (3073 * 10)
    sparse[148:156] = b" " * 8
    sparse[148:156] = b"%06o\0 " % sum(sparse)
    (tmp_path / "cifar-10-binary.tar.gz").write_bytes(gzip.compress(bytes(sparse) + bytes(1024)))
    with pytest.raises(ValueError, match=r"does not contain test_batch|is damaged"):
        CIFAR10(tmp_path, train=False)
