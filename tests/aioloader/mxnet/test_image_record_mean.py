"""Tests of `ImageRecordIter`'s mean image: computed as in MXNet, read, and subtracted."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.mxnet.io import UnknownParameterWarning, UnusedParameterWarning
from tests.aioloader.mxnet.image_records import AUG, GOLDEN, make, write


def test_a_mean_image_is_made_as_mxnet_makes_it(tmp_path: Path) -> None:
    path = tmp_path / "mean.bin"
    arguments = {"path_imgrec": AUG, "data_shape": (3, 24, 24), "batch_size": 3, "executor": "inline"}
    iterator = mx.io.ImageRecordIter(
        **arguments, mean_img=str(path), shuffle=True, rand_mirror=True, rand_crop=True
    )
    (name, made), *_ = mx.nd.load(path).items()
    ((_, expected),) = mx.nd.load(GOLDEN / "mean_img.bin").items()
    assert name == "mean_img"
    assert np.array_equal(made, expected)
    assert path.read_bytes() == (GOLDEN / "mean_img.bin").read_bytes()
    assert [found.name for found in tmp_path.iterdir()] == ["mean.bin"]
    assert iterator.next().data[0].shape == (3, 3, 24, 24)


def test_a_mean_image_is_taken_off_before_mirroring() -> None:
    arguments = {"path_imgrec": AUG, "data_shape": (3, 24, 24), "batch_size": 4, "executor": "inline"}
    plain = mx.io.ImageRecordIter(**arguments).next().data[0]
    ((_, mean),) = mx.nd.load(GOLDEN / "mean_img.bin").items()
    given = {"mean_img": str(GOLDEN / "mean_img.bin"), "scale": 0.5, "std_g": 4}
    found = mx.io.ImageRecordIter(**arguments, **given).next().data[0]
    factor = np.float32(0.5) / np.array([1, 4, 1], np.float32)
    expected = (plain - mean) * factor[:, None, None]
    assert np.array_equal(found, expected)
    mirrored = mx.io.ImageRecordIter(**arguments, **given, mirror=True).next().data[0]
    assert np.array_equal(mirrored, expected[..., ::-1])
    signed = mx.io.ImageRecordInt8Iter(**arguments, mean_img=given["mean_img"]).next().data[0]
    rounded = np.floor(np.asarray(mean) + np.float32(0.5))
    assert np.array_equal(signed, np.clip(plain - rounded, -128, 127).astype(np.int8))


def test_a_mean_image_that_does_not_fit(ten: str, tmp_path: Path) -> None:
    with pytest.raises(mx.MXNetError, match=r"has shape \(3, 24, 24\), but data_shape is \(3, 4, 4\)"):
        make(ten, mean_img=str(GOLDEN / "mean_img.bin"))
    mx.nd.save(tmp_path / "two", [mx.nd.zeros((3, 4, 4))] * 2)
    with pytest.raises(mx.MXNetError, match="holds 2 arrays"):
        make(ten, mean_img=str(tmp_path / "two"))
    with pytest.raises(mx.MXNetError, match="not a file of arrays"):
        make(ten, mean_img=ten)
    with pytest.raises(mx.MXNetError, match="cannot be written"):
        make(ten, mean_img=str(tmp_path / "nowhere" / "mean.bin"))


def test_that_a_mean_image_cannot_be_written_is_known_at_once(tmp_path: Path) -> None:
    path = write(tmp_path / "bad.rec", [b"no image"])  # which the epoch would report
    with pytest.raises(mx.MXNetError, match=r"cannot be written: .*nowhere is not a writable folder"):
        make(path, mean_img=str(tmp_path / "nowhere" / "mean.bin"))


def test_channel_means_count_only_while_a_mean_image_is_made(tmp_path: Path) -> None:
    arguments = {"path_imgrec": AUG, "data_shape": (3, 24, 24), "batch_size": 4, "executor": "inline"}
    given = {"mean_img": str(tmp_path / "mean.bin"), "mean_r": 100}
    mx.io.ImageRecordIter(**arguments, **given)
    ((_, made),) = mx.nd.load(given["mean_img"]).items()
    ((_, plain),) = mx.nd.load(GOLDEN / "mean_img.bin").items()
    assert np.array_equal(made[0], plain[0] - 100)
    written = (tmp_path / "mean.bin").stat().st_mtime_ns
    with pytest.warns(UnusedParameterWarning, match="mean_r has no effect: mean_img is given"):
        mx.io.ImageRecordIter(**arguments, **given)
    assert (tmp_path / "mean.bin").stat().st_mtime_ns == written


def test_every_class_comes_as_often_as_it_is_there(tmp_path: Path) -> None:
    images = np.random.default_rng(0).integers(0, 256, (500, 32, 32, 3), np.uint8)
    path = write(tmp_path / "train.rec", images, [float(number % 10) for number in range(500)])
    with pytest.warns(UnknownParameterWarning, match=r"and_mirror \(did you mean rand_mirror\?\)"):
        iterator = mx.io.ImageRecordIter(
            path_imgrec=path,
            mean_img=str(tmp_path / "cifar10_mean.bin"),
            rand_crop=False,
            and_mirror=False,
            shuffle=False,
            data_shape=(3, 28, 28),
            batch_size=100,
            preprocess_threads=4,
            prefetch_buffer=1,
            executor="inline",
        )
    counts = np.zeros(10, int)
    total = np.zeros((3, 28, 28))
    batches = 0
    for batch in iterator:
        counts += np.bincount(batch.label[0].asnumpy().astype(int), minlength=10)
        total += batch.data[0].asnumpy().sum(0)
        batches += 1
    assert batches == 5
    assert counts.tolist() == [50] * 10
    assert np.abs(total / 500).max() < 1e-3  # the mean was subtracted
    assert (tmp_path / "cifar10_mean.bin").exists()
