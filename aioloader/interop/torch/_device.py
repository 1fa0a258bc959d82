"""Batches as tensors, on a device if wanted, copied there ahead of the caller; a state counts delivered batches."""

from __future__ import annotations

from collections import deque
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any, TypeVar

import anyio.to_thread

from aioloader.loader.async_loader import AsyncDataLoader
from aioloader.loader.base import BaseLoader
from aioloader.loader.outputs import Mover
from aioloader.loader.sync_loader import DataLoader

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

T = TypeVar("T")


def to_device(
    loader: DataLoader[Any] | AsyncDataLoader[Any], device: Any = "cuda", ahead: int = 1
) -> StatefulLoader:
    """Return a loader's batches as tensors on a device, copied there while the caller works on earlier batches.

    ::

        async with aioloader.AsyncDataLoader(dataset, 64, shuffle=True) as loader:
            batches = to_device(loader, "cuda")
            async for images, labels in batches:
                ...
                checkpoint = {"model": model.state_dict(), "data": batches.state_dict()}

    The batches of an `aioloader.DataLoader` are iterated with ``for``.

    Args:
        loader: the loader; it must not be iterated elsewhere.
        device: a torch device, or its name.
        ahead: number of batches that are copied ahead of the caller, at least 0.

    Raises:
        TypeError: it is another kind of loader.
        ValueError: `ahead` is negative, or the loader returns JAX arrays.
        RuntimeError: torch has no such device here.
    """
    return StatefulLoader(loader, device, ahead)


