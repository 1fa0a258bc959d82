"""Reader of the features of TFRecord records: each is a framed `tf.train.Example`."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioloader.datasets.crc32c import crc32c_function
from aioloader.datasets.fields import FieldKind
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.formats.example import feature_values, wanted_features
from aioloader.formats.protobuf import MessageFault
from aioloader.formats.tfrecord import HEAD_NBYTES, check_payload, payload_of

if TYPE_CHECKING:
    from aioloader.foundation.types import ItemLocation


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
        payload = payload_of(data, path=location.path, offset=location.offset, key=location.key)
        if self.check_crc:
            check_payload(
                data, crc32c_function(), path=location.path, offset=location.offset, key=location.key
            )
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
                path=location.path,
                offset=location.offset,
                key=location.key,
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
        path=location.path,
        offset=location.offset,
        key=location.key,
        expected=expected,
        found=found,
    )
