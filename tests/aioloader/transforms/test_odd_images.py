"""Tests of images of every form against Pillow: equal within a level, or refused by name, whichever way they come.

The images, of 16 rows and 24 columns, are in odd.tar.xz: modes, bit depths, orientations, containers. Pillow and OpenCV
wrote most; those that they do not write were put together by hand.
"""

import asyncio
import tarfile
import warnings
from collections import Counter
from io import BytesIO
from pathlib import Path

import cv2
import numpy as np
import pytest
from PIL import Image, ImageOps, features

import aioloader
from aioloader import mxnet as mx
from aioloader.errors import BitDepthWarning, DecodeError
from aioloader.transforms import decode, decode_image
from aioloader.transforms.lazy_image import LazyImageReader
from tests.cases import with_cases

with tarfile.open(Path(__file__).parents[2] / "data" / "odd.tar.xz") as archive:
    ALL = {member.name: archive.extractfile(member).read() for member in archive}
AS_STORED = {name: ALL.pop(name) for name in [*ALL] if name.startswith("as stored")}
UNREAD = [] if features.check("avif") else ["AVIF"]
IMAGES = {name: data for name, data in ALL.items() if name.partition(":")[0] not in UNREAD}

Y, X = np.mgrid[0:16, 0:24]
RGB = np.stack([X * 10, Y * 15, 255 - (X + Y) * 6], -1).astype(np.uint8)
RGB[2:6, 3:9] = (240, 30, 40)
RGBA = np.dstack([RGB, (Y * 17).astype(np.uint8)])
GREY = RGB[..., :1]

# The kinds that this OpenCV reads; an older one refuses some more.
REFUSED_ALWAYS = {"TIFF: CIELAB", "TIFF: grey of float32", "TIFF: grey of int16", "JPEG 2000: YCbCr"}


