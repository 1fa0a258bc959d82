"""Refusing bad arguments, the way Gluon does where it does."""

from __future__ import annotations

import functools
import inspect
import operator
from typing import Any

__all__ = ("ArgumentError", "check_sync", "is_async", "require", "whole_number")


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
