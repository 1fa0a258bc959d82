"""Says where an epoch stands when nothing has moved for a while: to the log, when it stalls and now and then after.

It only looks: what is stuck is ended elsewhere, by ``timeout``. It is a task of its own, and workers are asked for
their stacks in a thread, so the loop goes on.
"""

from __future__ import annotations

import logging
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import anyio

from aioloader.foundation.stacks import stacks_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import WorkerState
    from aioloader.pipeline.context import PipelineContext

__all__ = ("View", "Watchdog")

_log = logging.getLogger("aioloader")
_POLL_S = 1.0
_SHOWN = 16
_STAGES = {
    "start": "not begun",
    "source": "waiting for the dataset's source to give its samples",
    "plan": "being looked up",
    "memory": "waiting for slab memory",
    "read": "being read",
    "work": "in the workers",
    "deliver": "being put together",
    "ready": "waiting for its turn",
}


@dataclass(frozen=True, slots=True)
class View:
    """An epoch at one moment.

    Attributes:
        wanted: whether the caller waits for a batch.
        batch: number of the next batch to be delivered.
        stage: where that batch is, see `BatchTimeline`; "start" before it has begun, "source" while its samples are
            waited for.
        indices: its samples.
        under_way: stage of every batch that is on its way, by number.
        ready: batches that wait for their turn.
        permits: batches that may be on their way at a time.
    """

    wanted: bool
    batch: int
    stage: str
    indices: tuple[int, ...]
    under_way: dict[int, str]
    ready: int
    permits: int

    @property
    def progress_token(self) -> object:
        """Another value whenever something has moved."""
        return self.batch, self.ready, self.under_way


class Watchdog:
    """Watches one epoch.

    Args:
        context: the parts.
        look: gives the epoch as it is now.
        after_s: seconds without progress after which it speaks.
    """

    def __init__(self, context: PipelineContext, look: Callable[[], View], after_s: float) -> None:
        self._context = context
        self._look = look
        self._after_s = after_s
        self._activity: Callable[[], object] | None = getattr(context.executor, "activity", None)

    async def run(self) -> None:
        """Watch until cancelled."""
        interval = min(_POLL_S, self._after_s / 4)
        seen: object = None
        still_s = 0.0
        due_s = self._after_s
        while True:
            begin = time.monotonic()
            await anyio.sleep(interval)
            view = self._look()
            progress_token = view.progress_token, None if self._activity is None else self._activity()
            if progress_token != seen:
                seen, still_s, due_s = progress_token, 0.0, self._after_s
                continue
            # While something else held the loop nothing could move here: that is no stall of ours.
            still_s += min(time.monotonic() - begin, 2 * interval)
            if view.wanted and still_s >= due_s:
                due_s = 2 * still_s
                await self._tell(view, still_s)

    async def _tell(self, view: View, seconds: float) -> None:
        try:
            workers: Sequence[WorkerState] = ()
            if hasattr(self._context.executor, "workers_now"):
                workers = await self._context.executor.workers_now()
            report = _Report(view, seconds, workers, self._queues(view))
            _log.warning("%s", report.text(), extra=report.facts())
        except Exception:
            # A report must not end what it is about.
            _log.exception("no progress for %.0f s, and no more can be told of it", seconds)

    def _queues(self, view: View) -> dict[str, int]:
        memory = self._context.memory
        used, _, limit = memory.usage()
        return {
            "batches": len(view.under_way) + view.ready,
            "batches_allowed": view.permits,
            "batches_ready": view.ready,
            "chunks_queued": getattr(self._context.executor, "queued", 0),
            "memory_bytes": used,
            "memory_held_bytes": memory.leased,
            "memory_limit_bytes": limit,
        }


class _Report:
    """What is told of a stall."""

    def __init__(
        self, view: View, seconds: float, workers: Sequence[WorkerState], queues: dict[str, int]
    ) -> None:
        self._view = view
        self._seconds = seconds
        self._workers = workers
        self._queues = queues
        self._outstanding = self._left()

    def _left(self) -> list[int]:
        """Indices of the batch's samples that are not made, as far as that is known."""
        if self._view.stage == "work" and not self._queues["chunks_queued"]:
            given = {
                index
                for worker in self._workers
                if worker.batch == self._view.batch or worker.batch is None
                for index in worker.outstanding
            }
            left = [index for index in self._view.indices if index in given]
            if left:
                return left
        return list(self._view.indices)

    def facts(self) -> dict[str, Any]:
        """Attributes of the log record."""
        return {
            "stage": self._view.stage,
            "batch": self._view.batch,
            "seconds": self._seconds,
            "outstanding": self._outstanding,
            "queues": self._queues,
            "under_way": self._view.under_way,
            "workers": [asdict(worker) for worker in self._workers],
        }

    def text(self) -> str:
        """The message."""
        view, queues = self._view, self._queues
        lines = [
            f"no progress for {self._seconds:.1f} s: the caller waits for batch {view.batch} of this pass, which is "
            f"{_STAGES.get(view.stage, view.stage)}",
            f"outstanding: {len(self._outstanding)} samples, index {_some(self._outstanding)}",
            f"batches on their way: {queues['batches']} of {view.permits}, {view.ready} of them ready; chunks "
            f"that wait for a worker: {queues['chunks_queued']}; slab memory: {queues['memory_bytes'] >> 10:,} of "
            f"{queues['memory_limit_bytes'] >> 10:,} KiB, {queues['memory_held_bytes'] >> 10:,} KiB held by the caller",
        ]
        for worker in self._workers:
            lines.append(f"{worker.name}: {_doing(worker)}")
            if worker.stack is not None:
                lines.append(worker.stack)
        if view.stage in ("plan", "read"):
            for name, stack in stacks_of("aioloader-read").items():
                lines += [f"thread {name}:", stack]
        return "\n".join(lines)


def _doing(worker: WorkerState) -> str:
    if worker.index is not None:
        return f"at the sample with index {worker.index}, batch {worker.batch}, for {worker.seconds:.1f} s"
    if worker.doing == "working":
        return f"collating batch {worker.batch}, or about to begin it"
    return worker.doing


def _some(indices: Sequence[int]) -> str:
    text = ", ".join(map(str, indices[:_SHOWN]))
    return text if len(indices) <= _SHOWN else f"{text}, ..."
