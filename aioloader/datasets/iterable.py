"""Samples that come one after the other, in an order of their own: from a socket, a queue, a database's cursor."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any

from aioloader.datasets.stage import Stage
from aioloader.errors import NotResumableError
from aioloader.rng import default_rng

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable

__all__ = ("IterableDataset",)


class IterableDataset:
    """A dataset over an async iterable. It has no length and no items by number; a loader takes what comes.

    ::

        async def messages():
            async with connect("wss://...") as socket:
                async for message in socket:
                    yield json.loads(message)

        dataset = aioloader.IterableDataset(messages).transform(parse)
        loader = aioloader.AsyncDataLoader(dataset, batch_size=64)

    The source is iterated in the event loop of the loader's caller (`aioloader.DataLoader`: in that of its thread), and
    asked for as many samples as are on their way to the caller: `prefetch` batches at most. Transforms run where those
    of other datasets do. When a pass is left, and at its end, an iterator that was made for it is closed (``aclose``).
    What the source raises ends the pass, after the batches before it.

    A subclass may define ``__aiter__`` in place of a source.

    Args:
        source: an async iterable, or a function that gives one or awaits one: an async generator function, for
            example. A function is called anew for every pass, and given the epoch's number if it has a parameter named
            ``epoch``. An object that is its own iterator (a stream, a socket) goes on in the next pass where the last
            one was left, and is never closed; but an async generator is over then.

    Raises:
        TypeError: the source is no async iterable.
    """

    _source: Any = None
    _stages: tuple[Stage, ...] = ()

    def __init__(
        self,
        source: AsyncIterable[Any]
        | Callable[..., AsyncIterable[Any] | Awaitable[AsyncIterable[Any]]]
        | None = None,
    ) -> None:
        own = type(self).__aiter__ is not IterableDataset.__aiter__
        if source is None and not own:
            raise TypeError(
                f"{type(self).__name__} needs a source: an async iterable or a function that gives one; or define "
                "__aiter__"
            )
        if source is not None and not hasattr(source, "__aiter__") and not callable(source):
            advice = (
                "; what is iterated by a plain 'for' blocks the event loop: put its items in a list for "
                "aioloader.SimpleDataset, or give an async generator function that awaits them"
                if hasattr(source, "__iter__")
                else ""
            )
            raise TypeError(
                f"a source must be an async iterable or a function that gives one, got {type(source).__name__}{advice}"
            )
        self._source = source

    def transform(self, fn: Callable[..., Any], *, concurrency: int | None = None) -> IterableDataset:
        """The dataset with `fn` applied to every sample; see `aioloader.Dataset.transform`.

        Raises:
            TypeError: `fn` cannot be called.
            ValueError: `concurrency` is less than 1.
        """
        return self._with(Stage(fn, first=False, concurrency=concurrency))

    def transform_first(self, fn: Callable[..., Any], *, concurrency: int | None = None) -> IterableDataset:
        """The dataset with `fn` applied to the first element of every sample; see `aioloader.Dataset.transform_first`.

        Raises:
            TypeError, ValueError: as `transform` does.
        """
        return self._with(Stage(fn, first=True, concurrency=concurrency))

    def _with(self, stage: Stage) -> IterableDataset:
        made = IterableDataset(self.source)
        made._stages = (*self._stages, stage)
        return made

    @property
    def source(self) -> Any:
        """What is iterated; the dataset itself, where its class defines ``__aiter__``."""
        return self if self._source is None else self._source

    @property
    def stages(self) -> tuple[Stage, ...]:
        """What is done to every sample."""
        return self._stages

    # -- one pass ------------------------------------------------------------------------------------------------------

    async def open(self, epoch: int, state: Any = None) -> tuple[AsyncIterator[Any], Any]:
        """Begin a pass over the source.

        Args:
            epoch: its number.
            state: what `source_state` gave, to go on from; None: from the start.

        Returns:
            an iterator of what the source gives, and what to await when it is done with; None for nothing.

        Raises:
            TypeError: the function gave no async iterable.
            RuntimeError: the source is an async generator that was iterated before.
        """
        source = found = self.source
        if state is not None:
            source.load_state_dict(state)
        if not hasattr(source, "__aiter__"):
            found = source(epoch=epoch) if _takes_epoch(source) else source()
            if inspect.isawaitable(found):
                found = await found
            if not hasattr(found, "__aiter__"):
                raise TypeError(
                    f"the source of {type(self).__name__} gave a {type(found).__name__}, which is no async iterable"
                )
        if inspect.isasyncgen(source) and source.ag_frame is None:
            raise RuntimeError(
                "this async generator was iterated before, and cannot be again: give IterableDataset the function that "
                "makes it, without calling it"
            )
        iterator = found.__aiter__()
        # What is there before the pass and goes on after it is its owner's to close.
        mine = iterator is not source or inspect.isasyncgen(source)
        return iterator, getattr(iterator, "aclose", None) if mine else None

    def __aiter__(self) -> AsyncIterator[Any]:
        """The samples, transformed, one by one: to look at them. Plain transforms run in the event loop here."""
        return self._samples()

    async def _samples(self) -> AsyncIterator[Any]:
        iterator, close = await self.open(0)
        try:
            async for sample in iterator:
                made = sample
                for stage in self._stages:
                    rng = default_rng()
                    made = await stage.apply_async(made, rng) if stage.is_async else stage.apply(made, rng)
                yield made
        finally:
            if close is not None:
                await close()

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def resumable(self) -> bool:
        """Whether the source can tell and take up where it is: it has `state_dict` and `load_state_dict`."""
        source = self.source
        return all(callable(getattr(source, name, None)) for name in ("state_dict", "load_state_dict"))

    def source_state(self) -> Any:
        """Where the source is now; None if it cannot tell."""
        return self.source.state_dict() if self.resumable else None

    def check_resumable(self) -> None:
        """Raise if a pass over it cannot be resumed.

        Raises:
            NotResumableError: the source has no state.
        """
        if not self.resumable:
            name = getattr(self.source, "__qualname__", None) or type(self.source).__name__
            raise NotResumableError(
                f"a pass over {name} cannot be resumed: what it has given does not come again. Give IterableDataset an "
                "object with __aiter__, state_dict() and load_state_dict(state)"
            )


def _takes_epoch(fn: Callable[..., Any]) -> bool:
    try:
        return "epoch" in inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False
