"""Interface of the datasets that the viewer displays: records that are read on demand."""

from __future__ import annotations

from dataclasses import dataclass, replace
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.errors import DecodeError, SpanTooShortError
from aioloader.formats.sample_fields import SampleFields, printable
from aioloader.foundation.types import Array, IntArray, ItemLocation, Spans
from aioloader.transforms.formats import ImageHeader, read_header

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioloader.abc import ByteSource, Decoder

MOST_RECORD_NBYTES = 256 << 20
"""Size limit of a record that is displayed, in bytes: a page reads dozens of records."""


class NoSuchRecordError(LookupError):
    """Error raised when there is no record at a position or with a key; the page displays its message."""


@dataclass(frozen=True, slots=True)
class Contents:
    """Record with its bytes.

    Attributes:
        record: description of the record.
        body: the encoded image or other content of the record; None if unknown.
        data: the bytes that the decoder takes, with framing for a record file; None if they cannot be read.
        extra: second argument of the decoder, such as the label of a folder.
    """

    record: Record
    body: Any = None
    data: Any = None
    extra: Any = None


@dataclass(frozen=True, slots=True)
class LabelChunk:
    """Labels of consecutive records.

    Attributes:
        first: float32 (n,), the label of each record; NaN for a record with several labels, or without labels.
        owners: int64 (m,), for each element of `values`, the number of its record in this chunk.
        values: float32 (m,), the labels of the records with several labels; of a detection label, the boxes' classes.
    """

    first: Array
    owners: IntArray
    values: Array


class Collection:
    """Records by position, 0 <= position < count. Methods may block on a disk: call them in a thread.

    Attributes:
        noun: what its records are called: "record", or "sample" where each has fields.
        kind: description of the kind of dataset.
        path: path as the user passed it.
        decoder: the decoder that a loader uses for this dataset.
        problems: messages about the whole dataset, to be displayed.
        classes: names of classes by label.
        no_labels: why the labels of all records are not read; "" if they are, with `label_chunk`. Valid after `load`.
    """

    noun: str = "record"
    kind: str = ""
    path: str = ""
    decoder: Decoder[Any]
    problems: Sequence[str] = ()
    classes: Mapping[float, str] = MappingProxyType({})
    no_labels: str = ""

    @property
    def count(self) -> int | None:
        """Return the number of records; None before `load`."""
        raise NotImplementedError

    @property
    def known(self) -> int:
        """Return the number of first records that can be read before `load` has ended."""
        raise NotImplementedError

    def load(self) -> None:
        """Find all records.

        Raises:
            OSError, ValueError: the records cannot be found; `known` does not change.
        """
        raise NotImplementedError

    def listing(self) -> Sequence[int] | IntArray:
        """Return the positions, known so far, of the records to be listed, in order."""
        return range(self.known)

    def key(self, position: int) -> int | str:
        """Return the key of a record."""
        raise NotImplementedError

    def index(self, position: int) -> int | None:
        """Return the record's index in its dataset, which determines random draws; None if it is not a sample."""
        return position

    def find(self, key: str, file: int | None = None) -> int:
        """Find the position of the record with a key, after `load`.

        Args:
            key: the key, as in an address; for a sample, its text in UTF-8.
            file: number of the file that is searched; None for all files, in order.

        Raises:
            NoSuchRecordError: no record has this key.
        """
        raise NotImplementedError

    def read(self, position: int) -> Contents:
        """Read a record; a record that cannot be read is returned with its problem, without raising an error."""
        raise NotImplementedError

    def fields(self, contents: Contents) -> SampleFields:
        """Describe the fields of a sample; empty for records, which have none.

        Args:
            contents: from `read`.
        """
        return SampleFields()

    def field_bytes(self, contents: Contents, number: int) -> Any:
        """Return the stored bytes of a field.

        Args:
            contents: from `read`.
            number: of the field.

        Raises:
            NoSuchRecordError: there is no such field, or it is not a stretch of bytes.
            ValueError: the field is damaged.
        """
        raise NoSuchRecordError("a record has no fields")

    def label_chunk(self, start: int, stop: int) -> LabelChunk:
        """Read the labels of records start <= position < stop, or of fewer, to the end of a file; after `load`.

        Raises:
            OSError: they cannot be read.
        """
        raise NotImplementedError

    def label_name(self, label: float) -> str:
        """Return the name of a class, or ""."""
        return self.classes.get(label, "")

    def label_of_name(self, name: str) -> float | None:
        """Return the label of the class with a name, or None."""
        return next((label for label, each in self.classes.items() if each == name), None)

    def file_names(self) -> list[str]:
        """Return the names of the record files if there are several, otherwise an empty list."""
        return []

    def file_of(self, position: int) -> int:
        """Return the number of the file that contains a record."""
        return 0

    def close(self) -> None:
        """Close all files."""


