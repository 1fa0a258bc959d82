"""Tests of `ImageRecordIter`: MXNet's pixels in every configuration of the golden files; alpha, orientation, size."""

import json
import warnings
import zlib

import cv2
import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.errors import DecodeError
from aioloader.mxnet.io import UnusedParameterWarning
from aioloader.transforms import lazy_image
from tests.aioloader.crop_index.samples import write_record_files
from tests.aioloader.mxnet.image_records import AUG, GOLDEN, make, numbered, write
from tests.cases import with_cases
from tests.conftest import with_orientation

FACTS = json.loads((GOLDEN / "manifest.json").read_text())["files"]["aug_expected.npz"]["configs"]
# The only configurations in which another OpenCV rounds differently, according to the golden files.
CUBIC = {"resize28_cubic": 1, "resize28_auto9": 1}


@with_cases("name", FACTS)
def test_pixels_are_mxnet_s(name):
    facts = FACTS[name]
    arguments = {"data_shape": (3, 24, 24), "batch_size": 4, "executor": "inline", **facts["args"]}
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UnusedParameterWarning)  # uint8 has no mean, but a configuration has
        (batch,) = list(mx.io.ImageRecordIter(path_imgrec=AUG, **arguments))
    found = batch.data[0]
    assert list(found.shape) == facts["shape"]
    assert found.dtype == facts["dtype"]
    expected = np.load(GOLDEN / "aug_expected.npz")[name]
    compared = [
        place for place in range(4) if place not in facts.get("do_not_compare", {}).get("image_index", ())
    ]
    assert len(FACTS) == len(np.load(GOLDEN / "aug_expected.npz").files) == 20
    difference = np.abs(found[compared].astype(np.float64) - expected[compared])
    assert difference.max() <= CUBIC.get(name, 0)
    assert batch.label[0].tolist() == [0, 1, 2, 3]
    assert (batch.pad, batch.index.tolist()) == (0, [0, 1, 2, 3])


def test_the_other_iterators_are_dtypes():
    expected = np.load(GOLDEN / "aug_expected.npz")
    arguments = {"path_imgrec": AUG, "data_shape": (3, 24, 24), "batch_size": 4, "executor": "inline"}
    mean = {"mean_r": 123.68, "mean_g": 116.78, "mean_b": 103.94}
    iterator = mx.io.ImageRecordUInt8Iter(**arguments)
    assert np.array_equal(iterator.next().data[0], expected["uint8"])
    assert iterator.provide_data[0].dtype is np.uint8
    found = mx.io.ImageRecordInt8Iter(**arguments, **mean).next().data[0]
    assert np.array_equal(found, expected["int8_mean"])
    mirrored = mx.io.ImageRecordUInt8Iter(**arguments, mirror=True).next().data[0]
    assert np.array_equal(mirrored, expected["mirror"])
    assert mx.io.ImageRecordIter_v1 is mx.io.ImageRecordIter
    assert mx.io.ImageRecordUInt8Iter_v1 is mx.io.ImageRecordUInt8Iter


@with_cases("inter_method", [0, 1, 2, 3, 4, 9, 10])
def test_every_interpolation_goes_with_rotation(inter_method):
    options = {"batch_size": 2, "inter_method": inter_method, "max_rotate_angle": 45}
    iterator = make(AUG, data_shape=(3, 28, 28), **options)
    assert [batch.data[0].shape for batch in iterator] == [(2, 3, 28, 28)] * 2


def png(image):
    return cv2.imencode(".png", image)[1].tobytes()


def test_images_with_alpha(tmp_path):
    rgba = np.random.default_rng(0).integers(0, 256, (8, 9, 4), np.uint8)
    path = write(tmp_path / "alpha.rec", [png(np.ascontiguousarray(rgba[..., [2, 1, 0, 3]]))])
    iterator = make(path, data_shape=(4, 8, 8), batch_size=1, mean_a=1)
    expected = rgba[:, :8].transpose(2, 0, 1).astype(np.float32)
    expected[3] -= 1
    assert np.array_equal(iterator.next().data[0][0], expected)
    with pytest.raises(mx.MXNetError, match="9 x 8 is 72 pixels, more than max_pixels=71"):
        make(path, data_shape=(4, 8, 8), batch_size=1, max_pixels=71)


