"""Tests that arguments which no transform can use are refused when it is made, by an error that names them."""

from __future__ import annotations

import math
from pathlib import Path

import pytest

from aioloader import transforms
from tests.cases import with_cases

ERRORS = {"ValueError": ValueError, "TypeError": TypeError}
NAMES = {name: getattr(transforms, name) for name in transforms.__all__} | {"nan": math.nan, "inf": math.inf}
ROWS = [line.split("\t") for line in Path(__file__).with_name("refused.tsv").read_text().splitlines()]


@with_cases(("call", "error", "pattern"), ROWS)
def test_bad_arguments_are_refused_at_once_and_named(call: str, error: str, pattern: str) -> None:
    with pytest.raises(ERRORS[error], match=pattern):
        eval(call, NAMES)
