"""Runner of one job of one contender, in a separate process and environment.

    python -m benchmarks.contenders.run REQUEST

Standard library and numpy only, apart from the contender's file. The request is a JSON object; events are written as
JSON lines to the file descriptor that it names, because contenders print. Jobs:

    describe   versions, and for each case and variant the reason of a refusal, or the settings and the key of its data
    prepare    make the contender's data
    check      deliver one whole epoch and compare it with the reference
    measure    first batch, throughput, and the phases of `benchmarks.contenders.meter`
"""

from __future__ import annotations

import importlib
import json
import os
import sys
import traceback
from pathlib import Path
from time import perf_counter
from typing import Any

import numpy as np

from benchmarks.cases import Case
from benchmarks.checks import EpochCheck, WrongOutput
from benchmarks.contenders.contract import RecFile, Source
from benchmarks.contenders.meter import Judge, Meter, drive, drive_async


class EventWriter:
    """Writer of events to the parent.

    Args:
        fd: file descriptor; -1 for standard output.
    """

    def __init__(self, fd: int) -> None:
        self._file = sys.stdout if fd < 0 else os.fdopen(fd, "w", buffering=1)

    def __call__(self, event: str, **facts: Any) -> None:
        """Write one line."""
        self._file.write(json.dumps({"event": event, "at": perf_counter(), **facts}) + "\n")
        self._file.flush()


def main(argv: list[str] | None = None) -> int:
    """Do the job.

    Returns:
        exit code; an error is written as an event too.
    """
    request = json.loads((sys.argv[1:] if argv is None else argv)[0])
    emit = EventWriter(request.get("events", -1))
    if request.get("cores") and hasattr(os, "sched_setaffinity"):
        # Before the contender is imported: libraries size their pools by the number of cores.
        os.sched_setaffinity(0, request["cores"])
    try:
        contender = importlib.import_module(request["module"])
        result = {"describe": describe, "prepare": prepare, "check": check, "measure": measure}[
            request["job"]
        ](contender, request, emit)
    except BaseException as error:
        text = str(error) if isinstance(error, WrongOutput) else f"{type(error).__name__}: {error}"
        emit("error", text=text, wrong=isinstance(error, WrongOutput), traceback=traceback.format_exc())
        return 1
    emit("result", **(result or {}))
    return 0


def describe(contender: Any, request: dict[str, Any], emit: EventWriter) -> dict[str, Any]:
    """Return the cases in which the contender takes part, and their settings."""
    from importlib.metadata import PackageNotFoundError, version

    versions = {}
    for package in contender.PACKAGES:
        try:
            versions[package] = version(package)
        except PackageNotFoundError:
            versions[package] = "absent"
    entries = []
    for facts in request["cases"]:
        case = _case(facts)
        for variant in contender.VARIANTS:
            name = contender.__name__.rpartition(".")[2]
            left_out = bool(case.peers) and name not in case.peers
            if left_out:
                reason = "keeps no decoded images" if case.kept else "only for data in the format of each"
            else:
                reason = contender.supports(case, variant)
            entry: dict[str, Any] = {"case": case.name, "variant": variant, "reason": reason}
            if reason is None:
                key = getattr(contender, "data_key", lambda case, variant: f"{case.data}-{case.store}")
                entry["settings"] = contender.settings(case, variant, len(request["cores"]))
                entry["key"] = f"{key(case, variant)}-{getattr(contender, 'FORMAT', 1)}"
            entries.append(entry)
    return {"versions": versions, "python": sys.version.split()[0], "entries": entries}


def prepare(contender: Any, request: dict[str, Any], emit: EventWriter) -> dict[str, Any]:
    """Make the contender's data."""
    source = Source.load(request["source"])
    folder = Path(request["folder"])
    folder.mkdir(parents=True, exist_ok=True)
    case, variant = _case(request["case"]), request["variant"]
    data = source.folder
    if hasattr(contender, "prepare"):
        data = Path(contender.prepare(case, variant, source, folder))
    nbytes = None
    if hasattr(contender, "stored_nbytes"):
        nbytes = contender.stored_nbytes(case, variant, data)
    elif data == folder or folder in data.parents:
        nbytes = sum(path.stat().st_size for path in folder.rglob("*") if path.is_file())
    return {"data": str(data), "nbytes": nbytes}


