"""Refusing bad arguments the way Gluon does."""

from __future__ import annotations

import operator
from typing import Any

__all__ = ("ArgumentError", "require", "whole_number")


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
