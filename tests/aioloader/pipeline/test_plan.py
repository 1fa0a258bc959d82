"""Tests of position arithmetic: the samples of each rank's batches, and resuming with another world size."""

import itertools

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aioloader.pipeline.plan import BatchSchedule, EpochPlan, IteratedStream, ListPlan, PositionalStream
from aioloader.samplers import RandomSampler, SequentialSampler
from tests.cases import with_cases


def batches(n, schedule, start=0, epoch=0, carry=None, sampler=None):
    stream = PositionalStream(sampler or SequentialSampler(n), 0, epoch, carry)
    plan = EpochPlan(stream, schedule, start)
    return [batch.indices.tolist() for batch in plan], plan


def test_the_last_batch_is_kept_discarded_or_rolled_over():
    whole = [[0, 1, 2], [3, 4, 5]]
    assert batches(7, BatchSchedule(3, "keep"))[0] == [*whole, [6]]
    assert batches(7, BatchSchedule(3, "discard"))[0] == batches(7, BatchSchedule(3, "rollover"))[0] == whole


def test_rollover_goes_on_as_gluon_does():
    carry, seen = None, []
    for epoch in range(3):
        made, plan = batches(7, BatchSchedule(3, "rollover"), epoch=epoch, carry=carry)
        seen.append(made)
        carry = plan.carry()
    assert seen == [
        [[0, 1, 2], [3, 4, 5]],
        [[6, 0, 1], [2, 3, 4]],
        [[5, 6, 0], [1, 2, 3], [4, 5, 6]],
    ]
    assert carry is None


def test_rollover_carries_samples_of_several_small_epochs():
    carry, seen = None, []
    for epoch in range(5):
        made, plan = batches(2, BatchSchedule(5, "rollover"), epoch=epoch, carry=carry)
        seen.append(made)
        carry = plan.carry()
    assert seen == [[], [], [[0, 1, 0, 1, 0]], [], [[1, 0, 1, 0, 1]]]


def test_epochs_that_were_carried_over_whole_keep_their_orders():
    sampler = RandomSampler(50)
    found = PositionalStream(sampler, 7, 2, (0, 0)).take(0, 150).indices
    assert found.tolist() == [
        index for epoch in range(3) for index in sampler.indices(7, epoch, 0, 50).tolist()
    ]


def test_a_carried_sample_keeps_the_epoch_it_is_drawn_for():
    plan = EpochPlan(PositionalStream(SequentialSampler(4), 0, 3, (2, 3)), BatchSchedule(3, "rollover"))
    first = next(iter(plan))
    assert first.indices.tolist() == [3, 0, 1]
    assert first.epochs.tolist() == [2, 3, 3]


@with_cases("even", ["pad", "drop"])
def test_every_rank_has_the_same_number_of_full_batches(even):
    per_rank = []
    for rank in range(3):
        schedule = BatchSchedule(2, rank=rank, world=3, even=even)
        per_rank.append(list(EpochPlan(PositionalStream(SequentialSampler(25), 0, 0), schedule)))
    assert {len(plans) for plans in per_rank} == ({5} if even == "pad" else {4})
    assert all(len(plan.indices) == 2 for plans in per_rank for plan in plans)
    real = sum(len(plan.indices) - plan.padded for plans in per_rank for plan in plans)
    assert real == (25 if even == "pad" else 24)


def test_a_single_rank_is_never_padded():
    plans = list(EpochPlan(PositionalStream(SequentialSampler(5), 0, 0), BatchSchedule(3)))
    assert [plan.padded for plan in plans] == [0, 0]
    assert [len(plan.indices) for plan in plans] == [3, 2]


