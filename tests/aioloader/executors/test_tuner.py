"""Tests of the choice of an executor from given rates."""

from __future__ import annotations

from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader.executors.auto import ExecutorTuner, Trial, describe_workers


def tune(tuner, sample_s, allowed=1000):
    """Measure trials until one is chosen; `sample_s(trial)` is a sample's time in one of its workers."""
    tried = []
    while tuner.chosen is None:
        trial = tuner.trial
        tried.append((trial.kind, trial.workers))
        while not trial.measured:
            trial.record(32, 32 * sample_s(trial), full=True)
        tuner.next(allowed)
        assert len(tried) < 50
    return (tuner.chosen.kind, tuner.chosen.workers), tried


def free(trial):
    return 0.002


def locked(trial):
    return 0.002 * (trial.workers if trial.kind == "thread" else 1)


BOTH = ("thread", "process")


def test_threads_that_do_not_block_each_other_are_enough():
    assert tune(ExecutorTuner(BOTH, 8), free) == (("thread", 8), [("thread", n) for n in (1, 2, 4, 8)])


def test_threads_that_take_turns_become_processes():
    chosen, tried = tune(ExecutorTuner(BOTH, 8), locked)
    assert chosen == ("process", 8)
    assert [each for each in tried if each[0] == "thread"] == [("thread", 1), ("thread", 2)]


def test_workers_that_bring_nothing_are_not_kept():
    # For example, memory bandwidth for four cores.
    chosen, _ = tune(ExecutorTuner(("process",), 16), lambda trial: 0.002 * max(1, trial.workers / 4))
    assert chosen == ("process", 4)


def test_samples_that_cost_nothing_need_no_worker():
    tuner = ExecutorTuner(BOTH, 8, inline=True)
    assert tune(tuner, lambda trial: 1e-5)[0] == ("inline", 1)
    assert "less than to hand it" in tuner.reason


def test_memory_is_a_cap():
    tuner = ExecutorTuner(("process",), 16)
    assert tune(tuner, free, allowed=3)[0] == ("process", 3)
    assert "memory" in tuner.reason


def test_no_room_for_processes_leaves_threads():
    tuner = ExecutorTuner(BOTH, 8)
    assert tune(tuner, locked, allowed=0)[0] == ("thread", 1)
    assert "memory" in tuner.reason


def test_a_given_number_of_workers_is_kept():
    assert tune(ExecutorTuner(BOTH, 6, fixed=True), locked)[0] == ("process", 6)
    assert tune(ExecutorTuner(BOTH, 6, fixed=True), free)[0] == ("thread", 6)
    assert ExecutorTuner(("process",), 6, fixed=True).chosen.workers == 6


def test_processes_that_cannot_be_had_leave_what_was_measured():
    tuner = ExecutorTuner(BOTH, 8)
    while tuner.trial.kind == "thread":
        while not tuner.trial.measured:
            tuner.trial.record(32, 32 * locked(tuner.trial), full=True)
        tuner.next(100)
    tuner.without_processes("no such thing")
    assert tuner.chosen.kind == "thread"
    assert "no such thing" in tuner.reason


def test_what_was_made_while_others_were_idle_does_not_count():
    trial = Trial("thread", 2)
    for _ in range(100):
        trial.record(32, 1.0, full=False)
    assert not trial.measured
    assert trial.samples == 0


@settings(max_examples=25)
@given(
    st.sampled_from([("thread",), ("process",), BOTH]),
    st.integers(1, 100),
    st.booleans(),
    st.booleans(),
    st.integers(0, 100),
    st.lists(st.floats(1e-6, 1.0), min_size=1, max_size=20),
)
def test_every_tuning_ends_within_its_bounds(kinds, most, inline, fixed, allowed, times):
    tuner = ExecutorTuner(kinds, most, inline=inline, fixed=fixed)
    rates = iter(times * 50)
    seen = {}

    def sample_s(trial):
        if (trial.kind, trial.workers) not in seen:
            seen[trial.kind, trial.workers] = next(rates)
        return seen[trial.kind, trial.workers]

    (kind, workers), tried = tune(tuner, sample_s, allowed)
    assert kind in kinds or (kind == "inline" and inline)
    assert 1 <= workers <= most
    assert tuner.reason
    if fixed and kind != "inline":
        assert workers in (most, 1, max(1, min(most, allowed)))
    assert all(n <= most for _, n in tried)


def test_names_are_words():
    assert [describe_workers("thread", 1), describe_workers("process", 2), describe_workers("inline", 1)] == [
        "1 thread",
        "2 processes",
        "no workers",
    ]
