"""Tests of fields as text: every kind, and content that is damaged, huge or hostile."""

from __future__ import annotations

import datetime
import json
import re
from typing import Any

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aioloader.datasets.fields import FieldKind
from aioloader.formats.sample_fields import (
    MOST_IMAGES,
    MOST_NAME,
    SampleField,
    field_of,
    name_text,
    printable,
    unread_field,
    value_text,
    words_of,
)
from tests.aioloader.viewer.sets import jpeg
from tests.cases import with_cases

IMAGE, JSON, TEXT, INTEGER, BYTES, VALUE = FieldKind


def described(kind: FieldKind, value: Any) -> SampleField:
    return field_of(0, "name", kind, memoryview(value) if isinstance(value, bytes) else value, [])


@with_cases(
    ("kind", "value", "shown", "text"),
    [
        (TEXT, "A caf\u00e9\n\tat night".encode(), "text", "A caf\u00e9\n\tat night"),
        (TEXT, b"", "text", ""),
        (INTEGER, b"17", "integer", "17"),
        (
            JSON,
            b'{"box": [1, 2.5, 3, 4], "tags": ["a"]}',
            "json",
            '{\n  "box": [1, 2.5, 3, 4],\n  "tags": ["a"]\n}',
        ),
        (JSON, b"[]", "json", "[]"),
        (JSON, b'"\\ud800"', "json", '"\\ud800"'),
        (BYTES, b"plain text", "text", "plain text"),
        (BYTES, b"\0\1\xff", "bytes", "0000  00 01 ff                                         ..."),
        (VALUE, b"\x89abc", "bytes", "0000  89 61 62 63                                      .abc"),
        (VALUE, np.int64(5), "int64", "5"),
        (VALUE, np.float32(0.1), "float32", "0.1"),
        (VALUE, np.array([1, 2]), "int64 2", "[1, 2]"),
        (VALUE, np.zeros((0, 3), np.float32), "float32 0 \u00d7 3", "[]"),
        (VALUE, "word", "text", "word"),
        (VALUE, '{"a": [1, 2]}', "json", '{\n  "a": [1, 2]\n}'),
        (VALUE, b'{"a": [1, 2]}', "json", '{\n  "a": [1, 2]\n}'),
        (VALUE, "[1, 2", "text", "[1, 2"),
        (BYTES, b"{" * 100_000, "text", "{" * 20_000),
        (VALUE, "17", "text", "17"),
        (VALUE, True, "number", "true"),
        (VALUE, 0.5, "number", "0.5"),
        (VALUE, None, "null", "null"),
        (VALUE, ["a", None, {"b": b"12"}], "list", '[\n  "a",\n  null,\n  {"b": <2 bytes>}\n]'),
        (VALUE, datetime.date(2026, 1, 2), "object", "2026-01-02"),
        (VALUE, [b"one", b"two \xff"], "2 values", "one\n5 bytes: 74 77 6f 20 ff"),
    ],
)
def test_values_of_every_kind(kind: FieldKind, value: Any, shown: str, text: str) -> None:
    field = described(kind, value)
    assert (field.kind, field.text, field.problem, field.images) == (shown, text, "", ())
    assert field.cut == (len(text) == 20_000)


@with_cases("kind", [IMAGE, BYTES, VALUE])
def test_an_image_is_found_by_its_bytes(kind: FieldKind) -> None:
    images: list[Any] = [b"before"]
    field = field_of(3, "a.jpg", kind, memoryview(jpeg(1)), images)
    assert (field.kind, field.text, field.images) == ("image", "JPEG, 80 \u00d7 60 pixels", (1,))
    assert (bytes(images[1]), field.nbytes, field.stored) == (jpeg(1), len(jpeg(1)), True)


def test_several_images_in_a_field() -> None:
    images: list[Any] = []
    field = field_of(0, "frames", VALUE, [jpeg(k) for k in range(MOST_IMAGES + 6)], images)
    assert (field.kind, field.cut, field.stored) == ("30 images", True, False)
    assert field.images == tuple(range(MOST_IMAGES))
    assert len(images) == MOST_IMAGES


def test_damaged_images_of_a_field_are_named_and_the_others_displayed() -> None:
    images: list[Any] = []
    field = field_of(0, "frames", IMAGE, [b"junk", jpeg(1), jpeg(2)], images)
    assert (field.kind, field.images, len(images)) == ("3 images", (0, 1), 2)
    assert field.text.splitlines() == ["junk", *["JPEG, 80 \u00d7 60 pixels"] * 2]
    assert re.fullmatch("value 0: DecodeError: [^;]*", field.problem)
    other = field_of(0, "frames", VALUE, [b"junk", b"text"], [])
    assert (other.kind, other.text, other.problem) == ("2 values", "junk\ntext", "")


def test_pixels_are_an_image() -> None:
    images: list[Any] = []
    pixels = np.zeros((4, 6, 3), np.uint8)
    field = field_of(0, "png", IMAGE, pixels, images)
    assert (field.kind, field.text) == ("uint8 4 \u00d7 6 \u00d7 3", "raw pixels, 6 \u00d7 4 pixels")
    assert len(images) == 1
    odd = field_of(0, "png", IMAGE, np.zeros((2, 2, 7)), images)
    assert "encode_raw needs a uint8 image" in odd.problem
    assert (odd.images, len(images)) == ((), 1)


