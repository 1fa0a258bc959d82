"""Counters of a loader, and what they say in words."""

import dataclasses

import numpy as np
import pytest

from aioloader import ArrayDataset, DataLoader
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
        ({"wait_s": 9.0, "decode_s": 2.0, "collate_s": 14.0}, "Collating is the limit"),
        (
            {"wait_s": 9.0, "decode_s": 6.0, "transform_s": 10.0, "transforms": {"a": 5.0, "b": 5.0}},
            "Decode is the limit",
        ),
        ({"wait_s": 9.0, "consumer_s": 0.5, "collate_s": 6.0}, "This process is the limit"),
        ({"wait_s": 9.0, "consumer_s": 0.5, "decode_s": 3.0}, "The loader's own work is the limit"),
        ({"wait_s": 3.0, "consumer_s": 7.0, "decode_s": 3.0}, "The consumer is the limit for the most part"),
        ({"wait_s": 9.0, "decode_s": 3.0, "first_batch_s": 8.0}, "Starting is the limit so far"),
    ],
    ids=lambda value: value if isinstance(value, str) else "",
)
def test_the_first_sentence_names_the_limit(facts, limit):
    assert explain(dataclasses.replace(QUIET, **facts)).startswith(limit)


@pytest.mark.parametrize(
    "facts", [{"collate_s": 6.0}, {"decode_s": 3.0}, {"decode_s": 2.0, "collate_s": 1.0}], ids=str
)
def test_workers_that_are_idle_are_not_to_be_more(facts):
    text = explain(dataclasses.replace(QUIET, wait_s=9.0, consumer_s=0.5, **facts))
    assert "Add workers" not in text
    assert " 0%" not in text


def test_time_between_epochs_is_nobodys(monkeypatch):
    clock = iter([0.0, 1.0, 3.0, 4.0, 104.0, 106.0, 106.5])
    monkeypatch.setattr("aioloader.metrics.perf_counter", lambda: next(clock))
    metrics = Metrics()
    metrics.handed_out(metrics.asked(), 10)  # asked at 0, handed out at 1
    metrics.asked()  # at 3, and there was no more
    metrics.pause()
    metrics.handed_out(metrics.asked(), 10)  # asked at 104, handed out at 106
    stats = metrics.snapshot(workers=1, restarts=0, memory=(0, 0, 1))
    assert stats.seconds == 106 - 100
    assert (stats.wait_s, stats.consumer_s) == (3.0, 2.0)
    metrics.pause()
    metrics.pause()  # of a second iterator; no time was asked for again
    assert metrics.snapshot(workers=1, restarts=0, memory=(0, 0, 1)).seconds == stats.seconds


def test_data_in_memory_is_explained_without_workers():
    loader = DataLoader(ArrayDataset(np.zeros((20_000, 1000), np.uint8)), 256, shuffle=True)
    for _ in range(3):
        assert sum(len(batch) for batch in loader) == 20_000
    text = loader.explain()
    assert "Decode" not in text
    assert "workers if" not in text


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
