"""Files for iterators."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def ten(tmp_path: Path) -> str:
    """Ten rows of two numbers; the first of row i is 2 i."""
    path = tmp_path / "ten.csv"
    np.savetxt(path, np.arange(20).reshape(10, 2), delimiter=",")
    return str(path)
