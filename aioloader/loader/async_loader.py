"""`AsyncDataLoader`: ``async for batch in loader``, in the caller's own event loop."""

from __future__ import annotations

import asyncio
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Generic, NoReturn

import anyio
import anyio.lowlevel

from aioloader.foundation.concurrency import spawn
from aioloader.foundation.threads import run_in_own_thread, run_off_loop
from aioloader.loader.base import BaseLoader
from aioloader.loader.epoch_iterator import AsyncBatches, Epoch

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.loader.runtime import LoaderRuntime
    from aioloader.pipeline.epoch_runner import EpochRunner
    from aioloader.pipeline.inline import InlinePipeline

if TYPE_CHECKING:
    from typing_extensions import TypeVar  # those of `typing` have defaults from Python 3.13 on

    B = TypeVar("B", default=Any)
else:
    from typing import TypeVar

    B = TypeVar("B")


def _check_entered(entered: bool) -> None:
    """Raise under trio outside of ``async with``. If no loop runs yet, the first batch raises it."""
    try:
        token: Any = anyio.lowlevel.current_token().native_token
    except RuntimeError:
        return
    if not entered and not isinstance(token, asyncio.AbstractEventLoop):
        raise RuntimeError(
            "under trio use a loader inside 'async with loader:', because trio has no other way to end "
            "its workers' tasks when the loop over it is left early"
        )


async def _start(runtime: LoaderRuntime, epoch: Epoch, entered: bool) -> InlinePipeline | EpochRunner:
    """Start the work of an epoch in the running event loop."""
    await runtime.aopen()
    if epoch.skip is not None:
        await run_in_own_thread("aioloader-plan", epoch.skip)
    started = runtime.start(epoch)
    if started.supervise is not None:
        _check_entered(entered)
        spawn(started.supervise, "aioloader epoch")
    return started


