"""Tests with a large set of records damaged in many ways: each is named, all others are saved and delivered."""

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
SIZES = [2_000, pytest.param(100_000, marks=pytest.mark.slow)]
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


def test_every_damaged_record_is_named_and_all_others_are_saved(
    damaged: tuple[Set, Path], tmp_path: Path
) -> None:
    made, path = damaged
    count = made.count
    before = path.read_bytes(), path.with_suffix(".idx").read_bytes()
    report = recordio.verify(path)

    lost = made.lost(*IN_PLACE)
    assert len(lost) == 9 * FIVE
    gaps = [problem for problem in report.problems if problem.length]
    assert sorted(key for gap in gaps for key in gap.keys) == [key_of(n) for n in sorted(lost)]
    at_once = {"zeroed block", "truncated tail"}  # neighbours: one gap each
    alone = made.lost(*IN_PLACE, *at_once)
    firsts = {made.done[way][0] for way in at_once}
    assert {gap.offset: gap.key for gap in gaps} == {made.offsets[n]: key_of(n) for n in alone | firsts}
    for gap in gaps:
        end = len(made.data) if gap.key == key_of(count - FIVE) else None
        last = (gap.keys[-1] - 3) // 10
        assert gap.offset + gap.length == (end or made.offsets[last + 1])

    others = [problem for problem in report.problems if not problem.length]
    wrong, cut_off = made.done["wrong offset"], made.done["cut index"]
    assert {(p.offset, p.key) for p in others if p.key is not None} == {
        (made.offsets[n] + 8, key_of(n)) for n in wrong
    }
    without_key = sorted(p.offset for p in others if p.key is None)
    assert without_key[0] == -1  # the line that was cut
    assert without_key[1:] == [made.offsets[n] for n in sorted(wrong + cut_off)] == report.unlisted.tolist()

    copy = tmp_path / "copy.rec"
    repaired = recordio.repair(path, copy)
    assert (path.read_bytes(), path.with_suffix(".idx").read_bytes()) == before
    kept = [n for n in range(count) if n not in lost]
    assert copy.read_bytes() == b"".join(made.framed[n] for n in kept)
    assert repaired.keyless.tolist() == without_key[1:]
    with recordio.RecordReader(copy) as reader:
        keyed = dict(zip(reader.keys, reader, strict=True))
    assert keyed == {key_of(n): made.payloads[n] for n in kept if n not in wrong + cut_off}
    again = recordio.verify(copy)
    assert (again.ok, again.records) == (True, count - 9 * FIVE)


@pytest.mark.parametrize("executor", ["process", "thread"])
def test_the_loader_delivers_exactly_the_others(damaged: tuple[Set, Path], executor: str) -> None:
    made, path = damaged
    count = made.count
    failed = made.lost("cut index")
    with DataLoader(
        ImageRecordDataset(path), 50, executor=executor, num_workers=2, on_error="skip"
    ) as loader:
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


@pytest.mark.parametrize("count", [2_000, pytest.param(20_000, marks=pytest.mark.slow)])
def test_bytes_lost_and_added_cost_one_record_each(tmp_path: Path, count: int) -> None:
    rng = random.Random(7)
    chosen = rng.sample(range(20, count - 20, 20), 3 * FIVE)
    made = Set(count, chosen[:FIVE])
    pieces = list(made.framed)
    for number in chosen[:FIVE]:  # the middle part is missing, and the head after it
        framed = pieces[number]
        pieces[number] = framed[: made.part(number, 1)] + framed[made.part(number, 2) + 4 :]
    for nth, number in enumerate(chosen[FIVE:], start=5):
        framed = pieces[number]
        added, lost = (rng.randbytes(nth), 0) if nth < 2 * FIVE else (b"", nth)
        pieces[number] = framed[:30] + added + framed[30 + lost :]
    path, copy = tmp_path / "set.rec", tmp_path / "copy.rec"
    path.write_bytes(b"".join(pieces))
    path.with_suffix(".idx").write_text("".join(f"{key_of(n)}\t{made.offsets[n]}\n" for n in range(count)))
    report = recordio.repair(path, copy)

    gone, grown = sorted(chosen[:FIVE] + chosen[2 * FIVE :]), sorted(chosen[FIVE : 2 * FIVE])
    named = sorted(key for problem in report.problems for key in problem.keys)
    assert named == [key_of(n) for n in gone]
    # A record with inserted bytes looks valid, and the surplus bytes are after it.
    foreign = [problem for problem in report.problems if not problem.keys]
    assert [f"record {key_of(n)} is damaged" in p.message for n, p in zip(grown, foreign, strict=True)] == [
        True
    ] * FIVE
    kept = [n for n in range(count) if n not in gone]
    assert report.keyless.tolist() == []
    with recordio.RecordReader(copy) as reader:
        assert reader.keys.tolist() == [key_of(n) for n in kept]  # type: ignore[union-attr]
        saved = list(reader)
    assert [saved[at] for at, n in enumerate(kept) if n not in grown] == [
        made.payloads[n] for n in kept if n not in grown
    ]
    with DataLoader(
        ImageRecordDataset(copy), 50, executor="thread", num_workers=2, on_error="skip"
    ) as loader:
        assert [int(label) for _, labels in loader for label in labels] == [n for n in kept if n not in grown]
        assert [error.key for error in loader.errors] == [key_of(n) for n in grown]
