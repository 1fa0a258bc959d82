"""Program that goes on after each Ctrl-C, as a notebook does: uses loaders, and reports what they left behind.

    python -m tests.aioloader.loader.interrupted_program FACE EXECUTOR with|without FOLDER ROUNDS SEED

The last line that it prints is JSON: {"rounds", "interrupted", "left", "slow"}.
"""

from __future__ import annotations

import asyncio
import contextlib
import gc
import json
import os
import random
import signal
import sys
import threading
import time
import traceback
from pathlib import Path
from typing import Any

import aioloader
from tests.executors import pool

# With pauses of 10 ms: seconds of an idle machine, and as many looks on a busy one.
LOOKS = 800


class Data:
    def __len__(self) -> int:
        return 60

    def __getitem__(self, i: int) -> int:
        time.sleep(0.0005)
        return i


def blocking(executor: str, closes: bool, folder: str) -> None:
    loader = aioloader.DataLoader(dataset(folder), 5, **pool(executor, 1))
    with loader if closes else contextlib.nullcontext():
        for _ in range(2):
            for number, _batch in enumerate(loader):
                if number == 3:
                    break


async def awaited(executor: str, closes: bool, folder: str) -> None:
    loader = aioloader.AsyncDataLoader(dataset(folder), 5, **pool(executor, 1))
    async with loader if closes else contextlib.nullcontext():
        for _ in range(2):
            number = 0
            async for _batch in loader:
                number += 1
                if number == 3:
                    break


def service(executor: str, closes: bool, folder: str) -> None:
    images = aioloader.ImageService(executor=executor, num_workers=1, allow=("path",), root=folder)
    paths = sorted(str(path.relative_to(folder)) for path in Path(folder).rglob("*.jpg"))[:6]
    with images:
        images.gather(paths)


def dataset(folder: str) -> Any:
    """Return the images of a folder, which has to be opened, or a plain dataset."""
    if not folder:
        return Data()
    return aioloader.ImageFolderDataset(folder).transform_first(aioloader.transforms.Resize((32, 32)))


def run_awaited(executor: str, closes: bool, folder: str) -> None:
    """Run the async face; raise EventLoopBroken if the signal broke asyncio's own end of a run.

    A signal that arrives after the main task has ended and before its callback has run leaves the callback,
    which then stops the run that cancels the remaining tasks: they are never cancelled.
    """
    try:
        asyncio.run(awaited(executor, closes, folder))
    except RuntimeError as error:
        if not isinstance(error.__context__, KeyboardInterrupt):
            raise
        raise EventLoopBroken from error


class EventLoopBroken(KeyboardInterrupt):
    """The signal kept asyncio from cancelling the tasks of a loop."""


class Signals:
    """Thread that sends this process SIGINT after a random time, if it is still wanted."""

    def __init__(self, draws: random.Random, most_s: float) -> None:
        self._draws = draws
        self._most_s = most_s
        self._wanted = threading.Event()
        self._done = threading.Event()
        self._lock = threading.Lock()
        self._armed = False
        self._delay_s = 0.0
        threading.Thread(target=self._run, daemon=True, name="signals").start()

    def arm(self) -> None:
        # Most interruptions near the beginning and the end are worth the most: half of them come early.
        self._delay_s = self._draws.random() * (
            self._most_s if self._draws.random() < 0.5 else self._most_s / 8
        )
        self._armed = True
        self._done.clear()
        self._wanted.set()

    def disarm(self) -> None:
        with self._lock:
            self._armed = False
        self._done.wait()

    def _run(self) -> None:
        while self._wanted.wait():
            self._wanted.clear()
            time.sleep(self._delay_s)
            with self._lock:
                if self._armed:
                    os.kill(os.getpid(), signal.SIGINT)
            self._done.set()


def count() -> dict[str, list[str]]:
    """Return the descriptors, threads and child processes of this program."""
    files = []
    for number in os.listdir("/proc/self/fd"):
        with contextlib.suppress(OSError):
            files.append(os.readlink(f"/proc/self/fd/{number}"))
    me = str(os.getpid())
    children = Path(f"/proc/self/task/{me}/children").read_text().split()
    for task in os.listdir("/proc/self/task"):
        with contextlib.suppress(OSError):
            children += Path(f"/proc/self/task/{task}/children").read_text().split()
    return {
        "files": sorted(files),
        "threads": sorted(thread.name for thread in threading.enumerate()),
        "children": sorted(set(children)),
    }


def settled(before: dict[str, list[str]]) -> dict[str, Any]:
    """Wait until no more is open than before; return what still is after some seconds."""
    for _ in range(LOOKS):
        now = count()
        more = {kind: now[kind] for kind in now if len(now[kind]) > len(before[kind])}
        if not more:
            return {}
        gc.collect()
        time.sleep(0.01)
    return {kind: [before[kind], more[kind]] for kind in more}


def main() -> None:
    face, executor, closes, folder, rounds, seed = sys.argv[1:]
    signal.signal(
        signal.SIGINT, signal.default_int_handler
    )  # a shell ignores it for what runs in its background
    uses = {"blocking": blocking, "service": service}

    def use() -> None:
        if face in uses:
            uses[face](executor, closes == "with", folder)
        else:
            run_awaited(executor, closes == "with", folder)

    def time_use() -> float:
        begin = time.monotonic()
        use()
        return time.monotonic() - begin

    use()
    usual_s = time_use()
    draws = random.Random(int(seed))
    signals = Signals(draws, 1.1 * usual_s)
    before = count()
    interrupted = 0
    left: list[Any] = []
    slow: list[float] = []
    for number in range(int(rounds)):
        begin = time.monotonic()
        where = ""
        broken = False
        try:
            try:
                signals.arm()
                use()
            finally:
                signals.disarm()
        except KeyboardInterrupt as error:
            interrupted += 1
            broken = isinstance(error, EventLoopBroken)
            where = traceback.format_exc()
        try:
            remains = settled(before)
        except KeyboardInterrupt:  # that of a loader which the garbage collector ended
            remains = settled(before)
        seconds = time.monotonic() - begin
        if remains:
            if not broken:
                left.append([number, remains, where])
            before = count()
        if seconds > usual_s + 5 and seconds > time_use() + 5:  # the machine may be busier than before
            slow.append(round(seconds, 2))
    print(json.dumps({"rounds": int(rounds), "interrupted": interrupted, "left": left, "slow": slow}))


if __name__ == "__main__":
    main()
