"""Tests of failing servers: transient faults are retried, permanent ones are reported."""

from __future__ import annotations

import os
import signal
import threading
from typing import Any

import anyio
import pytest

import aioloader
from aioloader.errors import ObjectChangedError, ObjectDeniedError, RemoteReadError
from tests.aioloader.remote.conftest import Served, assert_same, dataset, epoch
from tests.servers.faults import Rule

pytestmark = pytest.mark.remote


@pytest.mark.parametrize(
    "rule",
    [
        Rule("status", share=0.8, attempts=1, status=503),
        Rule("status", share=0.8, attempts=1, status=429),
        Rule("status", share=0.8, attempts=1, status=500),
        Rule("reset", share=0.8, attempts=1),
        Rule("reset", share=0.8, attempts=1, after=0),
        Rule("truncate", share=0.8, attempts=1),
        Rule("shorten", share=0.8, attempts=1),
    ],
    ids=["503", "429", "500", "reset", "reset before the head", "truncate", "shorten"],
)
def test_faults_change_no_batch(served: Served, rule: Rule) -> None:
    expected = epoch(served.path)
    images = dataset(served.proxied)
    images[0]
    served.proxy.behave(rule, seed=3)
    with aioloader.DataLoader(images, 4, shuffle=True, executor="thread", num_workers=2) as loader:
        found = [(images.copy(), labels.copy()) for images, labels in loader]
        stats = loader.stats()
    counts = served.proxy.counts()
    assert_same(found, expected)
    done = sum(counts.faults.values())
    assert done > 0
    assert stats.retries == done
    assert stats.requests == counts.requests


def test_a_straggler_is_overtaken_by_its_hedge(served: Served) -> None:
    expected = epoch(served.path)
    images = dataset(served.proxied)
    images[0]
    served.proxy.behave(Rule("stall", attempts=1, limit=1, seconds=60, after=0))
    with aioloader.DataLoader(images, 4, shuffle=True, executor="thread", num_workers=2) as loader:
        found = [(images.copy(), labels.copy()) for images, labels in loader]
        stats = loader.stats()
    assert_same(found, expected)
    assert served.proxy.counts().faults == {"stall": 1}
    assert stats.hedges >= 1
    assert stats.retries == 0  # the loader did not wait until it counted as lost
    assert stats.requests == served.proxy.counts().requests


def test_past_the_deadline_one_error_reports_all_and_the_loader_resumes(served: Served) -> None:
    expected = epoch(served.path)
    images = dataset(served.proxied)
    images[0]
    found = []
    with aioloader.DataLoader(
        images, 4, shuffle=True, executor="inline", prefetch=1, timeout=3, on_error="skip"
    ) as loader:
        batches = iter(loader)
        found.append(tuple(each.copy() for each in next(batches)))
        served.proxy.go_away()
        try:
            with pytest.raises(RemoteReadError) as caught:
                for batch in batches:
                    found.append(tuple(each.copy() for each in batch))
        finally:
            served.proxy.come_back()
        state = loader.state_dict()
    error = caught.value
    assert error.url == served.proxied
    assert error.attempts > 1
    assert error.length is not None
    assert str(error.length + error.offset - 1) in str(error)
    assert "deadline of 3 s" in str(error)
    assert error.reason in str(error)
    with aioloader.DataLoader(images, 4, shuffle=True, executor="inline") as loader:
        loader.load_state_dict(state)
        found += [tuple(each.copy() for each in batch) for batch in loader]
    assert_same(found, expected)


@pytest.mark.slow
def test_a_loader_waits_for_a_server_that_is_unavailable_for_a_while(served: Served) -> None:
    expected = epoch(served.path)
    images = dataset(served.proxied)
    images[0]
    with aioloader.DataLoader(images, 4, shuffle=True, executor="thread", num_workers=2) as loader:
        batches = iter(loader)
        found = [tuple(each.copy() for each in next(batches))]
        served.proxy.go_away()
        back = threading.Timer(5, served.proxy.come_back)
        back.start()
        found += [tuple(each.copy() for each in batch) for batch in batches]
        back.join()
    assert_same(found, expected)


