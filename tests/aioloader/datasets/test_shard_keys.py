"""Tests of the keys of a shard's samples: found by their text, and by their number."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.datasets.shard_dataset import KeyTable, NumberKeys, ShardTable, TextKeys
from tests.cases import with_cases


def text_keys(keys: list[bytes]) -> TextKeys:
    ends = np.cumsum([len(key) for key in keys], dtype=np.int64)
    return TextKeys(np.frombuffer(b"".join(keys), np.uint8), ends)


def table(keys: KeyTable, count: int) -> ShardTable:
    zeros = np.zeros(count, np.int64)
    return ShardTable(path="a.tar", nbytes=0, offset=zeros, length=zeros, keys=keys)


@given(st.lists(st.binary(max_size=4), min_size=1, max_size=30))
def test_every_text_is_found_at_its_first_row(keys: list[bytes]) -> None:
    made = text_keys(keys)
    for row, key in enumerate(keys):
        assert made.row_of(made.key_at(row)) == keys.index(key)


@pytest.mark.parametrize("key", ["", "a", "abcd", "ab\0", "\ud800", "\u00e9"])
def test_a_text_that_no_sample_has_is_not_found(key: str) -> None:
    assert text_keys([b"abc", b"abd", b"ab", b"\xff"]).row_of(key) is None


@pytest.mark.parametrize("ends", [[-5, 3], [3, 900], [3, 1], [2**62, 2**62 + 3]])
def test_ends_outside_the_text_match_nothing_else(ends: list[int]) -> None:
    keys = TextKeys(np.frombuffer(b"abcabc", np.uint8), np.array(ends, np.int64))
    assert keys.row_of("xyz") is None


@with_cases(
    ("key", "row"),
    [*(("0", 0), ("12", 12), ("99", 99)), *((key, None) for key in ("100", "-1", "+1", "01", "", "\u0661"))],
)
def test_numbers_are_found_as_they_are_written(key: str, row: int | None) -> None:
    assert table(NumberKeys(), 100).row_of(key) == row


def test_a_number_of_many_digits_is_not_parsed() -> None:
    assert table(NumberKeys(), 100).row_of("9" * 5000) is None
