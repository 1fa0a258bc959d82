"""Tests of the choice of an executor from given rates."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader.executors.tuning.tuner import ExecutorTuner, Trial, describe_workers


def climb(ladder, sample_s, allowed=1000):
    """Measure trials until one is chosen; `sample_s(step)` is a sample's time in one of its workers."""
    tried = []
    while ladder.chosen is None:
        step = ladder.step
        tried.append((step.kind, step.workers))
        while not step.measured:
            step.enter(32, 32 * sample_s(step), full=True)
        ladder.next(allowed)
        assert len(tried) < 50
    return (ladder.chosen.kind, ladder.chosen.workers), tried


def free(step):
    return 0.002


def locked(step):
    return 0.002 * (step.workers if step.kind == "thread" else 1)


BOTH = ("thread", "process")


def test_threads_that_do_not_hold_each_other_up_are_enough():
    assert climb(ExecutorTuner(BOTH, 8), free) == (("thread", 8), [("thread", n) for n in (1, 2, 4, 8)])


def test_threads_that_take_turns_become_processes():
    chosen, tried = climb(ExecutorTuner(BOTH, 8), locked)
    assert chosen == ("process", 8)
    assert [each for each in tried if each[0] == "thread"] == [("thread", 1), ("thread", 2)]


def test_workers_that_bring_nothing_are_not_kept():
    # For example, memory bandwidth for four cores.
    chosen, _ = climb(ExecutorTuner(("process",), 16), lambda step: 0.002 * max(1, step.workers / 4))
    assert chosen == ("process", 4)


def test_samples_that_cost_nothing_need_no_worker():
    ladder = ExecutorTuner(BOTH, 8, inline=True)
    assert climb(ladder, lambda step: 1e-5)[0] == ("inline", 1)
    assert "less than to hand it" in ladder.reason


def test_memory_is_a_cap():
    ladder = ExecutorTuner(("process",), 16)
    assert climb(ladder, free, allowed=3)[0] == ("process", 3)
    assert "memory" in ladder.reason


def test_no_room_for_processes_leaves_threads():
    ladder = ExecutorTuner(BOTH, 8)
    assert climb(ladder, locked, allowed=0)[0] == ("thread", 1)
    assert "memory" in ladder.reason


def test_a_given_number_of_workers_is_kept():
    assert climb(ExecutorTuner(BOTH, 6, fixed=True), locked)[0] == ("process", 6)
    assert climb(ExecutorTuner(BOTH, 6, fixed=True), free)[0] == ("thread", 6)
    assert ExecutorTuner(("process",), 6, fixed=True).chosen.workers == 6


def test_processes_that_cannot_be_had_leave_what_was_measured():
    ladder = ExecutorTuner(BOTH, 8)
    while ladder.step.kind == "thread":
        while not ladder.step.measured:
            ladder.step.enter(32, 32 * locked(ladder.step), full=True)
        ladder.next(100)
    ladder.without_processes("no such thing")
    assert ladder.chosen.kind == "thread"
    assert "no such thing" in ladder.reason


def test_what_was_made_while_others_were_idle_does_not_count():
    step = Trial("thread", 2)
    for _ in range(100):
        step.enter(32, 1.0, full=False)
    assert not step.measured
    assert step.samples == 0


@settings(max_examples=25)
@given(
    st.sampled_from([("thread",), ("process",), BOTH]),
    st.integers(1, 100),
    st.booleans(),
    st.booleans(),
    st.integers(0, 100),
    st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=20),
)
def test_every_climb_ends_within_its_bounds(kinds, most, inline, fixed, allowed, times):
    ladder = ExecutorTuner(kinds, most, inline=inline, fixed=fixed)
    paces = iter(times * 50)
    seen = {}

    def sample_s(step):
        if (step.kind, step.workers) not in seen:
            seen[step.kind, step.workers] = next(paces)
        return seen[step.kind, step.workers]

    (kind, workers), tried = climb(ladder, sample_s, allowed)
    assert kind in kinds or (kind == "inline" and inline)
    assert 1 <= workers <= most
    assert ladder.reason
    if fixed and kind != "inline":
        assert workers in (most, 1, max(1, min(most, allowed)))
    assert all(n <= most for _, n in tried)


def test_names_are_words():
    assert [describe_workers("thread", 1), describe_workers("process", 2), describe_workers("inline", 1)] == [
        "1 thread",
        "2 processes",
        "no workers",
    ]
