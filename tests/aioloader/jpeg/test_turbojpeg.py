"""Tests of rectangles decoded alone: the pixels of a full decode, and the same reports of damage."""

from __future__ import annotations

import itertools
import sys
import threading
import warnings
from collections.abc import Callable, Iterator
from functools import cache

import cv2
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader import jpeg
from aioloader.errors import DecodeError
from aioloader.jpeg.cut import RectangleDecoder
from aioloader.jpeg.turbojpeg import LIBRARY_VARIABLE, library_path, turbojpeg_library
from aioloader.transforms.decode import decode_image
from aioloader.transforms.lazy_image import LazyImageReader
from tests.aioloader.jpeg.samples import (
    KINDS,
    Case,
    assert_cut_is_crop,
    cases,
    crop,
    encode,
    frame_of,
    full,
    make_image,
    oriented,
    with_byte,
    wrong_bytes,
)
from tests.cases import with_cases

installed = pytest.mark.skipif(
    library_path() is None, reason="no libjpeg-turbo of version 3; pip install 'aioloader[turbojpeg]'"
)


class Counted(RectangleDecoder):
    """Decoder of rectangles of every size; counts decodes without a warning, or with the harmless one."""

    worth = 0.0

    def __init__(self) -> None:
        super().__init__()
        self.made = 0

    def decode(self, data, x, y, out):
        complaint = super().decode(data, x, y, out)
        self.made += complaint is None or jpeg.harmless(complaint)
        return complaint


def reader(**options) -> LazyImageReader:
    made = LazyImageReader(**options)
    made.rectangles = Counted()
    return made


def plain(**options) -> LazyImageReader:
    made = LazyImageReader(**options)
    made.rectangles = None
    return made


def check(case: Case, flag: int = 1) -> None:
    image = decode_image(case.data, flag=flag)
    lazy = reader(flag=flag).open(case.data)
    assert np.array_equal(lazy.region(case.box), crop(image, case.box))
    framed = lazy.frame(case.box)
    assert framed.shape == image.shape
    assert np.array_equal(crop(framed, case.box), crop(image, case.box))


@installed
@given(cases(), st.sampled_from([1, 1, 1, 0]))
@settings(max_examples=100)
def test_a_rectangle_has_the_pixels_of_a_full_decode(case: Case, flag: int):
    check(case, flag)


@pytest.mark.slow
@given(cases(), st.sampled_from([1, 1, 1, 0]))
@settings(max_examples=1_500)
def test_many_crops_have_the_pixels_of_a_full_decode_by_a_cut_and_as_a_rectangle(case: Case, flag: int):
    assert_cut_is_crop(case.data, case.box)
    if library_path() is not None:
        check(case, flag)


@installed
@with_cases(("kind", "size"), zip(KINDS, [(48, 40), (67, 33), (35, 71)] * 2, strict=True))
def test_every_small_rectangle_of_a_small_image(kind, size):
    width, height = size
    data = encode(width, height, kind, blocks=False)
    image = full(data)
    opened = reader()
    for x in range(0, width, 4):
        for y in range(0, height, 3):
            for across, down in ((1, 1), (5, 3), (width, 2), (2, height)):
                box = (x, y, min(across, width - x), min(down, height - y))
                assert np.array_equal(opened.open(data).region(box), crop(image, box)), box
    assert opened.rectangles.made > 50


@installed
@with_cases(("orientation", "kind"), zip(range(1, 9), itertools.cycle(["420", "422", "440"]), strict=False))
def test_every_orientation(kind, orientation):
    data = oriented(encode(200, 150, kind), orientation)
    image = decode_image(data)
    opened = reader()
    for box in ((0, 0, 30, 20), (57, 41, 40, 30), (image.shape[1] - 9, image.shape[0] - 7, 9, 7)):
        assert np.array_equal(opened.open(data).region(box), crop(image, box))
        assert np.array_equal(crop(opened.open(data).frame(box), box), crop(image, box))
    assert opened.rectangles.made >= 2


