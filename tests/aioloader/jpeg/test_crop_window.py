"""Cuts by an entry of a crop index, on golden files."""

from __future__ import annotations

import contextlib
import functools
import random
import struct
import zlib

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader.jpeg.crop_entry import HEAD, TABLES_AT, CropEntryError, check_entry
from aioloader.jpeg.crop_window import cut_by_entry, needed_rows, read_head, row_bytes
from tests.aioloader.jpeg.entries import compare, decoded, golden, in_c_and_python, part_of
from tests.aioloader.jpeg.samples import frame_of
from tests.cases import with_cases

FILES = golden()
IMAGES = {(name, scale): decoded(data, (131, 93), scale) for name, data, _ in FILES for scale in (1, 2, 4)}
NAMES = [name for name, _, _ in FILES]


def _resealed(entry: bytes) -> bytes:
    """Return an edited entry with a right CRC."""
    return entry[:-4] + struct.pack("<I", zlib.crc32(entry[:-4]))


@st.composite
def boxes(draw: st.DrawFn) -> tuple[int, int, int, int]:
    """Draw a box inside of 131 x 93 pixels; often at a border, of one pixel, or of a whole side."""
    sides = []
    for extent in (131, 93):
        size = draw(st.one_of(st.just(1), st.just(extent), st.integers(1, extent)))
        start = draw(st.one_of(st.just(0), st.just(extent - size), st.integers(0, extent - size)))
        sides.append((start, size))
    (x, width), (y, height) = sides
    return x, y, width, height


@given(file=st.sampled_from(FILES), scale=st.sampled_from([1, 2, 4]), box=boxes())
@settings(max_examples=5 * settings().max_examples)
def test_a_cut_has_the_pixels_of_a_full_decode(file, scale, box):
    name, data, entry = file
    compare(data, entry, box, IMAGES[name, scale], scale)


@given(file=st.sampled_from(FILES), box=boxes(), seed=st.integers(0, 1 << 32))
def test_the_compiled_part_cuts_as_python_does_also_by_forged_entries_and_of_damaged_files(file, box, seed):
    _, image, entry = file
    frame, rng, left_out = frame_of(image), random.Random(seed), 0
    if rng.random() < 0.3:
        head = read_head(entry)
        rows = needed_rows(head, box)
        image, left_out = part_of(image, entry, rows), row_bytes(entry, head, rows)[0]
    for _ in range(5):
        some, forged = bytearray(image), bytearray(entry)
        for _ in range(rng.choice((0, 1, 1, 2, 3))):
            # Most of the numbers that are used as they are come first.
            place = rng.randrange(1, rng.choice((HEAD.size, TABLES_AT, len(entry))))
            forged[place] = rng.choice((0, 1, 32, 33, 127, 128, 255, rng.randrange(256), forged[place] ^ 1))
        for _ in range(rng.choice((0, 0, 1, 2))):
            some[rng.randrange(frame.scan_start, len(some))] = rng.choice((0, 255))
        if rng.random() < 0.2:
            del some[rng.randrange(frame.scan_start, len(some)) :]
        cut = functools.partial(cut_by_entry, bytes(some), frame, bytes(forged), box, left_out=left_out)
        with contextlib.suppress(CropEntryError):
            in_c_and_python(cut)


@with_cases(("name", "data", "entry"), FILES, ids=NAMES)
def test_a_small_box_leaves_out_most_of_the_file_and_a_wide_one_rows(name, data, entry):
    small, wide = (compare(data, entry, box, IMAGES[name, 1]) for box in ((72, 40, 8, 8), (0, 40, 131, 8)))
    assert (small.width, small.height) < (80, 60)
    assert len(small.data) < len(data) / 2
    assert wide.width >= 131
    assert wide.height <= 64
    assert cut_by_entry(data, frame_of(data), entry, (0, 0, 131, 93)) is None


def test_views_are_accepted():
    _, data, entry = FILES[0]
    expected = cut_by_entry(data, frame_of(data), entry, (40, 40, 20, 20))
    assert expected is not None
    assert cut_by_entry(memoryview(data), frame_of(data), memoryview(entry), (40, 40, 20, 20)) == expected


def test_an_entry_without_an_interval_is_refused():
    _, data, entry = FILES[0]
    edited = bytearray(entry)
    edited[1] = 0
    struct.pack_into("<H", edited, 10, frame_of(data).mcus_per_row)  # the points of a row
    with pytest.raises(CropEntryError):
        cut_by_entry(data, frame_of(data), _resealed(bytes(edited)), (30, 30, 50, 40))


@with_cases("component", [0, 1, 2])
@with_cases("box", [(0, 40, 131, 8), (72, 40, 8, 8)], ids=["band", "window"])
def test_dc_values_out_of_range_are_refused(component, box):
    """No code is read behind those of the values: its length could be any number."""
    _, data, entry = FILES[NAMES.index("420")]
    edited = bytearray(entry)
    struct.pack_into("<h", edited, 30 + 2 * component, 32767)  # the least value
    with pytest.raises(CropEntryError, match="damaged"):
        cut_by_entry(data, frame_of(data), _resealed(bytes(edited)), box)


@with_cases("name", ["444", "444-rows"])
@with_cases("box", [(72, 0, 59, 93), (0, 10, 131, 83)], ids=["right", "bottom"])
def test_rows_that_overlap_make_no_cut_larger_than_the_file(name, box):
    _, data, entry = FILES[NAMES.index(name)]
    frame = frame_of(data)
    head = HEAD.unpack_from(entry)
    starts_at = TABLES_AT + head[20] + head[21] + head[23]
    edited = bytearray(entry)
    for row in range(frame.mcu_rows + 1):
        struct.pack_into("<I", edited, starts_at + 4 * row, 8 * (head[11] - 500) if row % 2 else 0)
    try:
        cut = cut_by_entry(data, frame, _resealed(bytes(edited)), box)
    except CropEntryError as error:
        assert error.reason == "damaged"
    else:
        assert cut is None or len(cut.data) < 1.5 * len(data)


def test_an_entry_of_an_image_of_another_size_is_refused():
    entries = {name: entry for name, _, entry in FILES}
    data = {name: data for name, data, _ in FILES}
    with pytest.raises(CropEntryError, match="of other bytes"):
        cut_by_entry(data["444"], frame_of(data["444"]), entries["420"], (30, 30, 50, 40))
    with pytest.raises(CropEntryError) as caught:
        check_entry(entries["420"], data["444"])
    assert caught.value.reason == "of other bytes"
