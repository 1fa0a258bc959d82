"""Tests of memory maps in datasets: workers open the file, and see the same values."""

from __future__ import annotations

import pickle
from pathlib import Path
from typing import Any

import cloudpickle
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader import DataLoader
from aioloader.executors.pickling import dumps
from tests.aioloader.loader.samples import Made
from tests.cases import with_cases

SHAPE = (60, 50, 40)


@pytest.fixture(scope="module")
def path(tmp_path_factory: pytest.TempPathFactory) -> Path:
    path = tmp_path_factory.mktemp("maps") / "values.npy"
    np.save(path, np.arange(np.prod(SHAPE), dtype=np.int32).reshape(SHAPE))
    return path


PARTS: dict[str, Any] = {
    "all": lambda x: x,
    "rows": lambda x: x[7:30],
    "rows of rows": lambda x: x[7:30][3:5],
    "columns": lambda x: x[:, 1:3],
    "steps": lambda x: x[::2, :, ::3],
    "reversed": lambda x: x[::-1],
    "transposed": lambda x: x.T,
    "as an array": lambda x: np.asarray(x)[3:50],
    "as bytes": lambda x: x.view(np.uint8),
    "reshaped": lambda x: x.reshape(-1, 8),
}


@with_cases("mode", ["r", "r+", "c"])
@with_cases("name", PARTS)
def test_parts_come_back_equal_and_by_name(path: Path, name: str, mode: Any) -> None:
    part = PARTS[name](np.load(path, mmap_mode=mode))
    blob = dumps([part, part])
    assert (len(blob) < 2000) == (mode != "c")
    first, second = pickle.loads(blob)
    assert first is second
    assert np.array_equal(first, part)
    assert (first.dtype, first.shape) == (part.dtype, part.shape)
    if mode != "c":
        assert isinstance(first, np.memmap) == isinstance(part, np.memmap)
        assert first.flags.writeable == (mode == "r+")


@settings(max_examples=3 * settings().max_examples // 5)
@given(st.data())
def test_any_view_comes_back_equal(path: Path, data: Any) -> None:
    part = np.load(path, mmap_mode="r")
    for _ in range(data.draw(st.integers(1, 3))):
        ends = st.none() | st.integers(-60, 60)
        steps = st.none() | st.sampled_from([-3, -1, 1, 2, 5])
        part = part[tuple(data.draw(st.lists(st.builds(slice, ends, ends, steps), max_size=3)))]
        if data.draw(st.booleans()):
            part = part.T
    assert np.array_equal(pickle.loads(dumps(part)), part)


def test_what_is_not_in_the_file_is_sent_by_value(path: Path, tmp_path: Path) -> None:
    whole = np.load(path, mmap_mode="r")
    for values in (whole + 1, whole[[3, 1]], np.array(whole[:2]), np.zeros(3), np.array([None, 1])):
        assert np.array_equal(pickle.loads(dumps(values)), values)
    gone = np.memmap(tmp_path / "gone", np.uint8, "w+", shape=100)
    gone[:] = 7
    (tmp_path / "gone").unlink()
    assert pickle.loads(dumps(gone)).tolist() == [7] * 100
    assert len(dumps(gone)) > 100


def rows(values: Any) -> Made:
    """Return a dataset of the sums of rows."""
    return Made(len(values), lambda index: values[index].sum())


def test_workers_read_the_file(path: Path) -> None:
    dataset = rows(np.load(path, mmap_mode="r"))
    assert len(dumps(dataset)) < len(cloudpickle.dumps(dataset)) / 100  # with its class
    with DataLoader(dataset, 16, num_workers=2) as loader:
        found = np.concatenate([np.array(batch) for batch in loader])
    assert np.array_equal(found, np.load(path).sum(axis=(1, 2)))
