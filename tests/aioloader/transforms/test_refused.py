"""Tests that arguments, images and batches which no transform can use are refused by an error that names them."""

from __future__ import annotations

import math
from pathlib import Path

import numpy as np
import pytest

from aioloader import transforms
from tests.cases import with_cases

NAMES = {name: getattr(transforms, name) for name in transforms.__all__}
NAMES |= {"nan": math.nan, "inf": math.inf, "np": np, "image": np.zeros((29, 31, 3), np.uint8)}
NAMES |= {"images": np.zeros((5, 8, 9, 3), np.uint8), "labels": np.array([0, 3, 1, 2, 3])}
ERRORS = {"ValueError": ValueError, "TypeError": TypeError}
ROWS = [line.split("\t") for line in Path(__file__).with_name("refused.tsv").read_text().splitlines()]


@with_cases(("call", "error", "pattern"), ROWS)
def test_what_cannot_be_used_is_refused_and_named(call: str, error: str, pattern: str) -> None:
    with pytest.raises(ERRORS[error], match=pattern):
        eval(call, NAMES)
