"""Tests of the text index of TFRecord files: it is read if it fits the file, else ignored."""

from __future__ import annotations

import numpy as np
from hypothesis import given
from hypothesis import strategies as st

from aioloader.formats.tfrecord.records import most_nbytes, parse_index
from tests.cases import with_cases


@given(st.lists(st.integers(16, 1 << 40), min_size=1, max_size=20))
def test_an_index_that_fits_is_read(lengths: list[int]) -> None:
    offsets = np.cumsum([0, *lengths]).tolist()
    text = "".join(f"{at} {size}\n" for at, size in zip(offsets, lengths, strict=False)).encode()
    found = parse_index(text, offsets[-1])
    assert found is not None
    assert (found.tolist(), found.dtype) == (lengths, np.int64)
    assert len(text) <= most_nbytes(offsets[-1])
    assert parse_index(text, offsets[-1] + 1) is None
    assert parse_index(text, offsets[-1] - 1) is None


@with_cases(
    "text",
    [
        b"",
        b"\n",
        b"0",
        b"0 20 20",
        b"0 20\n21 20",
        b"1 39",
        b"20 20\n0 20",
        b"0 50\n50 -10",
        b"0 25\n25 15",
        b"0 4e1",
        b"0 40.",
        b"0\t\xc2\xb24",
        b"0 1234567890123456789",
        b"0 9223372036854775808\n9223372036854775808 9223372036854775848",
        b"x" * 1000,
        b"0 40\n" + b" " * 1000,
    ],
)
def test_any_other_is_not(text: bytes) -> None:
    assert parse_index(text, 40) is None


def test_separators_do_not_matter() -> None:
    found = parse_index(b"0\t20\r\n20  20", 40)
    assert found is not None
    assert found.tolist() == [20, 20]


@given(st.binary(max_size=60) | st.text("0123456789 \n", max_size=60).map(str.encode), st.integers(0, 200))
def test_any_text_is_taken(text: bytes, nbytes: int) -> None:
    found = parse_index(text, nbytes)
    assert found is None or (found.sum() == nbytes and found.min() >= 16)
