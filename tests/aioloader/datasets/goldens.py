"""Comparison with the values that other programs read, as expected.json in tests/data has them."""

from __future__ import annotations

import base64
import hashlib
from decimal import Decimal
from typing import Any

import numpy as np

LOSSY = ("jpg", "jpeg", "jpegs", "jpegarray", "image")


def check(found: Any, expected: Any, name: str) -> None:
    """Fail unless the value of a field is the one in expected.json."""
    if isinstance(expected, list):
        assert len(found) == len(expected), name
        for one, other in zip(found, expected, strict=True):
            check(one, other, name)
    elif "image" in expected:
        shape = expected["image"] if len(expected["image"]) == 3 else [*expected["image"], 3]
        assert (found.dtype, list(found.shape)) == (np.uint8, shape), name
        if "sha256" in expected and name.rpartition(".")[2] not in LOSSY:
            assert hashlib.sha256(found.tobytes()).hexdigest() == expected["sha256"], name
        else:
            near = 0.6 if name.rpartition(".")[2] in LOSSY else 1e-3
            assert abs(float(found.mean()) - expected["mean"]) < near, name
    elif "array" in expected:
        np.testing.assert_array_equal(found, np.array(expected["array"], expected["dtype"]), err_msg=name)
        assert found.dtype.name == expected["dtype"], name
    elif "number" in expected:
        assert (found, found.dtype.name) == (expected["number"], expected["dtype"]), name
    elif "bytes" in expected:
        assert found == base64.b64decode(expected["bytes"]), name
    elif "decimal" in expected:
        assert found == Decimal(expected["decimal"]), name
    else:
        assert found == expected["value"], name
        assert isinstance(expected["value"], int | float) or type(found) is type(expected["value"]), name