def pillow_pixels(data):
    opened = Image.open(BytesIO(data))
    image = ImageOps.exif_transpose(opened)
    if image.mode.startswith("I;16") or (image.mode == "I" and opened.format == "PPM"):
        # Its conversion clips them at 255.
        return np.repeat(np.asarray(image)[..., None] // 257, 3, -1).astype(np.uint8)
    return np.asarray(image.convert("RGB"))


def right_pixels(name):
    """Return the right pixels, or None if nobody knows them."""
    # Pillow reads 16 bits in planes wrong, and does not invert 16 bits; some forms it does not read.
    simple = (
        name.replace(", planes", "").replace(" 16", " 8").replace(", big endian", "").replace(", BigTIFF", "")
    )
    misread = name.startswith("TIFF") and " 16" in name and ("planes" in name or "white" in name)
    for each in (simple,) if misread else (name, simple):
        try:
            return pillow_pixels(IMAGES[each])
        except (OSError, ValueError, KeyError):
            continue
    return None


def outcome(call, *args, **options):
    try:
        return call(*args, **options)
    except DecodeError as error:
        return error


@pytest.fixture(scope="module")
def decoded():
    return {name: outcome(decode_image, data) for name, data in IMAGES.items()}


@pytest.mark.filterwarnings("ignore::UserWarning:PIL")
def test_odd_images_are_pillows_within_a_level_or_refused_by_name(decoded):
    equal = Counter()
    different = []
    for name, got in decoded.items():
        if not isinstance(got, DecodeError):
            assert (got.dtype, got.flags.c_contiguous, got.flags.writeable) == (np.uint8, True, True)
        want = right_pixels(name)
        if isinstance(got, DecodeError):
            assert got.format is not None
            assert got.reason
        elif want is not None and got.shape == want.shape and np.abs(got.astype(int) - want).max() <= 1:
            equal[name.partition(":")[0]] += 1
        else:
            different.append(name)
    assert not different
    assert len(decoded) >= 300
    assert all(isinstance(decoded[name], DecodeError) for name in REFUSED_ALWAYS)
    # Whoever refuses everything passes no test: these are read by every OpenCV.
    for form, least in {"JPEG": 79, "PNG": 113, "BMP": 33, "WebP": 38, "PNM": 86, "TIFF": 140}.items():
        assert equal[form] >= least


def test_grey_is_the_grey_of_the_colours(decoded):
    for name, colours in decoded.items():
        grey = outcome(decode_image, IMAGES[name], flag=0)
        if isinstance(colours, DecodeError):
            assert isinstance(grey, DecodeError), name
        else:
            want = cv2.cvtColor(colours, cv2.COLOR_RGB2GRAY)
            assert np.abs(grey[..., 0].astype(int) - want).max() <= 3, name


def test_every_way_to_an_image_gives_the_same_pixels(decoded, tmp_path):
    """A dataset, the decoder that crops, the image service, and MXNet's function."""
    (tmp_path / "class").mkdir()
    good = {name: image for name, image in decoded.items() if not isinstance(image, DecodeError)}
    for n, name in enumerate(good):
        (tmp_path / "class" / f"{n:04}.jpg").write_bytes(IMAGES[name])
    dataset = aioloader.ImageFolderDataset(tmp_path)
    reader = LazyImageReader()

    async def served():
        async with aioloader.AsyncImageService(executor="thread", num_workers=1, allow=("bytes",)) as service:
            return [await service.get(IMAGES[name]) for name in good]

    for (name, want), (image, _), other in zip(good.items(), dataset, asyncio.run(served()), strict=True):
        assert np.array_equal(image, want), name
        assert np.array_equal(other, want), name
        lazy = reader.open(IMAGES[name])
        height, width = want.shape[:2]
        assert np.array_equal(lazy.pixels(), want), name
        assert np.array_equal(lazy.region((1, 2, width - 3, height - 4)), want[2:-2, 1:-2]), name
        assert np.array_equal(mx.image.imdecode(IMAGES[name]).asnumpy(), want), name


def sixteen(image):
    return image.astype(np.uint16) * 200 + 1


STORED = {
    "as stored: PNG grey": sixteen(GREY),
    "as stored: PNG RGB": sixteen(RGB),
    "as stored: PNG RGBA": sixteen(RGBA),
    "as stored: PNG RGBA of 8 bits": RGBA,
    "as stored: TIFF grey": sixteen(GREY),
    "as stored: TIFF RGB, big endian": sixteen(RGB),
    "as stored: TIFF white is zero": 65535 - sixteen(GREY),
    "as stored: TIFF float32": GREY.astype(np.float32),
    "as stored: PNM of 12 bits": np.rint(GREY * (16 * 65535 / 4095)),
    "TIFF: orientation 6, 16 bits": np.rot90(RGB, -1).astype(np.uint16) * 257,
    "JPEG: L subsampling 0": None,
    "JPEG: EXIF 6": None,
}


@with_cases(("name", "want"), STORED.items(), ids=STORED)
def test_as_stored_keeps_channels_and_bits(name, want):
    data = {**IMAGES, **AS_STORED}[name]
    image = decode_image(data, flag=-1)
    if want is None:
        want = decode_image(data, flag=0 if image.shape[2] == 1 else 1)
        assert (image.shape[2] == 1) == (name == "JPEG: L subsampling 0")
    assert image.flags.c_contiguous
    assert np.array_equal(image, want)


def test_every_image_to_keep_as_stored_is_compared():
    assert AS_STORED.keys() < STORED.keys()


def test_the_first_image_of_more_than_8_bits_warns_of_the_way_to_keep_them(monkeypatch):
    data = IMAGES["PNG: RGB 16"]
    for each in (data, IMAGES["TIFF: RGB 16"], IMAGES["PNM: P5 4095"], IMAGES["JPEG 2000: I;16"]):
        monkeypatch.setattr(decode, "_warned", False)
        with pytest.warns(BitDepthWarning, match="flag=-1") as caught:
            decode_image(each, path="deep.png")
        assert (caught[0].message.path, caught[0].message.bits > 8) == ("deep.png", True)
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        decode_image(data)  # once is enough
        monkeypatch.setattr(decode, "_warned", False)
        decode_image(data, flag=-1)
        for name in ("PNG: RGB 8", "TIFF: RGB 8", "PNM: P6 255", "JPEG: EXIF 1"):
            decode_image(IMAGES[name])
    with pytest.warns(BitDepthWarning):
        decode_image(data)


def test_a_dataset_of_images_as_stored_keeps_16_bits(tmp_path):
    (tmp_path / "class").mkdir()
    for n in range(6):
        assert cv2.imwrite(str(tmp_path / "class" / f"{n}.png"), sixteen(GREY + n))
    dataset = aioloader.ImageFolderDataset(tmp_path, flag=-1)
    with aioloader.DataLoader(dataset, 3, executor="process", num_workers=1) as loader:
        images = np.concatenate([np.array(batch[0]) for batch in loader])
    assert images.dtype == np.uint16
    for n, image in enumerate(images):
        assert np.array_equal(image, sixteen(GREY + n))


def test_an_irregular_gif_costs_an_error_not_a_crash():
    data = IMAGES["GIF: two frames"]
    for stop in range(len(data) - 1):
        if stop < data.index(b"\x3b", 500) and not isinstance(
            got := outcome(decode_image, data[:stop]), DecodeError
        ):
            assert np.array_equal(got, decode_image(data))  # the first frame was whole