def outcome(opened: LazyImageReader, data: bytes, box: tuple[int, int, int, int]):
    try:
        lazy = opened.open(data)
        x, y, width, height = box
        if x + width > lazy.width or y + height > lazy.height:
            return None
        return lazy.region(box).copy()
    except DecodeError as error:
        return str(error)


@cache
def lasting() -> LazyImageReader:
    """Return one decoder that is used for many damaged files."""
    return reader()


def check_damage(data: bytes, box: tuple[int, int, int, int]) -> None:
    """Check that every damaged file, also after others, has the result of a decode without rectangles."""
    found, expected = outcome(lasting(), data, box), outcome(plain(), data, box)
    assert type(found) is type(expected)
    if isinstance(expected, np.ndarray):
        assert np.array_equal(found, expected)
    else:
        assert found == expected


FILES = {
    "420": encode(200, 150, "420"),
    "444": encode(200, 150, "444"),
    "grey": encode(200, 150, "grey"),
    "with restart markers": encode(200, 150, "420", 4),
}


@installed
@given(wrong_bytes(FILES), st.sampled_from([None, b"", b"\xff\xd9", b"\0" * 999]), st.floats(0, 1))
@settings(max_examples=300)
def test_one_wrong_byte_and_a_file_cut_off_are_seen_as_before(damage, rest, share):
    name, data, box = damage
    check_damage(data if rest is None else FILES[name][: int(share * len(data))] + rest, box)


