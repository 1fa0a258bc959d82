"""Tests of tests with many cases."""

from __future__ import annotations

from typing import Any, ClassVar

import pytest

from tests.cases import with_cases


def test_all_cases_run_and_those_that_fail_are_named() -> None:
    seen = []

    @with_cases(("x", "y"), [(1, 2), pytest.param(3, 4, id="three"), (5, 6), (7, 8)])
    def run(fixture: str, x: int, y: int) -> None:
        seen.append((fixture, x, y))
        assert x != 3
        if x == 5:
            pytest.fail("five")
        if x == 7:
            pytest.skip("seven")

    with pytest.raises(BaseExceptionGroup) as caught:
        run("f")  # type: ignore[call-arg]  # the cases fill the others
    assert seen == [("f", 1, 2), ("f", 3, 4), ("f", 5, 6), ("f", 7, 8)]
    assert [error.__notes__ for error in caught.value.exceptions] == [["case: three"], ["case: 5, 6"]]


def test_a_test_whose_cases_all_skip_is_skipped() -> None:
    @with_cases("x", "ab")
    def run(x: str) -> None:
        pytest.skip(x)

    with pytest.raises(pytest.skip.Exception, match="a"):
        run()  # type: ignore[call-arg]


def test_marks_and_missing_cases_are_refused() -> None:
    for cases in ([pytest.param(1, marks=pytest.mark.slow)], []):
        with pytest.raises(ValueError, match=r"cases|marks"):
            with_cases("x", cases)


@pytest.mark.parametrize("fixture", ["from pytest"])
@with_cases("x, y", [(1, 2), (3, 4)], ids=["one", "three"])
@with_cases("z", range(3), ids=str)
class TestEach:
    seen: ClassVar[list[Any]] = []

    def test_a_class_has_the_product(self, fixture: str, x: int, y: int, z: int) -> None:
        self.seen.append((fixture, x, y, z))

    async def test_async_tests_too(self, fixture: str, x: int, y: int, z: int) -> None:
        assert self.seen.pop(0) == (fixture, x, y, z)
        assert len(self.seen) == 5 - 3 * (x == 3) - z