@with_cases(
    ("kind", "value", "problem"),
    [
        (IMAGE, b"no image", "DecodeError"),
        (IMAGE, b"", "DecodeError"),
        (JSON, b"{", "not JSON"),
        (JSON, b"\xff{}", "not JSON"),
        (JSON, b"9" * 5000, "not JSON"),
        (TEXT, b"abc\xffdef", "byte 3 is not UTF-8"),
        (TEXT, b"abc\xe2\x82", "byte 3 is not UTF-8"),
    ],
)
def test_what_is_not_of_its_kind_says_so(kind: FieldKind, value: bytes, problem: str) -> None:
    assert problem in described(kind, value).problem


@with_cases("data", [b"[" * 100_000, b"[" * 900 + b"]" * 900, b'{"a":' * 100_000])
def test_json_that_nests_deeply_is_short(data: bytes) -> None:
    field = described(JSON, data)
    assert len(field.text) <= 20_000
    assert field.text.count("\n") < 100


def test_json_whose_indented_form_is_much_longer_is_cut() -> None:
    data = (b"[" * 30 + b"[" + b",".join([b"[[1],2]"] * 100_000) + b"]" + b"]" * 30)[: 1 << 20]
    deep = json.dumps([[[[[[[[list(range(3)) for _ in range(40_000)]]]]]]]]).encode()
    for each in (data, deep):
        field = described(JSON, each)
        assert len(field.text) <= 20_000
        assert field.cut


@with_cases(
    ("kind", "unit", "count"),
    [
        (TEXT, b"x", 50_000_000),
        (TEXT, "\u20ac".encode(), 1_000_000),
        (JSON, b"x", 5_000_000),
        (JSON, b"x", 1_000_000),
        (BYTES, b"\0", 50_000_000),
        (BYTES, b"y", 50_000_000),
        (VALUE, np.float64(0), 5_000_000),
        (VALUE, np.array("z" * 10_000), 200),
        (VALUE, "x", 5_000_000),
        (VALUE, [b"x" * 100_000], 40),
        (VALUE, [7], 100_000),
    ],
)
def test_a_huge_value_is_cut(kind: FieldKind, unit: Any, count: int) -> None:
    value = np.resize(unit, count) if isinstance(unit, (np.generic, np.ndarray)) else unit * count
    field = described(kind, b'"' + value + b'"' if kind is JSON else value)
    assert 0 < len(field.text) <= 20_000
    assert (field.cut, field.problem) == (True, "")


@with_cases(
    ("text", "shown"),
    [
        ("a\r\nb\tc", "a\nb\tc"),
        ("\0\x1b[31m", "\\x00\\x1b[31m"),
        ("\u202egpj.exe", "\\u202egpj.exe"),
        ("\udcff\ud800", "\\xff\\ud800"),
        ("\U0001f600 <b>", "\U0001f600 <b>"),
    ],
)
def test_invisible_characters_are_escapes(text: str, shown: str) -> None:
    assert printable(text) == shown


@given(st.text(st.characters(codec=None), max_size=400))
def test_a_name_is_one_line_that_can_be_sent(name: str) -> None:
    text = name_text(name)
    assert len(text) <= MOST_NAME
    assert "\n" not in text
    text.encode()


@given(st.binary(max_size=300), st.sampled_from([*FieldKind]))
def test_any_bytes_are_a_text_that_can_be_sent(data: bytes, kind: FieldKind) -> None:
    field = described(kind, data)
    (field.text + field.problem + field.kind).encode()


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(),
    lambda inner: st.lists(inner) | st.dictionaries(st.text(), inner),
    max_leaves=30,
)


@given(json_values)
def test_indented_json_has_the_same_value(value: Any) -> None:
    text, cut = value_text(value)
    if not cut:
        assert json.dumps(json.loads(text)) == json.dumps(value)


def test_a_field_that_cannot_be_read() -> None:
    field = unread_field(2, "a\nb", ValueError("<b>\0"))
    assert (field.name, field.problem) == ("a\\nb", "ValueError: <b>\\x00")


@with_cases(
    ("fields", "words"),
    [
        ([], ""),
        (
            [
                ("n", VALUE, np.int64(5)),
                ("a", BYTES, b"\0\1"),
                ("b", BYTES, b"words"),
                ("c", TEXT, b"others"),
            ],
            "words",
        ),
        ([("empty", TEXT, b""), ("json", JSON, b'{"a": 1}')], '{"a": 1}'),
        ([("long", TEXT, b"x" * 100_000)], "x" * 300),
        ([("marks", VALUE, "\u202egpj")], "\\u202egpj"),
    ],
)
def test_words_are_the_beginning_of_the_first_text(fields: Any, words: str) -> None:
    given = [
        (name, kind, memoryview(value) if isinstance(value, bytes) else value) for name, kind, value in fields
    ]
    assert words_of(given) == words
