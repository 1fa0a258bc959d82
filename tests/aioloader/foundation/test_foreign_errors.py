"""Tests of exceptions whose classes refuse attributes, texts or pickling: each is only the error of its sample."""

from __future__ import annotations

import numpy as np
import pytest

from aioloader import DataLoader, SampleError, SimpleDataset
from aioloader.errors import UnprintableError
from aioloader.foundation.error_log import strip_exception
from tests.aioloader.foundation import foreign
from tests.executors import pool

EXECUTORS = ["inline", "thread", "process"]
KEPT = {
    "frozen": foreign.FrozenError,
    "unsettable": foreign.UnsettableError,
    "textless": UnprintableError,
    "reprless": UnprintableError,
    "made of parts": foreign.MadeOfPartsError,
    "numpy's memory error": MemoryError,
    "no dict": foreign.NoDictError,
    "another traceback": foreign.OtherTracebackError,
    "nameless": foreign.NamelessError,
    "group": UnprintableError,
    "chained": foreign.FrozenError,
}


def assert_printable(error: BaseException | None) -> None:
    while error is not None:
        assert isinstance(str(error), str)
        assert isinstance(repr(error), str)
        error = error.__cause__


@pytest.mark.parametrize("way", foreign.WAYS)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_whatever_a_sample_raises_is_its_own_failure(executor: str, way: str) -> None:
    dataset = SimpleDataset(["fine", way, "fine"]).transform(foreign.fail)
    with (
        DataLoader(dataset, 3, **pool(executor, 1)) as loader,
        pytest.raises(SampleError) as caught,
    ):
        list(loader)
    assert caught.value.index == 1
    cause = caught.value.__cause__
    assert isinstance(str(cause), str)
    assert isinstance(repr(cause), str)
    if way in KEPT and (executor, way) not in (("process", "no dict"), ("process", "group")):  # sent in words
        assert isinstance(cause, KEPT[way])


@pytest.mark.parametrize("policy", ["skip", "replace"])
@pytest.mark.parametrize("executor", EXECUTORS)
def test_the_records_of_all_of_them_can_be_printed(executor: str, policy: str) -> None:
    ways = list(foreign.WAYS)
    dataset = SimpleDataset([*ways, "fine", "fine"]).transform(foreign.fail)
    with DataLoader(dataset, 7, on_error=policy, **pool(executor, 1)) as loader:
        batches = [np.array(batch) for batch in loader]
        errors = loader.errors
        report = loader.error_report()
    assert sum(map(len, batches)) == (2 if policy == "skip" else len(dataset))
    assert [error.index for error in errors] == list(range(len(ways)))
    assert report["count"] == len(ways)
    for error in errors:
        assert_printable(error)
    numpys = errors[ways.index("numpy's memory error")]
    assert "Unable to allocate" in str(numpys.__cause__)


def test_a_text_that_needs_what_the_record_drops_is_kept() -> None:
    error = SampleError("failed", dataset="d", index=0, stage="decode")
    error.__cause__ = foreign.MadeOfPartsError(foreign.Part())
    strip_exception(error)
    assert isinstance(error.__cause__, UnprintableError)
    assert error.__cause__.type_name == "MadeOfPartsError"
    assert str(error.__cause__) == "MadeOfPartsError: a part of 7 bits"
