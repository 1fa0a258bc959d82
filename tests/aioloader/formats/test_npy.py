"""Tests of arrays in NumPy's file format: arrays of NumPy itself, lying headers, pickled objects."""

from __future__ import annotations

import io
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra import numpy as arrays

from aioloader.formats.tar.fields import parse_npy
from tests.cases import with_cases

DTYPES = st.one_of(
    arrays.integer_dtypes(endianness="?"),
    arrays.floating_dtypes(endianness="?"),
    arrays.boolean_dtypes(),
    arrays.complex_number_dtypes(),
    arrays.unicode_string_dtypes(max_len=3),
)


def saved(array: Any, version: tuple[int, int] | None = None) -> bytes:
    stream = io.BytesIO()
    np.lib.format.write_array(stream, array, version=version)
    return stream.getvalue()


@given(
    arrays.arrays(DTYPES, arrays.array_shapes(min_dims=0, max_dims=4, min_side=0, max_side=4)),
    st.sampled_from([(1, 0), (2, 0), (3, 0)]),
    st.booleans(),
)
def test_arrays_are_those_of_numpy(array: Any, version: tuple[int, int], by_columns: bool) -> None:
    data = saved(np.asfortranarray(array) if by_columns else array, version)
    found = parse_npy(memoryview(data))
    expected = np.load(io.BytesIO(data), allow_pickle=False)
    np.testing.assert_array_equal(found, expected)
    assert (found.dtype, found.shape) == (expected.dtype, expected.shape)
    found[...] = found  # writable, and no view of the data


@given(st.binary(max_size=300), st.integers(0, 128), st.binary(max_size=20))
def test_damaged_files_are_value_errors(tail: bytes, place: int, change: bytes) -> None:
    data = bytearray(saved(np.arange(6.0).reshape(2, 3)))
    data[place : place + len(change)] = change
    for damaged in (bytes(data), bytes(data[:place]), b"\x93NUMPY" + tail, tail):
        try:
            found = parse_npy(memoryview(damaged))
        except ValueError:
            continue
        assert found.nbytes <= len(damaged)


@with_cases(
    ("descr", "shape"),
    [
        *(("<f8", shape) for shape in ("(1000000000000,)", "(1, -1)", "(-5,)", f"(0, {1 << 70})")),
        *(("|S0", "(100000000000,)"), ("<U0", "(3,)")),
    ],
)
def test_a_header_that_lies_about_the_size_costs_no_memory(descr: str, shape: str) -> None:
    header = f"{{'descr': '{descr}', 'fortran_order': False, 'shape': {shape}, }}\n".encode()
    data = b"\x93NUMPY\x01\x00" + len(header).to_bytes(2, "little") + header + bytes(64)
    with pytest.raises(ValueError, match=r"header|there are 64|is impossible"):
        parse_npy(memoryview(data))


def test_versions_and_records_that_are_not_read_are_named() -> None:
    data = bytearray(saved(np.zeros(2)))
    data[6] = 4
    for wrong, text in (
        (data, "version of the format is 04"),
        (saved(np.zeros(2, [("a", "<i4")])), "named fields"),
    ):
        with pytest.raises(ValueError, match=text):
            parse_npy(memoryview(wrong))


def test_objects_are_not_unpickled() -> None:
    stream = io.BytesIO()
    np.save(stream, np.array([{}], object), allow_pickle=True)
    with pytest.raises(ValueError, match="pickled"):
        parse_npy(memoryview(stream.getvalue()))
