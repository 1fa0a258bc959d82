"""Tests of URLs in processes that were forked after a read, and in fresh processes."""

from __future__ import annotations

import multiprocessing
import os
import sys
import warnings
from collections.abc import Callable
from typing import Any

import pytest

import aioloader

pytestmark = [
    pytest.mark.remote,
    pytest.mark.skipif(not hasattr(os, "fork"), reason="needs fork"),
]


def _in_child(method: str, fn: Callable[..., Any], *args: Any) -> str:
    """Return the result of a function in a process started by `method`, or its error."""
    context = multiprocessing.get_context(method)
    ours, theirs = context.Pipe(duplex=False)
    with warnings.catch_warnings():
        # Python warns of forks while threads run, which is what these tests do.
        warnings.simplefilter("ignore", DeprecationWarning)
        process = context.Process(target=_tell, args=(theirs, fn, *args))
        process.start()
    theirs.close()
    try:
        return str(ours.recv()) if ours.poll(60) else "it hangs"
    finally:
        process.kill()
        process.join()
        process.close()
        ours.close()


def _tell(pipe: Any, fn: Callable[..., Any], *args: Any) -> None:
    try:
        pipe.send(repr(fn(*args)))
    except Exception as error:
        pipe.send(f"{type(error).__name__}: {error}")


def _payload(dataset: Any) -> int:
    return len(dataset[1])


def _make_and_read(url: str) -> int:
    return len(aioloader.RecordFileDataset(url)[1])


def _epoch(dataset: Any) -> int:
    with aioloader.DataLoader(dataset.transform(len), batch_size=2, num_workers=0) as loader:
        return sum(len(batch) for batch in loader)


@pytest.mark.parametrize("used", [False, True], ids=["only-made", "used"])
def test_a_forked_process_says_at_once_that_it_cannot_read_urls(served: Any, used: bool) -> None:
    dataset = aioloader.RecordFileDataset(served.url)
    if used:
        _payload(dataset)
    for fn, argument in ((_payload, dataset), (_make_and_read, served.url), (_epoch, dataset)):
        report = _in_child("fork", fn, argument)
        assert report.startswith("ForkedError"), report
        assert "'spawn'" in report
    assert _payload(dataset) == len(aioloader.RecordFileDataset(served.path)[1])


@pytest.mark.slow
@pytest.mark.skipif(sys.platform == "win32", reason="needs forkserver")
@pytest.mark.parametrize("method", ["spawn", "forkserver"])
def test_spawned_processes_read_datasets_that_were_sent_to_them(served: Any, method: str) -> None:
    dataset = aioloader.RecordFileDataset(served.url)
    assert _in_child(method, _payload, dataset) == repr(_payload(dataset))
