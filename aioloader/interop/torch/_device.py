"""Batches of tensors on a device, copied there ahead of the caller, with a state that counts delivered batches."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING, Any

import anyio.to_thread

from aioloader.interop.torch._tensors import Mover
from aioloader.loader.async_loader import AsyncDataLoader
from aioloader.loader.base import BaseLoader
from aioloader.loader.sync_loader import DataLoader

if TYPE_CHECKING:
    from types import TracebackType


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
        self._mover = Mover(device)
        self._ahead = ahead
        self._state: dict[str, Any] | None = None
        self._pass = 0

    def __iter__(self) -> _Pass:
        """Begin a new epoch. An unfinished one no longer changes the state."""
        return _Pass(self, self._begin(iter(self.loader)))

    def __aiter__(self) -> _AsyncPass:
        """Begin a new epoch. An unfinished one no longer changes the state."""
        return _AsyncPass(self, self._begin(aiter(self.loader)))

    def _begin(self, batches: Any) -> _CopyQueue:
        self._pass += 1
        self._state = self.loader.state_dict()
        return _CopyQueue(self, batches, self._mover, self._ahead, self._pass)

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

    def __exit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        self.loader.__exit__(kind, error, traceback)

    async def __aenter__(self) -> StatefulLoader:
        await self.loader.__aenter__()
        return self

    async def __aexit__(
        self,
        kind: type[BaseException] | None,
        error: BaseException | None,
        traceback: TracebackType | None,
    ) -> None:
        await self.loader.__aexit__(kind, error, traceback)


class _CopyQueue:
    """Queue of the batches of one epoch that are copied ahead of the caller. Its methods do not wait."""

    def __init__(self, owner: StatefulLoader, batches: Any, mover: Mover, ahead: int, number: int) -> None:
        self.batches = batches
        self.mover = mover
        self._owner = owner
        self._most = ahead
        self._number = number
        self._moving: deque[tuple[Any, Any, dict[str, Any]]] = deque()
        self._end: BaseException | None = None
        self._over = False
        self._busy = False
        self.taken: Any = None  # a batch, and the loader's state just after it was taken

    def enter(self) -> None:
        """Begin a request for a batch.

        Raises:
            RuntimeError: another request has not ended.
        """
        if self._busy:
            raise RuntimeError(
                "this iterator is already waiting for its next batch: use one iterator per caller"
            )
        self._busy = True

    def leave(self) -> None:
        """End the request."""
        self._busy = False

    @property
    def should_copy(self) -> bool:
        """Return True if a copy should start: a batch is needed, or the next one is ready and the queue is not full."""
        if self.taken is not None:
            return True
        if self._over or self._end is not None:
            return False
        return not self._moving or (len(self._moving) <= self._most and self.batches.ready)

    def hold(self, batch: Any) -> None:
        """Store a batch of the loader until its copy has started, because the start may fail or be cancelled."""
        self.taken = batch, self._owner.loader.state_dict()

    def put(self, moved: tuple[Any, Any]) -> None:
        """Add the stored batch, whose copy has started."""
        self._moving.append((*moved, self.taken[1]))
        self.taken = None

    def finish(self, error: BaseException) -> None:
        """Record the error or StopIteration of the loader, which is raised after the batches in the queue."""
        self._end = error

    def take(self) -> Any:
        """Return the next batch.

        Raises:
            BaseException: the recorded error, once.
            StopIteration: after that.
        """
        if self._moving:
            tensors, event, state = self._moving.popleft()
            self._owner._set_state(self._number, state)
            return self.mover.arrive(tensors, event)
        if self._over:
            raise StopIteration
        self._over = True
        self._owner._set_state(self._number, None)
        assert self._end is not None
        try:
            raise self._end
        finally:
            self._end = None  # breaks the cycle error -> traceback -> frame -> this


class _Pass:
    """Iterator over one epoch for ``for``."""

    def __init__(self, owner: StatefulLoader, ahead: _CopyQueue) -> None:
        self._owner = owner  # an iterator keeps its loader alive
        self._queue = ahead

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> Any:
        queue = self._queue
        queue.enter()
        try:
            while queue.should_copy:
                if queue.taken is None:
                    try:
                        queue.hold(next(queue.batches))
                    except Exception as error:
                        queue.finish(error)
                        continue
                queue.put(queue.mover.start(queue.taken[0]))
            return queue.take()
        finally:
            queue.leave()


class _AsyncPass:
    """Iterator over one epoch for ``async for``. A cancelled call loses no batch: call it again."""

    def __init__(self, owner: StatefulLoader, ahead: _CopyQueue) -> None:
        self._owner = owner
        self._queue = ahead

    def __aiter__(self) -> _AsyncPass:
        return self

    async def __anext__(self) -> Any:
        queue = self._queue
        queue.enter()
        try:
            while queue.should_copy:
                if queue.taken is None:
                    try:
                        queue.hold(await anext(queue.batches))
                    except Exception as error:
                        queue.finish(error)
                        continue
                queue.put(await self._started(queue.taken[0]))
            return queue.take()
        except StopIteration:
            raise StopAsyncIteration from None
        finally:
            queue.leave()

    async def _started(self, batch: Any) -> tuple[Any, Any]:
        mover = self._queue.mover
        if mover.takes_long:  # a copy to pinned memory would block the event loop
            return await anyio.to_thread.run_sync(mover.start, batch)
        return mover.start(batch)
