"""Fields of MDS samples."""

from __future__ import annotations

from dataclasses import dataclass
from functools import cached_property
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.fields import FieldKind
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.formats.mds.encodings import Encoding, EncodingKind, parse_encoding
from aioloader.formats.mds.index import LayoutFault, MDSColumn, SampleLayout
from aioloader.transforms.raw import encode_raw

if TYPE_CHECKING:
    from aioloader.foundation.types import ItemLocation

_KINDS = {
    EncodingKind.BYTES: FieldKind.BYTES,
    EncodingKind.TEXT: FieldKind.TEXT,
    EncodingKind.JSON: FieldKind.JSON,
    EncodingKind.IMAGE: FieldKind.IMAGE,
    EncodingKind.PIXELS: FieldKind.IMAGE,
    EncodingKind.IMAGES: FieldKind.IMAGE,
    EncodingKind.ARRAY: FieldKind.VALUE,
    EncodingKind.NUMBER: FieldKind.VALUE,
}


@dataclass(frozen=True)
class MDSFieldReader:
    """Reader of the fields of MDS samples; see `aioloader.datasets.fields.FieldReader`.

    If the extra of a sample is not None, its data are the bytes of the one field that is read; see
    `MDSDataset.labels_at`.

    Attributes:
        columns: of every sample, in the order of the data.
        images: names of columns of bytes, or of arrays of pixels, that are images.
    """

    columns: tuple[MDSColumn, ...]
    images: frozenset[str]

    @cached_property
    def _layout(self) -> SampleLayout:
        return SampleLayout(self.columns)

    @cached_property
    def _encodings(self) -> dict[str, Encoding | str]:
        """Return the encoding of each column by its name, or the reason why it is not read."""
        found: dict[str, Encoding | str] = {}
        for column in self.columns:
            try:
                encoding = parse_encoding(column.encoding)
            except ValueError as error:
                found[column.name] = str(error)
                continue
            found[column.name] = encoding
            if column.nbytes is not None and column.nbytes != encoding.nbytes:
                wanted = "any size" if encoding.nbytes is None else f"{encoding.nbytes} bytes"
                found[column.name] = (
                    f"its values have {column.nbytes} bytes in index.json, and those of the encoding "
                    f"{column.encoding!r} have {wanted}"
                )
        return found

    @cached_property
    def _numbers(self) -> dict[str, int]:
        return {column.name: number for number, column in enumerate(self.columns)}

    def encoding(self, name: str) -> Encoding | None:
        """Return the encoding of a column; None if there is no such column.

        Raises:
            ValueError: columns of this encoding are not read.
        """
        found = self._encodings.get(name)
        if isinstance(found, str):
            raise ValueError(f"the column {name!r} cannot be read: {found}")
        return found

    def kind(self, name: str) -> FieldKind:
        """Return the kind of a field."""
        found = self._encodings.get(name)
        if not isinstance(found, Encoding):
            return FieldKind.BYTES
        return FieldKind.IMAGE if name in self.images else _KINDS[found.kind]

    def names(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[str, ...]:
        """Return the names of the columns that are read: not of those with pickled values or unknown encodings.

        Raises:
            SampleFormatError: the bytes are not a sample of these columns.
        """
        if extra is None:
            self._spans(data, location)
        return self.readable

    @property
    def readable(self) -> tuple[str, ...]:
        """Return the names of the columns that are read."""
        return tuple(name for name, found in self._encodings.items() if isinstance(found, Encoding))

    def read(self, data: memoryview, extra: Any, location: ItemLocation, names: tuple[str, ...]) -> list[Any]:
        """Return the values of some fields.

        Raises:
            MissingFieldError: there is no such column.
            SampleFormatError: the bytes are not a sample of these columns, a value is damaged, or its encoding is not
                read.
        """
        if extra is not None:
            return [self._value(name, data, location) for name in names]
        spans = self._spans(data, location)
        values = []
        for name in names:
            number = self._numbers.get(name)
            if number is None:
                raise MissingFieldError(name, tuple(self._numbers), path=location.path, key=location.key)
            begin, end = spans[number]
            values.append(self._value(name, data[begin:end], location))
        return values

    def _spans(self, data: memoryview, location: ItemLocation) -> list[tuple[int, int]]:
        try:
            return self._layout.spans(data, len(data))
        except LayoutFault as fault:
            raise SampleFormatError(
                f"the sample is damaged: {fault}",
                **location._asdict(),
                expected=None if fault.expected is None else f"{fault.expected} bytes",
                found=len(data),
            ) from None

    def _value(self, name: str, data: memoryview, location: ItemLocation) -> Any:
        try:
            encoding = self.encoding(name)
            if encoding is None:
                raise MissingFieldError(name, tuple(self._numbers), path=location.path, key=location.key)
            value = encoding.decode(data)
            if encoding.kind is EncodingKind.PIXELS or (
                name in self.images and isinstance(value, np.ndarray)
            ):
                return encode_raw(value)
            if encoding.kind is EncodingKind.IMAGES:
                return [encode_raw(each) if isinstance(each, np.ndarray) else each for each in value]
        except MissingFieldError:
            raise
        except (ValueError, OverflowError) as error:
            raise SampleFormatError(
                f"the field {name!r} cannot be read: {error}",
                **location._asdict(),
            ) from None
        return value

    def fixed_span(self, name: str) -> tuple[int, int] | None:
        """Return where a column is in every sample; see `aioloader.formats.mds.index.SampleLayout.fixed_span`."""
        return self._layout.fixed_span(name)
