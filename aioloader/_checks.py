"""Refusing bad arguments the way Gluon does."""

from __future__ import annotations

__all__ = ("ArgumentError", "require")


class ArgumentError(ValueError, AssertionError):
    """An argument is out of its range.

    Gluon checks such arguments with ``assert``, so scripts may expect an AssertionError; unlike an assert
    this check also stands under ``python -O``.
    """


def require(condition: object, message: str) -> None:
    """Raise `ArgumentError` with `message` unless `condition` holds."""
    if not condition:
        raise ArgumentError(message)
