"""Refusing bad arguments, the way Gluon does where it does."""

from __future__ import annotations

import functools
import inspect
import operator
import re
from fractions import Fraction
from typing import Any

__all__ = (
    "ArgumentError",
    "at_least",
    "check_sync",
    "is_async",
    "one_of",
    "parse_nbytes",
    "require",
    "whole_number",
)


class ArgumentError(ValueError, AssertionError):
    """An argument is out of its range.

    Gluon checks such arguments with ``assert``, so scripts may expect an AssertionError; unlike an assert
    this check also stands under ``python -O``.
    """


def require(condition: object, message: str) -> None:
    """Raise `ArgumentError` with `message` unless `condition` holds."""
    if not condition:
        raise ArgumentError(message)


def whole_number(name: str, value: Any) -> int:
    """The same as an int.

    Raises:
        TypeError: it is no whole number; floats are none.
    """
    try:
        return operator.index(value)
    except TypeError:
        raise TypeError(f"{name} must be a whole number, got {value!r}") from None


def is_async(fn: Any) -> bool:
    """Whether calling `fn` gives something to be awaited, as far as can be told without calling it.

    Told of: an ``async def`` function or method, a `functools.partial` of one, an object whose ``__call__`` is one, and
    what is marked by `inspect.markcoroutinefunction`. A plain function that hands on a coroutine is not told from
    others.
    """
    while isinstance(fn, functools.partial):
        fn = fn.func
    if inspect.iscoroutinefunction(fn):
        return True
    # A transform's `apply` is called in place of it.
    names = ("__call__", "apply") if hasattr(fn, "out_spec") else ("__call__",)
    return not isinstance(fn, type) and any(
        inspect.iscoroutinefunction(getattr(type(fn), name, None)) for name in names
    )


def check_sync(fn: Any, where: str) -> None:
    """Raise if `fn` is an async function, which cannot be called there.

    Args:
        fn: a callable, or anything else.
        where: what it was given to.

    Raises:
        TypeError: it is one.
    """
    if is_async(fn):
        name = getattr(fn, "__name__", None) or type(fn).__name__
        raise TypeError(
            f"{name} is an async function, which {where} cannot await: give it to dataset.transform(...) or "
            ".transform_first(...) by itself, as a stage of its own"
        )


def one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, but got {value!r}")


def at_least(name: str, value: Any, least: float, *, exclusive: bool = False) -> None:
    if value is None:
        return
    if isinstance(value, bool) or (not isinstance(value, (int, float)) and not hasattr(value, "__index__")):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not value >= least or (exclusive and value == least):  # NaN is not at least anything
        raise ValueError(f"{name} must be {'more than' if exclusive else 'at least'} {least}, got {value}")


_UNITS = {"": 1, "B": 1} | {
    prefix + unit: base**power
    for power, prefix in enumerate("KMGTP", 1)
    for unit, base in (("", 1000), ("B", 1000), ("iB", 1024))
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")


def parse_nbytes(size: int | str, name: str = "size") -> int:
    """A number of bytes, at least 1.

    Args:
        size: the number, or a text like "50GB" (10^9 bytes each), "1.5 TB", "512MiB" (2^20 bytes each).
        name: what it is called in errors.

    Raises:
        TypeError: it is neither.
        ValueError: it is no size, or less than one byte.
    """
    if isinstance(size, str):
        found = _SIZE.fullmatch(size)
        units = {unit.lower(): factor for unit, factor in _UNITS.items()}
        if found is None or found[2].lower() not in units:
            raise ValueError(f"{name} must be a size such as '50GB' or '512MiB', but got {size!r}")
        nbytes = int(Fraction(found[1]) * units[found[2].lower()])
    elif isinstance(size, bool) or not hasattr(size, "__index__"):
        raise TypeError(f"{name} must be a number of bytes or a text such as '50GB', got {size!r}")
    else:
        nbytes = int(size)
    if nbytes < 1:
        raise ValueError(f"{name} must be at least 1 byte, but got {size!r}")
    return nbytes
