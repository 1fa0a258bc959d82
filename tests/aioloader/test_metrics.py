"""Counters of a loader, and what they say in words."""

import dataclasses

import pytest

from aioloader.metrics import Metrics, Stats, explain

QUIET = dataclasses.replace(
    Metrics().snapshot(workers=2, restarts=0, memory=(0, 0, 1 << 30)), seconds=10.0, batches=10, samples=1000
)


@pytest.mark.parametrize(
    ("facts", "limit"),
    [
        ({"wait_s": 0.5, "consumer_s": 9.5, "decode_s": 9.0}, "The consumer is the limit"),
        ({"wait_s": 9.0, "consumer_s": 1.0, "decode_s": 18.0, "transform_s": 1.0}, "Decode is the limit"),
        (
            {"wait_s": 9.0, "decode_s": 2.0, "transform_s": 17.0, "transforms": {"blur": 16.0, "flip": 1.0}},
            "The transform blur is the limit",
        ),
        ({"wait_s": 9.0, "decode_s": 2.0, "read_s": 30.0}, "Storage is the limit"),
        ({"wait_s": 9.0, "decode_s": 9.0, "memory_wait_s": 6.0}, "Memory is the limit"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_first_sentence_names_the_limit(facts, limit):
    assert explain(dataclasses.replace(QUIET, **facts)).startswith(limit)


def test_before_the_first_batch_there_is_nothing_to_explain():
    assert "Nothing" in explain(Metrics().snapshot(2, 0, (0, 0, 0)))


def test_rates_are_shares_of_the_time_that_passed():
    stats = dataclasses.replace(QUIET, wait_s=3.0, consumer_s=1.0, decode_s=12.0, transform_s=3.0)
    assert stats.samples_per_s == 100
    assert stats.starvation == 0.75
    assert stats.occupancy == 0.75


def test_the_time_between_epochs_is_nobodys():
    metrics = Metrics()
    metrics.handed_out(metrics.asked(), 4)
    metrics.pause()
    metrics.asked()
    assert metrics.consumer_s == 0


def test_a_snapshot_does_not_change():
    metrics = Metrics()
    metrics.made(1.0, 2.0, 0.0, {"flip": 2.0})
    stats = metrics.snapshot(1, 0, (0, 0, 0))
    metrics.made(1.0, 2.0, 0.0, {"flip": 2.0})
    assert isinstance(stats, Stats)
    assert (stats.decode_s, dict(stats.transforms)) == (1.0, {"flip": 2.0})
