"""Many cases in one test, because collecting, starting and reporting a test costs more than most cases do."""

from __future__ import annotations

import functools
import inspect
from collections.abc import Awaitable, Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from typing import Any, TypeVar

import pytest

T = TypeVar("T", bound=Callable[..., Any])
PARAM = type(pytest.param())


def with_cases(names: str | Sequence[str], cases: Iterable[Any], *, ids: Any = None) -> Callable[[T], T]:
    """Run a test, or each test of a class, with all cases one after the other, and report all that fail.

    It is written as `pytest.mark.parametrize` is, and goes where that would, but makes one test. All cases have the
    same fixtures, so a test that writes to what a fixture made, such as `tmp_path`, needs `parametrize`. A case that
    skips is left out; if all do, so does the test.

    Args:
        names: parameters of the test: names with commas between them, or a list of names.
        cases: the value for one name, or the values for several; `pytest.param(..., id=...)` names it.
        ids: names of the cases, or a function that returns the name for a value.

    Raises:
        ValueError: a case has marks, which belong to tests; or there are no cases.

    Example:
        @with_cases(("text", "number"), [("1", 1), ("2", 2)])
        def test_a_number_is_read(text, number): ...
    """
    keys = [name.strip() for name in names.split(",")] if isinstance(names, str) else list(names)
    all_cases = list(_named(keys, cases, ids))
    if not all_cases:
        raise ValueError(f"no cases for {keys}")

    def decorate(test: Any) -> Any:
        if isinstance(test, type):
            for name in dir(test):  # those of its bases too
                if name.startswith("test_"):
                    setattr(test, name, decorate(getattr(test, name)))
            return test
        outcome = _Outcome(test.__name__)
        if inspect.iscoroutinefunction(test):

            @functools.wraps(test)
            async def run(*args: Any, **fixtures: Any) -> None:
                with outcome.of_all():
                    for name_of, values in all_cases:
                        with outcome.of(name_of):
                            await test(*args, **fixtures, **values)
        else:

            @functools.wraps(test)
            def run(*args: Any, **fixtures: Any) -> None:
                with outcome.of_all():
                    for name_of, values in all_cases:
                        with outcome.of(name_of):
                            test(*args, **fixtures, **values)

        signature = inspect.signature(test)
        left = [parameter for name, parameter in signature.parameters.items() if name not in keys]
        run.__signature__ = signature.replace(parameters=left)  # type: ignore[attr-defined]  # read by pytest
        return run

    return decorate


def _named(
    keys: list[str], cases: Iterable[Any], ids: Any
) -> Iterator[tuple[Callable[[], str], dict[str, Any]]]:
    """Yield a function that returns the name of a case, whose values may have a long repr, and its arguments."""
    given = None if ids is None or callable(ids) else iter(ids)
    show = ids if callable(ids) else repr
    for case in cases:
        values, name = (case.values, case.id) if isinstance(case, PARAM) else ((case,), None)
        if isinstance(case, PARAM) and case.marks:
            raise ValueError(f"a case of {keys} has marks")
        if not isinstance(case, PARAM) and len(keys) > 1:
            values = case
        if name is None and given is not None:
            name = str(next(given))
        yield functools.partial(_name, name, show, values), dict(zip(keys, values, strict=True))


def _name(name: str | None, show: Callable[[Any], Any], values: Iterable[Any]) -> str:
    return (name or ", ".join(str(show(value)) for value in values))[:200]


class _Outcome:
    """Outcomes of the cases of one test."""

    def __init__(self, name: str) -> None:
        self.name = name

    @contextmanager
    def of_all(self) -> Iterator[None]:
        self.failed: list[BaseException] = []
        self.skipped: list[BaseException] = []
        self.passed = 0
        yield
        if self.failed:
            raise BaseExceptionGroup(f"cases of {self.name}", self.failed)
        if self.skipped and not self.passed:
            raise self.skipped[0]

    @contextmanager
    def of(self, name: Callable[[], str]) -> Iterator[None]:
        try:
            yield
        except pytest.skip.Exception as error:
            self.skipped.append(error)
        except (Exception, pytest.fail.Exception) as error:
            error.add_note(f"case: {name()}")
            self.failed.append(error)
        else:
            self.passed += 1


def on_both_loops(test: Callable[..., Awaitable[None]]) -> Callable[..., None]:
    """Run an async test in a new event loop, once of asyncio and once of trio; decorators of cases go above it."""

    @functools.wraps(test)
    def run(*args: Any, run_on: Any, **fixtures: Any) -> None:
        run_on(functools.partial(test, *args, **fixtures))

    signature = inspect.signature(test)
    loop = inspect.Parameter("run_on", inspect.Parameter.KEYWORD_ONLY)
    run.__signature__ = signature.replace(parameters=[*signature.parameters.values(), loop])  # type: ignore[attr-defined]  # read by pytest
    return run
