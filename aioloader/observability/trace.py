"""Traces of loaders and services in the Trace Event Format, which Perfetto (ui.perfetto.dev) and chrome://tracing open.

Events are recorded as they happen, and written by a separate thread, which alone uses the file (`TraceFile`). The file
ends at its size limit, with a warning in the log.

Times are microseconds since the trace began. Lanes ("threads" in the format) contain slices that follow or enclose one
another and never overlap otherwise: one lane for the caller, one for each batch in flight, one for each worker. Waits
that overlap (chunks for a worker, calls of async transforms) are async slices, which viewers stack. A flow connects a
batch with each of its chunks.
"""

from __future__ import annotations

import heapq
import itertools
import json
import logging
import os
import threading
from collections import deque
from datetime import UTC, datetime
from time import perf_counter
from typing import TYPE_CHECKING, Any

from aioloader.foundation.thread_start import start_thread

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import BatchTimeline, WorkSpan

_log = logging.getLogger("aioloader")

LIMIT_NBYTES = 64 << 20
_END = b"\n]\n"
_WRITE_EVERY_S = 0.25
_PIECE = 512  # events of one write
_MOST_PENDING = 200_000
# Our lanes have numbers that no thread has: Linux numbers threads up to 2^22.
_FIRST_LANE = 1 << 23
_LANES_OF_ANWHOLE = 1 << 12
# Places of lanes among those of an epoch, or of a service.
WHOLE, _CALLER, _HERE, IN_FLIGHT = 0, 1, 2, 34
_REMEMBERED = 64
_SHOWN_AS = {"memory": "memory wait"}


class TraceFile:
    """A file that is a complete JSON array after every write.

    Args:
        path: path of the file; an existing file is replaced.
        limit: maximum size in bytes.

    Raises:
        OSError: the file cannot be opened.
    """

    def __init__(self, path: str | os.PathLike[str], limit: int = LIMIT_NBYTES) -> None:
        self._fd = os.open(path, os.O_WRONLY | os.O_CREAT | os.O_TRUNC | getattr(os, "O_CLOEXEC", 0), 0o666)
        self._limit = limit
        self._end = 0  # offset of the next write: of the line end before the closing bracket
        self._put(b"[", 0)
        self._end = 1

    def append(self, events: Sequence[dict[str, Any]]) -> int:
        """Append events; return how many fit.

        Raises:
            OSError: for example, the disk is full; the file keeps its previous content.
        """
        lines: list[bytes] = []
        size = self._end + len(_END)
        for event in events:
            line = json.dumps(event, separators=(",", ":")).encode()
            size += len(line) + 2
            if size > self._limit:
                break
            lines.append(line)
        if lines:
            lead = b"\n" if self._end == 1 else b",\n"
            self._put(lead + b",\n".join(lines), self._end)
        return len(lines)

    def _put(self, data: bytes, at: int) -> None:
        try:
            self._write(data + _END, at)
        except OSError:
            try:
                os.ftruncate(self._fd, at)
                self._write(_END, at)
            except OSError:
                pass  # the first error is raised
            raise
        self._end = at + len(data)

    def _write(self, data: bytes, at: int) -> None:
        view = memoryview(data)
        while view:
            written = os.pwrite(self._fd, view, at)
            at += written
            view = view[written:]

    def close(self) -> None:
        """Close the file."""
        os.close(self._fd)


