"""Tasks that observe an epoch: one measures the lag of the event loop, one logs where the epoch is when it stalls.

The watchdog changes nothing: ``timeout`` ends workers that are stuck. It runs as a separate task, and collects the
stacks of the workers in a thread, so the loop is not blocked. A sampler or a source that holds the loop holds these
tasks too: a thread notices that.
"""

from __future__ import annotations

import logging
import math
import sys
import threading
import time
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import anyio

from aioloader.errors import ThreadStartError
from aioloader.foundation.stacks import stack_of, stacks_of
from aioloader.foundation.thread_start import start_thread

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from types import CodeType, FrameType, TracebackType

    from aioloader.foundation.types import WorkerState
    from aioloader.observability.lag import Lag
    from aioloader.pipeline.context import PipelineContext

_log = logging.getLogger("aioloader")
# Twenty times a second costs less than a thousandth of a core.
_TICK_S = 0.05
_POLL_S = 1.0
_SHOWN = 16
_STAGES = {
    "start": "not started",
    "source": "waiting for the samples of the dataset's source",
    "plan": "being planned",
    "memory": "waiting for slab memory",
    "fetch": "being fetched",
    "work": "in the workers",
    "collate": "being collated",
    "reorder": "waiting for earlier batches",
}


async def watch_lag(lag: Lag, tick_s: float = _TICK_S, *, counts_missed: bool = True) -> None:
    """Record by how much each tick is late, until cancelled.

    Args:
        lag: receives the observations.
        tick_s: seconds between two ticks.
        counts_missed: a tick that is late by more than `tick_s` also counts for the ticks that it hid.
    """
    every_s = tick_s if counts_missed else math.inf
    while True:
        due = time.perf_counter() + tick_s
        await anyio.sleep(tick_s)
        lag.enter(max(0.0, time.perf_counter() - due), every_s)


@dataclass(frozen=True, slots=True, kw_only=True)
class EpochView:
    """State of an epoch at one moment.

    Attributes:
        wanted: the caller waits for a batch.
        batch: number of the next batch to be delivered.
        stage: the stage of that batch, see `BatchTimeline`; "start" before it has begun, "source" while the source of
            an iterable dataset is awaited.
        indices: its samples.
        under_way: stage of every batch in flight, by number.
        ready: number of batches that wait for earlier ones.
        prefetch: maximum number of batches in flight.
    """

    wanted: bool
    batch: int
    stage: str
    indices: tuple[int, ...]
    under_way: dict[int, str]
    ready: int
    prefetch: int


async def watch_progress(context: PipelineContext, view: Callable[[], EpochView], after_s: float) -> None:
    """Log a warning when an epoch stalls, and again at growing intervals, until cancelled.

    Args:
        context: the shared parts.
        view: returns the state of the epoch.
        after_s: seconds without progress after which it reports.
    """
    executor = context.executor
    interval = min(_POLL_S, after_s / 4)
    seen: object = None
    still_s, due_s = 0.0, after_s
    while True:
        begin = time.monotonic()
        await anyio.sleep(interval)
        now = view()
        progress_token = now.batch, now.ready, now.under_way, executor.activity()
        if progress_token != seen:
            seen, still_s, due_s = progress_token, 0.0, after_s
            continue
        # While other code blocked the loop nothing could move here: that is not a stall of the loader.
        still_s += min(time.monotonic() - begin, 2 * interval)
        if now.wanted and still_s >= due_s:
            due_s = 2 * still_s
            try:
                text, facts = report(now, still_s, await executor.workers_now(), _queues(context, now))
                _log.warning("%s", text, extra=facts)
            except Exception:
                # A report that fails must not end the epoch.
                _log.exception("no progress for %.0f s; the report about it failed", still_s)


def _queues(context: PipelineContext, view: EpochView) -> dict[str, int]:
    used, _, limit = context.memory.usage()
    return {
        "batches": len(view.under_way) + view.ready,
        "batches_allowed": view.prefetch,
        "batches_ready": view.ready,
        "chunks_queued": context.executor.queued,
        "memory_bytes": used,
        "memory_held_bytes": context.memory.leased,
        "memory_limit_bytes": limit,
    }


def _outstanding(view: EpochView, workers: Sequence[WorkerState], queued: int) -> list[int]:
    """Return the indices of the batch's samples that are not made, as far as that is known."""
    if view.stage == "work" and not queued:
        given = {
            index
            for worker in workers
            if worker.batch == view.batch or worker.batch is None
            for index in worker.outstanding
        }
        left = [index for index in view.indices if index in given]
        if left:
            return left
    return list(view.indices)


