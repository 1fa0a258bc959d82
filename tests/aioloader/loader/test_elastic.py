"""Tests of any world size before and after a stop: all ranks deliver the epoch's order, proved by receipts."""

import asyncio
import dataclasses
import itertools
import json
import tracemalloc
from collections import namedtuple

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader import ArrayDataset, AsyncDataLoader, DataLoader, Receipt, ReceiptError
from aioloader.errors import UnshardedWarning
from aioloader.loader.options import LoaderOptions
from aioloader.samplers import BatchSampler, RandomSampler
from tests.aioloader.loader.samples import Made, Numbers, labels
from tests.cases import with_cases


def in_memory(n):
    """Return a dataset whose item i is (i, i)."""
    return ArrayDataset(np.arange(n), np.arange(n))


Taken = namedtuple("Taken", "steps state receipt")
"""Batches, state and receipt of one rank after some steps."""


def take(options, state=None, epoch=0, steps=None, n=30, dataset=None, face="blocking"):
    """Run one rank from a state on, for some steps, or to the end of the epoch."""
    cls = DataLoader if face == "blocking" else AsyncDataLoader
    loader = cls(in_memory(n) if dataset is None else dataset, **options)
    if state is None:
        loader.set_epoch(epoch)
    else:
        loader.load_state_dict(state)

    def taken(found):
        return Taken(labels(found), json.loads(json.dumps(loader.state_dict())), loader.receipt())

    async def awaited():
        async with loader:
            found = []
            while len(found) != steps:
                if not found:
                    batches = aiter(loader)
                found.append(await anext(batches, None))
                if found[-1] is None:
                    return taken(found[:-1])
            return taken(found)

    if cls is AsyncDataLoader:
        return asyncio.run(awaited())
    with loader:
        return taken([*itertools.islice(loader, steps)] if steps != 0 else [])


def world(count, options, **how):
    """Run all ranks of a world."""
    return [take({**options, "shard": (rank, count)}, **how) for rank in range(count)]


def order(ranks):
    """Return the samples of all ranks in the order of the epoch: step by step, rank by rank."""
    assert len({len(rank.steps) for rank in ranks}) == 1
    return [
        index for step in zip(*(rank.steps for rank in ranks), strict=True) for part in step for index in part
    ]