class Tracer:
    """The trace of one loader or service. Any thread may add events; adding never blocks.

    Args:
        path: path of the file.
        limit: maximum size of the file in bytes.
        process: name of this process in the trace.
    """

    def __init__(
        self, path: str | os.PathLike[str], limit: int = LIMIT_NBYTES, *, process: str = "loader"
    ) -> None:
        self.path = os.fspath(path)
        self.pid = os.getpid()
        self._limit = limit
        self._begin = perf_counter()
        self._pending: deque[dict[str, Any]] = deque()
        self._known: set[tuple[int, int]] = set()
        self._free: list[int] = []
        self._passes = 0
        self.next_number = itertools.count(1).__next__  # from any thread
        self._lock = threading.RLock()  # the garbage collector may end an epoch while this thread holds it
        self._file: TraceFile | None = None
        self._thread: threading.Thread | None = None
        self._wake = threading.Event()
        self._closing = False
        self._left_out = 0
        self.name_process(self.pid, process)
        now = datetime.now(UTC).isoformat()
        self.add({"name": "trace began", "ph": "i", "s": "t", "pid": self.pid, "tid": _FIRST_LANE, "ts": 0.0})
        self._pending[-1]["args"] = {"at": now}

    def open(self) -> None:
        """Open the file and start writing. Blocks.

        Raises:
            OSError: the file cannot be opened.
        """
        with self._lock:
            if self._file is None and not self._closing:
                self._file = TraceFile(self.path, self._limit)
                try:
                    self._thread = start_thread(self._work, "aioloader-trace")
                except BaseException:
                    self._file.close()
                    self._file = None
                    raise

    # -- recording ---------------------------------------------------------------------------------------------------

    def add(self, event: dict[str, Any]) -> None:
        """Record one event in the form of the file."""
        if len(self._pending) < _MOST_PENDING:
            self._pending.append(event)
        else:
            self._left_out += 1

    def at(self, seconds: float) -> float:
        """Return a time in the unit of the file."""
        return round(max(0.0, seconds - self._begin) * 1e6, 3)

    def slice(
        self,
        name: str,
        lane: tuple[int, int],
        begin: float,
        end: float,
        *,
        args: dict[str, Any] | None = None,
        category: str = "aioloader",
    ) -> None:
        """Record an interval from `begin` to `end` (seconds, `time.perf_counter`) in a lane (pid, tid)."""
        start = self.at(begin)
        took = round(max(0.0, self.at(end) - start), 3)
        event = {
            "name": name,
            "cat": category,
            "ph": "X",
            "pid": lane[0],
            "tid": lane[1],
            "ts": start,
            "dur": took,
        }
        if args:
            event["args"] = args
        self.add(event)

    def name_process(self, pid: int, name: str) -> None:
        """Name a process."""
        if (pid, -1) not in self._known:
            self._known.add((pid, -1))
            self._name("process", (pid, 0), name, 0 if pid == self.pid else 1)

    def name_lane(self, lane: tuple[int, int], name: str) -> None:
        """Name a lane."""
        if lane not in self._known:
            self._known.add(lane)
            self._name("thread", lane, name, lane[1])

    def _name(self, kind: str, lane: tuple[int, int], name: str, order: int) -> None:
        event = {"ph": "M", "pid": lane[0], "tid": lane[1]}
        self.add({"name": f"{kind}_name", **event, "args": {"name": name}})
        self.add({"name": f"{kind}_sort_index", **event, "args": {"sort_index": order}})

    def begin_epoch(self, epoch: int) -> EpochTrace:
        """Begin the trace of an epoch."""
        with self._lock:
            if self._free:
                number = heapq.heappop(self._free)
            else:
                number = self._passes
                self._passes += 1
        return EpochTrace(self, number, epoch)

    def end_epoch(self, number: int) -> None:
        """End the trace of an epoch; its lanes become free."""
        with self._lock:
            heapq.heappush(self._free, number)
        self._wake.set()

    # -- writing -----------------------------------------------------------------------------------------------------

    def _work(self) -> None:
        closing = False
        while not closing:
            self._wake.wait(_WRITE_EVERY_S)
            self._wake.clear()
            closing = self._closing
            try:
                self._write()
            except Exception as error:
                _log.warning("the trace %s ends here: %s: %s", self.path, type(error).__name__, error)
                break
        file, self._file = self._file, None
        if file is not None:
            file.close()
        self._closing = True
        self._pending.clear()

    def _write(self) -> None:
        assert self._file is not None
        while self._pending:
            events: list[dict[str, Any]] = []
            while self._pending and len(events) < _PIECE:
                events.append(self._pending.popleft())
            if self._file.append(events) < len(events):
                raise OSError(f"the file has reached its limit of {self._limit} bytes")
        if self._left_out:
            left_out, self._left_out = self._left_out, 0
            _log.warning(
                "%d events are missing in the trace %s: too many in a short time", left_out, self.path
            )

    def close(self, patience_s: float = 1.0) -> None:
        """Write the remaining events and close the file, in `patience_s` seconds at most. From any thread."""
        with self._lock:
            self._closing = True
        self._wake.set()
        if self._thread is not None and self._thread is not threading.current_thread():
            self._thread.join(patience_s)


