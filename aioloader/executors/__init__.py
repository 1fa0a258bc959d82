"""Executors of the CPU work: the caller's thread, threads, supervised worker processes, or a Ray cluster.

The way of a chunk through the process executor, in order:

- `worker_table`: the queue of chunks, and which worker has which; used by the process and the Ray executor
- `process.handle`: the life of a worker, and the messages to and from it (`process.child` is its process)
- `process.worker`: the loop of a child process; `process.messages`: the format of the messages
- `runner`: makes the samples of a chunk; the same code in every executor
- `shared_memory`: the slabs that hold the batches, and their leases

A worker that dies is replaced. `WorkerTable.lost` receives for each of its chunks what the worker was doing
(`WorkerDeath`), and `retry` decides which samples run again. The sample that the worker was making runs again alone, or
with its whole batch if that has a custom batchify function. The third death makes it a failure.

`auto` chooses the executor and the number of workers by measurement.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordio._lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader.executors.inline import InlineExecutor as InlineExecutor
    from aioloader.executors.process.executor import ProcessExecutor as ProcessExecutor
    from aioloader.executors.process.executor import WorkerPool as WorkerPool
    from aioloader.executors.ray.executor import RayExecutor as RayExecutor
    from aioloader.executors.thread import ThreadExecutor as ThreadExecutor
    from aioloader.foundation.foreign_generators import ForeignRandomnessWarning as ForeignRandomnessWarning

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "aioloader.foundation.foreign_generators": "ForeignRandomnessWarning",
        "aioloader.executors.inline": "InlineExecutor",
        "aioloader.executors.process.executor": "ProcessExecutor WorkerPool",
        "aioloader.executors.ray.executor": "RayExecutor",
        "aioloader.executors.thread": "ThreadExecutor",
    },
)
