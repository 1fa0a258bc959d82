"""Log of failed samples: all facts about each failure, in little memory.

A loader records every failed sample of a run, and there may be hundreds of thousands. A raised exception refers to the
frames of its traceback, and so to images and slab memory; its arguments may refer to them too.

Exceptions of the caller's code, whose classes may refuse what other exceptions allow.

A frozen dataclass forbids attributes, ``__str__`` may raise, a metaclass may hide the name. Nothing here raises because
of such a class: the functions go through `BaseException` itself where the class refuses.
"""

from __future__ import annotations

import contextlib
import copy
import dataclasses
import os
import reprlib
import sys
import traceback
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import UnprintableError, class_name

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, TracebackType

    from aioloader.errors import SampleError


# A longer chain is printed by nobody.
_MOST_CHAINED = 100
_LONGEST_TEXT = 10_000
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
        # The representation of a group has those of its parts: asked of each, nested groups would take minutes.
        return type(repr(error)) is str and all(map(_is_plain, _with_parts(error)))
    except KeyboardInterrupt:
        raise
    except BaseException:
        return False


def _is_plain(error: BaseException) -> bool:
    bool(error), bool(error.__suppress_context__), error.__cause__, error.__context__, error.__traceback__
    plain = type(str(error)) is str and error.__class__ is type(error)
    return plain and isinstance(getattr(error, "__notes__", []), list)


def _with_parts(error: BaseException) -> Iterator[BaseException]:
    """Yield an exception and, of a group, all exceptions in it."""
    waiting = [error]
    while waiting:
        each = waiting.pop()
        yield each
        if isinstance(each, BaseExceptionGroup):
            waiting += each.exceptions


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
    for each in _with_parts(error):
        if len(_text(each)) > _LONGEST_TEXT:
            set_args(each, tuple(_cut(value) for value in each.args))
        notes = getattr(each, "__notes__", [])
        if any(len(note) > _LONGEST_TEXT for note in notes if isinstance(note, str)):
            with contextlib.suppress(Exception):
                each.__notes__ = [_cut(note) for note in notes]
    return is_printable(error) and all(len(_text(each)) <= _LONGEST_TEXT for each in _with_parts(error))


def _cut(value: Any) -> Any:
    if not isinstance(value, (str, bytes, bytearray)) or len(value) <= _LONGEST_TEXT // 2:
        return value
    return f"{value[: _LONGEST_TEXT // 4]!s}... ({len(value):,} characters or bytes)"


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


TRACEBACK = "Traceback (most recent call last):\n"
_LONGEST = 800
_FEW = 16
_PLACES = 256
_PLAIN = (type(None), bool, int, float, complex, type, os.PathLike, np.dtype)
_texts: dict[tuple[tuple[CodeType, int], ...], str] = {}
# Attributes outside of `__dict__` that refer to the object of the error.
_HELD: tuple[tuple[type[BaseException], str, Any], ...] = (
    (AttributeError, "obj", None),
    (UnicodeDecodeError, "object", b""),
    (UnicodeEncodeError, "object", ""),
    (StopIteration, "value", None),
)


class ErrorLog(list["SampleError"]):
    """The failed samples of a loader, as a list that supports weak references.

    The error that ended an epoch was raised, and its traceback leads to the loader. So no object that outlives the
    loader may refer to this list: only the loader does, and both are collected together.
    """

    __slots__ = ("__weakref__",)


def strip_exception(error: BaseException) -> None:
    """Drop large objects that an exception, and those chained to it, refer to.

    Types, texts, short attributes and notes stay. A traceback becomes a note. Equal texts of several errors are one
    object.
    """
    waiting: list[tuple[BaseException, BaseException | None]] = [(error, error)]
    seen: set[int] = set()
    while waiting and len(seen) < _FEW:
        holder, each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        waiting += [(each, link) for link in chained(each)]
        text = describe(each)
        _strip(each)
        if not is_printable(each):  # its text was made of what it has lost
            replace_chained(holder, each, UnprintableError(class_name(each), text))
    for _, each in waiting:
        if each is not None and id(each) not in seen:
            detach(each, links=True)


def _strip(error: BaseException) -> None:
    notes = []
    with contextlib.suppress(Exception):
        notes += [_shared(note) for note in getattr(error, "__notes__", ())]
    trace = traceback_of(error)
    if trace is not None:
        text = _text_of(trace)
        # One exception object may fail many samples.
        if text not in notes and len(notes) < _FEW:
            notes.insert(0, text)
        detach(error)
    # An exception's class may refuse any of these changes; then the attribute stays as it is.
    with contextlib.suppress(Exception):
        set_args(error, tuple(map(_short, error.args)))
    for kind, name, empty in _HELD:
        if isinstance(error, kind):
            with contextlib.suppress(Exception):
                setattr(error, name, empty)
    with contextlib.suppress(Exception):
        for name, value in list(vars(error).items()):
            vars(error)[name] = _short(value)
    if notes:
        with contextlib.suppress(Exception):
            error.__notes__ = notes


def _text_of(trace: TracebackType) -> str:
    """Return the text of a traceback. Formatting one takes longer than failing, so the texts are cached by place."""
    place = tuple((step.tb_frame.f_code, step.tb_lasti) for step in _steps(trace))
    text = _texts.get(place)
    if text is None:
        if len(_texts) >= _PLACES:
            _texts.clear()
        text = _texts[place] = TRACEBACK + "".join(traceback.format_tb(trace)).rstrip()
    return text


def _steps(trace: TracebackType | None) -> Iterator[TracebackType]:
    while trace is not None:
        yield trace
        trace = trace.tb_next


def _shared(note: Any) -> Any:
    return sys.intern(note) if type(note) is str else note


def _field_names(cls: type) -> list[str]:
    """Return the names of the fields of a NamedTuple, a dataclass, or a class of attrs or pydantic; none of others."""
    if issubclass(cls, tuple):
        return list(getattr(cls, "_fields", ()))
    if dataclasses.is_dataclass(cls):
        return [field.name for field in dataclasses.fields(cls)]
    if (fields := getattr(cls, "__attrs_attrs__", None)) is not None:
        return [field.name for field in fields]
    return list(getattr(cls, "__pydantic_fields__", ()))


def _short(value: Any, depth: int = 2) -> Any:
    """Return the value, or a description of one that may refer to much memory."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}... ({len(value)} characters)"
    if isinstance(value, (bytes, bytearray)):
        return value if len(value) <= _LONGEST else f"<{len(value)} bytes>"
    if isinstance(value, _PLAIN):
        return value
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape == () and dtype is not None:
        return value
    if shape is not None:  # even a small array may be a view of a large one
        return f"<{type(value).__name__} of shape {shape}, {dtype}>"
    if depth and type(value) in (tuple, list) and len(value) <= _FEW:
        return type(value)(_short(item, depth - 1) for item in value)
    if depth and type(value) is dict and len(value) <= _FEW:
        return {_short(key, 0): _short(item, depth - 1) for key, item in value.items()}
    if depth and (names := _field_names(type(value))):
        with contextlib.suppress(Exception):
            fields = [_short(getattr(value, name), depth - 1) for name in names]
            if isinstance(value, tuple):
                return tuple.__new__(type(value), fields)  # as `_make` does
            record = copy.copy(value)
            for name, field in zip(names, fields, strict=True):
                object.__setattr__(record, name, field)  # that of a frozen record refuses
            return record
    try:
        return f"<{reprlib.repr(value)[:_LONGEST]}>"
    except Exception:
        return f"<{type(value).__name__}>"
