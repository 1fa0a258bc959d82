"""Tests with a large set of records damaged in many ways: each is named, all others are delivered."""

from __future__ import annotations

import random
import struct
from dataclasses import dataclass, field
from itertools import accumulate
from pathlib import Path

import numpy as np
import pytest
import simplejpeg

import recordio
from aioloader import DataLoader, ImageRecordDataset
from aioloader.tools.verify import ValidImages, check

MAGIC = struct.pack("<I", recordio.MAGIC)
SIZES = [1_000, pytest.param(20_000, marks=pytest.mark.slow)]
FIVE = 5


def make_image(level: int) -> bytes:
    """Return a small JPEG with the magic number twice in a comment, so that its record has three parts."""
    jpeg = simplejpeg.encode_jpeg(np.full((8, 8, 3), level, np.uint8), quality=50)
    comment = b"xx" + MAGIC + b"12345678" + MAGIC + b"87654321"
    return jpeg[:2] + b"\xff\xfe" + struct.pack(">H", len(comment) + 2) + comment + jpeg[2:]


PARTED = [make_image(level) for level in range(0, 250, 50)]
WHOLE = [simplejpeg.encode_jpeg(np.full((8, 8, 3), level, np.uint8), quality=50) for level in range(16)]


def key_of(number: int) -> int:
    return 10 * number + 3


@dataclass
class Set:
    """Record file in memory, with the damage of each of its records."""

    count: int
    parted: list[int]
    payloads: list[bytes] = field(default_factory=list)
    framed: list[bytes] = field(default_factory=list)
    data: bytearray = field(default_factory=bytearray)
    done: dict[str, list[int]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        parted = set(self.parted)
        for number in range(self.count):
            body = PARTED[number % len(PARTED)] if number in parted else WHOLE[number % len(WHOLE)]
            header = recordio.IRHeader(0, float(number), key_of(number), 0)
            self.payloads.append(recordio.pack(header, body))
            self.framed.append(recordio.serialize(self.payloads[-1]))
        self.place()

    def place(self) -> None:
        self.offsets = [0, *accumulate(map(len, self.framed))]
        self.data = bytearray(b"".join(self.framed))

    def part(self, number: int, nth: int) -> int:
        """Return the start of a record's n-th part, within the record."""
        at = -1
        for _ in range(nth + 1):
            at = self.framed[number].index(MAGIC, at + 1)
        return at

    def word(self, number: int, change: int) -> None:
        at = self.offsets[number] + 4
        (word,) = struct.unpack_from("<I", self.data, at)
        struct.pack_into("<I", self.data, at, word + change)

    def lost(self, *but: str) -> set[int]:
        return {number for way, numbers in self.done.items() if way not in but for number in numbers}


IN_PLACE = ("cut index", "wrong offset", "broken image")
"""Kinds of damage that leave the records valid in the format."""


def damaged_set(folder: Path, count: int) -> tuple[Set, Path]:
    """Damage five records in each of ten ways, and in two more that the format itself cannot show."""
    rng = random.Random(count)
    # At a distance from each other, from the block, the tail and the lines that are cut off.
    free = [n for n in range(10, count - 20, 3) if not count // 2 - 20 < n < count // 2 + 20]
    chosen = iter(rng.sample(free, 10 * FIVE))

    def five(way: str) -> list[int]:
        made.done[way] = sorted(next(chosen) for _ in range(FIVE))
        return made.done[way]

    first_parted, second_parted = [[next(chosen) for _ in range(FIVE)] for _ in range(2)]
    made = Set(count, first_parted + second_parted)
    made.done["missing part"] = sorted(first_parted)
    for number in first_parted:  # as after a writer that lost the last part
        made.framed[number] = made.framed[number][: made.part(number, 2)]
    made.done["broken image"] = broken = sorted(next(chosen) for _ in range(FIVE))
    for number in broken:
        middle = len(made.payloads[number]) // 2
        payload = made.payloads[number][:middle] + bytes(len(made.payloads[number]) - middle)
        made.payloads[number], made.framed[number] = payload, recordio.serialize(payload)
    made.place()

    made.done["damaged part"] = sorted(second_parted)
    for number in second_parted:
        made.data[made.offsets[number] + made.part(number, 1)] ^= 0xFF
    for number in five("flipped magic"):
        made.data[made.offsets[number] + 1] ^= 0xFF
    for number in five("length too long"):
        made.word(number, 4096)
    for number in five("length too short"):
        made.word(number, -40)
    for number in five("impossible flag"):
        made.data[made.offsets[number] + 7] |= 0xA0
    for number in five("overwritten"):
        made.data[made.offsets[number] : made.offsets[number] + 40] = rng.randbytes(40)
    middle = count // 2 + 10
    made.done["zeroed block"] = list(range(middle, middle + FIVE))
    begin, end = made.offsets[middle], made.offsets[middle + FIVE]
    made.data[begin:end] = bytes(end - begin)
    made.done["truncated tail"] = list(range(count - FIVE, count))
    del made.data[made.offsets[count - FIVE] + 50 :]

    # Lines in the order of another program, so that records other than those of the tail lose their lines.
    wrong = set(five("wrong offset"))
    half = count // 2
    made.done["cut index"] = list(range(half - FIVE, half))
    lines = [
        f"{key_of(n)}\t{made.offsets[n] + (8 if n in wrong else 0)}\n"
        for n in [*range(half, count), *range(half)]
    ]
    text = "".join(lines[: -FIVE + 1])
    text = text[: text.rindex("\t") - 1]  # within the key of the first of the five
    path = folder / "set.rec"
    path.write_bytes(made.data)
    path.with_suffix(".idx").write_text(text)
    return made, path


@pytest.fixture(scope="module", params=SIZES)
def damaged(request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory) -> tuple[Set, Path]:
    """Return `damaged_set`; read only."""
    return damaged_set(tmp_path_factory.mktemp("damaged"), request.param)


@pytest.mark.parametrize("executor", ["process", "thread"])
def test_the_loader_delivers_exactly_the_others(damaged: tuple[Set, Path], executor: str) -> None:
    made, path = damaged
    count = made.count
    failed = made.lost("cut index")
    options = {"executor": executor, "num_workers": 2, "on_error": "skip"}
    with DataLoader(ImageRecordDataset(path), 50, **options) as loader:
        delivered = [int(label) for _, labels in loader for label in labels]
        errors = loader.errors
    # The index lacks the records whose lines were cut off; the line of which a piece is left is an error.
    expected = [n for n in range(count) if n not in failed | set(made.done["cut index"])]
    assert sorted(delivered) == expected
    (line,) = [error for error in errors if error.offset == -1]
    assert f"line {count - FIVE + 1}" in line.reason
    assert sorted(error.key for error in errors if error is not line) == [key_of(n) for n in sorted(failed)]
    in_decode = {error.key for error in errors if error.stage == "decode"}
    assert {key_of(n) for n in made.done["broken image"]} <= in_decode


def test_broken_images_of_valid_records_are_named(damaged: tuple[Set, Path]) -> None:
    made, path = damaged
    report = recordio.verify(path)
    seen: list[int] = []
    checked = check(ValidImages(report), num_workers=2, executor="thread", tick=seen.append)
    assert checked.images == seen[-1] == made.count - 9 * FIVE
    broken = made.done["broken image"]
    assert [(e.key, e.offset) for e in checked.errors] == [(key_of(n), made.offsets[n]) for n in broken]
