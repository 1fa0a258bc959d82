"""Tests of the walk over `tf.train.Example`: usual and unusual forms, damaged ones, and walks by windows."""

from __future__ import annotations

import tracemalloc
from typing import Any

import numpy as np
import pytest
from hypothesis import example as case
from hypothesis import given
from hypothesis import strategies as st

from aioloader.formats.tfrecord import example as module
from aioloader.formats.tfrecord.example import (
    ExampleWalk,
    MessageFault,
    feature_value,
    feature_values,
    find_features,
    wanted_features,
)
from tests.aioloader.formats.tfrecords import (
    bytes_list,
    entry,
    example,
    field,
    float_list,
    int64_list,
    varint,
)
from tests.cases import with_cases

IMAGE = bytes(range(256)) * 20
GROUP = b"\x2b\x08\x01\x2c"  # an unknown field: group 5
UNKNOWN = (GROUP, b"\x20\x07", b"\x21" + bytes(8), field(9, b"abc"), b"\x25" + bytes(4))


def values_of(data: bytes, *names: str) -> dict[str, Any]:
    """Return the values of features of an example, bytes as lists of bytes; of all features if none is named."""
    found = feature_values(memoryview(data), wanted_features(names or None))
    return {key.decode(): plain(value) for key, value in found.items()}


def plain(value: Any) -> Any:
    """Return a value in a form that can be compared: its dtype, and bytes."""
    if isinstance(value, list):
        return [bytes(each) for each in value]
    return (value.dtype.name, np.asarray(value).tobytes(), np.shape(value))


def number(value: Any, dtype: type = np.int64) -> Any:
    """Return a number or a list of numbers in the same form."""
    return plain(np.array(value, dtype))


# -- the usual form --------------------------------------------------------------------------------------------------


def test_values_of_every_kind() -> None:
    data = example(
        {
            "one": int64_list(-5),
            "many": int64_list(1, -1, 1 << 62, -(1 << 63)),
            "long": int64_list(*range(-100, 100)),
            "float": float_list(0.1),
            "floats": float_list(1, float("nan"), -0.0),
            "text": bytes_list(b"abc"),
            "texts": bytes_list(b"", b"b"),
            "empty": bytes_list(b""),
            "image": bytes_list(IMAGE),
            "no bytes": bytes_list(),
            "no integers": int64_list(),
            "no floats": float_list(),
            "not packed": int64_list(3, -4, packed=False),
            "floats not packed": float_list(3, -4, packed=False),
            "no kind": b"",
            "größe": int64_list(1),
        }
    )
    expected = {
        "one": number(-5),
        "many": number([1, -1, 1 << 62, -(1 << 63)]),
        "long": number(range(-100, 100)),
        "float": number(0.1, np.float32),
        "floats": number([1, float("nan"), -0.0], np.float32),
        "text": [b"abc"],
        "texts": [b"", b"b"],
        "empty": [b""],
        "image": [IMAGE],
        "no bytes": [],
        "no integers": number([]),
        "no floats": number([], np.float32),
        "not packed": number([3, -4]),
        "floats not packed": number([3, -4], np.float32),
        "größe": number(1),
    }
    assert values_of(data) == expected
    for name, value in expected.items():
        assert values_of(data, name) == {name: value}
        assert values_of(data, name, "nothing", "no kind") == {name: value}
    assert values_of(data, *expected) == expected
    assert values_of(data, "no kind", "nothing") == {}


def test_a_scalar_is_a_scalar_of_numpy() -> None:
    data = memoryview(example({"a": int64_list(5), "b": float_list(0.5)}))
    for names in (("a", "b"), None):
        found = feature_values(data, wanted_features(names))
        assert type(found[b"a"]) is np.int64
        assert type(found[b"b"]) is np.float32


def test_images_are_views_of_the_data() -> None:
    data = memoryview(example({"image": bytes_list(IMAGE), "label": int64_list(1)}))
    (value,) = feature_values(data, wanted_features(("image", "label")))[b"image"]
    assert value.obj is data.obj
    assert value == IMAGE


def test_bits_of_a_nan_are_kept() -> None:
    nan = b"\x01\x00\xa0\xff"
    for feature in (
        field(2, field(1, nan)),
        field(2, b"\x0d" + nan),
        field(2, b"\x0d" + nan + field(1, nan)),
    ):
        found = feature_value(memoryview(feature), [(0, len(feature))])
        assert np.asarray(found).tobytes()[:4] == nan


def test_an_empty_example_has_no_features() -> None:
    assert (
        values_of(b"")
        == values_of(b"", "a")
        == values_of(field(1, b""))
        == values_of(field(1, b""), "a")
        == {}
    )


