"""Tests of the parser of MDS: indexes, tables of shards and samples, valid and damaged."""

from __future__ import annotations

import json
import struct
from itertools import pairwise
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.errors import SampleFormatError
from aioloader.formats.mds.index import (
    LayoutFault,
    MDSColumn,
    MDSFile,
    MDSShard,
    SampleLayout,
    parse_index,
    parse_table,
    table_nbytes,
)
from tests.aioloader.formats.mds_sets import describe, file_of, sample_of, shard_of, size_of
from tests.cases import with_cases

COLUMNS = {"image": "jpeg", "label": "int"}
RAW = shard_of([sample_of(COLUMNS, {"image": b"one", "label": bytes(8)})])


def index(*shards: Any, **values: Any) -> bytes:
    """Return the text of an index."""
    return json.dumps({"version": 2, "shards": list(shards), **values}).encode()


def entry(**values: Any) -> dict[str, Any]:
    """Return the entry of a shard with other values than usual."""
    usual = {"samples": 1, "raw_data": file_of("shard.00000.mds", RAW, ["sha1"])}
    return describe(COLUMNS, {**usual, **values})


def test_an_index_is_parsed() -> None:
    packed = {"compression": "zstd:7", "zip_data": file_of("sub/b.mds.zstd", b"xyz", ["md5"])}
    found = parse_index(index(entry(), entry(**packed)), "index.json")
    assert found.columns == (MDSColumn("image", "jpeg", None), MDSColumn("label", "int", 8))
    first, second = found.shards
    assert (first.samples, first.raw.name, first.raw.nbytes) == (1, "shard.00000.mds", len(RAW))
    assert set(first.raw.hashes) == {"sha1"}
    assert (first.packed, first.codec) == (None, None)
    assert second.packed is not None
    assert (second.packed.name, second.packed.nbytes, second.codec) == ("sub/b.mds.zstd", 3, "zstd")


def test_an_index_without_shards_is_empty() -> None:
    assert parse_index(index(), "index.json").shards == ()


@with_cases(
    ("data", "text"),
    [
        (b"", "not JSON"),
        (b"\xff", "not JSON"),
        (b"[" * 100_000, "not JSON"),
        (b"[]", "the index is wrong"),
        (b"{}", "another version"),
        (index(version=1), "another version"),
        (index(version=True), "another version"),
        (index(version="2"), "another version"),
        (index(shards=None), "'shards' of the index"),
        (index(None), "shard 0 is wrong"),
        (index(entry(version=3)), "shard 0 is of another version"),
        (index(entry(format="json")), "only MDS is read"),
        (index(entry(format="xsv")), "only MDS is read"),
        (index(entry(samples=-1)), "'samples' of shard 0"),
        (index(entry(samples=1.0)), "'samples' of shard 0"),
        (index(entry(samples=True)), "'samples' of shard 0"),
        (index(entry(samples=10**9)), "'samples' of shard 0"),
        (index(entry(raw_data=None)), "'raw_data' of shard 0"),
        (index(entry(raw_data={})), "'basename' of 'raw_data' of shard 0"),
        (index(entry(raw_data=file_of("a", RAW) | {"bytes": 1 << 32})), "'bytes' of 'raw_data'"),
        (index(entry(raw_data=file_of("a", RAW) | {"bytes": "5"})), "'bytes' of 'raw_data'"),
        (index(entry(raw_data=file_of("a", RAW) | {"hashes": ["sha1"]})), "'hashes' of 'raw_data'"),
        (index(entry(raw_data=file_of("a", RAW) | {"hashes": {"sha1": 1}})), "'hashes' of 'raw_data'"),
        (index(entry(compression="lz4")), "'compression' of shard 0"),
        (index(entry(compression=7)), "'compression' of shard 0"),
        (index(entry(compression="zstd")), "'zip_data' of shard 0"),
        (index(entry(zip_data=file_of("a.zstd", b""))), "'compression' of shard 0"),
        (index(entry(column_names=["image"])), "'column_names' of shard 0"),
        (index(entry(column_names=["image", "image"])), "'column_names' of shard 0"),
        (index(entry(column_names=["image", 3])), "'column_names' of shard 0"),
        (index(entry(column_sizes=[None, -1])), "'column_sizes' of shard 0"),
        (index(entry(column_sizes=[None, True])), "'column_sizes' of shard 0"),
        (index(entry(), entry(column_names=["image", "class"])), "shard 1 has other columns"),
        (index(entry(), entry(column_encodings=["jpeg", "int64"])), "shard 1 has other columns"),
    ],
)
def test_another_or_a_damaged_index_is_refused(data: bytes, text: str) -> None:
    with pytest.raises(SampleFormatError, match=text) as caught:
        parse_index(data, "set/index.json")
    assert caught.value.path == "set/index.json"
    assert str(caught.value).startswith("set/index.json: ")


@with_cases(
    "name",
    ["", ".", "..", "/etc/passwd", "../a", "a/../../b", "a//b", "a/", "a\\..\\b", "C:\\a", "a\0b", "\ud800"],
)
def test_a_file_outside_of_the_folder_is_refused(name: str) -> None:
    with pytest.raises(SampleFormatError, match="basename"):
        parse_index(index(entry(raw_data=file_of("a", RAW) | {"basename": name})), "index.json")


