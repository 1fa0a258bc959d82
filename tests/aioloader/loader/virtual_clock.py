"""Clock of a loader's counters that only a test moves: what they count depends on no other program."""

from __future__ import annotations

import importlib
import mmap
import sys
import time

import anyio
import cloudpickle

cloudpickle.register_pickle_by_value(sys.modules[__name__])

NOW, COMPUTED, WAITS, REQUESTS = range(4)
COUNTING = (
    "aioloader.foundation.types",
    "aioloader.metrics",
    "aioloader.loader.epoch_iterator",
    "aioloader.pipeline.dispatch",
    "aioloader.pipeline.epoch_runner",
    "aioloader.pipeline.fetch",
    "aioloader.pipeline.inline",
    "aioloader.executors.runner",
)
"""Modules whose `perf_counter` the counters come from."""
POLL_S = 0.001
LIMIT_S = 60


class VirtualClock:
    """Seconds in a file, so that worker processes see the same ones.

    The slow part moves it for a sample once the caller has requested the sample's batch, so that the order in which
    threads take turns makes no difference: what passes between a request and its delivery is due to that batch.

    Args:
        path: the file; it is made if it is missing.
        batch: samples of a batch.
    """

    def __init__(self, path, batch):
        self.path, self.batch = path, batch
        with open(path, "a+b") as file:
            file.truncate(8 * 4)
            self.seconds = memoryview(mmap.mmap(file.fileno(), 8 * 4)).cast("d")
        self.seconds[NOW] = max(1.0, self.seconds[NOW])

    def __reduce__(self):
        return _in_worker, (self.path, self.batch)

    def __call__(self):
        return self.seconds[NOW]

    def usage(self):
        """Return the seconds that were computed and the number of waits, as of a thread."""
        return self.seconds[COMPUTED], int(self.seconds[WAITS])

    def computed(self):
        """Return the seconds that were computed, as of a process."""
        return self.seconds[COMPUTED]

    def request(self):
        """Count a request of the caller for the next batch."""
        self.seconds[REQUESTS] += 1

    def requested(self, index):
        """Return whether the caller has requested the batch of a sample."""
        return self.seconds[REQUESTS] > index // self.batch

    def compute(self, seconds, index):
        """Take seconds that use a core, from which another program keeps it for a moment, for a sample."""
        self.wait(seconds, index)
        self.seconds[COMPUTED] += seconds

    def wait(self, seconds, index):
        """Take seconds that use no core, for a sample."""
        self._await(index)
        self.seconds[NOW] += seconds
        self.seconds[WAITS] += 1

    def _await(self, index):
        until = time.monotonic() + LIMIT_S
        while not self.requested(index):
            assert time.monotonic() < until, f"nobody requests sample {index}"
            time.sleep(POLL_S)

    def consume(self, seconds):
        """Take seconds of the caller."""
        self.seconds[NOW] += seconds

    async def sleep(self, seconds, index):
        """Take seconds in an event loop, for a sample."""
        with anyio.fail_after(LIMIT_S):
            while not self.requested(index):
                await anyio.sleep(POLL_S)
        self.seconds[NOW] += seconds


def _in_worker(path, batch):
    """Return the clock in a worker process, which counts by it from now on."""
    runner = importlib.import_module("aioloader.executors.runner")
    clock = VirtualClock(path, batch)
    runner.perf_counter, runner.usage = clock, clock.usage
    return clock
