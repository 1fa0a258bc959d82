"""Layout of InsightFace's training sets: the header, the images, the identity records, and the file `property`.

Rule: the record with the key 0 is a header: it has no body, and its labels are (first, end). The keys 1 to first - 1
are images, ordered by identity; the keys first to end - 1 are the identities, again without a body, whose labels are
(start, stop), the keys of their images, the stop exclusive. A record 0 with a body is an image like any other: such a
set has images only.

All these numbers are float32, so a number beyond 2**24 may be rounded: `slack` returns the largest error.
"""

from __future__ import annotations

import operator
import os
from collections.abc import Sequence
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, overload

import numpy as np

from aioloader.errors import LayoutError
from aioloader.storage.local.descriptors import open_regular
from aioloader.storage.urls import is_url, redact_url
from recordio import MAGIC, HeaderError, unpack

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray

PROPERTY = "property"
"""Name of the file."""

_MOST_NBYTES = 4096
_MOST_NUMBER = 1 << 31
_EXACT = 1 << 24
# A framed record with two labels and no body: part head, image header, labels.
_IDENTITY_NBYTES = 8 + 24 + 8


class FaceHeader(NamedTuple):
    """Content of the header, record 0.

    Attributes:
        first: key of the first identity record, which is the last image's plus one.
        end: key of the last identity record plus one; `first` if there are no identity records.
    """

    first: int
    end: int


def face_header(payload: Any) -> FaceHeader | None:
    """Parse the payload of record 0 as the header of a set; None if it is an image or anything else.

    Args:
        payload: payload of the record, bytes-like.
    """
    try:
        header, body = unpack(payload)
    except HeaderError:
        return None
    if not header.flag or len(body):
        return None
    first = float(header.label[0])
    end = float(header.label[1]) if header.flag > 1 else first
    # Every comparison with NaN is false. Some programs write another value as the second label.
    if not 1 <= first < 2**63 or not first.is_integer():
        return None
    return FaceHeader(int(first), int(end) if first <= end < 2**63 and end.is_integer() else int(first))


class Identities(Sequence[range]):
    """Sequence with the range of image indices of each identity.

    Attributes:
        start, stop: int64 (n,), the same ranges as arrays; the stops are exclusive.
    """

    def __init__(self, start: IntArray, stop: IntArray) -> None:
        self.start = start
        self.stop = stop

    def __len__(self) -> int:
        """Return the number of identities."""
        return len(self.start)

    @overload
    def __getitem__(self, identity: int) -> range: ...

    @overload
    def __getitem__(self, identity: slice) -> Identities: ...

    def __getitem__(self, identity: int | slice) -> range | Identities:
        """Return the indices of an identity's images; for a slice, the identities in it."""
        if isinstance(identity, slice):
            return Identities(self.start[identity], self.stop[identity])
        number = operator.index(identity)
        if not -len(self) <= number < len(self):
            raise IndexError(f"there is no identity {number}: the set has {len(self)}")
        return range(int(self.start[number]), int(self.stop[number]))

    def __repr__(self) -> str:
        return f"<{len(self)} identities with {int((self.stop - self.start).sum())} images>"


@dataclass(frozen=True)
class ImageLines:
    """Lines of an .idx that are images, in the order of the dataset.

    Attributes:
        header: the header of the set; None if all records are images.
        count: number of images.
        first_line: line of the first image if the lines are consecutive; then `lines` is None.
        lines: int64 (n,), the lines; None if they are consecutive.
        keys: int64 (n,), keys of the images, ascending; None if they are 1 to n.
    """

    header: FaceHeader | None
    count: int
    first_line: int = 0
    lines: IntArray | None = None
    keys: IntArray | None = None

    @property
    def first_missing(self) -> int | None:
        """Return the first key that the header announces and the .idx lacks; None if it has all."""
        if self.keys is None:
            return None
        gaps = np.flatnonzero(self.keys != np.arange(1, self.count + 1))
        return int(gaps[0]) + 1 if len(gaps) else self.count + 1

    def at(self, indices: IntArray) -> IntArray:
        """Return the lines of images."""
        return indices + self.first_line if self.lines is None else self.lines[indices]

    def places(self, keys: IntArray) -> IntArray:
        """Return for each key the index of the first image with the same or a larger key."""
        if self.keys is not None:
            return np.searchsorted(self.keys, keys).astype(np.int64)
        return np.clip(keys - 1, 0, self.count)


def _by_key(keys: IntArray, chosen: Array) -> tuple[IntArray, IntArray]:
    """Return the chosen lines, ordered by key, and their keys."""
    lines: IntArray = np.flatnonzero(chosen).astype(np.int64)
    own = keys[lines]
    if (own[1:] < own[:-1]).any():
        order = np.argsort(own, kind="stable")
        lines, own = lines[order], own[order]
    return lines, own


