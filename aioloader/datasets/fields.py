"""Fields of the samples of shards, and their decoders: bytes to (image, label), or to a dict of chosen fields."""

from __future__ import annotations

from dataclasses import dataclass
from enum import Enum
from typing import TYPE_CHECKING, Any, Protocol

import numpy as np

from aioloader.abc import Decoder
from aioloader.datasets.decoding import ImageDecoder, decode_here, label_value, label_vector
from aioloader.errors import SampleFormatError
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array, ItemLocation


class FieldKind(Enum):
    """Kind of a field: how its value becomes an element of a sample."""

    IMAGE = "image"
    """Encoded image; becomes uint8 (height, width, 3) or (height, width, 1)."""
    JSON = "json"
    """JSON text; becomes Python objects."""
    TEXT = "text"
    """UTF-8 text; becomes a str."""
    INTEGER = "integer"
    """Decimal digits; become an int64 scalar."""
    BYTES = "bytes"
    """Any bytes; become bytes."""
    VALUE = "value"
    """A number, string, array or other object that the format stores as such; stays what it is."""


class FieldReader(Protocol):
    """Reader of the fields of one sample. Small and picklable: it is sent to each worker once."""

    def read(self, data: memoryview, extra: Any, location: ItemLocation, names: tuple[str, ...]) -> list[Any]:
        """Return the values of some fields.

        Args:
            data: the bytes of the sample; valid during the call only.
            extra: the sample's row of `ByteDataset.extras`, or None.
            location: of the sample, for errors.
            names: of the fields.

        Returns:
            for each name a memoryview of `data` for a field of bytes, or the value.

        Raises:
            MissingFieldError: the sample does not have the field.
            SampleFormatError: the bytes are not a sample of this format.
        """
        ...

    def names(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[str, ...]:
        """Return the names of all fields of a sample, in the order of the data.

        Args:
            data, extra, location: as for `read`.

        Raises:
            SampleFormatError: the bytes are not a sample of this format.
        """
        ...

    def kind(self, name: str) -> FieldKind:
        """Return the kind of a field."""
        ...


def field_value(value: Any, kind: FieldKind, name: str, location: ItemLocation) -> Any:
    """Return the value of a field that is not an image, as an element of a sample.

    Args:
        value: a memoryview of the field's bytes, or the value if `kind` is `VALUE`.
        kind: of the field.
        name: of the field, for errors.
        location: of the sample, for errors.

    Raises:
        SampleFormatError: the bytes are not text, not JSON or not digits.
    """
    if kind is FieldKind.VALUE:
        return value
    data = bytes(value)
    if kind is FieldKind.BYTES:
        return data
    try:
        if kind is FieldKind.JSON:
            import json  # not for the first batch of those who need none

            return json.loads(data)
        text = data.decode()
        return text if kind is FieldKind.TEXT else np.int64(int(text))
    except (ValueError, OverflowError, RecursionError) as error:
        raise SampleFormatError(
            f"the field {name!r} of {_sample(location)} is not {kind.value}: {error}",
            **location._asdict(),
        ) from None


def as_label(
    value: Any,
    dtype: np.dtype[Any] | None,
    name: str,
    location: ItemLocation,
    *,
    advice: str = "pass the name of a field with numbers as label=, label=None for images alone, or to open_dataset "
    "fields=(...) for samples that are dicts",
) -> Any:
    """Return a label: whole numbers as int64, other numbers as float32 and arrays as they are, or all as `dtype`.

    Args:
        value: a number, a numpy scalar, or an array of numbers.
        dtype: of the label, or None.
        name: of its field, for errors.
        location: of the sample, for errors.
        advice: what to do about a value that is not a label.

    Raises:
        SampleFormatError: it is not a number, and not an array of numbers.
        ValueError: `dtype` cannot hold it.
    """
    if isinstance(value, list):
        value = _array_of(value, dtype)
    if isinstance(value, (bool, int, np.integer, np.bool_)):
        if dtype is not None:
            return label_value(int(value), dtype)
        if -(1 << 63) <= int(value) < 1 << 63:
            return np.int64(value)
    if isinstance(value, (float, np.floating)):
        return label_value(float(value), np.dtype(np.float32) if dtype is None else dtype)
    if isinstance(value, np.ndarray) and value.dtype.kind in "iufb":
        return value if dtype is None else label_vector(value, dtype)
    raise SampleFormatError(
        f"the field {name!r} of {_sample(location)} is not a label, but {type(value).__name__} "
        f"{_short(value)}: {advice}",
        **location._asdict(),
    )


def _array_of(values: list[Any], dtype: np.dtype[Any] | None) -> Any:
    """Return numbers of a list as an array, fractions as float32 without a `dtype`; the list if it is not regular."""
    try:
        array = np.asarray(values)
    except (ValueError, OverflowError):
        return values
    return array.astype(np.float32) if dtype is None and array.dtype.kind == "f" else array


def _sample(location: ItemLocation) -> str:
    # Workers do not know the keys of samples.
    return "this sample" if location.key is None else f"the sample {location.key!r}"


def _short(value: Any) -> str:
    text = repr(value)
    return text if len(text) <= 60 else f"{text[:57]}..."


@dataclass(frozen=True, kw_only=True)
class ShardImageDecoder(ImageDecoder):
    """Decoder of a sample to (image, label).

    Attributes:
        reader: of the fields.
        image: name of the image.
        label: name of the label; None: the sample is the image alone.
        label_dtype: numpy name of the dtype of the labels; None: int64 for whole numbers, float32 for others.
    """

    reader: FieldReader
    image: str
    label: str | None
    label_dtype: str | None = None

    def parse(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[Any, Any]:
        if self.label is None:
            return self.reader.read(data, extra, location, (self.image,))[0], None
        image, label = self.reader.read(data, extra, location, (self.image, self.label))
        return image, self.label_of(label, location)

    def label_of(self, value: Any, location: ItemLocation) -> Any:
        """Return the label that the value of its field is.

        Raises:
            SampleFormatError: it is not a number, and not an array of numbers.
            ValueError: `label_dtype` cannot hold it.
        """
        assert self.label is not None
        dtype = None if self.label_dtype is None else np.dtype(self.label_dtype)
        found = field_value(value, self.reader.kind(self.label), self.label, location)
        return as_label(found, dtype, self.label, location)

    def read_label(self, data: memoryview, extra: Any, location: ItemLocation) -> Any:
        """Return the label alone.

        Args:
            data, extra, location: as for `Decoder`.

        Raises:
            MissingFieldError, SampleFormatError: the sample has no label, or it is damaged.
        """
        assert self.label is not None
        (label,) = self.reader.read(data, extra, location, (self.label,))
        return self.label_of(label, location)


@dataclass(frozen=True, kw_only=True)
class FieldsDecoder(Decoder[dict[str, Any]]):
    """Decoder of a sample to a dict of the fields asked for.

    Attributes:
        reader: of the fields.
        fields: their names, in the order of the dict.
        flag, exif, max_pixels: see `aioloader.transforms.decode_image`.
    """

    reader: FieldReader
    fields: tuple[str, ...]
    flag: int = 1
    exif: str = "apply"
    max_pixels: int | None = DEFAULT_MAX_PIXELS

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> dict[str, Any]:
        """Return the sample."""
        values = self.reader.read(data, extra, location, self.fields)
        return {
            name: self._element(value, name, location)
            for name, value in zip(self.fields, values, strict=True)
        }

    def _element(self, value: Any, name: str, location: ItemLocation) -> Any:
        kind = self.reader.kind(name)
        if kind is not FieldKind.IMAGE:
            return field_value(value, kind, name, location)
        if isinstance(value, list):
            return [self._image(each, location) for each in value]
        return self._image(value, location)

    def _image(self, value: Any, location: ItemLocation) -> Array:
        if isinstance(value, np.ndarray):  # stored as pixels
            return value
        return decode_here(
            value, flag=self.flag, exif=self.exif, max_pixels=self.max_pixels, path=location.path
        )


def field_names(fields: str | Sequence[str]) -> tuple[str, ...]:
    """Return the names of the fields that a caller asks for.

    Raises:
        TypeError: a name is not a str.
        ValueError: there is none, or one is there twice.
    """
    names = (fields,) if isinstance(fields, str) else tuple(fields)
    for name in names:
        if not isinstance(name, str):
            raise TypeError(f"the names of fields must be str, got {name!r}")
    if not names or len(set(names)) < len(names):
        raise ValueError(f"fields must name at least one field, each once, got {names!r}")
    return names
