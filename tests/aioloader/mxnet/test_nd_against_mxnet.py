"""Tests of `mx.nd` against what MXNet 1.9.1 returned for the same expressions (nd_cases.py, nd_expected.json)."""

import json
from pathlib import Path

import numpy as np

import aioloader.mxnet as mx
from tests.aioloader.mxnet import nd_cases
from tests.cases import with_cases

EXPECTED = dict(json.loads(Path(__file__).with_name("nd_expected.json").read_text()))


def seen_here(name):
    dtype, expression = name.split(": ", 1)
    return json.loads(json.dumps(nd_cases.observe(mx, expression, dtype)))


def documented(name, here):
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


def test_results_dtypes_and_aliasing_are_mxnets_but_for_few_kinds():
    different, reasons = {}, set()
    for name, expected in EXPECTED.items():
        if "error" not in expected and (here := seen_here(name)) != expected:
            reason = documented(name, here)
            if reason is None:
                different[name] = (expected, here)
            reasons.add(reason)
    assert different == {}
    assert reasons == {
        "fractions of integers",
        "integers compared with a fraction",
        "sums of bytes",
        "a fraction into integers",
    }


@with_cases("name", sorted(set(mx.nd.__all__) - {"NDArray", "waitall"}))
def test_every_function_of_nd_is_compared(name):
    assert any(f".{name}(" in case for case in EXPECTED)


def test_sums_of_bytes_do_not_overflow():
    array = mx.nd.full((1000,), 200, dtype="uint8")
    assert array.sum().asscalar() == 200_000
    assert array.mean().asscalar() == 200
    assert np.asarray(mx.nd.array([1, 2], dtype="int32") / 2).tolist() == [0.5, 1]
