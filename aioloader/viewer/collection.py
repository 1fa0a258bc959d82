"""What is looked at, whatever it is made of: many records, each read when it is asked for."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import SpanTooShortError
from aioloader.foundation.types import Spans
from aioloader.storage.local.source import LocalByteSource

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.abc import Decoder
    from aioloader.foundation.types import Array, IntArray
    from aioloader.storage.remote.source import RemoteByteSource
    from aioloader.viewer.records import Record

__all__ = ("MOST_RECORD_NBYTES", "Collection", "Contents", "LabelChunk", "NoSuchRecordError", "read_bytes")

MOST_RECORD_NBYTES = 256 << 20
"""Longest record that is read to be shown, bytes: a page reads dozens of them."""


class NoSuchRecordError(LookupError):
    """Nothing is at that place, or has that key. Its text says so in words."""


@dataclass(frozen=True, slots=True)
class Contents:
    """A record with the bytes that it was found in.

    Attributes:
        record: what it is.
        body: the encoded image, or what else the record holds; None where it cannot be told.
        data: the bytes that a dataset's decoder takes: framed for a record file; None where they cannot be read.
        extra: what travels along to the decoder, such as the label of a folder.
    """

    record: Record
    body: Any = None
    data: Any = None
    extra: Any = None


@dataclass(frozen=True, slots=True)
class LabelChunk:
    """The labels of some records in a row.

    Attributes:
        first: float32 (n,), the label of each; NaN where it has several, or none.
        owners: int64 (m,), of each further value the number of its record in this chunk.
        values: float32 (m,), the labels of records with several, the classes of their boxes.
    """

    first: Array
    owners: IntArray
    values: Array


class Collection:
    """Records by position, 0 <= position < count. Methods may wait for a disk: call them in a thread.

    Attributes:
        kind: what it is, in words.
        path: as the user gave it.
        decoder: of the dataset that a loader would use.
        problems: what the reader should know of the whole, in words.
    """

    kind: str = ""
    path: str = ""
    decoder: Decoder[Any]
    problems: Sequence[str] = ()

    @property
    def count(self) -> int | None:
        """How many records there are; None before `load`."""
        raise NotImplementedError

    @property
    def known(self) -> int:
        """Records 0 up to this one can be asked for now, before `load` has ended."""
        raise NotImplementedError

    def load(self) -> None:
        """Find all records.

        Raises:
            OSError, ValueError: that is not possible; what was `known` still is.
        """
        raise NotImplementedError

    def listing(self) -> Sequence[int] | IntArray:
        """Positions of the records that are paged over, in order, as far as they are known."""
        return range(self.known)

    def key(self, position: int) -> int | str:
        """The key of a record."""
        raise NotImplementedError

    def index(self, position: int) -> int | None:
        """The record's place in its dataset: random draws of a sample depend on it. None: it is no sample of it."""
        return position

    def find(self, key: str, file: int | None = None) -> int:
        """The position of the record with a key, after `load`.

        Args:
            key: as it stands in an address.
            file: number of the file to look in; None for all of them, in order.

        Raises:
            NoSuchRecordError: there is none.
        """
        raise NotImplementedError

    def read(self, position: int) -> Contents:
        """A record; one that cannot be read says so, and raises nothing."""
        raise NotImplementedError

    def label_chunk(self, start: int, stop: int) -> LabelChunk:
        """The labels of records start <= position < stop, after `load`.

        Raises:
            OSError: they cannot be read.
        """
        raise NotImplementedError

    def label_name(self, label: float) -> str:
        """The name of a class, empty if it has none."""
        return ""

    def label_of_name(self, name: str) -> float | None:
        """The label of a class's name; None if no class is named so."""
        return None

    def file_names(self) -> list[str]:
        """Names of the record files, if there are several."""
        return []

    def file_of(self, position: int) -> int:
        """Number of the file that a record is in."""
        return 0

    def close(self) -> None:
        """Close all files."""


def read_bytes(source: LocalByteSource | RemoteByteSource, spans: Spans) -> memoryview:
    """The bytes of one item, of which the span may be too short.

    Raises:
        OSError, ValueError, EOFError: it cannot be read, or is too long to be shown.
    """
    try:
        return _read(source, spans)
    except SpanTooShortError as short:
        return _read(source, Spans(spans.file, spans.offset, np.array([short.needed], np.int64)))


def _read(source: LocalByteSource | RemoteByteSource, spans: Spans) -> memoryview:
    here = isinstance(source, LocalByteSource)
    far: Any = source
    plan = far.plan_blocking(spans) if here else far.blocking(far.plan, spans)
    for _, error in plan.failures:
        raise error
    if plan.nbytes > MOST_RECORD_NBYTES + 4096:
        raise ValueError(
            f"{plan.nbytes:,} bytes are too many to be shown; records of up to {MOST_RECORD_NBYTES:,} are read"
        )
    data = memoryview(bytearray(plan.nbytes))
    for _, error in far.read_blocking(plan, data) if here else far.blocking(far.read, plan, data):
        raise error
    start = int(plan.start[0])
    return data[start : start + int(plan.length[0])].toreadonly()