# -- unusual forms ---------------------------------------------------------------------------------------------------


def test_entries_in_unusual_forms() -> None:
    reversed_entry = field(1, field(2, int64_list(1)) + field(1, b"reversed"))
    split = field(1, field(1, b"split") + field(2, int64_list(1)) + field(2, int64_list(2)))
    other_kind = field(1, field(1, b"kinds") + field(2, int64_list(1) + float_list(2)))
    key_twice = field(1, field(1, b"wrong") + field(1, b"right") + field(2, int64_list(1)))
    no_key = field(1, field(2, int64_list(7)))
    no_value = field(1, field(1, b"no value"))
    unknown = field(1, UNKNOWN[0] + field(1, b"unknown") + UNKNOWN[1] + field(2, UNKNOWN[2] + int64_list(9)))
    long_key = entry("k" * 300, int64_list(3))
    long_tag = (
        varint(10, 3) + varint(len(entry("tag", int64_list(4))) - 2, 4) + entry("tag", int64_list(4))[2:]
    )
    wrong_type = field(1, b"\x08\x01" + field(1, b"wrong type") + b"\x10\x01" + field(2, int64_list(5)))
    body = b"".join(
        (
            reversed_entry,
            split,
            other_kind,
            key_twice,
            no_key,
            no_value,
            unknown,
            long_key,
            long_tag,
            wrong_type,
        )
    )
    expected = {
        "reversed": number(1),
        "split": number([1, 2]),
        "kinds": number(2, np.float32),
        "right": number(1),
        "": number(7),
        "unknown": number(9),
        "k" * 300: number(3),
        "tag": number(4),
        "wrong type": number(5),
    }
    for data in (
        field(1, body),
        field(1, body[:0]) + field(1, body) + UNKNOWN[0],
        UNKNOWN[3] + field(1, b"".join(UNKNOWN) + body + UNKNOWN[4]),
        field(1, reversed_entry + split + other_kind + key_twice + no_key) + b"\x08\x05" + field(1, body),
    ):
        assert values_of(data) == expected
        assert values_of(data, *expected) == expected
        for name, value in expected.items():
            assert values_of(data, name, "no value") == {name: value}


