"""Executors of the CPU work: the caller's thread, threads, supervised worker processes, or a Ray cluster."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from aioloader.executors.global_generators import ForeignRandomnessWarning
    from aioloader.executors.inline import InlineExecutor
    from aioloader.executors.process.executor import ProcessExecutor
    from aioloader.executors.ray.executor import RayExecutor
    from aioloader.executors.thread import ThreadExecutor

__all__ = ("ForeignRandomnessWarning", "InlineExecutor", "ProcessExecutor", "RayExecutor", "ThreadExecutor")

# A worker process imports this package, but none of these modules.
_MODULE_OF = {
    "ForeignRandomnessWarning": "global_generators",
    "InlineExecutor": "inline",
    "ProcessExecutor": "process.executor",
    "RayExecutor": "ray.executor",
    "ThreadExecutor": "thread",
}


def __getattr__(name: str) -> Any:
    if name not in _MODULE_OF:
        raise AttributeError(f"module 'aioloader.executors' has no attribute {name!r}")
    module = importlib.import_module(f"aioloader.executors.{_MODULE_OF[name]}")
    value = globals()[name] = getattr(module, name)
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