class AsyncDataLoader(BaseLoader, Generic[B]):
    """Loader that runs in the caller's event loop, under asyncio or trio.

    ::

        async with aioloader.AsyncDataLoader(dataset, batch_size=64, shuffle=True) as loader:
            async for images, labels in loader:
                ...

    One ``async for`` is one epoch; the next one is the next epoch. ``break`` ends the epoch and keeps the workers.
    Batches arrive in the sampler's order, and are bit-identical for every executor and number of workers. A delivered
    batch stays valid as long as any view of it lives.

    Under asyncio ``async with`` is optional: a loader that is garbage-collected ends its workers. Under trio it is
    required.

    Args:
        dataset: any object with ``__len__`` and ``__getitem__``; the core reads the byte datasets of
            `aioloader.datasets`; any other dataset runs in the executor as a whole.
        batch_size: samples of a batch; required unless `batch_sampler` is given.
        shuffle: a new order in each epoch, computed from `seed` and the epoch's number.
        sampler: iterable of indices, with ``len``; excludes `shuffle`.
        batch_sampler: iterable of lists of indices; excludes `batch_size`, `shuffle`, `sampler` and `last_batch`.
        last_batch: "keep" (the default), "discard" or "rollover" to the next epoch.
        drop_last: True is ``last_batch="discard"``, False "keep"; excludes `last_batch`.
        batchify_fn: makes a batch from a list of samples, in a worker; default `aioloader.batchify.Stack`.
        collate_fn: another name of `batchify_fn`; one of them at most.
        num_workers: number of workers; None: the cores that this process may use, divided
            among the ranks of its host if torchrun names their number (LOCAL_WORLD_SIZE); 0: inline; "auto": by
            measurement.
            The cost of one event loop for each image hardly depends on it (see the page Distributed training).
        seed: 0 <= seed < 2**64; None draws one and records it in the state.
        executor: "process", "fork" (worker processes that are forks of this one: see the page Choosing an executor for
            the dangers), "thread", "inline" (without workers), "auto" (by measurement, on the first samples) or an
            `aioloader.abc.Executor`; or a `aioloader.executors.WorkerPool`, whose processes go from loader to loader.
        prefetch: maximum number of batches in flight, at least one; None: twice the workers, so that each worker can
            work on a whole batch while another one waits for it. With fewer, batches are cut into more chunks, and
            each chunk costs the event loop time.
        timeout: seconds without progress on a sample after which its worker is ended and the sample fails; and seconds
            to wait for the answer of a server.
        shard: (index, count) of this process, or "auto" (RANK and WORLD_SIZE of the environment); None: all samples,
            with an `UnshardedWarning` if it shuffles and the environment has several ranks. All ranks need one seed. In
            each step every rank gets one batch, of a batch sampler too, which must yield the same batches everywhere.
        on_error: "raise": a failed sample fails its batch; "skip": it is left out and recorded in `errors`;
            "replace": it is recorded, and the next valid sample of the batch is duplicated (a batch without any is
            filled with one from elsewhere in the dataset), so every batch is full.
        max_errors: with "skip" and "replace", how many samples may fail before `TooManyErrorsError`; None: any number.
        max_error_rate: the share of an epoch's samples that may fail, less than 1; checked after 1,000 samples and at
            the end of the epoch; None: any.
        memory_limit: bytes of slab memory, for batches in flight, batches that the caller keeps, and copies of files of
            small records; None: a quarter of the memory that this process may use.
        even: with `shard`, how all ranks get the same number of batches: "pad" fills up the last step with the epoch's
            first samples; "drop" leaves out an incomplete last step; "exact" shares its samples in equal parts, so that
            all ranks together deliver every sample once. A batch may then be shorter, or empty: arrays for 0 samples.
            "exact" excludes a `last_batch` that leaves samples out, and datasets without indices.
        output: type of the delivered batches. "numpy"; "torch" or "jax": tensors or arrays over the batch's own memory
            if the package can share it, in the same structure, strings and objects as they are; or a function that
            takes the batch as numpy arrays, in this thread, and returns the batch to deliver.
        device: device of the delivered batches: a torch device or its name, for tensors (without ``output="torch"``
            too); with ``output="jax"`` a JAX device, or "gpu" or "gpu:1". To a CUDA device batches are copied from
            pinned memory, on a separate stream, while the work before them goes on.
        pin_memory: with ``output="torch"`` and a CUDA device, tensors are copied to torch's pinned memory; else there
            is a warning.
        progress: True: a progress bar on standard error if that is a terminal, or in a notebook: tqdm's or rich's
            where installed; "tqdm", "rich" or "plain" (a line of our own): that one, wherever standard error goes.
        stall_timeout: seconds without any progress, while the caller waits for a batch, after which the logger
            "aioloader" receives a warning: the stage of the batch, the outstanding samples, and the Python stacks of
            the workers; or, before the first batch, where the loader opens the dataset. None: never.
        trace: path of a file to write a trace to, for ui.perfetto.dev or chrome://tracing; of 64 MiB at most.
        in_order: False delivers batches as they are ready, so that a slow one holds up no other. Their content is the
            same, and an epoch has each of them once; a state then names those that were taken, and is resumed with the
            same batch size and shard. A receipt covers the batches up to the first one that is missing.
        watch_globals: warn (`ForeignRandomnessWarning`) of code of yours that draws from random generators where
            that is not reproducible.

    Raises:
        ValueError, TypeError: an option is not allowed.
        MissingPackageError: `output` requires a package that is not installed.
    """

    def _set_up(self) -> None:
        self._entered = False
        self._finalizer = weakref.finalize(self, run_off_loop, self._runtime.shutdown)

    async def __aenter__(self) -> AsyncDataLoader[B]:
        self._runtime.check_open()
        self._entered = True
        return self

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End all epochs and the workers, close files, release memory; within a second, also when cancelled.

        Delivered batches stay valid. May be called twice.
        """
        with anyio.CancelScope(shield=True):
            for running in list(self._runtime.running):
                running.stop()
            with anyio.move_on_after(0.5):
                for running in list(self._runtime.running):
                    if running.started:
                        await running.ended.wait()
            if self._runtime.in_memory:
                self._shutdown()
            elif not self._runtime.closed:
                await run_in_own_thread("aioloader-close", self._shutdown, or_here=True)

    def _shutdown(self) -> None:
        if self._finalizer.detach() is not None:
            self._runtime.shutdown()

    def __aiter__(self) -> AsyncBatches[B]:
        """Begin a new epoch."""
        runtime = self._runtime
        if not runtime.inline:
            _check_entered(self._entered)
        epoch = runtime.begin()
        return AsyncBatches(self, epoch, partial(_start, runtime, epoch, self._entered))

    def __iter__(self) -> Iterator[NoReturn]:
        raise TypeError(
            "this loader is iterated with 'async for'; for a plain 'for' pass blocking=True to aioloader.images(), "
            "or use aioloader.DataLoader"
        )
