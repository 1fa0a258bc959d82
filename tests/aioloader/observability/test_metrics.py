"""Tests of a loader's counters."""

import dataclasses

import anyio
import pytest

from aioloader.foundation.types import BatchTimeline, ChunkResult, WorkCounters
from aioloader.loader.epoch_iterator import CallerMetrics
from aioloader.metrics import LoaderConfig, Metrics, Stats, StorageStats
from aioloader.observability.lag import Lag
from aioloader.pipeline.dispatch import run_timed

QUIET = dataclasses.replace(
    Metrics().snapshot(workers=2, restarts=0, memory=(0, 0, 1 << 30)), seconds=10.0, batches=10, samples=1000
)


@pytest.fixture
def clock(monkeypatch):
    """Return a function that lets the clocks of two modules return these seconds, one after the other."""

    def set_clock(*seconds, of):
        ticks = iter(seconds)
        for module in ("loader.epoch_iterator", of):
            monkeypatch.setattr(f"aioloader.{module}.perf_counter", lambda: next(ticks))

    return set_clock


def test_time_between_epochs_is_nobodys(clock):
    clock(0.0, 1.0, 3.0, 4.0, 104.0, 106.0, 106.5, of="metrics")
    metrics = Metrics()
    caller = CallerMetrics(metrics)
    caller.record_delivery(caller.record_request(), 10)  # requested at 0, delivered at 1
    caller.record_request()  # at 3, and no more batch
    metrics.pause()
    caller.record_delivery(caller.record_request(), 10)  # requested at 104, delivered at 106
    stats = metrics.snapshot(workers=1, restarts=0, memory=(0, 0, 1))
    assert stats.seconds == 106 - 100
    assert (stats.wait_s, stats.consumer_s) == (3.0, 2.0)
    metrics.pause()
    metrics.pause()  # of a second iterator; no clock call in between
    assert metrics.snapshot(workers=1, restarts=0, memory=(0, 0, 1)).seconds == stats.seconds


def test_what_the_first_batches_of_passes_were_waited_for(clock):
    clock(0.0, 1.0, 2.0, 3.0, 4.0, 9.0, 10.0, 11.0, of="metrics")
    metrics = Metrics()
    caller = CallerMetrics(metrics)
    caller.record_delivery(caller.record_request(), 10)  # the very first
    caller.record_delivery(caller.record_request(), 10)
    metrics.pause()  # at 4
    caller.record_delivery(caller.record_request(), 10)  # requested at 9, delivered at 10
    stats = metrics.snapshot(workers=1, restarts=0, memory=(0, 0, 1))
    assert (stats.passes, stats.first_wait_s, stats.wait_s) == (2, 1.0, 3.0)


def test_rates_are_shares_of_the_time_that_passed():
    stats = dataclasses.replace(QUIET, wait_s=3.0, consumer_s=1.0, decode_s=12.0, transform_s=3.0)
    assert stats.samples_per_s == 100
    assert stats.starvation == 0.75
    assert stats.occupancy == 0.75


def test_a_snapshot_does_not_change():
    metrics = Metrics()
    work = WorkCounters(decode_s=1.0, transform_s=2.0, transforms={"flip": 2.0})
    metrics.work.add(work)
    stats = metrics.snapshot(1, 0, (0, 0, 0))
    metrics.work.add(work)
    assert isinstance(stats, Stats)
    assert (stats.decode_s, dict(stats.transforms)) == (1.0, {"flip": 2.0})


def test_decodes_are_summed_by_way_and_by_reason():
    metrics = Metrics()
    work = WorkCounters(
        decodes={
            ("kept", "kept sample"): 5,
            ("cut", "indexed"): 3,
            ("whole", "refused: x"): 1,
            ("early stop", "refused: y"): 2,
        },
        measured_crops=1,
        crop_pixels=10,
        read_pixels=40,
    )
    metrics.work.add(work)
    stats = metrics.snapshot(1, 0, (0, 0, 0))
    metrics.work.add(work)
    pixels = stats.measured_crops, stats.crop_pixels, stats.read_pixels
    assert (stats.decodes, pixels) == (work.decodes, (1, 10, 40))
    assert stats.decode_ways == {"cut": 3, "rectangle": 0, "early stop": 2, "whole": 1, "raw": 0, "kept": 5}
    assert stats.uncut == {"refused": 3}
    assert metrics.work.decodes == {key: 2 * count for key, count in work.decodes.items()}
    sent = ChunkResult(decodes=work.decodes, measured_crops=1, crop_pixels=10, read_pixels=40)
    assert ChunkResult.counted(sent.counters) == sent


class _Growing(dict):
    """Mapping to which another thread adds an item as soon as code iterates over it."""

    def items(self):
        for item in super().items():
            self[f"more {len(self)}"] = 1.0
            yield item


def test_a_snapshot_can_be_taken_while_work_is_counted():
    metrics = Metrics(waits=_Growing(fetch=1.0))
    metrics.work.transforms, metrics.work.awaited = _Growing(flip=2.0), _Growing(ask=3.0)
    stats = metrics.snapshot(1, 0, (0, 0, 0))
    assert (stats.transforms, stats.awaited, stats.waits) == ({"flip": 2.0}, {"ask": 3.0}, {"fetch": 1.0})


