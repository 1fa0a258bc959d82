"""What datasets ask of objects before a loader reads them. Blocking, as opening a local file is."""

from __future__ import annotations

from contextlib import contextmanager
from functools import partial
from typing import TYPE_CHECKING

import numpy as np

from aioloader._types import Spans
from aioloader.errors import RemoteReadError
from aioloader.progress_bar import ProgressBar
from aioloader.storage.remote.client import OPENING_S, Client
from aioloader.storage.remote.loop_thread import LoopThread
from aioloader.storage.remote.openers import BlockingObject, register
from aioloader.storage.remote.source import RemoteByteSource
from aioloader.storage.remote.stream import Stream
from aioloader.storage.urls import beside
from recordio import Index

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader._types import IntArray
    from aioloader.storage.remote.transport import Version

__all__ = ("client_and_thread", "describe", "load_index", "read_heads", "read_text")

_HEADS_AT_A_TIME = 1 << 14


def describe(url: str) -> Version:
    """What an object is now.

    Raises:
        ImportError: obstore is not installed.
        ObjectMissingError: there is none; it is a FileNotFoundError.
        RemoteReadError: it cannot be read, or the server did not answer for 30 s.
    """
    with client_and_thread() as (client, thread):
        return thread.call(partial(client.describe, url, OPENING_S))


@contextmanager
def client_and_thread() -> Iterator[tuple[Client, LoopThread]]:
    """A client, and the thread that runs it; both closed at the end."""
    client, thread = Client(), LoopThread()
    try:
        yield client, thread
    finally:
        thread.close()
        client.close()


def read_text(url: str) -> bytes:
    """All bytes of a small object, such as a list.

    Raises:
        ObjectMissingError: there is none; it is a FileNotFoundError.
        RemoteReadError: it cannot be read.
    """
    source = BlockingObject(url)
    try:
        (data,) = source.read_ranges([(0, source.size())])
    finally:
        source.close()
    return data


def load_index(url: str, idx_url: str | None = None) -> Index:
    """The index of a record file: of its .idx, or by a pass over all of it, with a progress bar.

    Either is kept in the user's cache directory, for this state of the object.

    Args:
        url: the .rec file.
        idx_url: its .idx file, a URL or a path; None for the one beside it, if there is one.

    Raises:
        OSError: the file or its index cannot be read.
        RecordIOError: the index is malformed, or a file without an index is damaged.
    """
    register()
    if idx_url is not None:
        return Index.open(idx_url)
    try:
        return Index.open(beside(url, ".idx"))
    except FileNotFoundError:
        pass
    except RemoteReadError as error:
        # What is not there is denied too, to who may not list a bucket, and to a signature for another object.
        if error.kind != "denied":
            raise
    source = BlockingObject(url)
    try:
        with ProgressBar(
            f"index of {source.path.rpartition('/')[2]}", source.size() >> 20, unit="MiB"
        ) as bar:
            return Index.scan(Stream(source, lambda reached: bar.update(reached >> 20)))
    finally:
        source.close()


def read_heads(url: str, version: Version, offsets: IntArray, nbytes: int) -> Iterator[bytes]:
    """The first bytes of records, some thousand of them at a time; fewer where the object ends, b"" outside of it.

    Args:
        url, version: the object.
        offsets: int64 (n,), where the records begin.
        nbytes: how many bytes of each.

    Raises:
        RemoteReadError: they cannot be read.
    """
    source = RemoteByteSource([url], whole_files=True, versions=[version])
    try:
        for begin in range(0, len(offsets), _HEADS_AT_A_TIME):
            offset = offsets[begin : begin + _HEADS_AT_A_TIME]
            inside = (offset >= 0) & (offset < version.nbytes)
            length = np.where(inside, np.minimum(nbytes, version.nbytes - offset), 0)
            data, starts = source.fetch_spans(Spans(np.zeros(len(offset), np.int64), offset, length))
            for start, count in zip(starts.tolist(), length.tolist(), strict=True):
                yield bytes(data[start : start + count])
    finally:
        source.close()
