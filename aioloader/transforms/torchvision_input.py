"""Advice for torchvision's transforms that receive an image of this project, a numpy array. Imports no torchvision."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.error_log import add_note

if TYPE_CHECKING:
    from types import TracebackType

_HOME = "torchvision.transforms"
_HOW = "images are numpy arrays, (height, width, channels), here: put {} first, or use aioloader.transforms"
_HOW_V2 = _HOW.format("v2.ToImage()")
_HOW_V1 = _HOW.format("torchvision's ToPILImage()")


def check_takes_arrays(fn: Any) -> None:
    """Raise if a transform of torchvision's version 2 would return an array unchanged, as it does without an error.

    Args:
        fn: any callable. Of a `Compose` the first transform is checked.

    Raises:
        TypeError: it would.
    """
    first = fn
    while type(first).__name__ == "Compose" and getattr(first, "transforms", None):
        first = first.transforms[0]
    types = getattr(first, "_transformed_types", None)
    passes_on = hasattr(first, "transforms") or type(first).__name__ == "Identity"
    if not is_of_torchvision(first) or not isinstance(types, tuple) or passes_on:
        return
    if not any(isinstance(kind, type) and issubclass(np.ndarray, kind) for kind in types):
        raise TypeError(
            f"torchvision's {type(first).__name__} takes tensors and Pillow images, and {_HOW_V2}"
        )


def is_of_torchvision(fn: Any) -> bool:
    """Return True if the class of a callable is one of torchvision's transforms."""
    return type(fn).__module__.startswith(_HOME)


def advise(error: BaseException, *values: Any) -> None:
    """Add a note to an error that a transform of torchvision raised for a numpy array.

    Args:
        error: has passed the frame that catches it.
        *values: what the function that raised it was called with.
    """
    if not isinstance(error, TypeError) or not any(isinstance(value, np.ndarray) for value in values):
        return
    trace: TracebackType | None = error.__traceback__
    while trace is not None:
        module = str(trace.tb_frame.f_globals.get("__name__", ""))
        if module.startswith(_HOME):
            add_note(error, _HOW_V2 if module.startswith(f"{_HOME}.v2") else _HOW_V1)
            return
        trace = trace.tb_next
