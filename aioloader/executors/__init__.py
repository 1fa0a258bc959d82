"""Where the CPU work runs: in the caller's thread, in threads, or in supervised worker processes."""

from __future__ import annotations

from aioloader.executors.inline import InlineExecutor
from aioloader.executors.process import ProcessExecutor
from aioloader.executors.program import ForeignRandomnessWarning
from aioloader.executors.thread import ThreadExecutor

__all__ = ("ForeignRandomnessWarning", "InlineExecutor", "ProcessExecutor", "ThreadExecutor")