@installed
def test_every_thread_has_a_decoder_of_its_own():
    data = encode(640, 480, "420", blocks=False)
    image = full(data)
    failures = []

    def work(seed: int) -> None:
        rng = np.random.default_rng(seed)
        opened = LazyImageReader()
        for _ in range(100):
            x, y = (int(v) for v in rng.integers(0, (500, 380)))
            box = (x, y, int(rng.integers(1, 140)), int(rng.integers(1, 100)))
            if not np.array_equal(opened.open(data).region(box), crop(image, box)):
                failures.append(box)

    threads = [threading.Thread(target=work, args=(seed,)) for seed in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not failures


@installed
def test_read_only_data_and_views_will_do():
    data = encode(400, 300, "420")
    expected = crop(full(data), (170, 100, 50, 60))
    for other in (memoryview(data), memoryview(bytearray(b"\xff" * 9 + data))[9:], bytearray(data)):
        assert np.array_equal(reader().open(other).region((170, 100, 50, 60)), expected)


@installed
def test_a_decoder_says_what_is_wrong_and_goes_on():
    data = encode(400, 300, "420")
    decoder = RectangleDecoder()
    out = np.empty((10, 32, 3), np.uint8)
    assert "multiple" in str(decoder.decode(data, 3, 0, out)) or decoder.decode(data, 3, 0, out)
    assert decoder.decode(data[:20], 0, 0, out)
    assert decoder.decode(b"no image", 0, 0, out)
    assert decoder.decode(data, 16, 290, out) is None
    assert np.array_equal(out[:, 8:24], full(data)[290:, 24:40])


def without(data: bytes, marker: int) -> bytes:
    """Remove the segments of one kind from a JPEG."""
    kept, place, start = [data[:2]], 2, frame_of(data).scan_start
    while place < start:
        end = place + 2 + int.from_bytes(data[place + 2 : place + 4], "big")
        if data[place + 1] != marker:
            kept.append(data[place:end])
        place = end
    return b"".join(kept) + data[start:]


GOOD = FILES["420"]
BROKEN_HEADERS = {
    "more codes than there can be": with_byte(GOOD, GOOD.index(b"\xff\xc4") + 6, 255),
    "a component that there is not": with_byte(GOOD, GOOD.index(b"\xff\xda") + 5, 9),
    "another precision": with_byte(GOOD, frame_of(GOOD).size_at - 1, 77),
    "a table that there is not": with_byte(GOOD, GOOD.index(b"\xff\xdb") + 4, 9),
    "a scan before the frame": without(GOOD, 0xC0),
    "two frames": GOOD.replace(b"\xff\xc4", b"\xff\xc0", 1),
    "cut off": GOOD[:300],
}


@installed
@with_cases("kind", BROKEN_HEADERS)
def test_damaged_headers_do_not_matter_to_the_next_image(kind):
    decoder = RectangleDecoder()
    out = np.empty((40, 48, 3), np.uint8)
    said = decoder.decode(BROKEN_HEADERS[kind], 32, 20, out)
    assert said is not None
    assert said.startswith("header: ")
    assert decoder.decode(GOOD, 32, 20, out) is None
    assert np.array_equal(out[:, 8:-8], full(GOOD)[20:60, 40:72])


@installed
@with_cases("marker", [0xDB, 0xC4])
def test_tables_of_the_image_before_are_not_used(marker):
    before = cv2.imencode(
        ".jpg", make_image(200, 150), [cv2.IMWRITE_JPEG_OPTIMIZE, 1, cv2.IMWRITE_JPEG_QUALITY, 40]
    )[1].tobytes()
    lacking, box = without(GOOD, marker), (57, 41, 40, 30)
    opened = reader()
    assert isinstance(outcome(opened, before, box), np.ndarray)
    found, expected = outcome(opened, lacking, box), outcome(plain(), lacking, box)
    assert type(found) is type(expected)
    assert np.array_equal(found, expected)


@installed
@with_cases(
    "out",
    [
        np.empty((0, 32, 3), np.uint8),
        np.empty((10, 0, 3), np.uint8),
        np.empty((10, 32, 4), np.uint8),
        np.empty((10, 64, 3), np.uint8)[:, ::2],
        np.empty((10, 32, 3), np.float32),
        np.frombuffer(bytes(960), np.uint8).reshape(10, 32, 3),
    ],
)
def test_memory_that_is_not_as_it_must_be_is_refused(out):
    with pytest.raises(ValueError, match="writable and contiguous"):
        RectangleDecoder().decode(GOOD, 0, 0, out)


@installed
def test_little_is_not_left_out():
    data = encode(400, 300, "420")
    opened = LazyImageReader()
    opened.rectangles = counted = Counted()
    counted.worth = 0.25
    for box, made in (
        ((0, 0, 390, 290), 0),
        ((20, 40, 370, 260), 0),
        ((0, 100, 400, 200), 1),
        ((100, 0, 200, 300), 2),
    ):
        assert np.array_equal(opened.open(data).region(box), crop(full(data), box))
        assert counted.made == made


@pytest.fixture
def named(monkeypatch: pytest.MonkeyPatch) -> Iterator[Callable[[str], None]]:
    """Return a function that names the library to use; the one that was used before comes back."""

    def name(value: str) -> None:
        monkeypatch.setenv(LIBRARY_VARIABLE, value)
        turbojpeg_library.cache_clear()

    yield name
    turbojpeg_library.cache_clear()


@pytest.mark.parametrize("value", ["", "/nowhere/libturbojpeg.so", sys.executable])
def test_without_a_usable_library_images_are_decoded_as_before_and_a_named_one_is_reported_once(named, value):
    named(value)
    with warnings.catch_warnings(record=True) as caught:
        warnings.simplefilter("always")
        assert library_path() is library_path() is None
        assert LazyImageReader().rectangles is None
    assert [each.category for each in caught] == [RuntimeWarning] * bool(value)
    assert all(value in str(each.message) for each in caught)
    data = encode(200, 150)
    expected = crop(full(data), (50, 60, 20, 20))
    assert np.array_equal(LazyImageReader().open(data).region((50, 60, 20, 20)), expected)
    with pytest.raises(RuntimeError, match=rf"aioloader\[turbojpeg\].*{LIBRARY_VARIABLE}"):
        RectangleDecoder()