def test_the_callers_waiting_is_split_by_where_its_batch_was(clock):
    clock(1.0, 2.0, 5.0, 7.0, 3.0, 10.0, of="foundation.types")
    timeline = BatchTimeline()  # begun at 1
    for stage in ("fetch", "work", "reorder"):  # at 2, 5 and 7
        timeline.enter(stage)
    metrics = Metrics()
    caller = CallerMetrics(metrics)
    caller.record_delivery(caller.record_request(), 4, timeline)  # requested at 3, delivered at 10
    assert metrics.waits == {"reorder": 3.0, "work": 2.0, "fetch": 2.0}
    stats = metrics.snapshot(1, 0, (0, 0, 0))
    assert sum(stats.waits.values()) == stats.wait_s == 7.0
    assert (stats.plan_s, stats.reorder_s) == (1.0, 3.0)


def test_waiting_before_a_batch_is_begun_is_separate(clock):
    clock(5.0, 1.0, 6.0, of="foundation.types")
    metrics = Metrics()
    timeline = BatchTimeline()
    caller = CallerMetrics(metrics)
    caller.record_delivery(caller.record_request(), 4, timeline)
    assert metrics.waits == {"plan": 1.0, "start": 4.0}


def test_stages_come_in_the_order_of_a_samples_path():
    stats = dataclasses.replace(
        QUIET,
        fetch_s=20.0,
        bytes_read=5000,
        decode_s=6.0,
        transforms={"flip": 4.0},
        transform_s=4.0,
        consumer_s=1.0,
        prefetch=4,
        waits={"fetch": 2.5},
    )
    names = [
        "plan",
        "memory",
        "fetch",
        "dispatch",
        "decode",
        "transform:flip",
        "collate",
        "reorder",
        "consumer",
    ]
    assert list(stats.stages) == names
    fetch, decode = stats.stages["fetch"], stats.stages["decode"]
    assert (fetch.nbytes, fetch.occupancy, fetch.wait_s, fetch.capacity) == (5000, 0.5, 2.5, 200.0)
    assert (decode.samples_per_s, decode.places, decode.wait_s) == (100.0, 2, None)
    assert decode.capacity == pytest.approx(1000 * 2 / 6)
    assert stats.stages["dispatch"].capacity is None


def test_what_a_source_and_a_setting_tell_are_attributes_of_the_same_names():
    storage = StorageStats(requests=7, retries=2, latency_p50_s=0.1)
    setting = LoaderConfig(executor="thread", cores=3, tuning="words")
    stats = Metrics().snapshot(1, 0, (0, 0, 0), storage, setting)
    for part in (storage, setting):
        for field in dataclasses.fields(part):
            assert getattr(stats, field.name) == getattr(part, field.name)


def test_lag_has_quantiles_and_counts_what_a_long_block_hid():
    lag = Lag()
    assert lag.quantile(0.5) is None
    for _ in range(98):
        lag.enter(0.0004, 0.05)
    lag.enter(0.101, 0.05)  # and two ticks that never came
    assert 0.0004 <= lag.quantile(0.5) <= 0.0005
    assert 0.05 <= lag.quantile(0.99) <= 0.06
    assert lag.max_s == lag.quantile(1.0) == 0.101


def test_the_start_is_what_the_first_samples_waited_for(clock):
    clock(10.0, 10.8, 12.0, 20.0, 21.0, of="pipeline.dispatch")
    results = iter(
        [
            ChunkResult(work_s=0.4, longest_s=0.4, cpu_s=0.3, pauses=1),
            ChunkResult(work_s=0.8, longest_s=0.5, cpu_s=0.3),
        ]
    )

    async def work(chunks):
        return next(results)

    metrics = Metrics(fetch_s=0.5)
    CallerMetrics(metrics).record_request()  # at 10
    anyio.run(run_timed, [], work, metrics, BatchTimeline())  # from 10.8 to 12
    assert metrics.startup_s == pytest.approx(2.0 - 0.5 - 0.4)
    anyio.run(run_timed, [], work, metrics, BatchTimeline())  # from 20 to 21
    assert metrics.dispatch_s == pytest.approx(0.5)
    assert (metrics.work.work_s, metrics.work.pauses) == (pytest.approx(1.2), 1)


def test_idle_cores_are_an_average_over_epochs_alone(monkeypatch):
    clock = iter([0.0, 10.0, 50.0, 60.0])
    idle = iter(
        [{"cores": 5.0, "quota": 1.0}, {"cores": 35.0, "quota": 21.0}, {"cores": 0.0}, {"cores": 40.0}]
    )
    monkeypatch.setattr("aioloader.metrics.monotonic", lambda: next(clock))
    monkeypatch.setattr("aioloader.metrics.idle_cpu_s", lambda: next(idle))
    counted = Metrics(paused=0.0)
    for _ in range(2):
        counted.begin()
        counted.pause()
    assert counted.snapshot(1, 0, (0, 0, 0)).idle_cores == (20 + 40) / 20
