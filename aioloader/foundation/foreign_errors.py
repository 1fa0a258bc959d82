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

# A longer chain is printed by nobody.
_MOST_CHAINED = 100
_LONGEST = 10_000
_LINKS = ("__cause__", "__context__")
# The slots of BaseException, which no class can hide.
_slots: dict[str, Any] = {name: vars(BaseException)[name] for name in ("args", "__traceback__", *_LINKS)}


def describe(error: BaseException) -> str:
    """Return the name of an exception's class and its text, "ValueError: too large"."""
    name = class_name(error)
    text = _text(error)
    if type(error) is UnprintableError:
        return text  # with the name of the class that it replaces
    return f"{name}: {text}" if text else name


def _text(error: BaseException) -> str:
    """Return the text of an exception, of the class `str` itself."""
    try:
        return str.__str__(str(error))
    except KeyboardInterrupt:
        raise
    except BaseException as failed:
        return f"(no text: {class_name(failed)})"


def is_printable(error: BaseException) -> bool:
    """Return True if an exception can be printed, with all that Python prints of one and asks about one."""
    try:
        plain = type(str(error)) is str and type(repr(error)) is str and error.__class__ is type(error)
        bool(error), bool(error.__suppress_context__), error.__cause__, error.__context__, error.__traceback__
        parts = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
        plain = plain and isinstance(getattr(error, "__notes__", []), list)
        return plain and all(map(is_printable, parts))
    except KeyboardInterrupt:
        raise
    except BaseException:
        return False


def printable(error: BaseException) -> BaseException:
    """Return the exception, or an `UnprintableError` with its text and traceback if it cannot be printed.

    So are those replaced that are chained to it. Texts in their arguments, notes and groups are cut where theirs is
    long: they are sent from workers, logged and kept.
    """
    if not _fits(error):
        error = _replacement(error)
    waiting = [error]
    for _ in range(_MOST_CHAINED):
        if not waiting:
            break
        holder = waiting.pop()
        for link in chained(holder):
            if link is None:
                continue
            if _fits(link):
                waiting.append(link)
            else:
                replace_chained(holder, link, _replacement(link))
    return error


def _fits(error: BaseException) -> bool:
    if not is_printable(error):
        return False
    if len(_text(error)) > _LONGEST:
        set_args(error, tuple(_cut(each) for each in error.args))
    notes = getattr(error, "__notes__", [])
    if any(len(note) > _LONGEST for note in notes if isinstance(note, str)):
        with contextlib.suppress(Exception):
            error.__notes__ = [_cut(note) for note in notes]
    parts = error.exceptions if isinstance(error, BaseExceptionGroup) else ()
    return is_printable(error) and len(_text(error)) <= _LONGEST and all(map(_fits, parts))


def _cut(value: Any) -> Any:
    if not isinstance(value, (str, bytes, bytearray)) or len(value) <= _LONGEST // 2:
        return value
    return f"{value[: _LONGEST // 4]!s}... ({len(value):,} characters or bytes)"


def _replacement(error: BaseException) -> UnprintableError:
    made = UnprintableError(class_name(error), str(_cut(describe(error))))
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
