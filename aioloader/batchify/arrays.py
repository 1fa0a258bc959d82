"""Tests of single values and arrays that batchify functions share."""

from __future__ import annotations

from typing import Any

import numpy as np


def is_numeric(value: Any) -> bool:
    if isinstance(value, (str, bytes)):  # numpy's own strings are among them
        return False
    return isinstance(value, (bool, int, float, complex)) or hasattr(value, "__array__")


def check_out(out: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(out, np.ndarray) or out.shape != shape:
        found = out.shape if isinstance(out, np.ndarray) else type(out).__name__
        raise ValueError(f"out must be an array of shape {shape}, got {found}")
