"""Tests of sizes written as text."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.foundation.validation import parse_nbytes
from tests.cases import with_cases


@with_cases(
    ("text", "nbytes"),
    [
        ("50GB", 50 * 10**9),
        ("1.5 TB", 15 * 10**11),
        ("512MiB", 512 << 20),
        (" 2 kb ", 2000),
        ("7", 7),
        ("7B", 7),
        (".5K", 500),
        ("1P", 10**15),
        (12, 12),
    ],
)
def test_sizes_are_bytes(text: int | str, nbytes: int) -> None:
    assert parse_nbytes(text) == nbytes


@with_cases("text", ["", "GB", "-1GB", "1e9", "1 000", "0", "0.1B", "1GBB", "nan", 0, -3])
def test_what_is_no_size_is_refused(text: int | str) -> None:
    with pytest.raises(ValueError, match="cache_limit must be"):
        parse_nbytes(text, "cache_limit")


@given(st.text(max_size=8))
def test_any_text_is_a_size_or_an_error_that_shows_it(text: str) -> None:
    try:
        assert parse_nbytes(text) >= 1
    except ValueError as error:
        assert repr(text) in str(error)