@given(
    n=st.integers(0, 60),
    batch=st.integers(1, 9),
    world=st.integers(1, 4),
    stop=st.integers(0, 10),
    batch2=st.integers(1, 9),
    world2=st.integers(1, 4),
    epoch=st.integers(0, 3),
    even=st.sampled_from(["pad", "exact"]),
)
def test_stopping_and_going_on_with_other_ranks_repeats_and_loses_nothing(
    n, batch, world, stop, batch2, world2, epoch, even
):
    sampler = RandomSampler(n)

    def ranks(schedule_of, start, steps=None):
        per_rank = []
        for rank in range(schedule_of(0).world):
            stream = PositionalStream(sampler, 5, epoch)
            per_rank.append(list(itertools.islice(EpochPlan(stream, schedule_of(rank), start), steps)))
        assert len({len(plans) for plans in per_rank}) == 1
        for plan in itertools.chain(*per_rank):
            assert plan.positions.tolist() == [*range(plan.position, plan.position + len(plan.indices))]
            assert even == "pad" or plan.padded == 0
        return per_rank

    def real(per_rank):
        seen = []
        for step in itertools.zip_longest(*per_rank):
            for plan in step:
                if plan is not None:
                    seen += plan.indices[: len(plan.indices) - plan.padded].tolist()
        return seen

    before = ranks(lambda rank: BatchSchedule(batch, rank=rank, world=world, even=even), 0, stop)
    consumed = max([plan.consumed for plans in before for plan in plans], default=0)
    after = ranks(lambda rank: BatchSchedule(batch2, rank=rank, world=world2, even=even), consumed)
    assert real(before) + real(after) == sampler.indices(5, epoch, 0, n).tolist()


@given(st.lists(st.integers(0, 50), max_size=40), st.integers(1, 7), st.integers(0, 5))
def test_an_iterated_sampler_gives_the_same_batches_as_slicing(indices, batch, skip):
    plan = EpochPlan(IteratedStream(indices, 0), BatchSchedule(batch), skip * batch)
    expected = [indices[p : p + batch] for p in range(skip * batch, len(indices), batch)]
    assert [made.indices.tolist() for made in plan] == expected


def test_an_iterated_sampler_rolls_over():
    plan = EpochPlan(IteratedStream([5, 3, 1, 4], 0), BatchSchedule(3, "rollover"))
    assert [made.indices.tolist() for made in plan] == [[5, 3, 1]]
    carry = plan.carry()
    assert carry == [[4, 0, 3]]
    plan = EpochPlan(IteratedStream([7, 8, 9], 1, carry), BatchSchedule(3, "rollover"))
    (first,) = plan
    assert first.indices.tolist() == [4, 7, 8]
    assert first.epochs.tolist() == [0, 1, 1]


def test_ranks_share_an_iterated_sampler():
    made = []
    for rank in range(2):
        plan = EpochPlan(IteratedStream(range(10), 0, whole=True), BatchSchedule(2, rank=rank, world=2))
        made.append([batch.indices.tolist() for batch in plan])
    assert made == [[[0, 1], [4, 5], [8, 9]], [[2, 3], [6, 7], [0, 1]]]


def test_a_batch_sampler_gives_its_own_batches():
    plans = list(ListPlan([[1, 2], [3]], 4))
    assert [plan.indices.tolist() for plan in plans] == [[1, 2], [3]]
    assert [plan.consumed for plan in plans] == [1, 2]
    assert plans[0].epochs.tolist() == [4, 4]
    assert [plan.indices.tolist() for plan in ListPlan([[1, 2], [3]], 4, 1)] == [[3]]


def test_batches_may_be_arrays_of_one_block():
    block = np.arange(10)
    plans = list(ListPlan([block[:4], block[4:9], np.array([7], np.int32)], 2))
    assert [plan.indices.tolist() for plan in plans] == [[0, 1, 2, 3], [4, 5, 6, 7, 8], [7]]
    assert [plan.indices.base is block for plan in plans] == [True, True, False]
    assert [plan.epochs.tolist() for plan in plans] == [[2] * 4, [2] * 5, [2]]
    assert all(plan.indices.dtype == np.int64 for plan in plans)


def test_a_batch_sampler_is_asked_for_its_order_when_the_plan_is_made():
    asked = []

    class Batches:
        def __iter__(self):
            asked.append(True)
            return iter([[0]])

    plan = ListPlan(Batches(), 0)
    assert asked == [True]
    assert len(list(plan)) == 1
    assert asked == [True]


def test_a_block_border_changes_nothing():
    sampler = RandomSampler(20_000)
    plan = EpochPlan(PositionalStream(sampler, 1, 2), BatchSchedule(300))
    made = np.concatenate([batch.indices for batch in plan])
    assert np.array_equal(made, sampler.indices(1, 2, 0, 20_000))


@with_cases("length", range(1, 12))
def test_a_schedule_that_pads_fills_the_last_batch_from_the_start(length):
    schedule = BatchSchedule(4, "pad")
    rows, first = [], 0
    while (batch := schedule.batch(first, length - first)) is not None:
        start, stop, padded = batch
        rows.append([*range(start, stop), *schedule.padding(first, length - first).tolist()])
        assert rows[-1] == list(range(start, start + 4))
        assert padded == 4 - (stop - start)
        first += 4
    assert len(rows) == schedule.steps(length)


