"""Tests of the values of fields: text, JSON, digits, bytes and labels."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
import simplejpeg

from aioloader.datasets.fields import FieldKind, FieldsDecoder, as_label, field_names, field_value
from aioloader.errors import DecodeError, SampleFormatError
from aioloader.foundation.types import ItemLocation
from tests.cases import with_cases

HERE = ItemLocation("k7", "a.toy", 512)


def label(value: Any, dtype: str | None = None) -> Any:
    return as_label(value, None if dtype is None else np.dtype(dtype), "label", HERE)


def test_values_become_elements_of_a_sample() -> None:
    data = memoryview(b"12")
    assert field_value(data, FieldKind.BYTES, "a", HERE) == b"12"
    assert field_value(data, FieldKind.TEXT, "a", HERE) == "12"
    assert field_value(data, FieldKind.JSON, "a", HERE) == 12
    number = field_value(data, FieldKind.INTEGER, "a", HERE)
    assert (number, type(number)) == (12, np.int64)
    array = np.arange(3)
    assert field_value(array, FieldKind.VALUE, "a", HERE) is array


@with_cases(
    ("kind", "data", "name"),
    [
        (FieldKind.TEXT, b"\xff", "text"),
        (FieldKind.JSON, b"\xff", "json"),
        (FieldKind.JSON, b"", "json"),
        (FieldKind.JSON, b"[" * 100_000, "json"),
        (FieldKind.JSON, b"9" * 10_000, "json"),
        (FieldKind.INTEGER, b"", "integer"),
        (FieldKind.INTEGER, b"9" * 19, "integer"),
        (FieldKind.INTEGER, b"\xff", "integer"),
    ],
)
def test_bytes_of_another_kind_are_an_error_with_its_place(kind: FieldKind, data: bytes, name: str) -> None:
    with pytest.raises(SampleFormatError, match=f"the field 'a' of the sample 'k7' is not {name}") as caught:
        field_value(memoryview(data), kind, "a", HERE)
    error = caught.value
    assert (error.path, error.offset, error.key) == ("a.toy", 512, "k7")
    assert len(str(error)) < 600


@with_cases(
    ("value", "dtype", "expected"),
    [
        (3, None, np.int64(3)),
        (True, None, np.int64(1)),
        (np.bool_(True), None, np.int64(1)),
        (-(2**63), None, np.int64(-(2**63))),
        (float("inf"), None, np.float32("inf")),
        (np.float64(0.5), None, np.float32(0.5)),
        (3, "uint8", np.uint8(3)),
        (3.0, "int16", np.int16(3)),
        (2**63 - 1, None, np.int64(2**63 - 1)),
    ],
)
def test_scalar_labels(value: Any, dtype: str | None, expected: Any) -> None:
    found = label(value, dtype)
    assert found == expected
    assert type(found) is type(expected)


@with_cases(
    ("value", "dtype", "expected"),
    [
        ([1, 2.5], None, np.array([1, 2.5], np.float32)),
        ([[1], [2]], None, np.array([[1], [2]])),
        ([], None, np.empty(0, np.float32)),
        ([1, 2], "float64", np.array([1.0, 2.0])),
        (np.array([1.5, 2.0]), None, np.array([1.5, 2.0])),
        (np.array([1, 2], np.uint8), "int64", np.array([1, 2])),
    ],
)
def test_array_labels(value: Any, dtype: str | None, expected: Any) -> None:
    found = label(value, dtype)
    assert (found.dtype, found.tolist()) == (expected.dtype, expected.tolist())


@with_cases("value", [b"cat", None, {"a": 1}, ["a", "b"], np.array(["a"]), 2**63, "x" * 1000, [[1], [1, 2]]])
def test_what_is_no_number_is_no_label(value: Any) -> None:
    with pytest.raises(
        SampleFormatError, match="the field 'label' of the sample 'k7' is not a label"
    ) as caught:
        label(value)
    assert "fields=(...)" in str(caught.value)
    assert len(str(caught.value)) < 400
    assert (caught.value.path, caught.value.key) == ("a.toy", "k7")


@with_cases(
    ("value", "dtype"),
    [
        (300, "uint8"),
        (1.5, "int64"),
        (1e39, None),
        ([1, 300], "uint8"),
        (np.array([1e39]), "float32"),
        (np.array([[0.5]]), "int64"),
        (10**400, "float64"),
    ],
)
def test_a_label_that_its_dtype_cannot_hold_is_refused(value: Any, dtype: str | None) -> None:
    with pytest.raises(ValueError, match="does not fit label_dtype"):
        label(value, dtype)


def test_names_of_fields_are_checked() -> None:
    assert field_names("jpg") == ("jpg",)
    assert field_names(["jpg", "txt"]) == ("jpg", "txt")
    for wrong in ((), ("a", "a")):
        with pytest.raises(ValueError, match="at least one field, each once"):
            field_names(wrong)
    bad: Any = ("a", 1)
    with pytest.raises(TypeError, match="must be str, got 1"):
        field_names(bad)


class _Values:
    """Reader that returns given values of images."""

    def __init__(self, value: Any) -> None:
        self._value = value

    def read(self, data: memoryview, extra: Any, location: ItemLocation, names: tuple[str, ...]) -> list[Any]:
        return [self._value for _ in names]

    def names(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[str, ...]:
        return ("image",)

    def kind(self, name: str) -> FieldKind:
        return FieldKind.IMAGE


def test_images_may_be_stored_as_pixels_or_be_several() -> None:
    encoded = [simplejpeg.encode_jpeg(np.full((8, size, 3), 7, np.uint8)) for size in (8, 16)]
    several = FieldsDecoder(reader=_Values([memoryview(each) for each in encoded]), fields=("image",))
    found = several(memoryview(b""), None, HERE)["image"]
    assert [image.shape for image in found] == [(8, 8, 3), (8, 16, 3)]
    pixels = np.zeros((3, 3), np.uint8)
    assert (
        FieldsDecoder(reader=_Values(pixels), fields=("image",))(memoryview(b""), None, HERE)["image"]
        is pixels
    )
    damaged = FieldsDecoder(reader=_Values(memoryview(b"no image")), fields=("image",))
    with pytest.raises(DecodeError, match=r"a\.toy"):
        damaged(memoryview(b""), None, HERE)
