"""Which executor a loader has, by its options, and how it is set up, for its statistics."""

from __future__ import annotations

from types import MappingProxyType
from typing import TYPE_CHECKING, Any

from aioloader.executors import InlineExecutor, ProcessExecutor, ThreadExecutor
from aioloader.executors.tuning.auto import AutoExecutor
from aioloader.loader.options import AUTO
from aioloader.metrics import LoaderConfig

if TYPE_CHECKING:
    from aioloader.loader.options import LoaderOptions
    from aioloader.pipeline.context import PipelineContext

__all__ = ("loader_config", "make_executor")


def make_executor(options: LoaderOptions, gathers: bool, watch: bool) -> Any:
    """The executor.

    Args:
        options: of the loader.
        gathers: the data are arrays in memory, and batches need none.
        watch: warn of code that draws from global generators where that is not reproducible.
    """
    if not isinstance(options.executor, str):
        return options.executor
    if gathers or options.workers == 0:
        return InlineExecutor()
    if options.measures:
        kinds = ("thread", "process", "inline") if options.executor == AUTO else (options.executor,)
        fixed = options.num_workers is not None and options.num_workers != AUTO
        return AutoExecutor(kinds, options.workers, options.timeout, fixed=fixed, watch=watch)
    if options.executor == "thread":
        return ThreadExecutor(options.workers, options.timeout)
    return ProcessExecutor(options.workers, options.timeout)


def loader_config(
    context: PipelineContext, batchify: Any, direct: bool, cores: int, own_loop: bool
) -> LoaderConfig:
    """How a loader is set up.

    Args:
        context: its parts.
        batchify: the caller's function, or None.
        direct: batches are made one by one, where they are asked for.
        cores: that this process may use.
        own_loop: the event loop is that of the loader's own thread.
    """
    executor = context.executor
    return LoaderConfig(
        executor=getattr(executor, "kind", type(executor).__name__),
        cores=cores,
        prefetch=1 if direct else context.prefetch,
        foreign=context.source is None and context.items.arrays is None,
        batchify=None if batchify is None else str(getattr(batchify, "__name__", type(batchify).__name__)),
        own_loop=own_loop,
        tuning=getattr(executor, "tuning", ""),
        concurrency=MappingProxyType(dict(getattr(executor, "concurrency", {}))),
    )
