"""Tests of the scan of tars in parts: it finds what one pass over all headers finds, with few bytes."""

from __future__ import annotations

import random
from itertools import pairwise

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader.errors import SampleFormatError
from aioloader.formats.tar.header import BLOCK
from aioloader.formats.tar.scan import TarScan, choose_reads
from tests.aioloader.formats.tars import (
    END,
    PATH,
    VirtualTar,
    follow_reads,
    header,
    member,
    pax,
    pax_record,
    scan_all,
)
from tests.cases import with_cases

EXAMPLES = settings().max_examples // 3
"""Number of tars of a property test: each takes long."""
KINDS = ["small", "large", "mixed", "nested", "pax", "old"]


def tar_of(kind: str, nbytes: int, seed: int) -> VirtualTar:
    """Return a tar of about `nbytes` bytes.

    Args:
        kind: small: labels only; large: images; mixed: images with labels; nested: the data contain headers; pax:
            extended headers; old: headers without a mark.
    """
    draw = random.Random(seed)
    tar = VirtualTar()
    number = 0
    magic = b"" if kind == "old" else b"ustar\x0000"
    while tar.nbytes < nbytes:
        size = draw.randrange(40_000) if kind == "small" else draw.randrange(60_000, 600_000)
        inside = []
        if kind == "nested":
            places = sorted(draw.sample(range(size // BLOCK), 3))
            inside = [
                (place * BLOCK, header(b"inner%d.jpg" % draw.randrange(99), draw.choice([0, 600, 90_000])))
                for place in places
            ]
        if kind == "pax" and draw.random() < 0.5:
            extended = pax(pax_record(b"path", b"folder/" + b"%d.jpg" % number * 30))
            tar.add(extended[:BLOCK], len(extended) - BLOCK, inside=[(0, extended[BLOCK:])])
        tar.add(header(b"%06d.jpg" % number, size, magic=magic), size, inside=inside)
        if kind in {"mixed", "pax"}:
            tar.add(header(b"%06d.cls" % number, 3, magic=magic), 3)
        number += 1
    tar.end()
    return tar


@settings(max_examples=EXAMPLES)
@given(
    kind=st.sampled_from(KINDS),
    seed=st.integers(0, 1 << 32),
    nbytes=st.sampled_from([1 << 20, 9 << 20, 70 << 20]),
    lanes=st.sampled_from([1, 2, 7, 64]),
)
def test_members_are_those_of_one_pass(kind: str, seed: int, nbytes: int, lanes: int) -> None:
    tar = tar_of(kind, nbytes if kind != "small" else nbytes // 8, seed)
    whole = follow_reads(tar.read, tar.nbytes, 1 << 14)
    assert whole.fault is None
    scan = TarScan(PATH, tar.nbytes, most_lanes=lanes)
    tar.read_nbytes = 0
    assert scan_all(scan, tar.read, random.Random(seed)) == whole.members
    assert scan.read_nbytes == tar.read_nbytes


@settings(max_examples=EXAMPLES)
@given(kind=st.sampled_from(KINDS), seed=st.integers(0, 1 << 32), first=st.integers(0, 3000))
def test_a_scan_goes_on_from_bytes_that_are_there(kind: str, seed: int, first: int) -> None:
    tar = tar_of(kind, 2 << 20, seed)
    whole = follow_reads(tar.read, tar.nbytes, 1 << 14)
    scan = TarScan(PATH, tar.nbytes)
    begin = tar.read(0, min(tar.nbytes, BLOCK + first * BLOCK))
    usual = scan.take_first(begin)
    members = whole.members
    assert usual <= max(
        (after - before for before, after in pairwise([*members.begins, whole.at])), default=0
    )
    assert scan_all(scan, tar.read, random.Random(seed)) == members


def in_turns(scan: TarScan, tar: VirtualTar) -> tuple[int, int]:
    """Let all parts of a scan read once in each turn; return the number of turns, and that of parts at a time."""
    lanes, turns, most = scan.begin(), 0, 0
    while lanes:
        turns += 1
        following = []
        for lane in lanes:
            wants = lane.wants
            if wants:
                lane.take([tar.read(offset, count) for offset, count in wants])
                following.append(lane)
            else:
                following += scan.settle()
        lanes, most = following, max(most, len(following))
    return turns, most


def test_a_scan_reads_about_a_hundredth() -> None:
    tar = tar_of("mixed", 900 << 20, 7)
    scan = TarScan(PATH, tar.nbytes)
    _, most = in_turns(scan, tar)
    assert scan.members() == follow_reads(tar.read, tar.nbytes).members
    assert scan.read_nbytes < 0.013 * tar.nbytes
    assert scan.reached >= tar.nbytes - len(END)
    assert most > 8


def test_a_small_tar_is_read_in_parts_too() -> None:
    tar = tar_of("large", 28 << 20, 7)
    scan = TarScan(PATH, tar.nbytes)
    steps, _ = in_turns(scan, tar)
    found = scan.members()
    assert found == follow_reads(tar.read, tar.nbytes).members
    assert steps < len(found) / 2
    assert scan.read_nbytes < 0.02 * tar.nbytes + (1 << 20)


@with_cases("seed", range(3))
def test_a_tar_in_a_tar_does_not_mislead_a_scan(seed: int) -> None:
    draw = random.Random(seed)
    inner = b"".join(member(b"inner%d.jpg" % number, b"x" * 3000) for number in range(40)) + END
    tar = VirtualTar()
    for number in range(60):
        size = draw.randrange(len(inner), 40 * len(inner)) // BLOCK * BLOCK
        inside = [(0, inner), (size - len(inner), inner)] if size >= 2 * len(inner) else [(0, inner)]
        tar.add(header(b"%d.tar" % number, size), size, inside=inside)
    tar.end()
    scan = TarScan(PATH, tar.nbytes)
    found = scan_all(scan, tar.read, draw)
    assert found.names == [b"%d.tar" % number for number in range(60)]
    assert found == follow_reads(tar.read, tar.nbytes).members


def test_a_member_longer_than_several_parts_is_followed() -> None:
    tar = VirtualTar()
    sizes = [100_000] * 30 + [200 << 20] + [100_000] * 300
    for number, size in enumerate(sizes):
        tar.add(header(b"%d.jpg" % number, size), size)
    tar.end()
    found = scan_all(TarScan(PATH, tar.nbytes), tar.read, random.Random(1))
    assert found.sizes == sizes


@with_cases("nbytes", [0, 511, 512, 1024])
def test_files_of_a_few_bytes_are_scanned(nbytes: int) -> None:
    data = END[:nbytes]
    scan = TarScan(PATH, nbytes)
    if nbytes < BLOCK:
        with pytest.raises(SampleFormatError, match=r"empty|ends inside"):
            scan_all(scan, lambda at, count: data[at : at + count], random.Random(1))
    else:
        assert len(scan_all(scan, lambda at, count: data[at : at + count], random.Random(1))) == 0


@given(st.lists(st.integers(BLOCK, 1 << 22), min_size=1, max_size=60))
def test_reads_cover_a_run_of_small_members(strides: list[int]) -> None:
    reads = choose_reads(strides)
    assert reads.nbytes >= BLOCK
    assert all(stride < 24 << 10 for stride in reads.run)
    if reads.run:
        assert reads.nbytes == BLOCK
