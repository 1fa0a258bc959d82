"""Exceptions of the caller's code, whose classes may refuse what other exceptions allow.

A frozen dataclass forbids attributes, ``__str__`` may raise, a metaclass may hide the name. Nothing here raises because
of such a class: the functions go through `BaseException` itself where the class refuses.
"""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, Any

from aioloader.errors import UnprintableError, class_name

if TYPE_CHECKING:
    from types import TracebackType

_LINKS = ("__cause__", "__context__")
# The slots of BaseException, which no class can hide.
_slots: dict[str, Any] = {name: vars(BaseException)[name] for name in ("args", "__traceback__", *_LINKS)}


def describe(error: BaseException) -> str:
    """Return the name of an exception's class and its text, "ValueError: too large"."""
    name = class_name(error)
    try:
        text = str(error)
    except Exception as failed:
        text = f"(no text: {class_name(failed)})"
    return f"{name}: {text}" if text else name


def is_printable(error: BaseException) -> bool:
    """Return True if ``str`` and ``repr`` of an exception work."""
    try:
        str(error), repr(error)
    except Exception:
        return False
    return True


def printable(error: BaseException) -> BaseException:
    """Return the exception, or an `UnprintableError` with its class's name and traceback if it cannot be printed."""
    if is_printable(error):
        return error
    made = UnprintableError(class_name(error))
    made.__traceback__ = traceback_of(error)
    return made


def traceback_of(error: BaseException) -> TracebackType | None:
    """Return the traceback of an exception, also where its class hides it."""
    found: TracebackType | None = _slots["__traceback__"].__get__(error)
    return found


def chained(error: BaseException) -> list[BaseException | None]:
    """Return the cause and the context of an exception, each of which may be None."""
    return [_slots[name].__get__(error) for name in _LINKS]


def replace_chained(error: BaseException, old: BaseException, new: BaseException) -> None:
    """Replace the cause or the context of an exception, where it is `old`."""
    for name in _LINKS:
        if _slots[name].__get__(error) is old:
            _slots[name].__set__(error, new)


def detach(error: BaseException, *, links: bool = False) -> None:
    """Drop the traceback of an exception, and with `links` its cause and its context."""
    for name in ("__traceback__", *_LINKS) if links else ("__traceback__",):
        _slots[name].__set__(error, None)


def set_args(error: BaseException, args: tuple[Any, ...]) -> None:
    """Set the arguments of an exception."""
    _slots["args"].__set__(error, args)


def add_note(error: BaseException, note: str) -> None:
    """Add a note to an exception, if its class lets it have one."""
    with contextlib.suppress(Exception):
        error.add_note(note)


def remove_note(error: BaseException, note: str) -> None:
    """Remove a note that `add_note` added."""
    with contextlib.suppress(Exception):
        error.__notes__.remove(note)
