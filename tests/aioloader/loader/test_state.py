"""Tests of a loader's state and of resuming from it."""

import json

import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st

from aioloader import DataLoader, ResumeError
from tests.aioloader.loader.samples import Numbers, labels
from tests.cases import with_cases


def loader(n=30, batch=4, **options):
    return DataLoader(Numbers(n), batch, shuffle=True, **{"num_workers": 0, **options})


def flat(batches):
    return sum(labels(batches), [])


@settings(max_examples=30)
@given(
    n=st.integers(1, 40),
    batch=st.integers(1, 7),
    other=st.integers(1, 7),
    stop=st.integers(0, 12),
    last_batch=st.sampled_from(["keep", "rollover"]),
)
def test_a_resumed_loader_delivers_what_was_left(n, batch, other, stop, last_batch):
    options = {"last_batch": last_batch}
    whole = loader(n, batch, **options)
    expected = [flat(whole), flat(whole)]
    first = loader(n, batch, **options)
    list(first)
    batches = iter(first)
    taken = [made for _, made in zip(range(stop), batches, strict=False)]
    state = json.loads(json.dumps(first.state_dict()))
    assert len(json.dumps(state)) < 1000
    second = loader(n, batch, **options)
    second.load_state_dict(state)
    rest = flat(second)
    if stop < len(expected[1]) / batch:
        assert flat(taken) + rest == expected[1]
    if last_batch == "keep":
        third = loader(n, other, **options)
        third.load_state_dict(state)
        assert sorted(flat(third)) == sorted(rest)


@settings(max_examples=40)
@given(
    n=st.integers(1, 40),
    batch=st.integers(1, 7),
    other=st.integers(1, 7),
    stop=st.integers(0, 12),
    last_batch=st.sampled_from(["keep", "discard", "rollover"]),
    shard=st.sampled_from([None, (0, 2), (1, 3)]),
    even=st.sampled_from(["pad", "drop", "exact"]),
    computed=st.booleans(),
)
def test_len_is_what_the_next_pass_delivers_after_a_resume_too(
    n, batch, other, stop, last_batch, shard, even, computed
):
    assume(even != "exact" or last_batch == "keep")

    def make(batch_size):
        options = {} if computed else {"sampler": list(range(n))}
        return DataLoader(
            Numbers(n), batch_size, num_workers=0, last_batch=last_batch, shard=shard, even=even, **options
        )

    first = make(batch)
    list(first)
    batches = iter(first)
    for _ in zip(range(stop), batches, strict=False):
        pass
    second = make(other)
    second.load_state_dict(first.state_dict())
    for _ in range(2):  # the rest, and the epoch after it
        told = len(second)
        assert len(list(second)) == told


def test_the_state_is_the_place_reached_until_the_next_pass():
    def place():
        state = first.state_dict()
        return state["epoch"], state["consumed"]

    first = loader()
    for _ in first:
        break
    assert place() == (0, 4)
    iter(first)
    assert place() == (1, 0)
    list(first)
    assert place() == (3, 0)  # after the last batch: the next epoch


def test_a_drawn_seed_travels_in_the_state():
    first = loader(seed=None)
    state = first.state_dict()
    second = loader(seed=0)
    second.load_state_dict(state)
    assert flat(first) == flat(second)


def test_a_batch_sampler_goes_on_by_counting_batches():
    lists = [[1, 2], [3], [4, 5, 6]]
    first = DataLoader(Numbers(9), batch_sampler=lists, num_workers=0)
    next(iter(first))
    second = DataLoader(Numbers(9), batch_sampler=lists, num_workers=0)
    second.load_state_dict(first.state_dict())
    assert len(second) == 2
    assert labels(second) == [[3], [4, 5, 6]]
    assert len(second) == 3


def test_set_epoch_chooses_the_next_pass():
    first = loader()
    epochs = [flat(first) for _ in range(3)]
    first.set_epoch(1)
    assert flat(first) == epochs[1]
    assert flat(first) == epochs[2]
    with pytest.raises(ValueError, match="epoch"):
        first.set_epoch(-1)


def test_a_loop_that_sets_every_epoch_resumes_its_first_one():
    first = loader()
    expected = [flat(loader())[8:]]
    for _, _ in zip(range(2), first, strict=False):
        pass
    second = loader()
    second.load_state_dict(first.state_dict())
    got = []
    for epoch in range(2):
        second.set_epoch(epoch)
        got.append(flat(second))
    other = loader()
    other.set_epoch(1)
    assert got == [*expected, flat(other)]
    second.load_state_dict(first.state_dict())
    second.set_epoch(1)
    second.set_epoch(0)
    assert flat(second) == flat(loader())


