"""Fixtures: files for iterators."""

import numpy as np
import pytest

from tests.aioloader.mxnet.image_records import numbered, write


@pytest.fixture
def ten(tmp_path):
    """Write ten records; label and colour encode the number, ids begin at 100."""
    labels = [float(number) for number in range(10)]
    return write(tmp_path / "ten.rec", numbered(10), labels, first_id=100)


@pytest.fixture
def ten_rows(tmp_path):
    """Write ten rows of two numbers; the first of row i is 2 i."""
    path = tmp_path / "ten.csv"
    np.savetxt(path, np.arange(20).reshape(10, 2), delimiter=",")
    return str(path)
