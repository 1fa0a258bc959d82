"""Tests of `ImageRecordIter`'s mean image: computed as in MXNet, read, and subtracted."""

import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.mxnet.io import UnusedParameterWarning
from tests.aioloader.mxnet.image_records import AUG, GOLDEN, make, write

SHAPE = (3, 24, 24)


def test_a_mean_image_is_made_as_mxnet_makes_it(tmp_path):
    path = tmp_path / "mean.bin"
    draws = {"shuffle": True, "rand_mirror": True, "rand_crop": True}
    iterator = make(AUG, data_shape=SHAPE, batch_size=3, mean_img=str(path), **draws)
    assert path.read_bytes() == (GOLDEN / "mean_img.bin").read_bytes()
    assert [found.name for found in tmp_path.iterdir()] == ["mean.bin"]
    assert iterator.next().data[0].shape == (3, 3, 24, 24)


def test_a_mean_image_is_taken_off_before_mirroring():
    plain = make(AUG, data_shape=SHAPE).next().data[0]
    ((_, mean),) = mx.nd.load(GOLDEN / "mean_img.bin").items()
    given = {"mean_img": str(GOLDEN / "mean_img.bin"), "scale": 0.5, "std_g": 4}
    found = make(AUG, data_shape=SHAPE, **given).next().data[0]
    factor = np.float32(0.5) / np.array([1, 4, 1], np.float32)
    expected = (plain - mean) * factor[:, None, None]
    assert np.array_equal(found, expected)
    mirrored = make(AUG, data_shape=SHAPE, **given, mirror=True).next().data[0]
    assert np.array_equal(mirrored, expected[..., ::-1])
    signed = make(AUG, data_shape=SHAPE, dtype="int8", mean_img=given["mean_img"]).next().data[0]
    rounded = np.floor(np.asarray(mean) + np.float32(0.5))
    assert np.array_equal(signed, np.clip(plain - rounded, -128, 127).astype(np.int8))


def test_a_mean_image_that_does_not_fit(ten, tmp_path):
    with pytest.raises(mx.MXNetError, match=r"has shape \(3, 24, 24\), but data_shape is \(3, 4, 4\)"):
        make(ten, mean_img=str(GOLDEN / "mean_img.bin"))
    mx.nd.save(tmp_path / "two", [mx.nd.zeros((3, 4, 4))] * 2)
    with pytest.raises(mx.MXNetError, match="holds 2 arrays"):
        make(ten, mean_img=str(tmp_path / "two"))
    with pytest.raises(mx.MXNetError, match="not a file of arrays"):
        make(ten, mean_img=ten)
    with pytest.raises(mx.MXNetError, match="cannot be written"):
        make(ten, mean_img=str(tmp_path / "nowhere" / "mean.bin"))


def test_that_a_mean_image_cannot_be_written_is_known_at_once(tmp_path):
    path = write(tmp_path / "bad.rec", [b"no image"])  # which the epoch would report
    with pytest.raises(mx.MXNetError, match=r"cannot be written: .*nowhere is not a writable folder"):
        make(path, mean_img=str(tmp_path / "nowhere" / "mean.bin"))


def test_channel_means_count_only_while_a_mean_image_is_made(tmp_path):
    given = {"data_shape": SHAPE, "mean_img": str(tmp_path / "mean.bin"), "mean_r": 100}
    make(AUG, **given)
    ((_, made),) = mx.nd.load(given["mean_img"]).items()
    ((_, plain),) = mx.nd.load(GOLDEN / "mean_img.bin").items()
    assert np.array_equal(made[0], plain[0] - 100)
    written = (tmp_path / "mean.bin").stat().st_mtime_ns
    with pytest.warns(UnusedParameterWarning, match="mean_r has no effect: mean_img is given"):
        make(AUG, **given)
    assert (tmp_path / "mean.bin").stat().st_mtime_ns == written