@with_cases("iterated", [False, True])
@with_cases("world", [1, 2, 3])
def test_positions_do_not_depend_on_the_ranks(world, iterated):
    sampler = SequentialSampler(11)
    seen = []
    for rank in range(world):
        stream = IteratedStream(sampler, 3, whole=True) if iterated else PositionalStream(sampler, 0, 3)
        schedule = BatchSchedule(2, "pad", rank, world)
        for plan in EpochPlan(stream, schedule):
            seen += zip(plan.positions.tolist(), plan.indices.tolist(), plan.epochs.tolist(), strict=True)
    # Repeated samples have positions behind the end.
    assert sorted(seen) == [(p, p % 11, 3) for p in range(len(seen))]


def test_samples_carried_over_keep_their_positions():
    for sampler in (SequentialSampler(5), [0, 1, 2, 3, 4]):
        carry, seen = None, []
        for epoch in range(3):
            if isinstance(sampler, list):
                stream = IteratedStream(sampler, epoch, carry)
            else:
                stream = PositionalStream(sampler, 0, epoch, carry)
            plan = EpochPlan(stream, BatchSchedule(3, "rollover"))
            for made in plan:
                seen += zip(made.epochs.tolist(), made.positions.tolist(), strict=True)
                assert made.positions.tolist() == made.indices.tolist()
            carry = plan.carry()
        assert seen == [(epoch, place) for epoch in range(3) for place in range(5)]


def test_a_resumed_iterated_sampler_counts_positions_from_its_start():
    plan = EpochPlan(IteratedStream([7, 7, 7, 8, 8], 0), BatchSchedule(2), 2)
    assert [made.positions.tolist() for made in plan] == [[2, 3], [4]]


def test_positions_of_a_batch_sampler_count_its_samples():
    whole = [plan.positions.tolist() for plan in ListPlan([[1, 1], [1], [1, 1]], 4)]
    assert whole == [[0, 1], [2], [3, 4]]
    assert [plan.positions.tolist() for plan in ListPlan([[1, 1], [1], [1, 1]], 4, 1)] == whole[1:]


@with_cases(
    ("plan", "left"),
    [
        (EpochPlan(PositionalStream(SequentialSampler(7), 0, 0), BatchSchedule(3)), [2, 1, 0]),
        (EpochPlan(PositionalStream(SequentialSampler(7), 0, 0), BatchSchedule(3, "discard")), [1, 0]),
        (EpochPlan(PositionalStream(SequentialSampler(7), 0, 0), BatchSchedule(3), 3), [1, 0]),
        (EpochPlan(PositionalStream(SequentialSampler(2), 0, 1, (0, 1)), BatchSchedule(2)), [1, 0]),
        (
            EpochPlan(PositionalStream(SequentialSampler(9), 0, 0), BatchSchedule(2, rank=1, world=2)),
            [2, 1, 0],
        ),
        (EpochPlan(IteratedStream(range(7), 0, [[9, 0, 0]]), BatchSchedule(4)), [1, 0]),
        (EpochPlan(IteratedStream(iter(range(4)), 0), BatchSchedule(2)), [None, None]),
        (EpochPlan(IteratedStream(iter(range(4)), 0, whole=True), BatchSchedule(1, world=2)), [1, 0]),
        (ListPlan([[1], [2], [3]], 0, 1), [1, 0]),
        (ListPlan(iter([[1], [2]]), 0), [None, None]),
    ],
)
def test_a_batch_knows_how_many_batches_are_left(plan, left):
    assert [batch.left for batch in plan] == left


def test_a_sampler_whose_length_is_wrong_or_raises_is_planned_to_its_end():
    class Wrong(list):
        def __len__(self):
            return 1

    class Raises(list):
        def __len__(self):
            raise NotImplementedError

    for kind, left in ((Wrong, [0, 0, 0]), (Raises, [None, None, None])):
        assert [batch.left for batch in ListPlan(kind([[1], [2], [3]]), 0)] == left
        plans = list(EpochPlan(IteratedStream(kind([1, 2, 3]), 0), BatchSchedule(1)))
        assert [batch.left for batch in plans] == left
        assert [batch.indices.tolist() for batch in plans] == [[1], [2], [3]]