def report(
    view: EpochView, seconds: float, workers: Sequence[WorkerState], queues: dict[str, int]
) -> tuple[str, dict[str, Any]]:
    """Return the message about a stall, and the attributes of its log record."""
    outstanding = _outstanding(view, workers, queues["chunks_queued"])
    lines = [
        f"no progress for {seconds:.1f} s: the caller waits for batch {view.batch} of this epoch, which is "
        f"{_STAGES.get(view.stage, view.stage)}",
        f"outstanding: {len(outstanding)} samples, index {_some(outstanding)}",
        f"batches in flight: {queues['batches']} of {view.prefetch}, {view.ready} of them ready; chunks "
        f"that wait for a worker: {queues['chunks_queued']}; slab memory: {queues['memory_bytes'] >> 10:,} of "
        f"{queues['memory_limit_bytes'] >> 10:,} KiB, {queues['memory_held_bytes'] >> 10:,} KiB held by the caller",
    ]
    for worker in workers:
        lines.append(f"{worker.name}: {_doing(worker)}")
        if worker.stack is not None:
            lines.append(worker.stack)
    if view.stage in ("plan", "fetch"):
        for name, stack in stacks_of("aioloader-read").items():
            lines += [f"thread {name}:", stack]
    facts = {
        "stage": view.stage,
        "batch": view.batch,
        "seconds": seconds,
        "outstanding": outstanding,
        "queues": queues,
        "under_way": view.under_way,
        "workers": [asdict(worker) for worker in workers],
    }
    return "\n".join(lines), facts


def _doing(worker: WorkerState) -> str:
    if worker.index is not None:
        return f"at the sample with index {worker.index}, batch {worker.batch}, for {worker.seconds:.1f} s"
    if worker.doing == "working":
        return f"collating batch {worker.batch}, or about to begin it"
    if worker.doing == "starting":
        return (
            "starting: it imports the program's modules, which takes long where other programs use the cores or the "
            "disk is slow"
        )
    return worker.doing


def _some(indices: Sequence[int]) -> str:
    text = ", ".join(map(str, indices[:_SHOWN]))
    return text if len(indices) <= _SHOWN else f"{text}, ..."


def _at_one_thing(thread: int) -> object:
    return True


class ThreadWatch:
    """Observer of the thread that enters it. It logs a warning when that thread stays at one thing for too long.

    The observer's thread ends with the ``with`` block.

    Args:
        message: the warning, a format for `name`, the seconds and the stack of the thread.
        name: what takes long: "the sampler Permutation".
        after_s: seconds after which it reports, and again at growing intervals.
        doing: returns what the thread of a number is at, as a token that changes with every step; None if that may
            take any time. Without it all is one step.
        facts: more attributes of the log record.
    """

    def __init__(
        self,
        message: str,
        name: str,
        after_s: float,
        doing: Callable[[int], object] = _at_one_thing,
        **facts: Any,
    ) -> None:
        self._message = message
        self._name = name
        self._after_s = after_s
        self._doing = doing
        self._facts = facts
        self._thread = threading.get_ident()
        self._ended = threading.Event()

    def __enter__(self) -> None:
        try:
            start_thread(self._watch, "aioloader-watch")
        except ThreadStartError:
            pass  # without the watch all works the same
        except BaseException:  # interrupted, and perhaps started
            self._ended.set()
            raise

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, traceback: TracebackType | None
    ) -> None:
        self._ended.set()

    def _watch(self) -> None:
        interval = min(_POLL_S, self._after_s / 4)
        seen: object = None
        held_s, due_s = 0.0, self._after_s
        while not self._ended.wait(interval):
            doing = self._doing(self._thread)
            if doing is None or doing != seen:
                seen, held_s, due_s = doing, 0.0, self._after_s
                continue
            held_s += interval
            if held_s >= due_s:
                due_s = 2 * held_s
                stack = stack_of(self._thread) or "(unknown)"
                facts = {**self._facts, "seconds": held_s, "stack": stack}
                _log.warning(self._message, self._name, held_s, stack, extra=facts)


def is_calling(thread: int, code: CodeType) -> bool:
    """Return whether a thread is in a call of the function with this code."""
    frame: FrameType | None = sys._current_frames().get(thread)
    while frame is not None and frame.f_code is not code:
        frame = frame.f_back
    return frame is not None
