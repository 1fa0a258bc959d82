"""Fixtures: small files in MXNet's formats."""

import gzip

import numpy as np
import pytest

import aioloader.mxnet as mx
from tests.cases import with_cases

WORKERS = {
    "none": {"num_workers": 0},
    "processes": {"num_workers": 2},
    "threads": {"num_workers": 2, "thread_pool": True},
}
"""Options of a loader for each kind of workers."""
with_each_kind = with_cases("options", WORKERS.values(), ids=WORKERS)


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    """Keep copies of indexes out of the user's cache."""
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


@pytest.fixture(scope="session")
def label_rec(tmp_path_factory):
    """Write a .rec of 20 images of 5 sizes whose labels count from 0."""
    path = tmp_path_factory.mktemp("rec") / "labels.rec"
    record = mx.recordio.MXIndexedRecordIO(str(path.with_suffix(".idx")), str(path), "w")
    for number in range(20):
        image = np.full((30 + number % 5, 40, 3), number, np.uint8)
        header = mx.recordio.IRHeader(0, number, number, 0)
        record.write_idx(number, mx.recordio.pack_img(header, image, quality=9, img_fmt=".png"))
    record.close()
    return str(path)


def clothes(count, seed):
    """Return linearly separable images in Fashion-MNIST's shape: class k has a bright band at row 2k."""
    draw = np.random.RandomState(seed)
    labels = draw.randint(0, 10, count).astype(np.uint8)
    images = draw.randint(0, 60, (count, 28, 28)).astype(np.uint8)
    for image, label in zip(images, labels, strict=True):
        image[2 * label : 2 * label + 3] += 150
    return images, labels


def write_idx_files(root, part, images, labels):
    """Write the two files of MNIST's format, gzipped."""
    root.mkdir(parents=True, exist_ok=True)
    for kind, array in (("images-idx3", images), ("labels-idx1", labels)):
        head = bytes((0, 0, 8, array.ndim)) + b"".join(extent.to_bytes(4, "big") for extent in array.shape)
        data = gzip.compress(head + array.tobytes(), 1)
        (root / f"{part}-{kind}-ubyte.gz").write_bytes(data)


@pytest.fixture(scope="session")
def mxnet_home(tmp_path_factory):
    """Make a folder as $MXNET_HOME with fashion-mnist and cifar10."""
    home = tmp_path_factory.mktemp("home")
    for part, count in (("train", 600), ("t10k", 200)):
        write_idx_files(home / "datasets" / "fashion-mnist", part, *clothes(count, count))
    cifar = home / "datasets" / "cifar10"
    cifar.mkdir()
    draw = np.random.RandomState(3)
    for name in [*(f"data_batch_{n}" for n in range(1, 6)), "test_batch"]:
        rows = draw.randint(0, 256, (20, 1 + 3072)).astype(np.uint8)
        rows[:, 0] %= 10
        (cifar / f"{name}.bin").write_bytes(rows.tobytes())
    return home