def choose_images(keys: IntArray, header: FaceHeader) -> ImageLines:
    """Select the images of a set with a header, ordered by key.

    Of lines with the same key the last is used, as in MXNet.

    Args:
        keys: int64 (n,), all keys of the .idx by line.
        header: the header of the set.
    """
    lines, own = _by_key(keys, (keys >= 1) & (keys < header.first))
    if (own[1:] == own[:-1]).any():
        last = np.append(np.diff(own) != 0, True)
        lines, own = lines[last], own[last]
    count = len(lines)
    # A few numbers instead of arrays with 8 bytes for each of millions of images, where possible.
    row = count > 0 and bool((np.diff(lines) == 1).all())
    complete = count == header.first - 1
    return ImageLines(
        header,
        count,
        first_line=int(lines[0]) if row else 0,
        lines=None if row else lines,
        keys=None if complete else np.array(own),
    )


def choose_identities(
    keys: IntArray, header: FaceHeader, path: str, idx_path: str
) -> tuple[IntArray, IntArray]:
    """Return the lines of the identity records, ordered by key, and the keys.

    Args:
        keys: int64 (n,), all keys of the .idx by line.
        header: the header of the set.
        path, idx_path: the .rec file and the .idx, for the error.

    Raises:
        LayoutError: an identity record is missing, or occurs twice.
    """
    lines, own = _by_key(keys, keys >= header.first)
    end = header.end
    if len(own) and abs(int(own[-1]) + 1 - end) <= slack(end):
        end = int(own[-1]) + 1
    there = int(np.searchsorted(own, end))
    lines, own = lines[:there], own[:there]
    expected = header.first + np.arange(there)
    wrong = np.flatnonzero(own != expected)
    if there != end - header.first or len(wrong):
        key = int(expected[wrong[0]]) if len(wrong) else header.first + there
        raise LayoutError(
            f"the header says that identities have the keys {header.first} to {end - 1}, but {idx_path} does not have "
            f"each of them exactly once: see key {key}. Reading images and labels() still works",
            path=path,
            key=key,
        )
    return lines, own


def identity_ranges(
    memory: memoryview, start: IntArray, length: IntArray, keys: IntArray, path: str
) -> IntArray:
    """Return the ranges of image keys in identity records.

    Args:
        memory: contains the framed records.
        start, length: int64 (n,), byte offset and length of each record; bytes after a record are ignored.
        keys: int64 (n,), key of each record, for the error.
        path: the .rec file, for the error.

    Returns:
        int64 (n, 2): first key, and last key plus one.

    Raises:
        LayoutError: a record is not an identity record.
    """
    short = np.flatnonzero(length < _IDENTITY_NBYTES)
    if len(short):
        raise _no_identity(int(keys[short[0]]), path)
    places = start[:, None] + np.arange(_IDENTITY_NBYTES)
    records: Array = np.frombuffer(memory, np.uint8)[places]
    words: Array = records.view("<u4")
    nbytes = words[:, 1]
    valid = (
        (words[:, 0] == MAGIC) & (nbytes >= _IDENTITY_NBYTES - 8) & (nbytes < 1 << 29) & (words[:, 2] >= 2)
    )
    with np.errstate(invalid="ignore"):  # any bits are possible here
        ranges: Array = records[:, -8:].copy().view("<f4").astype(np.float64)
        valid &= (ranges == np.floor(ranges)).all(axis=1) & (ranges >= 1).all(axis=1)
        valid &= (ranges[:, 0] <= ranges[:, 1]) & (ranges[:, 1] < 2**53)
    wrong = np.flatnonzero(~valid)
    if len(wrong):
        raise _no_identity(int(keys[wrong[0]]), path)
    return ranges.astype(np.int64)


def _no_identity(key: int, path: str) -> LayoutError:
    return LayoutError(
        f"the record with the key {key} should be an identity record, but is not: the set is corrupt, or its .idx "
        "belongs to another file. Reading images and labels() still works",
        path=path,
        key=key,
    )


def slack(number: int) -> int:
    """Return the largest rounding error of a whole number that was stored as float32; 0 up to 2**24."""
    return 0 if number < _EXACT else int(np.spacing(np.float32(number))) // 2


class Property(NamedTuple):
    """Content of the file `property`.

    Attributes:
        num_classes: number of identities.
        height, width: extents of the images in pixels.
    """

    num_classes: int
    height: int
    width: int


def read_property(path: str) -> Property:
    """Read a `property` file, local or in object storage.

    Raises:
        OSError: it cannot be read.
        LayoutError: it is malformed.
    """
    if is_url(path):
        from aioloader.storage.remote.opening import read_text

        text = read_text(path)[:_MOST_NBYTES]
    else:
        with os.fdopen(open_regular(path), "rb") as file:
            text = file.read(_MOST_NBYTES)
    return parse_property(text.decode("ascii", "replace"), redact_url(path))


def parse_property(text: str, path: str) -> Property:
    """Parse the text of a `property` file: ``number of identities,height,width`` on its first line.

    Args:
        text: text of the file; lines after the first are ignored.
        path: path of the file, for the error.

    Raises:
        LayoutError: the first line does not have that form.
    """
    line = text.partition("\n")[0].strip()
    fields = line.split(",")
    try:
        numbers = [int(field) for field in fields]
    except ValueError:
        numbers = []
    if len(numbers) != 3 or not all(1 <= number < _MOST_NUMBER for number in numbers):
        raise LayoutError(
            "the first line must be the number of identities, the height and the width of the images, such as "
            f"'85742,112,112', but is {line[:80]!r}",
            path=path,
        )
    return Property(*numbers)
