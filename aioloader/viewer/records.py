"""Description of a record: its header, labels, boxes and the format of its image. No code here performs I/O.

A detection label is a flat array: A, the length of its header (2 or more, counting A and B); B, the count of numbers
for each object (5 or more); the rest of the header; then the objects. An object is class, left, top, right, bottom as
fractions of the image's width and height, and further numbers. A label with any other layout is displayed as numbers.
"""

from __future__ import annotations

import math
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.errors import DecodeError
from aioloader.formats.recordio.heads import detection_label
from aioloader.transforms.formats import read_header
from aioloader.viewer.sample_fields import printable
from recordio import HeaderError, RecordIOError, extract, unpack

if TYPE_CHECKING:
    from aioloader.foundation.types import Array


DAMAGED = "damaged"
FOREIGN = "foreign"
IMAGE = "image"
EMPTY = "empty"

_MOST_BOXES = 500
# Annotated boxes occasionally end a little outside the image.
_SLACK = 0.5


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
        key: name in the .idx; of an image file, its path below the folder.
        path: the file that contains the record.
        offset: byte offset in this file; None for a whole file.
        nbytes: size of the stored image.
        kind: "image", "damaged", "foreign" (not an image record) or "empty" (a header without a body).
        problem: description of the damage; None if none was found so far.
        error: name of the class of the error that `problem` describes, or "".
        flag, id, id2: fields of the header; None without a header.
        labels: labels of the header, of the folder, or of the sample.
        text_label: label that is not a number, or "".
        boxes: the objects of a detection label.
        format: "jpeg", "png", ...; None if it is not an image.
        width, height: size in pixels: as stored, and upright after rendering.
        orientation: EXIF orientation of the image, 1 to 8; 1: as stored.
        sample_nbytes: size of the whole sample of which the image is one field; None for other records.
        words: beginning of the text of a sample without an image, or "".
        notes: further remarks, such as a field that the sample lacks.
    """

    position: int
    key: int | str
    path: str
    offset: int | None
    nbytes: int = 0
    kind: str = IMAGE
    problem: str | None = None
    error: str = ""
    flag: int | None = None
    id: int | None = None
    id2: int | None = None
    labels: tuple[float, ...] = ()
    text_label: str = ""
    boxes: tuple[Box, ...] = ()
    format: str | None = None
    width: int = 0
    height: int = 0
    orientation: int = 1
    sample_nbytes: int | None = None
    words: str = ""
    notes: tuple[str, ...] = ()


def record_of(bare: Record, data: Any) -> tuple[Record, Any]:
    """Describe a record by its framed bytes.

    Args:
        bare: the record's position, key, path and offset.
        data: the record's bytes from its head on.

    Returns:
        the description, and the body; None for the body of a damaged record.
    """
    try:
        payload: Any = extract(data, path=bare.path, offset=bare.offset or 0)
    except RecordIOError as error:
        return failed(bare, error), None
    try:
        header, body = unpack(payload)
    except HeaderError:
        # A record file may contain records without images.
        problem = f"{len(payload):,} bytes without the header of an image record"
        return replace(bare, kind=FOREIGN, nbytes=len(payload), problem=problem), payload
    labels = (float(header.label),) if header.flag == 0 else tuple(map(float, header.label.tolist()))
    known = replace(
        bare,
        flag=header.flag,
        id=header.id,
        id2=header.id2,
        labels=labels,
        boxes=detection_boxes(header.label) if header.flag else (),
    )
    if not len(body):
        return replace(known, kind=EMPTY, problem="the record is a header without an image"), body
    return with_image(known, body), body


def with_image(known: Record, body: Any) -> Record:
    """Describe a record by the bytes of its image, or of its image file."""
    try:
        header = read_header(body)
    except DecodeError as error:
        return replace(failed(known, error), nbytes=len(body), format=error.format)
    return replace(
        known,
        nbytes=len(body),
        format=header.format,
        width=header.width,
        height=header.height,
        orientation=header.orientation or 1,
    )


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


def detection_boxes(label: Array) -> tuple[Box, ...]:
    """Return the objects of a detection label; none for any other label.

    Args:
        label: float32 (n,).

    Returns:
        at most `_MOST_BOXES` objects with an area.
    """
    layout = detection_label(label)
    if layout is None or not layout.objects:
        return ()
    objects = label[layout.header_width :].reshape(layout.objects, layout.object_width)
    table = objects[:, :5].astype(np.float64)
    edges = table[:, 1:5]
    with np.errstate(invalid="ignore"):
        inside = np.isfinite(table).all() and (edges > -_SLACK).all() and (edges < 1 + _SLACK).all()
    if not inside:
        return ()
    wide = (edges[:, 2] > edges[:, 0]) & (edges[:, 3] > edges[:, 1])
    return tuple([Box(*row) for row in table[wide][:_MOST_BOXES].tolist()])


def box_table(boxes: tuple[Box, ...], width: int, height: int) -> Array:
    """Convert boxes to the array that box transforms take.

    Returns:
        float32 (n, 5): xmin, ymin, xmax, ymax in pixels, class.
    """
    table = np.array([(b.left, b.top, b.right, b.bottom, b.label) for b in boxes], np.float32).reshape(-1, 5)
    table[:, 0:4:2] *= width
    table[:, 1:4:2] *= height
    return table


def label_text(value: float) -> str:
    """Format a label for display and for addresses: 3, 0.25."""
    if math.isfinite(value) and float(value).is_integer() and abs(value) < 1e15:
        return str(int(value))
    return str(np.float32(value))  # with enough digits to parse to the same value


def parse_label(text: str) -> float:
    """Parse a label of an address, in single precision as in records.

    Raises:
        ValueError: it is not a number.
    """
    try:
        with np.errstate(over="ignore"):
            value = float(np.float32(float(text))) if len(text) <= 40 else math.nan
    except ValueError:
        value = math.nan
    if not math.isfinite(value):
        raise ValueError(f"{text[:40]!r} is not a label: labels are numbers")
    return value
