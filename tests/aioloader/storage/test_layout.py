"""Tests of the layout of a read: the place of every item's bytes, in few reads."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aioloader.foundation.types import Spans
from aioloader.storage.layout import ALIGNMENT, lay_out, plan_apart
from tests.aioloader.storage.reading import spans
from tests.cases import with_cases


@given(
    st.lists(st.tuples(st.integers(0, 3), st.integers(0, 400), st.integers(0, 90)), max_size=30),
    st.sampled_from([0, 1, 16, 1000]),
)
def test_the_place_of_every_item_is_where_its_bytes_are_read_to(
    triples: list[tuple[int, int, int]], gap: int
) -> None:
    wanted = spans(*triples)
    nbytes, start, table = lay_out(wanted.file, wanted.offset, wanted.length, max_gap_bytes=gap)
    reads = table.tolist()

    taken = sorted((place, place + max(size, 1)) for _, _, size, place in reads)
    assert all(end <= begin for (_, end), (begin, _) in itertools.pairwise(taken))
    assert all(end <= nbytes for _, end in taken)
    assert all(place % ALIGNMENT == 0 for *_, place in reads)
    for (file, offset, length), place in zip(triples, start.tolist(), strict=True):
        covering = [
            read
            for read in reads
            if read[0] == file
            and read[3] <= place
            and place + length <= read[3] + read[2]
            and read[1] + (place - read[3]) == offset
        ]
        assert covering


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 300), st.integers(1, 50)), min_size=1, max_size=30)
)
def test_reads_are_merged_exactly_where_the_gap_is_small(triples: list[tuple[int, int, int]]) -> None:
    wanted = spans(*triples)
    reads = lay_out(wanted.file, wanted.offset, wanted.length, max_gap_bytes=10)[2].tolist()

    wanted_bytes = {
        (file, byte) for file, offset, length in triples for byte in range(offset, offset + length)
    }
    for file, offset, size, _ in reads:
        assert (file, offset) in wanted_bytes
        assert (file, offset + size - 1) in wanted_bytes
    for one, other in zip(sorted(reads), sorted(reads)[1:], strict=False):
        if one[0] == other[0]:
            assert other[1] - (one[1] + one[2]) > 10


@with_cases(
    ("triples", "count"),
    [
        ([(0, 0, 10), (0, 10, 10), (0, 20, 10)], 1),
        ([(0, 20, 10), (0, 0, 10), (0, 10, 10)], 1),
        ([(0, 0, 10), (0, 0, 10)], 1),
        ([(0, 0, 30), (0, 5, 5), (0, 20, 20)], 1),
        ([(0, 0, 10), (0, 26, 10)], 1),
        ([(0, 0, 10), (0, 27, 10)], 2),
        ([(0, 0, 10), (1, 10, 10)], 2),
        ([(0, 2**61, 10), (1, 0, 10), (2, 2**61, 10)], 3),
        ([], 0),
    ],
    ids=["touch", "any-order", "repeat", "overlap", "gap", "wide-gap", "files", "far-offsets", "nothing"],
)
def test_neighbours_become_one_read(triples: list[tuple[int, int, int]], count: int) -> None:
    wanted = spans(*triples)

    assert len(lay_out(wanted.file, wanted.offset, wanted.length, max_gap_bytes=16)[2]) == count


@given(
    items=st.lists(
        st.tuples(st.integers(0, 500), st.integers(1, 300), st.integers(0, 300), st.integers(0, 300)),
        min_size=1,
        max_size=12,
    )
)
def test_items_with_gaps_have_none_in_memory(items: list[tuple[int, int, int, int]]) -> None:
    """A span is an offset, and the bytes before the gap, of the gap, and behind it; without a gap it is whole."""
    file = bytes(number % 251 for number in range(2000))
    offset, before, gap, behind = np.array(items, np.int64).T
    partial = before % 2 == 1
    gaps = np.where(partial[:, None], np.stack((before, gap), 1), 0)
    length = before + gap + behind
    plan = plan_apart(Spans(np.zeros(len(items), np.int64), offset, length, gaps), length.copy())
    out = bytearray(plan.nbytes)
    for _, at, nbytes, place in plan.reads.tolist():
        out[place : place + nbytes] = file[at : at + nbytes]
    for item, (at, first, left_out, last) in enumerate(items):
        expected = file[at : at + first + left_out + last]
        if partial[item]:
            expected = expected[:first] + expected[first + left_out :]
        start, nbytes = int(plan.start[item]), int(plan.length[item])
        assert out[start : start + nbytes] == expected
    assert plan.partial is not None
    assert plan.partial.tolist() == partial.tolist()
    # The reads of whole items, and the first ones of all others, are in the order of the items.
    assert plan.reads[: len(items), 3].tolist() == plan.start.tolist()
    assert plan.nbytes <= sum(-(-n // 64) * 64 for n in plan.length.tolist())


def test_an_item_with_a_gap_that_failed_is_not_read() -> None:
    wanted = Spans(np.zeros(2, np.int64), np.array([0, 50]), np.array([40, 40]), np.array([[8, 16], [8, 16]]))
    plan = plan_apart(wanted, wanted.length.copy(), [(0, ValueError())])
    assert plan.start.tolist() == [-1, 64]
    assert plan.length.tolist() == [0, 24]
    assert plan.reads[plan.reads[:, 2] > 0].tolist() == [[0, 50, 8, 64], [0, 74, 16, 72]]
