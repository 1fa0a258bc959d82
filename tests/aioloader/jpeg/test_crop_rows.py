"""Parts of JPEGs: the headers and some rows are enough for a cut, and every changed byte of them is noticed."""

from __future__ import annotations

import random
import zlib

import pytest

from aioloader.jpeg.crop_entry import HEAD, CropEntryError
from aioloader.jpeg.crop_window import check_part, cut_by_entry, needed_rows, read_head
from tests.aioloader.jpeg.entries import golden, part_of
from tests.aioloader.jpeg.samples import frame_of
from tests.cases import with_cases

FILES = golden()
NAMES = [name for name, _, _ in FILES]


@with_cases(("name", "data", "entry"), FILES, ids=NAMES)
def test_the_head_describes_the_frame(name, data, entry):
    head, frame = read_head(entry), frame_of(data)
    assert (head.width, head.height, head.rows) == (frame.width, frame.height, frame.mcu_rows)
    assert (8 * head.mcu_blocks_down, head.y_margin) == (frame.mcu_height, frame.y_margin)
    assert (head.scan_start, head.orientation) == (frame.scan_start, 1)


@with_cases("scale", [1, 2])
@with_cases(("name", "data", "entry"), FILES, ids=NAMES)
def test_a_cut_of_a_part_is_that_of_the_whole(name, data, entry, scale):
    head, frame = read_head(entry), frame_of(data)
    rng = random.Random(name)
    shorter = 0
    for _ in range(30):
        width, height = rng.randint(1, head.width), rng.randint(1, head.height - 1)
        box = rng.randint(0, head.width - width), rng.randint(0, head.height - height), width, height
        expected = cut_by_entry(data, frame, entry, box, scale=scale)
        if expected is None:
            continue
        part = part_of(data, entry, needed_rows(head, box, scale))
        left_out = check_part(part, entry, head, needed_rows(head, box, scale))
        found = cut_by_entry(memoryview(part), frame_of(part), entry, box, scale=scale, left_out=left_out)
        assert found == expected
        shorter += len(part) < len(data)
    assert shorter


@with_cases(("name", "data", "entry"), FILES, ids=NAMES)
def test_every_changed_byte_of_a_part_is_noticed(name, data, entry):
    head = read_head(entry)
    rng = random.Random(name)
    for first in range(head.rows - 1):
        rows = first, rng.randint(first + 1, head.rows)
        part = part_of(data, entry, rows)
        check_part(part, entry, head, rows)
        edges = [head.scan_start, head.scan_start - 1, len(part) - 1, len(part) - 2, 0]
        for place in [*edges, *rng.choices(range(len(part)), k=8)]:
            edited = bytearray(part)
            edited[place] ^= 1 << rng.randrange(8)
            with pytest.raises(CropEntryError, match="of other bytes"):
                check_part(bytes(edited), entry, head, rows)
        for other in (part[:-1], part + b"\0", b"", part_of(data, entry, (first, first + 1))[:-3]):
            with pytest.raises(CropEntryError):
                check_part(other, entry, head, rows)


def test_a_made_up_head_is_refused():
    _, _, entry = FILES[0]
    for place, value in ((8, 0), (4, 0), (44, 0), (44, 5), (46, 0), (46, 9), (8, 255)):
        body = bytearray(entry[:-4])
        body[place] = value
        if place in (4, 8):
            body[place + 1] = value
        with pytest.raises(CropEntryError, match="damaged"):
            read_head(bytes(body) + zlib.crc32(body).to_bytes(4, "little"))
    with pytest.raises(CropEntryError, match="damaged"):
        read_head(entry[: HEAD.size])