@with_cases(
    ("field", "value"),
    [
        ("version", 99),
        ("order_version", 0),
        ("length", 31),
        ("fingerprint", "other"),
        ("unit", "batches"),
        ("epoch", -1),
        ("consumed", "4"),
        ("seed", None),
        ("carry", [1]),
        ("carry", [[0, 1, 2], [2]]),
        ("carry", []),
        ("carry", [5, 3]),  # of a later epoch
        ("carry", [0, 99]),
        ("carry", [[1, 0, 0], [99, 0, 0]]),
        ("carry", "ab"),
        ("epoch", 2**64 - 1),
        ("epoch", True),
        ("consumed", 10**6),
        ("consumed", 31),
    ],
)
def test_a_state_that_does_not_fit_is_refused_by_name(field, value):
    state = {**loader().state_dict(), field: value}
    with pytest.raises(ResumeError) as caught:
        loader().load_state_dict(state)
    assert caught.value.field == field
    assert caught.value.found == value


@with_cases("state", [{}, {"model": {}, "epoch": 3}])
def test_a_dict_of_another_kind_is_not_blamed_on_a_version(state):
    with pytest.raises(ResumeError, match=r"it is not a state of a loader$") as caught:
        loader().load_state_dict(state)
    assert caught.value.field == "version"


def test_another_seed_is_refused_once_workers_have_theirs():
    state = {**loader().state_dict(), "seed": 8}
    used = loader()
    next(iter(used))
    before = used.state_dict()
    with pytest.raises(ResumeError, match="before the first iteration"):
        used.load_state_dict(state)
    assert used.state_dict() == before  # a refused state changes nothing


@with_cases("field", list(loader().state_dict()))
def test_a_state_without_one_of_its_entries_is_refused_by_name(field):
    state = loader().state_dict()
    del state[field]
    with pytest.raises(ResumeError) as caught:
        loader().load_state_dict(state)
    assert caught.value.field == field


@with_cases(
    ("field", "value"),
    [
        ("carry", [0, 3]),
        ("carry", [[99, 0, 0]]),
        ("carry", [[3, 1, 0]]),
        ("carry", [[3, 0]]),
        ("carry", [[3, 0, -1]]),
        ("carry", []),
        ("carry", 7),
        ("consumed", 8),
    ],
)
def test_a_state_of_an_iterated_sampler_is_checked_too(field, value):
    def made():
        return DataLoader(Numbers(30), 4, sampler=[5, -1, 2, 3, -2], last_batch="rollover", num_workers=0)

    first = made()
    assert flat(first) == [5, 29, 2, 3]
    state = json.loads(json.dumps(first.state_dict()))
    assert state["carry"] == [[-2, 0, 4]]
    second = made()
    second.load_state_dict(state)
    assert flat(second) == [28, 5, 29, 2]
    with pytest.raises(ResumeError) as caught:
        made().load_state_dict({**state, field: value})
    assert caught.value.field == field


def test_a_state_of_another_kind_of_sampler_is_refused():
    by_position = loader().state_dict()
    other = DataLoader(Numbers(30), 4, sampler=list(range(30)), num_workers=0)
    with pytest.raises(ResumeError) as caught:
        other.load_state_dict(by_position)
    assert caught.value.field == "unit"


def test_two_passes_at_once_cannot_share_a_rollover():
    one = loader(last_batch="rollover")
    first = iter(one)
    next(first)
    with pytest.raises(RuntimeError, match="rollover"):
        iter(one)
    del first
    assert len(flat(one)) == 28
    assert len(flat(one)) == 32


def test_two_passes_at_once_are_two_epochs():
    one, other = loader(), loader()
    expected = [flat(other), flat(other)]
    first, second = iter(one), iter(one)
    got = list(zip(first, second, strict=True))
    assert [flat(batches) for batches in zip(*got, strict=True)] == expected


def test_a_carry_of_more_positions_than_anybody_has_is_refused():
    state = {**loader().state_dict(), "epoch": 2**61, "carry": [0, 0]}
    with pytest.raises(ResumeError) as caught:
        loader().load_state_dict(state)
    assert caught.value.field == "carry"
    near = loader()
    near.load_state_dict({**state, "carry": [2**61 - 2, 0]})
    assert len(near) == 23  # three epochs of 30 in batches of four