def test_the_last_entry_of_a_name_counts() -> None:
    body = entry("a", int64_list(1)) + entry("b", bytes_list(b"x")) + entry("a", float_list(2, 3))
    for data in (field(1, body), field(1, body[: len(body) // 2][:0]) + field(1, body)):
        assert values_of(data, "a") == {"a": number([2, 3], np.float32)}
    cleared = field(1, entry("a", int64_list(1)) + entry("a", b""))
    assert values_of(cleared, "a") == {}
    separate = field(1, entry("a", int64_list(1))) + field(1, entry("a", int64_list(2)))
    assert values_of(separate, "a") == {"a": number(2)}


def test_lists_in_unusual_forms() -> None:
    def value(feature: bytes) -> Any:
        return plain(feature_value(memoryview(feature), [(0, len(feature))]))

    assert value(field(3, b"\x08\x01" + field(1, b"\x02\x03") + b"\x08\x04")) == number([1, 2, 3, 4])
    assert value(field(3, field(1, b"\x01") + field(1, b"") + field(1, b"\x02"))) == number([1, 2])
    assert value(field(3, field(1, b"\x85\x80\x80\x00") + GROUP)) == number(5)
    assert value(int64_list(1) + int64_list(*range(40))) == number([1, *range(40)])
    assert value(int64_list(1) + bytes_list(b"a") + bytes_list(b"b")) == [b"a", b"b"]
    assert value(int64_list(1) + float_list()) == number([], np.float32)
    assert value(bytes_list(b"a") + int64_list(1)) == number(1)
    assert value(field(2, b"\x0d" + bytes(4) + GROUP + field(1, bytes(8)))) == number([0] * 3, np.float32)
    assert value(field(1, GROUP + field(1, b"a") + b"\x08\x05")) == [b"a"]
    mixed = b"\x08\x01" * 3 + field(1, bytes(range(100))) + b"\x08\x02"
    assert value(field(3, mixed)) == number([1, 1, 1, *range(100), 2])
    assert value(field(2, b"\x8d\x00" + bytes(4) + b"\x0d" + bytes(4))) == number([0, 0], np.float32)


@given(st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=60), st.integers(1, 10))
def test_packed_integers_of_any_length(values: list[int], nbytes: int) -> None:
    parts = b"".join(varint(value, nbytes) for value in values)
    feature = field(3, field(1, parts))
    expected = number(values[0] if len(values) == 1 else values)
    assert plain(feature_value(memoryview(feature), [(0, len(feature))])) == expected


def test_many_packed_integers_are_decoded_in_parts() -> None:
    values = np.arange(400_000) * 7
    feature = int64_list(*values.tolist())
    tracemalloc.start()
    try:
        found = feature_value(memoryview(feature), [(0, len(feature))])
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    np.testing.assert_array_equal(found, values)
    assert peak < 25 << 20


# -- anything --------------------------------------------------------------------------------------------------------

NAMES = st.text("abä", max_size=3) | st.just("n" * 130)
INTEGERS = st.lists(st.integers(-(1 << 63), (1 << 63) - 1), max_size=4)
FLOATS = st.lists(st.floats(width=32), max_size=4)


@st.composite
def features(draw: st.DrawFn) -> tuple[bytes, Any]:
    """Draw a `Feature` message and its value."""
    kind = draw(st.integers(0, 3))
    if kind == 0:
        texts = draw(st.lists(st.binary(max_size=20) | st.just(IMAGE), max_size=3))
        return bytes_list(*texts), texts
    if kind == 3:
        return b"", None
    packed = draw(st.booleans())
    if kind == 1:
        integers = draw(INTEGERS)
        return int64_list(*integers, packed=packed), number(integers[0] if len(integers) == 1 else integers)
    floats = draw(FLOATS)
    return float_list(*floats, packed=packed), number(floats[0] if len(floats) == 1 else floats, np.float32)


@st.composite
def examples(draw: st.DrawFn) -> tuple[bytes, dict[str, Any]]:
    """Draw an `Example` and the values of its features."""
    unusual = draw(st.booleans())
    body, data = b"", b""
    expected: dict[str, Any] = {}
    for name, (feature, value) in draw(st.lists(st.tuples(NAMES, features()), max_size=6)):
        parts = [field(1, name.encode()), field(2, feature)]
        if unusual:
            parts = draw(st.permutations([*parts, *draw(st.lists(st.sampled_from(UNKNOWN), max_size=2))]))
            if draw(st.integers(0, 3)) == 0:
                data, body = data + field(1, body) + draw(st.sampled_from((b"", *UNKNOWN))), b""
        body += field(1, b"".join(parts))
        expected[name] = value
    if unusual:
        body += draw(st.sampled_from((b"", *UNKNOWN)))
    return data + field(1, body), {name: value for name, value in expected.items() if value is not None}


@given(examples(), st.data())
def test_every_choice_of_features_has_its_values(
    drawn: tuple[bytes, dict[str, Any]], data: st.DataObject
) -> None:
    message, expected = drawn
    assert values_of(message) == expected
    names = data.draw(st.lists(NAMES, min_size=1, max_size=3, unique=True))
    assert values_of(message, *names) == {name: expected[name] for name in names if name in expected}


@given(examples(), st.integers(1, 60))
def test_walks_by_windows_find_the_same(drawn: tuple[bytes, dict[str, Any]], nbytes: int) -> None:
    message, _ = drawn
    wanted = wanted_features(("a", "b", "ab", "n" * 130))
    walk = ExampleWalk(len(message), wanted)
    done = not message
    while not done:
        before = walk.at, walk.least
        done = walk.take(message[walk.at : walk.at + max(nbytes, walk.least)])
        assert done or (walk.at, walk.least) > before or walk.at > before[0]
    assert walk.found == find_features(memoryview(message), wanted)


def outcome(message: bytes, names: tuple[str, ...] | None, *, general: bool) -> Any:
    """Return the values of features, or the fault, by all code or by the general code only."""
    data, wanted = memoryview(message), wanted_features(names)
    try:
        if not general:
            return {key: plain(value) for key, value in feature_values(data, wanted).items()}
        found = {key: feature_value(data, parts) for key, parts in find_features(data, wanted).items()}
    except MessageFault as fault:
        assert 0 <= fault.at <= len(message)
        return fault.reason
    return {key: plain(value) for key, value in found.items() if value is not None}


@given(
    examples(),
    st.lists(st.tuples(st.integers(0, 1 << 20), st.integers(0, 255)), max_size=3),
    st.lists(NAMES, min_size=1, max_size=3, unique=True),
)
def test_the_code_for_usual_examples_has_the_results_of_the_general_code(
    drawn: tuple[bytes, dict[str, Any]], changes: list[tuple[int, int]], names: list[str]
) -> None:
    message = bytearray(drawn[0])
    for at, value in changes:
        message[at % len(message)] = value
    asked = tuple(names)
    assert outcome(bytes(message), asked, general=False) == outcome(bytes(message), asked, general=True)


@given(st.binary(max_size=200))
@case(b"")
def test_any_bytes_are_an_example_or_a_fault(data: bytes) -> None:
    for names in (None, ("a",)):
        try:
            feature_values(memoryview(data), wanted_features(names))
        except MessageFault as fault:
            assert 0 <= fault.at <= len(data)


# -- damage ----------------------------------------------------------------------------------------------------------


@with_cases(
    ("data", "text"),
    [
        (b"\x0a\x05ab", "the features end behind the example"),
        (b"\x0a\xff\xff\xff\xff\xff\xff\xff\xff\x7fab", "the features end behind the example"),
        (field(1, b"\x0a\x05ab"), "an entry ends behind the features"),
        (field(1, field(1, b"\x0a\x05a")), "a field ends behind its entry"),
        (field(1, entry("a", b"\x1a\x05a")), "a list ends behind its feature"),
        (field(1, entry("a", field(1, b"\x0a\x05a"))), "a value ends behind its list"),
        (field(1, entry("a", field(2, b"\x0a\x05a"))), "a value ends behind its list"),
        (field(1, entry("a", field(3, b"\x0a\x05a"))), "a value ends behind its list"),
        (field(1, entry("a", field(2, b"\x0dabc"))), "a value ends behind its list"),
        (field(1, entry("a", field(2, field(1, b"abc")))), "fraction of a value"),
        (field(1, entry("a", field(3, field(1, b"\x80" * 40)))), "more than 10 bytes"),
        (field(1, entry("a", field(3, field(1, b"\x01" * 20 + b"\x80" * 12 + b"\0")))), "more than 10 bytes"),
        (
            field(1, entry("a", field(3, field(1, b"\x01" * 20 + b"\x80")))),
            "more than 10 bytes, or is cut off",
        ),
        (b"\x0b", "ends behind its message"),
        (b"\x0c", "has not begun"),
        (b"\x0b" * 200, "nested too deeply"),
        (field(1, b"\x0b" * 200), "nested too deeply"),
        (field(1, entry("a", b"\x0b" * 200)), "nested too deeply"),
        (b"\x0e", "invalid type"),
        (b"\x00", "invalid number"),
        (field(2, b""), "tf.train.SequenceExample, which is not read"),
        (field(1, b"") + field(2, b"abc"), "tf.train.SequenceExample, which is not read"),
        (b"\x89PNG\r\n\x1a\n", "ends"),
    ],
)
def test_damaged_examples_are_faults(data: bytes, text: str) -> None:
    for names in (("a",), None):
        with pytest.raises(MessageFault, match=text) as caught:
            feature_values(memoryview(data), wanted_features(names))
        assert 0 <= caught.value.at <= len(data)


def test_a_name_that_is_not_text_is_a_fault_if_all_are_wanted() -> None:
    data = memoryview(field(1, entry(b"\xff\xfe", int64_list(1)) + entry("a", int64_list(2))))
    with pytest.raises(MessageFault, match="not UTF-8"):
        feature_values(data, wanted_features(None))
    assert feature_values(data, wanted_features(("a",)))[b"a"] == 2


def test_values_that_take_much_memory_are_limited(monkeypatch: pytest.MonkeyPatch) -> None:
    assert module._MOST_VALUES == 1 << 20
    most = 1000
    monkeypatch.setattr(module, "_MOST_VALUES", most)

    def count(feature: bytes) -> int:
        return len(feature_value(memoryview(feature), [(0, len(feature))]))

    for value, number, before in ((field(1, b""), 1, b""), (b"\x08\x01", 3, b"\x0a\x00" * 10)):
        assert count(field(number, before + value * most)) == most
        with pytest.raises(MessageFault, match="too many values"):
            count(field(number, before + value * (most + 1)))
    # Floats that are not packed take no object each.
    assert count(float_list(*[0.5] * (most + 1), packed=False)) == most + 1


def test_memory_for_names_is_bounded() -> None:
    wanted = wanted_features(("wanted",))
    for place in range(3000):
        data = example(
            {f"a{place}": int64_list(place), "wanted": int64_list(1), f"b{place}": bytes_list(b"")}
        )
        assert feature_values(memoryview(data), wanted)[b"wanted"] == 1
    assert len(wanted.sizes) <= 1024
    for place in range(3000):
        feature_values(memoryview(example({"wanted": int64_list(1), "x" * (place % 90): b""})), wanted)
    assert len(wanted.numbers) <= 1024