class StatefulLoader(BaseLoader):
    """Loader of tensors, optionally on a device, with the methods of torchdata's StatefulDataLoader.

    ::

        with aioloader.DataLoader(dataset, 64, shuffle=True, shard="auto") as loader:
            batches = StatefulLoader(loader, device="cuda")
            for images, labels in batches:
                ...
                checkpoint = {"model": model.state_dict(), "data": batches.state_dict()}

    The state counts the batches delivered by this object, without the batches that are copied to the device ahead of
    the caller. Batches are copied to a CUDA device on a separate stream, from pinned memory, as far ahead as the loader
    has finished them; a batch is delivered without waiting for the next one.

    All other attributes, such as `stats`, `explain` and `errors`, are those of the loader, which counts batches that
    are copied ahead as delivered.

    Args:
        loader: a `DataLoader`, for ``for``, or an `AsyncDataLoader`, for ``async for``; it must not be iterated
            elsewhere.
        device: device of the tensors; None: they use the batch's own memory.
        ahead: number of batches that are copied ahead, at least 0.

    Attributes:
        loader: the loader.

    Raises:
        TypeError: it is another kind of loader.
        ValueError: `ahead` is negative, or the loader returns JAX arrays.
        RuntimeError: torch has no such device here.
    """

    def __init__(
        self, loader: DataLoader[Any] | AsyncDataLoader[Any], device: Any = None, ahead: int = 1
    ) -> None:
        if ahead < 0:
            raise ValueError(f"ahead must not be negative, got {ahead}")
        if not isinstance(loader, (AsyncDataLoader, DataLoader)):
            raise TypeError(
                "StatefulLoader needs an aioloader.DataLoader or AsyncDataLoader, got "
                f"{type(loader).__module__}.{type(loader).__qualname__}; with torch's DataLoader copy the "
                "batches yourself: pin_memory=True and .to(device, non_blocking=True)"
            )
        if loader._runtime.options.output == "jax":
            raise ValueError("batches of output='jax' cannot become tensors: use output='numpy' or 'torch'")
        self.loader: Any = loader  # blocking or async: each method is called on the kind that has it
        self._runtime, self._errors = loader._runtime, loader._errors
        self._dataset, self._given = loader._dataset, loader._given
        self._mover = Mover(device)
        self._ahead = ahead
        self._state: dict[str, Any] | None = None
        self._pass = 0

    def __iter__(self) -> _Pass:
        """Begin a new epoch. An unfinished one no longer changes the state."""
        return self._begin(_Pass, iter(self.loader))

    def __aiter__(self) -> _AsyncPass:
        """Begin a new epoch. An unfinished one no longer changes the state."""
        return self._begin(_AsyncPass, aiter(self.loader))

    def _begin(self, kind: Callable[[StatefulLoader, Any], T], batches: Any) -> T:
        self._pass += 1
        self._state = self.loader.state_dict()
        return kind(self, batches)

    def _set_state(self, number: int, state: dict[str, Any] | None) -> None:
        """Record the state after a batch of an epoch; None at its end, when the loader's own state is valid."""
        if number == self._pass:
            self._state = state

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the caller, as a JSON object: after all batches delivered so far."""
        return self.loader.state_dict() if self._state is None else dict(self._state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume at the position of `state`: the next iteration delivers the rest of that epoch.

        Raises:
            ResumeError: the state is corrupt, or belongs to other data or another sampling order.
        """
        self.loader.load_state_dict(state)
        self._pass += 1
        self._state = None

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch."""
        self.loader.set_epoch(epoch)
        self._pass += 1
        self._state = None

    def close(self) -> None:
        """Close the loader."""
        self.loader.close()

    async def aclose(self) -> None:
        """Close the loader."""
        await self.loader.aclose()

    def __enter__(self) -> StatefulLoader:
        self.loader.__enter__()
        return self

    def __exit__(self, *error: Any) -> None:
        self.loader.__exit__(*error)

    async def __aenter__(self) -> StatefulLoader:
        await self.loader.__aenter__()
        return self

    async def __aexit__(self, *error: Any) -> None:
        await self.loader.__aexit__(*error)


class _CopyQueue:
    """Queue of the batches of one epoch that are copied ahead of the caller. Its methods do not wait.

    Args:
        owner: the loader; an iterator keeps its loader alive.
        batches: iterator over the batches of the wrapped loader.
    """

    def __init__(self, owner: StatefulLoader, batches: Any) -> None:
        self._owner = owner
        self._batches = batches
        self._mover = owner._mover
        self._number = owner._pass
        self._moving: deque[tuple[Any, Any, dict[str, Any]]] = deque()
        self._end: BaseException | None = None
        self._over = False
        self._busy = False
        self._taken: Any = None  # a batch, and the loader's state just after it was taken

    @contextmanager
    def _request(self) -> Iterator[None]:
        """Return a context for one request.

        Raises:
            RuntimeError: another request has not ended.
        """
        if self._busy:
            raise RuntimeError(
                "this iterator is already waiting for its next batch: use one iterator per caller"
            )
        self._busy = True
        try:
            yield
        finally:
            self._busy = False

    @property
    def _should_copy(self) -> bool:
        """Return True if a copy should start: a batch is needed, or the next one is ready and the queue is not full."""
        if self._taken is not None:
            return True
        if self._over or self._end is not None:
            return False
        return not self._moving or (len(self._moving) <= self._owner._ahead and self._batches.ready)

    def _hold(self, batch: Any) -> None:
        """Store a batch of the loader until its copy has started, because the start may fail or be cancelled."""
        self._taken = batch, self._owner.loader.state_dict()

    def _put(self, moved: tuple[Any, Any]) -> None:
        """Add the stored batch, whose copy has started."""
        self._moving.append((*moved, self._taken[1]))
        self._taken = None

    def _take(self) -> Any:
        """Return the next batch.

        Raises:
            BaseException: the error of the loader, or its StopIteration, once, after the batches in the queue.
            StopIteration: after that.
        """
        if self._moving:
            tensors, event, state = self._moving.popleft()
            self._owner._set_state(self._number, state)
            return self._mover.arrive(tensors, event)
        if self._over:
            raise StopIteration
        self._over = True
        self._owner._set_state(self._number, None)
        assert self._end is not None
        try:
            raise self._end
        finally:
            self._end = None  # breaks the cycle error -> traceback -> frame -> this


class _Pass(_CopyQueue):
    """Iterator over one epoch for ``for``."""

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> Any:
        with self._request():
            while self._should_copy:
                if self._taken is None:
                    try:
                        self._hold(next(self._batches))
                    except Exception as error:
                        self._end = error
                        continue
                self._put(self._mover.start(self._taken[0]))
            return self._take()


class _AsyncPass(_CopyQueue):
    """Iterator over one epoch for ``async for``. A cancelled call loses no batch: call it again."""

    def __aiter__(self) -> _AsyncPass:
        return self

    async def __anext__(self) -> Any:
        with self._request():
            while self._should_copy:
                if self._taken is None:
                    try:
                        self._hold(await anext(self._batches))
                    except Exception as error:
                        self._end = error
                        continue
                self._put(await self._started(self._taken[0]))
            try:
                return self._take()
            except StopIteration:
                raise StopAsyncIteration from None

    async def _started(self, batch: Any) -> tuple[Any, Any]:
        if self._mover.takes_long:  # a copy to pinned memory would block the event loop
            return await anyio.to_thread.run_sync(self._mover.start, batch)
        return self._mover.start(batch)
