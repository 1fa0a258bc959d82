"""Rows of batches: every record once a pass, equal steps for all parts; of lists: those of a plain walk."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioloader.mxnet as mx
from aioloader.mxnet.io.schedule import LAST_BATCH, ListSchedule, Part, RecordSchedule, part_of


@given(
    st.integers(1, 40),
    st.booleans(),
    st.integers(1, 12),
    st.booleans(),
    st.none() | st.integers(0, 2**64 - 1),
)
def test_every_record_comes_once_and_pads_are_reported(count, longer, size, round_batch, seed):
    longest = count + longer
    if round_batch and size > 2 * longest:
        return
    # Three records of another part come before.
    part = Part(count + 10, 3, count, longest)
    schedule = RecordSchedule(part, size, round_batch, seed)
    owed = 0
    seen = []
    for _ in range(4):
        batches = list(schedule)
        for number, rows in enumerate(batches):
            assert np.array_equal(schedule.batch(number), rows)
            assert schedule.pad(number) == int((rows >= part.total).sum()) + size - len(rows)
        assert len(batches) == len(schedule) == -(-(longest - owed) // size)
        assert all(len(batch) == size for batch in batches[: len(batches) if round_batch else -1])
        rows = np.concatenate(batches)
        real = rows < part.total
        # Rows that fill up come last.
        assert not real[np.argmin(real) :].any() or real.all()
        seen += rows[real].tolist()
        if round_batch:
            owed = (owed + len(rows)) % longest
        filling = rows[~real] - part.total
        assert ((filling >= 3) & (filling < 3 + count)).all()
        schedule.advance()
    if not round_batch:
        assert sorted(seen) == sorted([*range(3, 3 + count)] * 4)


@given(st.integers(1, 30), st.integers(1, 7), st.none() | st.integers(0, 99))
def test_what_was_borrowed_is_not_given_again(count, size, seed):
    if size > count:
        return
    schedule = RecordSchedule(part_of(count, 1, 0), size, True, seed)
    rows = []
    for _ in range(5):
        rows += [int(row) % count for batch in schedule for row in batch]
        schedule.advance()
    # One endless stream of whole orders.
    for start in range(0, len(rows) - count + 1, count):
        assert sorted(rows[start : start + count]) == list(range(count))


@given(st.integers(0, 50), st.integers(1, 9), st.integers(1, 8), st.booleans(), st.integers(1, 4))
def test_all_parts_take_the_same_steps(total, parts, size, round_batch, turns):
    shares = [part_of(total, parts, number) for number in range(parts)]
    longest = shares[0].longest
    if round_batch and size > 2 * longest:
        return
    steps = []
    seen = []
    for part in shares:
        assert longest - 1 <= part.length <= part.longest == longest
        seen += range(part.first, part.first + part.length)
        schedule = RecordSchedule(part, size, round_batch)
        taken = []
        for _ in range(turns):
            taken.append(sum(1 for _ in schedule))
            schedule.advance()
        if part.length:
            steps.append(taken)
        else:
            assert taken == [0] * turns
    assert all(taken == steps[0] for taken in steps)
    assert seen == list(range(total))


def test_a_pass_that_is_left_goes_back_to_the_start():
    schedule = RecordSchedule(part_of(10, 1, 0), 4, True)
    schedule.advance()
    schedule.rewind()
    assert next(iter(schedule)).tolist() == [0, 1, 2, 3]
    shuffled = RecordSchedule(part_of(100, 1, 0), 100, True, 7)
    first = next(iter(shuffled)).tolist()
    shuffled.rewind()
    second = next(iter(shuffled)).tolist()
    assert first != second
    assert sorted(first) == sorted(second) == list(range(100))


def test_long_passes_are_made_in_blocks():
    schedule = RecordSchedule(part_of(70_000, 1, 0), 64, True, 3)
    rows = np.concatenate(list(schedule))
    assert len(rows) == 70_016
    assert np.array_equal(np.sort(rows[:70_000]), np.arange(70_000))


def test_a_batch_much_larger_than_the_data_is_refused():
    with pytest.raises(mx.MXNetError, match="number of input images must be bigger than the batch size"):
        RecordSchedule(part_of(4, 1, 0), 9, True)
    assert [batch.tolist() for batch in RecordSchedule(part_of(4, 1, 0), 8, True)] == [
        [0, 1, 2, 3, 4, 5, 6, 7]
    ]
    assert [len(batch) for batch in RecordSchedule(part_of(4, 1, 0), 9, False)] == [4]


def _walked(order, start, kept, size, handle):
    rows = kept + order[start:]
    batches = [rows[at : at + size] for at in range(0, len(rows), size)]
    if batches and len(batches[-1]) < size:
        last = batches.pop()
        if handle == "pad":
            batches.append((last + order * size)[:size])
    return batches


@given(
    count=st.integers(1, 23),
    start=st.integers(0, 23),
    carried=st.integers(0, 5),
    size=st.integers(1, 9),
    handle=st.sampled_from(list(LAST_BATCH)),
)
def test_batches_are_those_of_a_walk(count, start, carried, size, handle):
    order, start = list(range(100, 100 + count)), min(start, count)
    kept = list(range(min(carried, size - 1))) if handle == "roll_over" else []
    schedule = ListSchedule(size, handle)
    schedule.begin(order, start, kept)
    expected = _walked(order, start, kept, size, handle)
    assert list(schedule) == expected
    assert len(schedule) == len(expected)
    given_out = kept + order[start:]
    assert schedule.left() == (given_out[len(expected) * size :] if handle == "roll_over" else [])
    for number, batch in enumerate(expected):
        short = (number + 1) * size - len(given_out)
        assert schedule.pad(number) == max(0, short)
        assert schedule.kept_in(number) == len([item for item in batch if item < 100])
        for place in range(size):
            behind, rest = schedule.behind(number, place)
            assert rest + order[behind:] == given_out[number * size + place + 1 :]


def test_an_empty_pass_has_no_batches():
    for handle in LAST_BATCH:
        schedule = ListSchedule(4, handle)
        assert list(schedule) == []
        schedule.begin([], 0, [])
        assert list(schedule) == []
