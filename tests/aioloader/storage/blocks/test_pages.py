"""Tests of the page headers of Parquet: sizes are those of files that pyarrow wrote; other bytes are refused."""

from __future__ import annotations

import io
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.formats.parquet import pages
from aioloader.formats.parquet.pages import PageSizes, chunk_sizes, read_header
from tests.cases import with_cases


def varint(number: int) -> bytes:
    out = b""
    while number >= 0x80:
        out += bytes([number & 0x7F | 0x80])
        number >>= 7
    return out + bytes([number])


def zigzag(number: int) -> bytes:
    return varint(number << 1 if number >= 0 else (-number << 1) - 1)


def header(
    kind: int = 0, decoded: int = 10, stored: int = 5, values: int = 3, encoding: int = 0, extra: bytes = b""
) -> bytes:
    """Return the header of a data page, or of a dictionary page (kind 2)."""
    inner = b"\x15" + zigzag(values) + b"\x15" + zigzag(encoding) + b"\0"
    field = b"\x2c" if kind == 0 else b"\x4c"  # number 5 or 7, after number 3
    return (
        b"\x15"
        + zigzag(kind)
        + b"\x15"
        + zigzag(decoded)
        + b"\x15"
        + zigzag(stored)
        + extra
        + field
        + inner
        + b"\0"
    )


def test_a_header_is_parsed() -> None:
    data = header(decoded=1000, stored=70, values=9, encoding=7)
    found = read_header(memoryview(data + b"more"))
    assert found == (len(data), False, 1000, 70, 9, 7)


def test_sizes_are_added_up() -> None:
    dictionary = header(2, decoded=500, stored=2, values=4) + b"ab"
    pages = [header(decoded=100, stored=1, values=3, encoding=8) + b"c" for _ in range(3)]
    data = dictionary + b"".join(pages)
    total = 500 + 3 * 100 + len(data) - 5
    assert chunk_sizes(memoryview(data), 9) == PageSizes(total, 9, 500)
    # What is behind the last value is not examined.
    assert chunk_sizes(memoryview(data + b"\xff\xff"), 9).values == 9
    with pytest.raises(ValueError, match="header of a page"):
        chunk_sizes(memoryview(data + b"\xff\xff"), 10)


def test_values_that_repeat_others_may_be_as_large_as_their_page() -> None:
    data = header(decoded=4000, stored=1, encoding=7) + b"x"
    assert chunk_sizes(memoryview(data), 3).largest_value == 4000
    plain = header(decoded=4000, stored=1, encoding=0) + b"x"
    assert chunk_sizes(memoryview(plain), 3).largest_value == 0


@with_cases(
    ("data", "text"),
    [
        (header(stored=6) + b"12345", "ends behind its column chunk"),
        (header()[:-4], "ends behind its column chunk"),
        (header(stored=-1), "announces -1 bytes"),
        (header(decoded=1 << 31), "announces"),
        (header(values=-5), "announces"),
        (b"\x15" + b"\xff" * 11, "does not end"),
        (b"\x18\x05", "has type 8 in place of a number"),
        (header(extra=b"\x1c" * 40), "nested too deeply"),
        (header(extra=b"\x19\xf5\xff\xff\xff\x7f" + b"\0" * 10_000), "too large"),
        (header(extra=b"\x18\xff\xff\xff\xff\x0f"), "ends behind"),
        (header(extra=b"\x1d"), "unknown type 13"),
    ],
)
def test_the_fault_of_a_header_is_named(data: bytes, text: str) -> None:
    with pytest.raises(ValueError, match=text):
        chunk_sizes(memoryview(data), 1 << 20)


def test_unknown_fields_are_skipped() -> None:
    fields = (
        b"\x11"  # true
        b"\x13\x07"  # a byte
        b"\x17" + bytes(8) + b"\x18\x03abc"  # a double, a text
        b"\x19\x35\x02\x04\x06"  # a list of three numbers
        b"\x1a\x21\x01\x02"  # a set of two booleans
        b"\x1b\x01\x58\x02\x01z"  # a map of a number to a text
        b"\x1b\x00"  # an empty map
        b"\x06\x1e\x02"  # a number in the long form
        b"\x0c\x0a\x00"  # an empty struct, number 5 in the long form
    )
    plain = b"\x15\x00\x15\x14\x15\x00" + fields + b"\0"
    found = read_header(memoryview(plain))
    assert (found.nbytes, found.decoded, found.values) == (len(plain), 10, 0)


def test_a_column_chunk_has_a_limit_of_pages(monkeypatch: pytest.MonkeyPatch) -> None:
    assert pages._MOST_PAGES == 65_536
    monkeypatch.setattr(pages, "_MOST_PAGES", 100)
    data = header(decoded=0, stored=0, values=0) * 101
    with pytest.raises(ValueError, match="more than 100 pages"):
        chunk_sizes(memoryview(data), 1)


@given(st.binary(max_size=60), st.integers(0, 1 << 40))
def test_any_bytes_end_with_sizes_or_a_value_error(data: bytes, values: int) -> None:
    try:
        sizes = chunk_sizes(memoryview(data), values)
    except ValueError:
        return
    assert sizes.decoded >= 0


@with_cases(
    ("kind", "compression", "version"),
    [
        ("dictionary", "snappy", "1.0"),
        ("dictionary", "zstd", "2.0"),
        ("plain", "none", "1.0"),
        ("plain", "snappy", "2.0"),
        ("DELTA_BYTE_ARRAY", "zstd", "1.0"),
        ("DELTA_BYTE_ARRAY", "none", "2.0"),
        ("DELTA_LENGTH_BYTE_ARRAY", "snappy", "1.0"),
        ("DELTA_LENGTH_BYTE_ARRAY", "zstd", "2.0"),
    ],
)
def test_sizes_are_those_of_real_files(version: str, compression: str, kind: str) -> None:
    pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow")
    import pyarrow.parquet as pq

    texts = [f"name {number % 7}" * 30 for number in range(900)]
    out = io.BytesIO()
    options: dict[str, Any] = {"use_dictionary": kind == "dictionary"}
    if kind.startswith("DELTA"):
        options["column_encoding"] = {"text": kind}
    pq.write_table(
        pa.table({"text": texts, "number": list(range(900))}),
        out,
        row_group_size=400,
        data_page_version=version,
        data_page_size=1500,
        compression=compression,
        **(
            {**options, "column_encoding": {**options["column_encoding"], "number": "PLAIN"}}
            if "column_encoding" in options
            else options
        ),
    )
    data = memoryview(out.getvalue())
    metadata = pq.read_metadata(io.BytesIO(data))
    for group in range(metadata.num_row_groups):
        chunk = metadata.row_group(group).column(0)
        begin = chunk.dictionary_page_offset or chunk.data_page_offset
        sizes = chunk_sizes(data[begin : begin + chunk.total_compressed_size], chunk.num_values)
        assert sizes.decoded == chunk.total_uncompressed_size
        assert sizes.values == chunk.num_values
        assert (sizes.largest_value > 0) == (kind in ("dictionary", "DELTA_BYTE_ARRAY"))