def test_a_size_of_zero_is_that_of_a_column_whose_size_varies() -> None:
    found = parse_index(index(entry(column_sizes=[0, 8])), "index.json")
    assert found.columns[0].nbytes is None


json_values = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=8),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=8), inner, max_size=3),
    max_leaves=6,
)


@given(st.sampled_from(sorted(entry())), json_values)
def test_any_value_is_parsed_or_refused(name: str, value: Any) -> None:
    try:
        found = parse_index(index(entry(**{name: value})), "index.json")
    except SampleFormatError:
        return
    (shard,) = found.shards
    assert table_nbytes(shard.samples) <= shard.raw.nbytes
    assert len(found.columns) == 2


# -- tables ---


def shard(samples: int, nbytes: int) -> MDSShard:
    """Return a shard without compression."""
    return MDSShard(samples, MDSFile("shard.00000.mds", nbytes, {}), None, None)


@given(st.lists(st.binary(max_size=20), max_size=20), st.binary(max_size=10))
def test_samples_are_where_the_table_says(samples: list[bytes], settings: bytes) -> None:
    data = shard_of(samples, settings)
    head = data[: table_nbytes(len(samples))]
    offsets = parse_table(head, shard(len(samples), len(data)), "a.mds")
    assert offsets.dtype == np.int64
    assert [data[low:high] for low, high in pairwise(offsets)] == samples


@given(st.data())
def test_a_table_is_in_order_and_inside_the_shard_or_refused(data: st.DataObject) -> None:
    samples = data.draw(st.integers(0, 6))
    nbytes = data.draw(st.integers(0, 80))
    words = data.draw(st.lists(st.integers(0, 90) | st.integers(0, (1 << 32) - 1), max_size=9))
    table = struct.pack(f"<{len(words)}I", *words)
    try:
        offsets = parse_table(table[: table_nbytes(samples)], shard(samples, nbytes), "a.mds")
    except SampleFormatError as error:
        assert error.path == "a.mds"
        return
    assert len(offsets) == samples + 1
    assert words[0] == samples
    assert table_nbytes(samples) <= offsets[0] <= offsets[-1] <= nbytes
    assert (np.diff(offsets) >= 0).all()


def test_a_fault_of_a_table_is_named() -> None:
    data = bytearray(shard_of([b"one", b"two"], b""))
    struct.pack_into("<I", data, 8, 500)
    with pytest.raises(SampleFormatError, match="sample 1 begins at a place") as caught:
        parse_table(data[:16], shard(2, len(data)), "a.mds")
    assert (caught.value.key, caught.value.offset, caught.value.found) == ("1", 8, 500)
    with pytest.raises(SampleFormatError, match="another number of samples") as caught:
        parse_table(data, shard(3, 100), "a.mds")
    assert (caught.value.expected, caught.value.found) == (3, 2)
    with pytest.raises(SampleFormatError, match="ends inside its table"):
        parse_table(data[:15], shard(2, len(data)), "a.mds")


# -- samples ---


columns = st.dictionaries(
    st.text(st.characters(categories=["L"]), min_size=1, max_size=4),
    st.sampled_from(["bytes", "int", "uint8", "float16", "ndarray:int16:2,3", "str"]),
    min_size=1,
    max_size=6,
)


@given(columns, st.data())
def test_columns_are_found_in_a_sample(encodings: dict[str, str], data: st.DataObject) -> None:
    values = {}
    for name, encoding in encodings.items():
        nbytes = size_of(encoding)
        least, most = (0, 9) if nbytes is None else (nbytes, nbytes)
        values[name] = data.draw(st.binary(min_size=least, max_size=most), label=name)
    sample = sample_of(encodings, values)
    layout = SampleLayout(tuple(MDSColumn(n, encodings[n], size_of(encodings[n])) for n in sorted(encodings)))
    spans = layout.spans(memoryview(sample), len(sample))
    assert [sample[low:high] for low, high in spans] == [values[name] for name in sorted(values)]
    assert layout.spans(sample[: layout.head_nbytes], len(sample)) == spans
    for name in encodings:
        fixed = layout.fixed_span(name)
        if fixed is not None:
            offset, nbytes = fixed
            begin = offset + (len(sample) if offset < 0 else 0)
            assert sample[begin : begin + nbytes] == values[name]
    # A sample of another size is never taken for a valid one.
    for wrong in (sample[:-1], sample + b"\0"):
        with pytest.raises(LayoutFault):
            layout.spans(memoryview(wrong), len(wrong))


def test_a_column_has_a_fixed_place_if_all_columns_on_one_side_have_fixed_sizes() -> None:
    a, b, v = MDSColumn("a", "int", 8), MDSColumn("b", "uint8", 1), MDSColumn("v", "bytes", None)
    assert SampleLayout((a, v, b)).fixed_span("a") == (4, 8)
    assert SampleLayout((a, v, b)).fixed_span("b") == (-1, 1)
    assert SampleLayout((v, a, b)).fixed_span("a") == (-9, 8)
    assert SampleLayout((v, a, v._replace(name="w"))).fixed_span("a") is None
    assert SampleLayout((a, v)).fixed_span("v") is None
    assert SampleLayout((a, v)).fixed_span("none") is None