def read_bytes(source: ByteSource, spans: Spans) -> memoryview:
    """Read the bytes of one item whose span may be too short.

    Raises:
        OSError, ValueError, EOFError: the item cannot be read, or is too large to be displayed.
    """
    try:
        return _read(source, spans)
    except SpanTooShortError as short:
        return _read(source, Spans(spans.file, spans.offset, np.array([short.needed], np.int64)))


def _read(source: ByteSource, spans: Spans) -> memoryview:
    plan = source.plan_blocking(spans)
    for _, error in plan.failures:
        raise error
    if plan.nbytes > MOST_RECORD_NBYTES + 4096:
        raise ValueError(
            f"{plan.nbytes:,} bytes are too many to display; the limit is {MOST_RECORD_NBYTES:,}"
        )
    data = memoryview(bytearray(plan.nbytes))
    for _, error in source.read_blocking(plan, data):
        raise error
    start = int(plan.start[0])
    return data[start : start + int(plan.length[0])].toreadonly()


DAMAGED = "damaged"
FOREIGN = "foreign"
IMAGE = "image"
EMPTY = "empty"


class Box(NamedTuple):
    """Object in an image; edges are fractions of the image's width and height, `right` and `bottom` exclusive."""

    label: float
    left: float
    top: float
    right: float
    bottom: float


@dataclass(frozen=True, slots=True)
class Record:
    """Facts of a record that are known without decoding its image.

    Attributes:
        position: position in the collection.
        location: key (the name in the .idx; of an image file, its path below the folder), the file that contains the
            record, and the byte offset in this file; None for a whole file.
        nbytes: size of the stored image.
        kind: "image", "damaged", "foreign" (not an image record) or "empty" (a header without a body).
        problem: description of the damage; None if none was found so far.
        error: name of the class of the error that `problem` describes, or "".
        header: flag, id and id2 of the header; None without a header.
        labels: labels of the header, of the folder, or of the sample.
        text_label: label that is not a number, or "".
        boxes: the objects of a detection label.
        image: header of the image, with its size as stored, and upright after rendering; of a damaged one, only its
            format; None if it is not an image.
        sample_nbytes: size of the whole sample of which the image is one field; None for other records.
        words: beginning of the text of a sample without an image, or "".
        notes: further remarks, such as a field that the sample lacks.
    """

    position: int
    location: ItemLocation
    nbytes: int = 0
    kind: str = IMAGE
    problem: str | None = None
    error: str = ""
    header: tuple[int, int, int] | None = None
    labels: tuple[float, ...] = ()
    text_label: str = ""
    boxes: tuple[Box, ...] = ()
    image: ImageHeader | None = None
    sample_nbytes: int | None = None
    words: str = ""
    notes: tuple[str, ...] = ()

    @property
    def size(self) -> tuple[int, int]:
        """Return width and height of the image in pixels; zeros without an image."""
        return (0, 0) if self.image is None else (self.image.width, self.image.height)


def with_image(known: Record, body: Any) -> Record:
    """Describe a record by the bytes of its image, or of its image file."""
    try:
        return replace(known, nbytes=len(body), image=read_header(body))
    except DecodeError as error:
        image = ImageHeader(error.format, 0, 0) if error.format else None
        return replace(failed(known, error), nbytes=len(body), image=image)


def failed(known: Record, error: Exception) -> Record:
    """Return the record marked as damaged by an error."""
    return replace(known, kind=DAMAGED, problem=_plain(error), error=type(error).__name__)


def _plain(error: Exception) -> str:
    """Return an error's reason in one line, without the parts that the page displays anyway."""
    text = (
        getattr(error, "reason", None)
        or getattr(error, "message", None)
        or str(error)
        or type(error).__name__
    )
    return printable(" ".join(str(text).split()))
