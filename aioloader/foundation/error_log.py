"""What is kept of samples that failed: all that tells what happened, in little memory.

Every failed sample of a run is recorded, and there may be hundreds of thousands. An exception as it was raised holds
the frames of its traceback, and so images and slab memory; its arguments may hold them too.
"""

from __future__ import annotations

import contextlib
import os
import reprlib
import sys
import traceback
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator
    from types import CodeType, TracebackType

    from aioloader.errors import SampleError

__all__ = ("TRACEBACK", "ErrorLog", "strip_exception")

TRACEBACK = "Traceback (most recent call last):\n"
_LONGEST = 800
_FEW = 16
_PLACES = 256
_PLAIN = (type(None), bool, int, float, complex, type, os.PathLike)
_texts: dict[tuple[tuple[CodeType, int], ...], str] = {}
# Attributes that are not in `__dict__` and hold what the error is about.
_HELD: tuple[tuple[type[BaseException], str, Any], ...] = (
    (AttributeError, "obj", None),
    (UnicodeDecodeError, "object", b""),
    (UnicodeEncodeError, "object", ""),
    (StopIteration, "value", None),
)


class ErrorLog(list["SampleError"]):
    """The samples of a loader that failed; a list that can be referred to weakly.

    The one that ended a pass was raised, and its traceback leads to the loader. So nothing that outlives a loader may
    hold this: only the loader itself does, and both are collected together.
    """

    __slots__ = ("__weakref__",)


def strip_exception(error: BaseException) -> None:
    """Let go of what an exception, and those that it is chained to, hold beyond what they tell.

    Types, texts, short attributes and notes stay. A traceback becomes a note. Texts are shared with other errors
    that have the same.
    """
    waiting: list[BaseException | None] = [error]
    seen: set[int] = set()
    while waiting and len(seen) < _FEW:
        each = waiting.pop()
        if each is None or id(each) in seen:
            continue
        seen.add(id(each))
        waiting += [each.__cause__, each.__context__]
        _lighten(each)
    for each in waiting:
        if each is not None and id(each) not in seen:
            each.__traceback__ = each.__cause__ = each.__context__ = None


def _lighten(error: BaseException) -> None:
    notes = [_shared(note) for note in getattr(error, "__notes__", ())]
    if error.__traceback__ is not None:
        text = _text_of(error.__traceback__)
        # One exception object may fail many samples.
        if text not in notes and len(notes) < _FEW:
            notes.insert(0, text)
        error.__traceback__ = None
    # An exception's class may refuse any of this; then it stays as it is.
    with contextlib.suppress(Exception):
        error.args = tuple(map(_short, error.args))
    for kind, name, empty in _HELD:
        if isinstance(error, kind):
            with contextlib.suppress(Exception):
                setattr(error, name, empty)
    for name, value in list(vars(error).items()):
        with contextlib.suppress(Exception):
            vars(error)[name] = _short(value)
    if notes:
        error.__notes__ = notes


def _text_of(trace: TracebackType) -> str:
    """The text of a traceback. To make one takes longer than to fail, so those of the same place are remembered."""
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


def _short(value: Any, depth: int = 2) -> Any:
    """The value, or a description of one that may hold much."""
    if isinstance(value, str):
        return value if len(value) <= _LONGEST else f"{value[:_LONGEST]}... ({len(value)} characters)"
    if isinstance(value, (bytes, bytearray)):
        return value if len(value) <= _LONGEST else f"<{len(value)} bytes>"
    if isinstance(value, _PLAIN):
        return value
    shape, dtype = getattr(value, "shape", None), getattr(value, "dtype", None)
    if shape == () and dtype is not None:
        return value
    if shape is not None:  # even a small array may be a view of much memory
        return f"<{type(value).__name__} of shape {shape}, {dtype}>"
    if depth and type(value) in (tuple, list) and len(value) <= _FEW:
        return type(value)(_short(item, depth - 1) for item in value)
    try:
        return f"<{reprlib.repr(value)[:_LONGEST]}>"
    except Exception:
        return f"<{type(value).__name__}>"