class TraceLanes:
    """Lanes of one epoch, or of a service: for what is in flight, for workers, and for waits that overlap.

    Args:
        tracer: the trace of the loader or service.
        number: number among the concurrent epochs, which selects the lanes.
        name: name of the lane of waits that overlap.
    """

    def __init__(self, tracer: Tracer, number: int, name: str) -> None:
        self._tracer = tracer
        self._number = number
        self._free: list[int] = []
        self._here: list[deque[tuple[float, float]]] = []
        self._lanes = 0
        self._thread = threading.get_native_id()
        self._name(WHOLE, name)

    def _lane(self, place: int) -> tuple[int, int]:
        return self._tracer.pid, _FIRST_LANE + self._number * _LANES_OF_ANWHOLE + place

    def _name(self, place: int, name: str) -> None:
        self._tracer.name_lane(self._lane(place), name)

    def _take_lane(self, name: str) -> int:
        """Return the number of a lane for something in flight; it is taken until `_free` has it."""
        if self._free:
            return heapq.heappop(self._free)
        lane = self._lanes
        self._lanes += 1
        self._name(IN_FLIGHT + lane, f"{name} in flight {lane}")
        return lane

    def _in_stages(
        self,
        kind: str,
        lane: int,
        timeline: BatchTimeline,
        now: float,
        args: dict[str, Any],
        facts: dict[str, Any],
    ) -> tuple[int, int]:
        """Record something in flight, and its stages, each of which ends when the next one begins; return its lane.

        Args:
            kind: what it is: the name of its number in `args`.
            lane: number of the lane.
            timeline: its stages.
            now: when it ended.
            args: facts about it and each of its stages.
            facts: more facts about it.
        """
        slice_, place = self._tracer.slice, self._lane(IN_FLIGHT + lane)
        begin = timeline.times[0][1]
        slice_(f"{kind} {args[kind]}", place, begin, now, args={**args, **facts}, category=kind)
        end = now
        for stage, since in reversed(timeline.times):
            slice_(_SHOWN_AS.get(stage, stage), place, since, end, args=args, category="stage")
            end = since
        return place

    def _chunk(
        self, given: float, span: WorkSpan, now: float, args: dict[str, Any]
    ) -> tuple[tuple[int, int], float]:
        """Record a chunk: in the dispatch queue until its worker began, then in the worker's lane.

        Returns:
            the lane, and when the worker began.
        """
        tracer = self._tracer
        begin, end = span.begin, span.end
        if begin < given or end > now:  # the worker has another clock: it is on another machine
            begin, end = now - (end - begin), now
        if span.pid == tracer.pid and span.tid == self._thread:
            lane = self._lane_here(begin, end)
        else:
            lane = span.pid, span.tid
            tracer.name_process(span.pid, "worker")
            tracer.name_lane(lane, f"worker {span.thread}")
        self._overlapping("dispatch", "dispatch", given, max(begin, given), args)
        tracer.slice("chunk", lane, begin, end, args={**args, "samples": span.samples}, category="worker")
        at = begin
        total = sum(seconds for _, seconds in span.parts)
        shrink = min(1.0, (end - begin) / total) if total else 1.0
        for name, seconds in span.parts:
            # A part is the sum over the samples of the chunk, which ran one after the other with all their parts.
            until = min(end, at + seconds * shrink)
            tracer.slice(
                name, lane, at, until, args={"samples": span.samples, "summed": True}, category="worker"
            )
            at = until
        return lane, begin

    def _flow(self, place: tuple[int, int], given: float, lane: tuple[int, int], begin: float) -> None:
        """Record that something in flight was given to a worker, which began with it."""
        tracer = self._tracer
        flow = {"name": "to a worker", "cat": "flow", "id": tracer.next_number()}
        tracer.add({**flow, "ph": "s", "pid": place[0], "tid": place[1], "ts": tracer.at(given)})
        tracer.add({**flow, "ph": "f", "bp": "e", "pid": lane[0], "tid": lane[1], "ts": tracer.at(begin)})

    def _lane_here(self, begin: float, end: float) -> tuple[int, int]:
        """Return a lane for samples made in the loop's thread, where chunks of several batches alternate."""
        place = len(self._here)
        for number, taken in enumerate(self._here):
            if all(end <= other or begin >= until for other, until in taken):
                place = number
                break
        if place == len(self._here) and _HERE + place < IN_FLIGHT:
            self._here.append(deque(maxlen=_REMEMBERED))
        place = min(place, len(self._here) - 1)
        self._here[place].append((begin, end))
        self._name(_HERE + place, "samples, in the loop's thread" + (f" {place}" if place else ""))
        return self._lane(_HERE + place)

    def _overlapping(self, name: str, category: str, begin: float, end: float, args: dict[str, Any]) -> None:
        """Record an interval that may overlap others: viewers stack these in one lane by name."""
        tracer = self._tracer
        mark = {
            "name": name,
            "cat": category,
            "pid": tracer.pid,
            "tid": self._lane(WHOLE)[1],
            "id2": {"local": hex(tracer.next_number())},
        }
        tracer.add({**mark, "ph": "b", "ts": tracer.at(begin), "args": args})
        tracer.add({**mark, "ph": "e", "ts": tracer.at(end)})

    def _counter(self, name: str, at: float, **values: float) -> None:
        """Record values of a counter."""
        event = {"name": name, "ph": "C", "pid": self._tracer.pid, "tid": 0, "ts": self._tracer.at(at)}
        self._tracer.add({**event, "args": values})


