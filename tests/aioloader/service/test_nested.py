"""Tests of nested references."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.service.nested import flatten_keys, flatten_references

LEAVES = st.binary(max_size=3) | st.text(max_size=3)
NESTED = st.recursive(
    LEAVES,
    lambda each: st.lists(each) | st.lists(each).map(tuple) | st.dictionaries(st.text(max_size=2), each),
)


@given(NESTED)
def test_results_come_back_in_the_nesting_of_their_references(value: Any) -> None:
    found, build = flatten_references(value)
    assert build(found) == value


@pytest.mark.parametrize("dataset", [np.zeros((4, 2, 2, 3), np.uint8), range(3)], ids=["array", "range"])
def test_a_dataset_and_an_index_are_one_reference(dataset: Any) -> None:
    item = (dataset, 2)
    found, build = flatten_references([item, (b"a", b"b")])
    assert found == [item, b"a", b"b"]
    assert build([1, 2, 3]) == [1, (2, 3)]


def test_a_row_of_bytes_and_path_is_one_reference() -> None:
    rows = [{"bytes": b"a", "path": None}, {"path": "a.jpg", "bytes": None}]
    others = {"bytes": [b"b"], "path": "c.jpg", "more": b"d"}
    found, build = flatten_references([*rows, others])
    assert found == [*rows, b"b", "c.jpg", b"d"]
    assert build([1, 2, 3, 4, 5]) == [1, 2, {"bytes": [3], "path": 4, "more": 5}]
    assert flatten_keys(rows, ["k", None]) == ["k", None]