def stop_and_go_on(draw, dataset, n, most_ranks=4, **options):
    """Draw three worlds; stop two at a step, resume in the next one, and compare with the whole order."""
    epoch = draw(st.integers(0, 3), label="epoch")
    even = draw(st.sampled_from(["pad", "exact"]), label="even")
    whole = RandomSampler(n).indices(7, epoch, 0, n).tolist()
    got, receipts, state = [], [], None
    for stops in (True, True, False):
        count = draw(st.integers(1, most_ranks), label="world")
        batch = draw(st.integers(1, 5), label="batch_size")
        left = n - len(got)
        drawn = {name: draw(choice, label=name) for name, choice in options.items()}
        ranks = world(
            count,
            {**drawn, "batch_size": batch, "shuffle": True, "seed": 7, "even": even},
            state=state,
            epoch=epoch,
            steps=draw(st.integers(0, left // (count * batch)), label="steps") if stops else None,
            n=n,
            dataset=dataset,
            face=draw(st.sampled_from(["blocking", "blocking", "async"]), label="face"),
        )
        got += order(ranks)
        receipts += [rank.receipt for rank in ranks]
        assert all(rank.state == ranks[0].state for rank in ranks)
        state = ranks[0].state
        if len(got) >= n:  # stopped after the last step: the next epoch would follow
            break
    assert got[:n] == whole
    assert even == "pad" or len(got) == n
    assert set(got[n:]) <= set(whole)  # padding of the last step
    merged = sum(receipts)
    assert (merged.epoch, merged.start, merged.stop) == (epoch, 0, n)
    assert (merged.seen, merged.padded, merged.skipped) == (n, len(got) - n, 0)
    DataLoader(in_memory(n), 3, shuffle=True, seed=7).check_receipt(merged)


@settings(max_examples=40)
@given(data=st.data())
def test_a_run_stopped_and_resumed_in_another_world_is_the_uninterrupted_one(data):
    n = data.draw(st.integers(1, 60), label="n")
    stop_and_go_on(data.draw, None, n)


@pytest.mark.slow
@settings(max_examples=10)
@given(data=st.data())
def test_nor_do_threads_change_it(data):
    n = data.draw(st.integers(1, 60), label="n")
    workers = st.sampled_from([0, 1, 3])
    stop_and_go_on(data.draw, Numbers(n), n, num_workers=workers, executor=st.just("thread"))


@settings(max_examples=12)
@given(
    n=st.integers(1, 40),
    batch=st.integers(1, 5),
    count=st.integers(1, 3),
    fail=st.sets(st.integers(0, 39), max_size=12),
)
def test_samples_that_failed_are_in_the_receipt(n, batch, count, fail):
    ranks = world(
        count, {"batch_size": batch, "num_workers": 0, "on_error": "skip"}, dataset=Numbers(n, fail=fail)
    )
    merged = sum(rank.receipt for rank in ranks)
    bad = {index for index in fail if index < n}
    delivered = [index for rank in ranks for step in rank.steps for index in step]
    assert merged.skipped == len(bad)
    assert merged.seen == n - len(bad)
    assert merged.seen + merged.padded == len(delivered)
    assert set(delivered) == set(range(n)) - bad
    DataLoader(in_memory(n), 1, num_workers=0).check_receipt(merged)


def test_a_sample_that_came_twice_instead_of_another_is_found():
    def given_out(indices):
        with DataLoader(in_memory(30), 5, sampler=indices, num_workers=0) as loader:
            list(loader)
            return loader.receipt()

    right = DataLoader(in_memory(30), 5, num_workers=0)
    right.check_receipt(given_out(list(range(30))))
    right.check_receipt(given_out(list(range(29, -1, -1))))
    for wrong in ([*range(29), 28], [1, *range(1, 30)]):
        with pytest.raises(ReceiptError, match="not all are the right ones") as caught:
            right.check_receipt(given_out(wrong))
        assert caught.value.field == "digest"


def test_receipts_with_rollover_say_where_the_stream_began():
    options = {"batch_size": 4, "last_batch": "rollover", "shuffle": True, "num_workers": 0}
    with DataLoader(in_memory(10), **options) as loader:
        found = []
        for _ in range(3):
            list(loader)
            found.append(loader.receipt())
    assert [(each.seen, each.stop, each.carry) for each in found] == [
        (8, 8, None),
        (12, 12, [0, 8]),
        (8, 8, None),
    ]
    for each in found:
        DataLoader(in_memory(10), **options).check_receipt(
            Receipt(**json.loads(json.dumps(dataclasses.asdict(each))))
        )
    with pytest.raises(ValueError, match="only receipts of one epoch"):
        found[0] + found[1]


def test_a_receipt_before_and_amid_a_pass():
    loader = DataLoader(in_memory(30), 4, shuffle=True, num_workers=0)
    assert loader.receipt() == Receipt(0, 0, 0)
    batches = iter(loader)
    next(batches)
    next(batches)
    assert (loader.receipt().seen, loader.receipt().stop) == (8, 8)
    loader.check_receipt(loader.receipt())
    list(batches)
    assert loader.receipt().seen == 30


def test_what_cannot_be_had_again_cannot_be_checked():
    class Lists:
        def __iter__(self):
            yield [1, 2]

    for options in ({"sampler": [1, 2], "batch_size": 1}, {"batch_sampler": Lists()}):
        loader = DataLoader(in_memory(9), num_workers=0, **options)
        list(loader)
        assert loader.receipt().seen == 2
        with pytest.raises(TypeError, match="cannot be computed again"):
            loader.check_receipt(loader.receipt())


@with_cases("last_batch", ["keep", "discard", "rollover"])
def test_a_batch_sampler_over_a_computed_order_is_resumed_in_a_new_process(last_batch):
    def made():
        sampler = BatchSampler(RandomSampler(10), 4, last_batch)
        return DataLoader(in_memory(10), batch_sampler=sampler, num_workers=0, seed=5)

    whole = made()
    assert len(whole) == (3 if last_batch == "keep" else 2)
    expected = [labels(whole), labels(whole), labels(whole)]
    first = made()
    list(first)
    batches = iter(first)
    begun = labels([next(batches)])
    second = made()
    second.load_state_dict(json.loads(json.dumps(first.state_dict())))
    assert begun + labels(second) == expected[1]
    assert labels(second) == expected[2]


HUGE = Made(10**9, int)  # a length, and no stored items


def test_a_loader_of_a_billion_samples_and_its_state_take_less_than_a_megabyte():
    tracemalloc.start()
    try:
        loader = DataLoader(HUGE, 64, shuffle=True, num_workers=0, shard=(1, 8))
        assert len(loader) == 10**9 // 512
        state = {**loader.state_dict(), "consumed": 9 * 10**8}
        loader.load_state_dict(state)
        assert len(loader) == -(-(10**8) // 512)
        assert tracemalloc.get_traced_memory()[1] < 1_000_000
    finally:
        tracemalloc.stop()


def test_a_billion_samples_are_resumed_without_a_scan():
    options = {"batch_size": 64, "shuffle": True, "num_workers": 0, "shard": (1234, 4096)}
    first = DataLoader(HUGE, **options)
    state = {**first.state_dict(), "consumed": 64 * 4096 * 3400}
    first.load_state_dict(state)
    batch = next(iter(first))
    low = 64 * 4096 * 3400 + 64 * 1234
    assert batch.tolist() == RandomSampler(10**9).indices(0, 0, low, low + 64).tolist()
    assert first.receipt().start == state["consumed"]
    assert first.receipt().seen == 64


@settings(max_examples=30)
@given(data=st.data())
def test_what_is_rolled_over_goes_on_in_another_world(data):
    n = data.draw(st.integers(1, 40), label="n")
    before, after = (data.draw(st.integers(1, 3), label="world") for _ in range(2))
    batch, other = (data.draw(st.integers(1, 5), label="batch_size") for _ in range(2))
    carried = n % (before * batch)
    steps = data.draw(st.integers(0, (n + carried) // (before * batch)), label="steps")
    options = {"shuffle": True, "last_batch": "rollover", "num_workers": 0, "seed": 7}
    whole = [index for epoch in (0, 1) for index in RandomSampler(n).indices(7, epoch, 0, n).tolist()]

    def together(ranks):
        return [index for step in zip(*ranks, strict=True) for part in step for index in part]

    earlier, first, receipts = [], [], []
    for rank in range(before):
        with DataLoader(in_memory(n), batch, shard=(rank, before), **options) as loader:
            earlier.append(labels(loader))
            first.append(labels(itertools.islice(loader, steps)))
            state = json.loads(json.dumps(loader.state_dict()))
            receipts.append(loader.receipt())
    rest = []
    for rank in range(after):
        with DataLoader(in_memory(n), other, shard=(rank, after), **options) as loader:
            loader.load_state_dict(state)
            rest.append(labels(loader))
            receipts.append(loader.receipt())
    got = together(earlier) + together(first) + together(rest)
    assert got == whole[: len(got)]
    assert len(whole) - len(got) < after * other
    DataLoader(in_memory(n), 1, **options).check_receipt(sum(receipts))


def name_rank(monkeypatch, variables):
    for name in ("RANK", "WORLD_SIZE"):
        monkeypatch.delenv(name, raising=False)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)


def test_ranks_without_a_shard_are_warned_and_share_the_cores(monkeypatch):
    name_rank(monkeypatch, {"RANK": "1", "WORLD_SIZE": "2", "LOCAL_WORLD_SIZE": "2"})
    monkeypatch.setattr("aioloader.foundation.host_limits.available_cores", lambda: 9)
    with pytest.warns(UnshardedWarning, match=r"WORLD_SIZE is 2.*shard='auto'"):
        options = LoaderOptions([1], 4, shuffle=True)
    assert options.workers == 4
    for wanted in (
        {"shuffle": True, "shard": (0, 1)},
        {"shuffle": True, "shard": "auto"},
        {"shuffle": False},
    ):
        LoaderOptions([1], 4, **wanted)  # a warning is an error


@with_cases(
    ("variables", "expected"),
    [({}, (0, 1)), ({"RANK": "2", "WORLD_SIZE": "3"}, (2, 3)), ({"RANK": "0", "WORLD_SIZE": "1"}, (0, 1))],
)
def test_auto_is_the_shard_that_the_environment_names(monkeypatch, variables, expected):
    name_rank(monkeypatch, variables)
    options = {"batch_size": 4, "shuffle": True, "num_workers": 0}
    assert take({**options, "shard": "auto"}).steps == take({**options, "shard": expected}).steps


@with_cases(("rank", "size"), [(None, "3"), ("1", None), ("3", "3"), ("-1", "3"), ("", "3"), ("one", "3")])
def test_an_environment_that_names_no_shard_is_refused(monkeypatch, rank, size):
    given = {"RANK": rank, "WORLD_SIZE": size}
    name_rank(monkeypatch, {name: value for name, value in given.items() if value is not None})
    with pytest.raises(ValueError, match="0 <= RANK < WORLD_SIZE"):
        DataLoader(in_memory(30), 4, shard="auto", num_workers=0)


def test_ranks_that_would_draw_a_seed_each_are_refused():
    with pytest.raises(ValueError, match="seed=None draws another seed in every process"):
        DataLoader(in_memory(30), 4, shuffle=True, shard=(0, 2), seed=None, num_workers=0)
    assert len(DataLoader(in_memory(30), 4, shuffle=True, shard=(0, 1), seed=None, num_workers=0)) == 8
