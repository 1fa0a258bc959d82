"""Tests of exceptions whose classes refuse attributes, texts or pickling: each is only the error of its sample."""

from __future__ import annotations

import traceback

import anyio
import numpy as np
import pytest

from aioloader import AsyncDataLoader, DataLoader, SampleError, SimpleDataset
from aioloader.errors import UnprintableError
from aioloader.foundation.error_log import printable, strip_exception
from tests.aioloader.foundation import foreign
from tests.cases import with_cases
from tests.executors import pool

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
    "no attributes by name": UnprintableError,
    "no attributes at all": UnprintableError,
    "classless": UnprintableError,
    "truthless": UnprintableError,
    "falsy": foreign.FalsyError,
    "unhashable": foreign.UnhashableError,
    "other notes": UnprintableError,
    "another cause": UnprintableError,
    "odd text": UnprintableError,
    "exiting text": UnprintableError,
    "a circle": ValueError,
    "a long chain": ValueError,
    "a text that is not UTF-8": FileNotFoundError,
    "end of a generator": StopIteration,
}


def assert_printable(error: BaseException | None) -> None:
    assert error is not None
    assert "".join(traceback.format_exception(error))
    for _ in range(20):
        if error is None:
            break
        assert type(str(error)) is str
        assert type(repr(error)) is str
        error = error.__cause__


@with_cases("way", foreign.WAYS)
def test_whatever_a_sample_raises_is_its_own_failure(way: str) -> None:
    dataset = SimpleDataset(["fine", way, "fine"]).transform(foreign.fail)
    with DataLoader(dataset, 3, num_workers=0) as loader, pytest.raises(SampleError) as caught:
        list(loader)
    assert caught.value.index == 1
    assert_printable(caught.value)
    if way in KEPT:
        assert isinstance(caught.value.__cause__, KEPT[way])


@pytest.mark.parametrize(
    ("executor", "policy"), [("inline", "skip"), ("thread", "replace"), ("process", "skip")]
)
def test_the_records_of_all_of_them_can_be_printed(executor: str, policy: str) -> None:
    ways = list(foreign.WAYS)
    dataset = SimpleDataset([each for way in ways for each in (way, "fine")]).transform(foreign.fail)
    with DataLoader(dataset, 8, on_error=policy, **pool(executor, 1)) as loader:
        batches = [np.array(batch) for batch in loader]
        errors = loader.errors
        report = loader.error_report()
    assert sum(map(len, batches)) == (len(ways) if policy == "skip" else len(dataset))
    assert [error.index for error in errors] == list(range(0, 2 * len(ways), 2))
    assert report["count"] == len(ways)
    for way, error in zip(ways, errors, strict=True):
        assert_printable(error)
        if way in KEPT and way != "made of parts":  # its text needs what the record drops
            assert isinstance(error.__cause__, KEPT[way]), way
    numpys = errors[ways.index("numpy's memory error")]
    assert "Unable to allocate" in str(numpys.__cause__)


async def test_what_an_async_transform_raises_is_the_failure_of_its_sample_too() -> None:
    ways = [way for way in foreign.WAYS if way != "cancellation"]  # nothing else cancels the sample's task
    dataset = SimpleDataset([each for way in ways for each in (way, "fine")]).transform(fail_async)
    async with AsyncDataLoader(dataset, 8, on_error="skip", executor="inline") as loader:
        assert sum([len(batch) async for batch in loader]) == len(ways)
    for error in loader.errors:
        assert_printable(error)


async def fail_async(way: str) -> np.int64:
    await anyio.lowlevel.checkpoint()
    return foreign.fail(way)


@with_cases("way", ["no attributes by name", "no attributes at all", "classless", "other notes"])
def test_a_chained_exception_is_replaced_too(way: str) -> None:
    def fail(item: int) -> int:
        try:
            foreign.fail(way)
        except Exception as error:
            raise ValueError("outer") from error
        return item

    with DataLoader(SimpleDataset([0]).transform(fail), 1, num_workers=0) as loader:
        with pytest.raises(SampleError) as caught:
            list(loader)
    assert_printable(caught.value)
    assert isinstance(caught.value.__cause__, ValueError)
    assert isinstance(caught.value.__cause__.__cause__, UnprintableError)


def test_nested_groups_are_looked_at_a_few_times_at_most() -> None:
    texts = 0

    class Counted(ValueError):
        def __repr__(self) -> str:
            nonlocal texts
            texts += 1
            return "counted"

    error: Exception = Counted("inner")
    for _ in range(100):
        error = ExceptionGroup("outer", [error])
    assert printable(error) is error
    assert texts < 5


def test_a_text_that_needs_what_the_record_drops_is_kept() -> None:
    error = SampleError("failed", dataset="d", index=0, stage="decode")
    error.__cause__ = foreign.MadeOfPartsError(foreign.Part())
    strip_exception(error)
    assert isinstance(error.__cause__, UnprintableError)
    assert error.__cause__.type_name == "MadeOfPartsError"
    assert str(error.__cause__) == "MadeOfPartsError: a part of 7 bits"
