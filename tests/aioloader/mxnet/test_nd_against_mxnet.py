"""Tests of `mx.nd` against what MXNet 1.9.1 returned for the same expressions (nd_cases.py, nd_expected.json)."""

from __future__ import annotations

import json
from collections import Counter
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader.mxnet as mx
from tests.aioloader.mxnet import nd_cases
from tests.cases import with_cases

EXPECTED: dict[str, Any] = dict(json.loads(Path(__file__).with_name("nd_expected.json").read_text()))


def seen_here(name: str) -> Any:
    dtype, expression = name.split(": ", 1)
    return json.loads(json.dumps(nd_cases.observe(mx, expression, dtype)))


def documented(name: str, here: Any) -> str | None:
    """Return the reason for a difference that the migration page names, or None."""
    dtype = name.partition(":")[0]
    if dtype not in ("int32", "uint8"):
        return None
    found = [part["dtype"] for part in here.get("parts", ())]
    expected = EXPECTED[name]
    if found and set(found) == {"float64"}:
        return "fractions of integers"
    if "value" in here and isinstance(here["value"], float) and isinstance(expected["value"], int):
        return "fractions of integers"
    if "2.5" in name and found == [dtype]:
        return "integers compared with a fraction"
    if dtype == "uint8" and found == ["int64"] and here["parts"][0]["shape"] == expected["parts"][0]["shape"]:
        return "sums of bytes"
    if "error" in here and ("/=" in name or "+= np.float64(1.5)" in name):
        return "a fraction into integers"
    return None


@pytest.mark.parametrize("dtype", ["float32", "float64", "int32", "uint8"])
def test_results_dtypes_and_aliasing_are_mxnets(dtype: str) -> None:
    different = {}
    for name, expected in EXPECTED.items():
        if name.startswith(f"{dtype}:") and "error" not in expected:
            here = seen_here(name)
            if here != expected and documented(name, here) is None:
                different[name] = (expected, here)
    assert different == {}


def test_documented_differences_are_of_few_kinds() -> None:
    reasons = Counter(
        documented(name, seen_here(name))
        for name, expected in EXPECTED.items()
        if "error" not in expected and seen_here(name) != expected
    )
    assert set(reasons) == {
        "fractions of integers",
        "integers compared with a fraction",
        "sums of bytes",
        "a fraction into integers",
    }


@with_cases("name", sorted(set(mx.nd.__all__) - {"NDArray", "waitall"}))
def test_every_function_of_nd_is_compared(name: str) -> None:
    assert any(f".{name}(" in case for case in EXPECTED)


def test_sums_of_bytes_do_not_overflow() -> None:
    array = mx.nd.full((1000,), 200, dtype="uint8")
    assert array.sum().asscalar() == 200_000
    assert array.mean().asscalar() == 200
    assert np.asarray(mx.nd.array([1, 2], dtype="int32") / 2).tolist() == [0.5, 1]


def test_the_truth_of_several_elements_is_an_error() -> None:
    assert not mx.nd.zeros((0, 2))
    with pytest.raises(ValueError, match="ambiguous"):
        bool(mx.nd.ones(2))
