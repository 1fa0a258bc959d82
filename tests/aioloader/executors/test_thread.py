"""Work that the thread executor does in the event loop's thread."""

from __future__ import annotations

import threading

import pytest

import recordio
from aioloader import AsyncDataLoader, RecordFileDataset
from aioloader.batchify import AsList


class OwnList(AsList):
    """A class of the caller, which may do anything."""


def write(path, nbytes, count=12):
    records = [bytes([number]) * nbytes for number in range(count)]
    with recordio.RecordWriter(path) as writer:
        for record in records:
            writer.write(record)
    return records


def worker_threads():
    return [thread for thread in threading.enumerate() if thread.name.startswith("aioloader-worker")]


@pytest.mark.parametrize(
    ("batchify", "nbytes", "starts"),
    [
        (None, 100, False),
        (AsList(), 100, False),
        (AsList(), 200_000, True),
        (OwnList(), 100, True),
        (list, 100, True),
    ],
    ids=["default", "AsList", "AsList-large", "derived", "function"],
)
async def test_only_small_payloads_that_are_just_listed_need_no_thread(tmp_path, batchify, nbytes, starts):
    records = write(tmp_path / "a.rec", nbytes)
    async with AsyncDataLoader(
        RecordFileDataset(tmp_path / "a.rec"), 4, executor="thread", num_workers=2, batchify_fn=batchify
    ) as loader:
        batches = [list(batch) async for batch in loader]
        assert bool(worker_threads()) == starts
    assert [record for batch in batches for record in batch] == records
