"""Lazy images that are opened with an entry of a crop index."""

from __future__ import annotations

import random

import numpy as np
import pytest

from aioloader.transforms import decode_image
from aioloader.transforms.lazy_image import LazyImageReader
from tests.aioloader.jpeg.entries import golden
from tests.aioloader.jpeg.samples import oriented
from tests.cases import with_cases

FILES = golden()
NAMES = [name for name, _, _ in FILES]


def _boxes(height: int, width: int) -> list[tuple[int, int, int, int]]:
    rng = random.Random(height)
    found = [(0, 0, width, height), (0, 0, 1, 1), (width - 1, height - 1, 1, 1)]
    # Cuts that begin with a phantom on the left of the image, some of them as wide as the image.
    found += [(0, 30, columns, 20) for columns in range(width - 40, width, 3)]
    for _ in range(12):
        w, h = rng.randint(1, width), rng.randint(1, height)
        found.append((rng.randint(0, width - w), rng.randint(0, height - h), w, h))
    return found


@with_cases("flag", [0, 1])
@with_cases(("name", "data", "entry"), FILES, ids=NAMES)
def test_a_region_is_that_of_the_whole_image(name, data, entry, flag):
    whole = decode_image(data, flag=flag)
    reader = LazyImageReader(flag)
    for x, y, width, height in _boxes(*whole.shape[:2]):
        expected = whole[y : y + height, x : x + width]
        image = reader.open(data, entry=entry)
        assert np.array_equal(image.region((x, y, width, height)), expected)
        framed = reader.open(data, entry=memoryview(entry)).frame((x, y, width, height))
        assert np.array_equal(framed[y : y + height, x : x + width], expected)
    assert not reader.bad_entries


@with_cases(("name", "data", "entry"), FILES, ids=NAMES)
def test_a_shrunk_region_is_that_without_an_entry(name, data, entry):
    reader = LazyImageReader(dct_scaling=True)
    for box in _boxes(93, 131):
        for shrink in (2, 4):
            image, same = reader.open(data, entry=entry), reader.open(data)
            assert np.array_equal(image.region(box, shrink), same.region(box, shrink))


@with_cases("orientation", range(1, 9))
def test_a_region_of_a_turned_image_is_that_of_the_upright_one(orientation):
    from aioloader.jpeg.crop_scan import build_entry

    data = oriented(FILES[2][1], orientation)
    entry = build_entry(data, interval=3)
    whole = decode_image(data)
    reader = LazyImageReader()
    for x, y, width, height in _boxes(*whole.shape[:2]):
        region = reader.open(data, entry=entry).region((x, y, width, height))
        assert np.array_equal(region, whole[y : y + height, x : x + width])
    assert not reader.bad_entries


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda data, entry: (data, entry[:50] + b"x" + entry[51:]), "damaged"),
        (lambda data, entry: (data, entry[:100]), "damaged"),
        (lambda data, entry: (data[:-2] + b"\0" + data[-2:], entry), "of other bytes"),
        (lambda data, entry: (data, FILES[3][2]), "of other bytes"),
        (lambda data, entry: (data, b""), "damaged"),
    ],
)
def test_a_bad_entry_changes_no_pixel_and_is_counted(change, reason):
    data, entry = change(*FILES[0][1:])
    whole = decode_image(data)
    reader = LazyImageReader()
    region = reader.open(data, entry=entry).region((40, 40, 30, 30))
    assert np.array_equal(region, whole[40:70, 40:70])
    assert reader.bad_entries == {reason: 1}
