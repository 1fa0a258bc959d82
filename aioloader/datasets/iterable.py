"""Datasets over streams of samples: a socket, a queue, a database cursor."""

from __future__ import annotations

import inspect
from typing import TYPE_CHECKING, Any, Protocol, runtime_checkable

from aioloader.datasets.stage import Stage
from aioloader.errors import NotResumableError
from aioloader.rng import default_rng

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, AsyncIterator, Awaitable, Callable


@runtime_checkable
class ResumableSource(Protocol):
    """Source of samples that can save and restore its position."""

    def state_dict(self) -> Any:
        """Return the position."""
        ...

    def load_state_dict(self, state: Any) -> None:
        """Restore a position."""
        ...


class IterableDataset:
    """Dataset over an async iterable. It has no length and no indices; a loader takes the samples in their order.

    ::

        async def messages():
            async with connect("wss://...") as socket:
                async for message in socket:
                    yield json.loads(message)

        dataset = aioloader.IterableDataset(messages).transform(parse)
        loader = aioloader.AsyncDataLoader(dataset, batch_size=64)

    The source is iterated in the event loop of the loader's caller (`aioloader.DataLoader`: in the event loop of its
    thread), at most `prefetch` batches ahead of the caller. Transforms run where those of other datasets run. An
    iterator that was created for an epoch is closed (``aclose``) at the end of the epoch, or when the caller leaves it.
    An exception of the source ends the epoch, after the batches before it were delivered.

    A subclass may define ``__aiter__`` instead of passing a source.

    Args:
        source: an async iterable, or a function that returns or awaits one, such as an async generator function. The
            function is called for every epoch, with the epoch's number if it has a parameter named ``epoch``. An object
            that is its own iterator (a stream, a socket) continues in the next epoch where the last one ended, and is
            never closed; an async generator cannot continue.

    Attributes:
        stages: the stages applied to every sample, in order.

    Raises:
        TypeError: the source is not an async iterable.
    """

    _source: AsyncIterable[Any] | Callable[..., Any] | None = None
    stages: tuple[Stage, ...] = ()

    def __init__(
        self,
        source: AsyncIterable[Any]
        | Callable[..., AsyncIterable[Any] | Awaitable[AsyncIterable[Any]]]
        | None = None,
    ) -> None:
        own = type(self).__aiter__ is not IterableDataset.__aiter__
        if source is None and not own:
            raise TypeError(
                f"{type(self).__name__} needs a source: an async iterable or a function that returns one; or define "
                "__aiter__"
            )
        if source is not None and not hasattr(source, "__aiter__") and not callable(source):
            advice = (
                "; a plain iterable would block the event loop: put its items in a list for "
                "aioloader.SimpleDataset, or pass an async generator function that awaits them"
                if hasattr(source, "__iter__")
                else ""
            )
            raise TypeError(
                "the source must be an async iterable or a function that returns one, got "
                f"{type(source).__name__}{advice}"
            )
        self._source = source

    def transform(self, fn: Callable[..., Any], *, concurrency: int | None = None) -> IterableDataset:
        """Return the dataset with `fn` applied to every sample; see `aioloader.Dataset.transform`.

        Raises:
            TypeError: `fn` is not callable.
            ValueError: `concurrency` is less than 1.
        """
        return self._with(Stage(fn, first=False, concurrency=concurrency))

    def transform_first(self, fn: Callable[..., Any], *, concurrency: int | None = None) -> IterableDataset:
        """Return the dataset with `fn` applied to the first element of every sample.

        See `aioloader.Dataset.transform_first`.

        Raises:
            TypeError, ValueError: for the same reasons as `transform`.
        """
        return self._with(Stage(fn, first=True, concurrency=concurrency))

    def _with(self, stage: Stage) -> IterableDataset:
        made = IterableDataset(self.source)
        made.stages = (*self.stages, stage)
        return made

    @property
    def source(self) -> AsyncIterable[Any] | Callable[..., Any]:
        """Return the source; the dataset itself if its class defines ``__aiter__``."""
        return self if self._source is None else self._source

    # -- one epoch -----------------------------------------------------------------------------------------------------

    async def open(self, epoch: int, state: Any = None) -> tuple[AsyncIterator[Any], Any]:
        """Begin an epoch over the source.

        Args:
            epoch: number of the epoch.
            state: a result of `source_state`, to continue there; None: begin at the start.

        Returns:
            the iterator of the source, and the async function that closes it after use; None if the source owns it.

        Raises:
            TypeError: the function did not return an async iterable.
            RuntimeError: the source is an async generator that was iterated before.
        """
        source = self.source
        found: Any = source
        if state is not None:
            self.check_resumable()
            assert isinstance(source, ResumableSource)
            source.load_state_dict(state)
        if not hasattr(source, "__aiter__"):
            found = source(epoch=epoch) if _takes_epoch(source) else source()
            if inspect.isawaitable(found):
                found = await found
            if not hasattr(found, "__aiter__"):
                raise TypeError(
                    f"the source of {type(self).__name__} returned a {type(found).__name__}, which is not an async "
                    "iterable"
                )
        if inspect.isasyncgen(source) and source.ag_frame is None:
            raise RuntimeError(
                "this async generator was iterated before and cannot be iterated again: pass IterableDataset the "
                "generator function itself, without calling it"
            )
        iterator = found.__aiter__()
        # An iterator that exists before and after the epoch is closed by its owner.
        mine = iterator is not source or inspect.isasyncgen(source)
        return iterator, getattr(iterator, "aclose", None) if mine else None

    def __aiter__(self) -> AsyncIterator[Any]:
        """Iterate over the transformed samples, for inspection. Plain transforms run in the event loop here."""
        return self._samples()

    async def _samples(self) -> AsyncIterator[Any]:
        iterator, close = await self.open(0)
        try:
            async for sample in iterator:
                made = sample
                for stage in self.stages:
                    rng = default_rng()
                    made = await stage.apply_async(made, rng) if stage.is_async else stage.apply(made, rng)
                yield made
        finally:
            if close is not None:
                await close()

    # -- state ---------------------------------------------------------------------------------------------------------

    @property
    def resumable(self) -> bool:
        """Return True if the source can save and restore its position: it has `state_dict` and `load_state_dict`."""
        return isinstance(self.source, ResumableSource)

    def source_state(self) -> Any:
        """Return the position of the source; None if it cannot be saved."""
        source: object = self.source
        return source.state_dict() if isinstance(source, ResumableSource) else None

    def check_resumable(self) -> None:
        """Raise an error if an epoch over the source cannot be resumed.

        Raises:
            NotResumableError: the source has no state.
        """
        if not self.resumable:
            name = getattr(self.source, "__qualname__", None) or type(self.source).__name__
            raise NotResumableError(
                f"an epoch over {name} cannot be resumed, because it has no saved position. Pass IterableDataset an "
                "object with __aiter__, state_dict() and load_state_dict(state)"
            )


def _takes_epoch(fn: Callable[..., Any]) -> bool:
    try:
        return "epoch" in inspect.signature(fn).parameters
    except (TypeError, ValueError):
        return False
