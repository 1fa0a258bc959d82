"""Labels of TFRecord records without their images: of each record the bytes before and behind large features are read.

A walk over an example needs the beginnings of its entries only. So the first kilobyte of each record is read, then the
bytes from the end of the feature on that the walk went beyond, and so on.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final

import numpy as np

from aioloader.datasets.fields import FieldKind
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.formats.tfrecord.example import (
    ExampleWalk,
    MessageFault,
    Wanted,
    feature_value,
    feature_values,
    wanted_features,
)
from aioloader.formats.tfrecord.framing import (
    FRAME_NBYTES,
    HEAD,
    HEAD_NBYTES,
    check_payload,
    crc32c_function,
    length_crc,
    payload_of,
)
from aioloader.foundation.types import Spans

if TYPE_CHECKING:
    from aioloader.abc import ByteSource
    from aioloader.foundation.types import Array, IntArray, ItemLocation


FIRST_NBYTES: Final = HEAD_NBYTES + 1024
_NEXT_NBYTES: Final = 1024
# A record with more parts than this is read whole: it has many large features, or very many features.
_MOST_ROUNDS: Final = 6


class _Label:
    """Search for the label of one record."""

    def __init__(self, nbytes: int, wanted: Wanted) -> None:
        self.walk = ExampleWalk(nbytes, wanted)
        self._nbytes = nbytes
        self._key = wanted.keys[0]
        self._feature: tuple[list[tuple[int, int]], bytes] | None = None

    def take(self, window: bytes) -> bool:
        """Take bytes of the example from the walk's place on; return True at its end.

        Raises:
            MessageFault: the bytes are not an example.
        """
        begin = self.walk.at
        done = not self._nbytes or self.walk.take(window)
        parts = self.walk.found.get(self._key)
        if (
            parts is not None
            and len(parts) == 1
            and begin <= parts[0][0]
            and parts[0][1] <= begin + len(window)
        ):
            self._feature = parts, window[parts[0][0] - begin : parts[0][1] - begin]
        return done

    def value(self) -> Any:
        """Return the number or numbers of the feature; None if the windows did not show it all, or it has none.

        Raises:
            MessageFault: the bytes are not a feature.
        """
        if self._feature is None or self._feature[0] is not self.walk.found.get(self._key):
            return None
        data = self._feature[1]
        value = feature_value(memoryview(data), [(0, len(data))])
        return value if isinstance(value, (np.generic, np.ndarray)) and value.size else None

    def next_nbytes(self) -> int:
        """Return the number of bytes to read next."""
        return min(max(_NEXT_NBYTES, self.walk.least), self._nbytes - self.walk.at)


def read_labels(source: ByteSource, spans: Spans, name: str) -> list[Any]:
    """Return the value of a feature of numbers in each record; None where the record has to be read whole. Blocking.

    Args:
        source: of the records.
        spans: of the records, with their heads and CRCs.
        name: of the feature.

    Returns:
        None for a record that is damaged, does not have the feature or has it in an unusual form, too: a reader of the
        whole record returns its value or raises its error.

    Raises:
        OSError: a file cannot be read.
        ShortReadError: a file ends inside a record.
    """
    values: list[Any] = [None] * len(spans)
    wanted = wanted_features((name,))
    labels: dict[int, _Label] = {}
    first = np.minimum(spans.length, FIRST_NBYTES)
    for place, window in enumerate(_windows(source, spans.file, spans.offset, first)):
        nbytes = int(spans.length[place]) - FRAME_NBYTES
        if nbytes >= 0 and HEAD.unpack_from(window) == (nbytes, length_crc(nbytes)):
            labels[place] = _Label(nbytes, wanted)
            _step(labels, place, window[HEAD_NBYTES : HEAD_NBYTES + nbytes], values)
    for _ in range(_MOST_ROUNDS):
        if not labels:
            break
        places = np.array(list(labels), np.int64)
        at = np.array([label.walk.at for label in labels.values()], np.int64)
        nbytes_of = np.array([label.next_nbytes() for label in labels.values()], np.int64)
        windows = _windows(source, spans.file[places], spans.offset[places] + HEAD_NBYTES + at, nbytes_of)
        for place, window in zip(places.tolist(), windows, strict=True):
            _step(labels, place, window, values)
    return values


def _step(labels: dict[int, _Label], place: int, window: bytes, values: list[Any]) -> None:
    """Continue with one record; forget it at its end, or if it is damaged."""
    try:
        if not labels[place].take(window):
            return
        values[place] = labels[place].value()
    except MessageFault:
        pass
    del labels[place]


def _windows(source: ByteSource, file: Array, offset: IntArray, length: IntArray) -> list[bytes]:
    plan, data = source.fetch(Spans(file, offset, length))
    ends = (plan.start + plan.length).tolist()
    return [bytes(data[start:end]) for start, end in zip(plan.start.tolist(), ends, strict=True)]


@dataclass(frozen=True, kw_only=True)
class ExampleReader:
    """Reader of the features of records; see `aioloader.datasets.fields.FieldReader`.

    A feature of bytes is bytes if it has one value, else a list; one of numbers is a numpy scalar (int64 or float32) if
    it has one value, else an array. The values of images stay encoded.

    Attributes:
        images: names of the features that are encoded images.
        is_pair: samples are (image, label): an image has one value, and a label at least one.
        check_crc: compare the CRC of each record's data, too.
    """

    images: frozenset[str]
    is_pair: bool = False
    check_crc: bool = False

    def read(self, data: memoryview, extra: Any, location: ItemLocation, names: tuple[str, ...]) -> list[Any]:
        payload = self._payload(data, location)
        wanted = wanted_features(names)
        try:
            found = feature_values(payload, wanted)
        except MessageFault as fault:
            raise _damaged(fault, location) from None
        values = []
        for name, key in zip(names, wanted.keys, strict=True):
            value = found.get(key)
            if value is None:
                raise self._missing(name, data, payload, location)
            if type(value) is list:
                value = self._bytes(value, name, location)
            elif name in self.images:
                raise _unfit(name, "is not an image: it has numbers", "BytesList", str(value.dtype), location)
            elif self.is_pair and not value.size:
                raise _unfit(name, "has no value", "1 value", "none", location)
            values.append(value)
        return values

    def names(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[str, ...]:
        payload = self._payload(data, location)
        try:
            return tuple(key.decode() for key in feature_values(payload, wanted_features(None)))
        except MessageFault as fault:
            raise _damaged(fault, location) from None

    def kind(self, name: str) -> FieldKind:
        return FieldKind.IMAGE if name in self.images else FieldKind.VALUE

    def _payload(self, data: memoryview, location: ItemLocation) -> memoryview:
        payload = payload_of(data, **location._asdict())
        if self.check_crc:
            check_payload(data, crc32c_function(), **location._asdict())
        return payload

    def _bytes(self, values: list[memoryview], name: str, location: ItemLocation) -> Any:
        if self.is_pair and len(values) != 1:
            advice = "has not one value: pass fields=(...) for samples that are dicts"
            raise _unfit(name, advice, "1 value", f"{len(values)} values", location)
        if name not in self.images:
            copies = [bytes(value) for value in values]
            return copies[0] if len(copies) == 1 else copies
        return values[0] if len(values) == 1 else values

    def _missing(
        self, name: str, data: memoryview, payload: memoryview, location: ItemLocation
    ) -> MissingFieldError | SampleFormatError:
        if not len(payload):
            return SampleFormatError(
                "the record is empty",
                **location._asdict(),
                expected="a tf.train.Example with features",
                found="0 bytes",
            )
        return MissingFieldError(name, self.names(data, None, location), path=location.path, key=location.key)


def _damaged(fault: MessageFault, location: ItemLocation) -> SampleFormatError:
    offset = None if location.offset is None else location.offset + HEAD_NBYTES + fault.at
    return SampleFormatError(
        f"the record is no tf.train.Example: {fault.reason}",
        path=location.path,
        offset=offset,
        key=location.key,
        expected=fault.expected,
        found=fault.found,
    )


def _unfit(name: str, reason: str, expected: str, found: str, location: ItemLocation) -> SampleFormatError:
    return SampleFormatError(
        f"the feature {name!r} {reason}",
        **location._asdict(),
        expected=expected,
        found=found,
    )
