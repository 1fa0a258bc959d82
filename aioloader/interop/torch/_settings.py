"""Settings of the script that torch's forked workers inherit, for workers that are new interpreters."""

from __future__ import annotations

import sys
import warnings
from typing import Any

import cloudpickle
import numpy as np
import torch

from aioloader.executors.process.worker import own_slot

# Attributes of modules that a script sets, if it has imported the module.
_FLAGS = (
    ("PIL.ImageFile", "LOAD_TRUNCATED_IMAGES"),
    ("PIL.ImageFile", "MAXBLOCK"),
    ("PIL.Image", "MAX_IMAGE_PIXELS"),
)


def _flags() -> dict[tuple[str, str], Any]:
    return {
        (module, name): getattr(sys.modules[module], name)
        for module, name in _FLAGS
        if hasattr(sys.modules.get(module), name)
    }


def current_settings() -> tuple[Any, ...]:
    """Return the settings whose changes need new workers: torch's default dtype, Pillow's flags, numpy's errors."""
    return torch.get_default_dtype(), _flags(), np.geterr()


def _sendable_filters() -> list[tuple[Any, ...]]:
    found = []
    for action, message, category, module, line in warnings.filters:
        each = action, _pattern(message), category, _pattern(module), line
        try:
            cloudpickle.dumps(each)
        except Exception:  # a category of the script's can be anything
            continue
        found.append(each)
    return found


def _pattern(text: Any) -> str:
    return "" if text is None else str(getattr(text, "pattern", text))


class ScriptSettings:
    """Settings of this process. In a worker process they are set when they are unpickled.

    They are `current_settings`, and the filters of warnings, of the thread that makes this object and at that moment.
    """

    def __init__(self) -> None:
        self._state = {"settings": current_settings(), "filters": _sendable_filters()}

    def __getstate__(self) -> dict[str, Any]:
        return self._state

    def __setstate__(self, state: dict[str, Any]) -> None:
        self._state = state
        if own_slot() is None:
            return
        dtype, flags, errors = state["settings"]
        torch.set_default_dtype(dtype)
        np.seterr(**errors)
        for (module, name), value in flags.items():
            setattr(__import__(module, fromlist=["_"]), name, value)
        warnings.resetwarnings()
        for action, message, category, module, line in reversed(state["filters"]):
            warnings.filterwarnings(action, message, category, module, line)
