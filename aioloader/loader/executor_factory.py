"""Choice of a loader's executor by its options, and the description of the loader for its statistics."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from aioloader.abc import AwaitingExecutor, Executor, NamedExecutor, TunedExecutor
from aioloader.executors import InlineExecutor, ProcessExecutor, ThreadExecutor
from aioloader.executors.tuning.auto import AutoExecutor
from aioloader.loader.options import AUTO, LoaderOptions
from aioloader.metrics import LoaderConfig

if TYPE_CHECKING:
    from aioloader.pipeline.context import PipelineContext


def make_executor(options: LoaderOptions, idle: bool, watch: bool) -> Executor:
    """Return the executor.

    Args:
        options: of the loader.
        idle: nothing runs in it, for example because the data are arrays in memory.
        watch: warn of code that draws from global generators where that is not reproducible.
    """
    if not isinstance(options.executor, str):
        return options.executor
    if idle or options.workers == 0:
        return InlineExecutor()
    if options.measures:
        kinds = ("thread", "process", "inline") if options.executor == AUTO else (options.executor,)
        fixed = options.num_workers is not None and options.num_workers != AUTO
        return AutoExecutor(kinds, options.workers, options.timeout, fixed=fixed, watch=watch)
    if options.executor == "thread":
        return ThreadExecutor(options.workers, options.timeout)
    return ProcessExecutor(options.workers, options.timeout)


def loader_config(
    context: PipelineContext,
    workers: Executor,
    *,
    batchify: Any,
    inline: bool,
    cores: int,
    own_loop: bool,
) -> LoaderConfig:
    """Return the description of a loader.

    Args:
        context: its parts.
        workers: its executor, without async transforms.
        batchify: the caller's function, or None.
        inline: batches are made one at a time, when the caller asks for them.
        cores: that this process may use.
        own_loop: the event loop is that of the loader's own thread.
    """
    executor = context.executor
    concurrency = executor.concurrency if isinstance(executor, AwaitingExecutor) else {}
    return LoaderConfig(
        executor=workers.kind if isinstance(workers, NamedExecutor) else type(workers).__name__,
        cores=cores,
        prefetch=1 if inline else context.prefetch,
        foreign=context.source is None and context.items.arrays is None,
        batchify=None if batchify is None else str(getattr(batchify, "__name__", type(batchify).__name__)),
        own_loop=own_loop,
        tuning=workers.tuning if isinstance(workers, TunedExecutor) else "",
        concurrency=MappingProxyType(dict(concurrency)),
    )