@pytest.mark.parametrize("same_size", [True, False])
def test_a_file_that_is_replaced_during_an_epoch_is_noticed(served: Served, same_size: bool) -> None:
    images = dataset(served.url)
    with aioloader.DataLoader(
        images, 4, shuffle=True, executor="inline", prefetch=1, on_error="skip"
    ) as loader:
        batches = iter(loader)
        next(batches)
        data = served.path.read_bytes()
        new = served.path.with_suffix(".new")
        new.write_bytes(data if same_size else data + bytes(8))
        os.utime(new, (1e9, 1e9))
        new.rename(served.path)
        with pytest.raises(ObjectChangedError, match="replaced") as caught:
            for _ in batches:
                pass
    assert caught.value.url == served.url


def test_cancelling_leaves_nothing_behind(served: Served, backend: str, leftovers: Any) -> None:
    images = dataset(served.proxied)
    images[0]
    served.proxy.behave(Rule("stall", seconds=60))

    async def main() -> None:
        async with aioloader.AsyncDataLoader(images, 4, executor="inline") as loader:
            with anyio.move_on_after(0.5) as scope:
                async for _ in loader:
                    pass
            assert scope.cancelled_caught

    anyio.run(main, backend=backend)
    served.proxy.behave()


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_a_server_that_is_silent_while_a_loader_opens_is_reported_and_given_up(
    served: Served, executor: str, caplog: pytest.LogCaptureFixture
) -> None:
    images = aioloader.ImageRecordDataset(served.proxied)
    served.proxy.behave(Rule("stall", seconds=60))
    workers = 0 if executor == "inline" else 1
    with aioloader.DataLoader(
        images,
        4,
        num_workers=workers,
        executor=executor,
        timeout=5,
        stall_timeout=0.5,
        batchify_fn=aioloader.batchify.AsList(),
    ) as loader:
        with pytest.raises(RemoteReadError, match="given up at the deadline of 5 s"):
            next(iter(loader))
        stages = [record.stage for record in caplog.records if hasattr(record, "stage")]
        assert stages.count("open") >= 2
        served.proxy.behave()
        next(iter(loader))  # it can be opened once the server answers
    served.proxy.behave()


@pytest.mark.parametrize("way", ["cancel", "interrupt"])
def test_a_loader_that_waits_for_a_silent_server_is_left_at_once(
    served: Served, way: str, backend: str, leftovers: Any
) -> None:
    """Without the opening's cancellation this would take as long as its timeout: longer than a test may take."""
    images = aioloader.ImageRecordDataset(served.proxied)
    served.proxy.behave(Rule("stall", seconds=1000))

    async def cancel() -> None:
        async with aioloader.AsyncDataLoader(images, 4, num_workers=1, timeout=1000) as loader:
            with anyio.move_on_after(0.5):
                async for _ in loader:
                    pass

    if way == "cancel":
        anyio.run(cancel, backend=backend)
    else:
        main = threading.main_thread().ident
        assert main is not None
        timer = threading.Timer(0.5, signal.pthread_kill, (main, signal.SIGINT))
        options: dict[str, Any] = {"num_workers": 1, "timeout": 1000}
        # A shell ignores it for what it runs in its background.
        before = signal.signal(signal.SIGINT, signal.default_int_handler)
        try:
            with aioloader.DataLoader(images, 4, **options) as loader, pytest.raises(KeyboardInterrupt):
                timer.start()
                next(iter(loader))
        finally:
            signal.signal(signal.SIGINT, before)
        timer.join()
    served.proxy.behave()


def test_a_damaged_record_is_its_own_error(served: Served) -> None:
    data = bytearray(served.path.read_bytes())
    images = aioloader.ImageRecordDataset(served.url)
    at = int(images.table.index.offsets[5])
    data[at + 40 : at + 80] = bytes(40)
    served.path.write_bytes(data)
    images = aioloader.ImageRecordDataset(served.url)
    small = images.transform_first(lambda image: image[:8, :8])
    with aioloader.DataLoader(small, 4, executor="inline", on_error="skip") as loader:
        for _ in loader:
            pass
        assert [error.index for error in loader.errors] == [5]


@pytest.mark.parametrize("status", [401, 403])
def test_a_denied_object_is_a_permission_error(served: Served, status: int) -> None:
    served.proxy.behave(Rule("status", status=status))
    with pytest.raises(ObjectDeniedError, match="check the credentials") as caught:
        dataset(served.proxied)
    assert isinstance(caught.value, PermissionError)
    assert caught.value.attempts == 1