class EpochTrace(TraceLanes):
    """The trace of one epoch. The loop's thread calls `begin` and `end`, the caller's thread the other methods.

    Args:
        tracer: the trace of the loader.
        number: number among the concurrent epochs, which selects the lanes.
        epoch: number of the epoch.
    """

    def __init__(self, tracer: Tracer, number: int, epoch: int) -> None:
        more = f" {number}" if number else ""
        super().__init__(tracer, number, f"epoch{more}")
        self._epoch = epoch
        self._began = perf_counter()
        self._delivered_at: float | None = None
        self._batches: dict[int, tuple[int, BatchTimeline]] = {}
        self._over = False
        self._name(_CALLER, f"caller{more}")

    # -- batches -----------------------------------------------------------------------------------------------------

    def begin(self, number: int, timeline: BatchTimeline) -> None:
        """Record that a batch begins."""
        if number in self._batches:  # abandoned and begun again
            heapq.heappush(self._free, self._batches[number][0])
        if not self._batches:
            self._thread = threading.get_native_id()
        self._batches[number] = self._take_lane("batch"), timeline

    def end(self, number: int, samples: int) -> None:
        """Record that a batch was delivered."""
        found = self._batches.pop(number, None)
        if found is None or self._over:
            return
        lane, timeline = found
        heapq.heappush(self._free, lane)
        self._draw(number, lane, timeline, perf_counter(), {"samples": samples})

    def _draw(
        self, number: int, lane: int, timeline: BatchTimeline, now: float, facts: dict[str, Any]
    ) -> None:
        args = {"batch": number, "epoch": self._epoch}
        place = self._in_stages("batch", lane, timeline, now, args, facts)
        for given, span in timeline.work_spans:
            self._flow(place, given, *self._chunk(given, span, now, args))
        for call in timeline.calls:
            self._overlapping(call.name, "await", call.begin, call.end, {**args, "index": call.sample})

    def asked_source(self, begin: float) -> None:
        """Record that an async iterable yielded the samples of a batch, from `begin` to now."""
        if not self._over:
            self._overlapping("source", "source", begin, perf_counter(), {"epoch": self._epoch})

    def gathered(self, begin: float, samples: int) -> None:
        """Record that a batch was gathered from memory in the caller's thread."""
        if not self._over:
            end, args = perf_counter(), {"samples": samples}
            lane = self._lane_here(begin, end)
            self._tracer.slice("collate", lane, begin, end, args=args, category="worker")

    # -- the caller --------------------------------------------------------------------------------------------------

    def record_request(self, at: float) -> None:
        """Record that the caller requests a batch."""
        if self._delivered_at is not None and not self._over:
            self._tracer.slice("consumer", self._lane(_CALLER), self._delivered_at, at)
        self._delivered_at = None

    def record_delivery(self, requested: float, samples: int, memory: tuple[int, int, int]) -> None:
        """Record that the caller received a batch.

        Args:
            requested: when the caller requested it.
            samples: number of samples of the batch.
            memory: bytes in use now, at the peak so far, and allowed.
        """
        if self._over:
            return
        now = self._delivered_at = perf_counter()
        self._tracer.slice("wait", self._lane(_CALLER), requested, now, args={"samples": samples})
        self._counter("slab memory (MiB)", now, used=memory[0] / (1 << 20))
        self._counter("batches in flight", now, batches=len(self._batches))

    def close(self) -> None:
        """End the trace of the epoch. May be called twice, from any thread."""
        if self._over:
            return
        now = perf_counter()
        if self._delivered_at is not None:
            self._tracer.slice("consumer", self._lane(_CALLER), self._delivered_at, now)
        for number, (lane, timeline) in list(self._batches.items()):
            self._draw(number, lane, timeline, now, {"abandoned": True})
        self._over = True
        self._tracer.slice(
            "epoch", self._lane(WHOLE), self._began, now, args={"epoch": self._epoch}, category="epoch"
        )
        self._tracer.end_epoch(self._number)