@with_cases(
    ("image", "reason"),
    [
        (numbered(1)[0], "Expected 4 channels, got 3"),  # a raw image
        (png(np.zeros((4, 4, 3), np.uint8)), "Expected 4 channels, got 3"),
        (png(np.zeros((4, 4), np.uint8)), "Expected 4 channels, got 1"),
        (png(np.zeros((4, 4, 4), np.uint16)), "Expected 8 bits a channel, got uint16"),
        (png(np.zeros((400, 400, 4), np.uint8))[:60], "a chunk is longer than the data"),
        # A JPEG with headers only.
        (b"\xff\xd8\xff\xc0\0\x0b\x08\0\4\0\4\1\1\x11\0", "ends before the EOI marker"),
        (b"no image at all", "no image format"),
        (b"", "there is no data"),
    ],
    ids=["raw", "colour", "grey", "16-bit", "cut", "headers", "text", "nothing"],
)
def test_images_without_alpha(tmp_path, image, reason):
    with pytest.raises(mx.MXNetError, match=reason):
        make(write(tmp_path / "plain.rec", [image]), data_shape=(4, 4, 4), batch_size=1)


def test_images_with_alpha_are_turned_upright(tmp_path):
    image = np.zeros((8, 16, 4), np.uint8)
    image[:, 8:] = 255
    # A PNG has the Exif block of an image in a separate chunk, before the pixels.
    block = b"MM\0*\0\0\0\x08\0\x01\x01\x12\0\x03\0\0\0\x01\0\x06\0\0\0\0\0\0"
    data = png(image)
    chunk = len(block).to_bytes(4, "big") + b"eXIf" + block
    chunk += zlib.crc32(chunk[4:]).to_bytes(4, "big")
    path = write(tmp_path / "turned.rec", [data[:33] + chunk + data[33:]])
    upright = make(path, data_shape=(4, 16, 8), batch_size=1).next().data[0][0]
    assert upright[:, 0].max() == 0
    assert upright[:, -1].min() == 255
    stored = make(path, data_shape=(4, 8, 16), batch_size=1, exif="ignore").next().data[0][0]
    assert stored[:, :, 0].max() == 0
    assert stored[:, :, -1].min() == 255


def test_exif_is_applied_unless_ignored(tmp_path):
    image = np.zeros((8, 16, 3), np.uint8)
    image[:, 8:] = 255
    jpeg = with_orientation(cv2.imencode(".jpg", image)[1].tobytes(), 6)
    path = write(tmp_path / "turned.rec", [jpeg])
    upright = make(path, data_shape=(3, 16, 8), batch_size=1).next().data[0][0, 0]
    assert upright[0].mean() < 20 < 230 < upright[-1].mean()
    stored = make(path, data_shape=(3, 8, 16), batch_size=1, exif="ignore").next().data[0][0, 0]
    assert stored[:, 0].mean() < 20 < 230 < stored[:, -1].mean()


def test_images_that_are_too_large_are_refused(tmp_path):
    path = write(tmp_path / "a.rec", numbered(1))
    with pytest.raises(mx.MXNetError, match="more than max_pixels=15") as caught:
        make(path, batch_size=1, max_pixels=15)
    assert isinstance(caught.value.__cause__, DecodeError)
    for enough in (16, None):
        assert make(path, batch_size=1, max_pixels=enough).next().data[0].shape == (1, 3, 4, 4)


def test_photographs_can_be_decoded_at_a_part_of_their_size(tmp_path):
    rows, columns = np.mgrid[:256, :256]
    noise = np.random.default_rng(0).integers(-8, 9, (256, 256, 3))
    image = np.clip(np.stack([columns, rows, 255 - columns], 2) + noise, 0, 255).astype(np.uint8)
    jpeg = cv2.imencode(".jpg", image, [cv2.IMWRITE_JPEG_QUALITY, 98])[1].tobytes()
    path = write(tmp_path / "large.rec", [jpeg])
    whole, part = (
        make(path, data_shape=(3, 32, 32), batch_size=1, resize=32, dct_scaling=scaled).next().data[0]
        for scaled in (False, True)
    )
    assert not np.array_equal(whole, part)
    assert np.abs(whole - part).max() < 25


def test_crops_are_decoded_by_a_crop_index(tmp_path, monkeypatch):
    cuts = []
    real = lazy_image.cut_by_entry

    def counted(*args, **options):
        cuts.append(real(*args, **options))
        return cuts[-1]

    monkeypatch.setattr(lazy_image, "cut_by_entry", counted)
    rec = write_record_files(tmp_path)[0]
    found = []
    for _ in range(2):
        iterator = make(str(rec), data_shape=(3, 24, 24), rand_crop=True, rand_mirror=True, seed=3)
        found.append(np.concatenate([batch.data[0] for batch in iterator]))
        rec.with_suffix(".crops").unlink(missing_ok=True)
        used = len(cuts)
    assert np.array_equal(*found)
    assert used == sum(cut is not None for cut in cuts) > 2
