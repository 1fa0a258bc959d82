"""Huffman tables: codes, more symbols, paddings."""

from __future__ import annotations

import pytest
from hypothesis import assume, example, given
from hypothesis import strategies as st

from aioloader.jpeg.huffman import (
    EOB,
    Code,
    HuffmanTable,
    NotIndexableError,
    codes,
    extended,
    joined,
    paddings,
    read_scan_tables,
)
from tests.aioloader.jpeg.samples import encode, frame_of
from tests.cases import with_cases


@st.composite
def tables(draw: st.DrawFn) -> HuffmanTable:
    """Draw a valid table: there is room for its codes, and the code of ones only is free."""
    counts, room = [], 1
    for _ in range(16):
        room *= 2
        count = draw(st.integers(0, min(room - 1, 12)))
        counts.append(count)
        room -= count
    total = sum(counts)
    assume(0 < total <= 160)
    symbols = draw(st.lists(st.integers(0, 255), min_size=total, max_size=total, unique=True))
    return HuffmanTable(bytes(counts), bytes(symbols))


@given(table=tables())
def test_codes_are_prefix_free_and_never_all_ones(table):
    texts = [format(code.bits, f"0{code.length}b") for code in codes(table).values()]
    assert len(texts) == len(table.symbols)
    for place, text in enumerate(texts):
        assert "0" in text
        assert not any(other.startswith(text) for other in texts[:place] + texts[place + 1 :])


@given(table=tables(), wanted=st.lists(st.integers(0, 255), max_size=6, unique=True))
@example(table=HuffmanTable(bytes([1] * 12 + [0] * 4), bytes(range(12))), wanted=[100, 101, 102, 103, 104])
def test_more_symbols_change_no_code(table, wanted):
    try:
        larger = extended(table, wanted)
    except NotIndexableError:
        # Where the only free code is that of ones, each length more has room for one symbol.
        assert any(table.counts[16 - len(wanted) :])
        return
    before, after = codes(table), codes(larger)
    assert after.keys() == before.keys() | set(wanted)
    assert all(after[symbol] == before[symbol] for symbol in before)
    assert (larger is table) == (set(wanted) <= before.keys())


@given(table=tables())
def test_a_padding_is_a_block_of_its_number_of_bits(table):
    try:
        found = paddings(table)
    except NotIndexableError:
        return
    by_text = {format(code.bits, f"0{code.length}b"): symbol for symbol, code in codes(table).items()}
    for number, padding in enumerate(found):
        assert padding.length % 8 == number
        assert padding.length <= 32
        text, coefficients = format(padding.bits, f"0{padding.length}b"), 1
        while True:
            length = next(length for length in range(1, 17) if text[:length] in by_text)
            symbol = by_text[text[:length]]
            text = text[length + (symbol & 15) :]
            if symbol == EOB:
                break
            coefficients += (symbol >> 4) + 1
            assert coefficients <= 63
        assert text == ""


def test_joined_bits_follow_each_other():
    assert joined((Code(3, 0b101), Code(0, 0), Code(2, 0b01))) == Code(5, 0b10101)


@with_cases(
    ("kind", "components"),
    [("grey", [0]), ("444", [0, 1, 2]), ("422", [0, 0, 1, 2]), ("420", [0, 0, 0, 0, 1, 2])],
)
def test_the_blocks_of_an_mcu_are_read(kind, components):
    data = encode(64, 64, kind)
    scan = read_scan_tables(data, frame_of(data))
    assert [block.component for block in scan.blocks] == components
    assert set(scan.tables) >= {0, 16}


def test_a_table_with_too_many_codes_is_refused():
    with pytest.raises(NotIndexableError, match="too many codes"):
        codes(HuffmanTable(bytes((2, *[0] * 15)), b"\0\1"))


def test_a_file_that_lacks_a_table_is_refused():
    data = encode(64, 64, "444")
    at = data.index(b"\xff\xc4")
    length = int.from_bytes(data[at + 2 : at + 4], "big")
    without = data[:at] + data[at + 2 + length :]
    with pytest.raises(NotIndexableError, match="lacks a Huffman table"):
        read_scan_tables(without, frame_of(without))


@with_cases("selector", [4, 0x14, 0x20, 0xFF])
def test_a_damaged_segment_of_tables_is_refused(selector):
    data = bytearray(encode(64, 64, "444"))
    data[data.index(b"\xff\xc4") + 4] = selector
    with pytest.raises(NotIndexableError, match="damaged"):
        read_scan_tables(bytes(data), frame_of(bytes(data)))