def check(contender: Any, request: dict[str, Any], emit: EventWriter) -> None:
    """Compare one epoch with the reference."""
    case = _case(request["case"])
    judge = Judge(EpochCheck(case, _reference(case, Source.load(request["source"]))))
    _with_stream(_open(contender, case, request), judge, emit)


def measure(contender: Any, request: dict[str, Any], emit: EventWriter) -> dict[str, Any]:
    """Measure the contender."""
    case = _case(request["case"])
    times = request["times"]
    phases = [("warm", times["warm"]), ("timed", times["timed"]), ("memory", times["memory"])]
    result: dict[str, Any] = {}
    emit("opening")
    opened = perf_counter()
    manager = _open(contender, case, request)
    if hasattr(manager, "__aenter__"):
        phases.insert(2, ("lag", times["lag"]))
    meter = Meter(case, opened, phases, request["batches"], emit)
    _with_stream(manager, meter, emit, result)
    if "images_per_s" not in result:
        result["first_batch_s"] = meter.first_batch_s
        result["images_per_s"] = meter.batches * case.batch_size / meter.seconds
        result["batches"] = meter.batches
        if case.kept:
            result["first_epoch_images_per_s"] = (case.samples - case.batch_size) / meter.first_epoch_s
    return result


def _open(contender: Any, case: Case, request: dict[str, Any]) -> Any:
    return contender.open_batches(case, request["variant"], Path(request["data"]), request["setting"])


def _with_stream(manager: Any, meter: Any, emit: EventWriter, result: dict[str, Any] | None = None) -> None:
    """Open, drive, and report before closing, so that a contender that hangs at its end has been measured."""
    if hasattr(manager, "__aenter__"):
        import asyncio

        asyncio.run(_with_async_stream(manager, meter, emit, result))
        return
    with manager as stream:
        if result is not None and hasattr(stream, "measure"):
            result["images_per_s"] = _self_counted(stream, meter, emit)
        else:
            drive(stream, meter)
        emit("driven")


async def _with_async_stream(
    manager: Any, meter: Any, emit: EventWriter, result: dict[str, Any] | None
) -> None:
    if result is None:
        async with manager as stream:
            await drive_async(stream, meter)
            emit("driven")
        return
    # Only this project's loader is async, so only its measurement has the ticker.
    import anyio

    from aioloader.tools.bench import LoopLag

    ticker = LoopLag()

    async def watch_the_phase() -> None:
        async with anyio.create_task_group() as ticking:
            ticking.start_soon(ticker.watch)
            await lag_is_over.wait()
            ticking.cancel_scope.cancel()

    lag_is_over = anyio.Event()
    async with manager as stream, anyio.create_task_group() as tasks:
        notify = meter.notify

        def notify_phase(phase: str) -> None:
            notify(phase)
            if phase == "lag":
                tasks.start_soon(watch_the_phase)
            elif phase in ("memory", "done"):
                lag_is_over.set()

        meter.notify = notify_phase
        await drive_async(stream, meter)
        lag_is_over.set()
        emit("driven")
        if hasattr(stream, "explain"):
            result["explain"] = stream.explain()
    lag = ticker.result()
    result["lag"] = {"p50_ms": lag.p50_ms, "p99_ms": lag.p99_ms, "max_ms": lag.max_ms, "ticks": lag.ticks}


def _self_counted(stream: Any, meter: Meter, emit: EventWriter) -> float:
    """Measure the bare loop, which counts by itself because it has no batches."""
    rate = 0.0
    for name, seconds in meter.phases[1:]:
        if not seconds:
            continue
        emit(name)
        found = stream.measure(seconds)
        if name == "timed":
            rate = found
    emit("done")
    return rate


def _case(facts: dict[str, Any]) -> Case:
    return Case(**{**facts, "shape": tuple(facts["shape"])})


def _reference(case: Case, source: Source) -> Any:
    if case.store == "bytes":
        return RecFile(source.rec, source.samples).payload
    if case.store == "arrays":
        return source.images
    name = {"random": "random", "centre": "centre", "none": "whole", "window": ""}[case.crop]
    with np.load(source.folder / "reference.npz") as stored:
        if not name:
            return {"small": stored["small"]}
        return {"mean": stored[f"{name}_mean"], "std": stored[f"{name}_std"]}


if __name__ == "__main__":
    sys.exit(main())
