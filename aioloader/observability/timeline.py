"""The stages that a batch went through and when: for counters, traces, and reports of a stall (pure)."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioloader.foundation.types import CallSpan, WorkSpan

__all__ = ("BatchTimeline",)


class BatchTimeline:
    """One batch's way.

    Attributes:
        stage: where it is: "plan", "memory", "read", "work" (in the executor, or in its queue), "deliver" (being put
            together), or "ready" (waiting for its turn, or for the caller).
        times: every stage so far, and when it began (seconds, `time.perf_counter`).
        spans: chunks as their workers saw them, with the time at which they were handed to the executor; empty without
            a trace.
        calls: of async transforms; empty without a trace.
    """

    __slots__ = ("calls", "spans", "stage", "times")

    def __init__(self) -> None:
        self.times: list[tuple[str, float]] = []
        self.spans: list[tuple[float, WorkSpan]] = []
        self.calls: list[CallSpan] = []
        self.enter("plan")

    def enter(self, stage: str) -> None:
        """A stage begins, and with it the one before ends."""
        self.stage = stage
        self.times.append((stage, perf_counter()))
