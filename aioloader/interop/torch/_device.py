"""Batches of tensors on a device, copied there ahead of the caller, with a state that counts what the caller has."""

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

__all__ = ("StatefulLoader", "to_device")


def to_device(
    loader: DataLoader[Any] | AsyncDataLoader[Any], device: Any = "cuda", ahead: int = 1
) -> StatefulLoader:
    """A loader's batches as tensors on a device, copied there while the caller works on those before.

    ::

        async with aioloader.AsyncDataLoader(dataset, 64, shuffle=True) as loader:
            batches = to_device(loader, "cuda")
            async for images, labels in batches:
                ...
                checkpoint = {"model": model.state_dict(), "data": batches.state_dict()}

    With an `aioloader.DataLoader` it is iterated with ``for``.

    Args:
        loader: the loader; nobody else iterates it.
        device: as torch names it.
        ahead: batches that are copied ahead of the caller, at least 0.

    Raises:
        TypeError: it is another kind of loader.
        ValueError: `ahead` is negative, or the loader gives JAX arrays.
        RuntimeError: torch has no such device here.
    """
    return StatefulLoader(loader, device, ahead)


class StatefulLoader(BaseLoader):
    """A loader of tensors, on a device if wanted, with the methods of torchdata's StatefulDataLoader.

    ::

        with aioloader.DataLoader(dataset, 64, shuffle=True, shard="auto") as loader:
            batches = StatefulLoader(loader, device="cuda")
            for images, labels in batches:
                ...
                checkpoint = {"model": model.state_dict(), "data": batches.state_dict()}

    The state counts what was handed out here. Batches that are being copied to the device ahead of that do not count.
    To a CUDA device batches are copied on a stream of their own, out of pinned memory, as far ahead as the loader has
    them ready; a batch is handed out without waiting for the next one.

    What else a loader has, such as `stats`, `explain` and `errors`, is the loader's own; there, batches that are copied
    ahead count as handed out.

    Args:
        loader: a `DataLoader`, for ``for``, or an `AsyncDataLoader`, for ``async for``; nobody else iterates it.
        device: where the tensors are to be; None: in the batch's own memory.
        ahead: batches that are copied ahead, at least 0.

    Attributes:
        loader: as given.

    Raises:
        TypeError: it is another kind of loader.
        ValueError: `ahead` is negative, or the loader gives JAX arrays.
        RuntimeError: torch has no such device here.
    """

    def __init__(
        self, loader: DataLoader[Any] | AsyncDataLoader[Any], device: Any = None, ahead: int = 1
    ) -> None:
        if ahead < 0:
            raise ValueError(f"ahead must not be negative, got {ahead}")
        if not isinstance(loader, (AsyncDataLoader, DataLoader)):
            raise TypeError(
                "this takes an aioloader.DataLoader or AsyncDataLoader, whose state it forwards, got "
                f"{type(loader).__module__}.{type(loader).__qualname__}; of a loader of torch's kind copy the batches "
                "yourself: pin_memory=True and .to(device, non_blocking=True)"
            )
        if loader._runtime.options.output == "jax":
            raise ValueError("batches of output='jax' are no tensors: leave output='numpy' or 'torch'")
        self.loader: Any = loader  # blocking or async: each method is called on the kind that has it
        self._runtime, self._errors = loader._runtime, loader._errors
        self._mover = Mover(device)
        self._ahead = ahead
        self._state: dict[str, Any] | None = None
        self._pass = 0

    def __iter__(self) -> _Pass:
        """A new pass. One that was under way is over: it counts nothing any more."""
        return _Pass(self, self._begin(iter(self.loader)))

    def __aiter__(self) -> _AsyncPass:
        """A new pass. One that was under way is over: it counts nothing any more."""
        return _AsyncPass(self, self._begin(aiter(self.loader)))

    def _begin(self, batches: Any) -> _Ahead:
        self._pass += 1
        self._state = self.loader.state_dict()
        return _Ahead(self, batches, self._mover, self._ahead, self._pass)

    def _counts(self, number: int, state: dict[str, Any] | None) -> None:
        """A pass has handed out a batch, or has come to its end: then the loader itself knows what comes next."""
        if number == self._pass:
            self._state = state

    def state_dict(self) -> dict[str, Any]:
        """Where the caller is, as a JSON object: all batches handed out so far are consumed."""
        return self.loader.state_dict() if self._state is None else dict(self._state)

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on where `state` was taken: the next pass delivers what was left of that epoch.

        Raises:
            ResumeError: the state is damaged, or belongs to other data or another way of sampling.
        """
        self.loader.load_state_dict(state)
        self._pass += 1
        self._state = None

    def set_epoch(self, epoch: int) -> None:
        """Make `epoch` the number of the next pass."""
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


class _Ahead:
    """What of one pass is on its way between the loader and the caller. It waits for nothing."""

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
        self.taken: Any = None  # a batch, and the loader's state just after it

    def enter(self) -> None:
        """A caller asks for a batch; there is one at a time."""
        if self._busy:
            raise RuntimeError("the next batch of this iterator is being waited for already; make one each")
        self._busy = True

    def leave(self) -> None:
        """It has its answer."""
        self._busy = False

    @property
    def wants(self) -> bool:
        """Whether a batch is to be copied: one is needed, or the next is ready and there is room."""
        if self.taken is not None:
            return True
        if self._over or self._end is not None:
            return False
        return not self._moving or (len(self._moving) <= self._most and self.batches.ready)

    def came(self, batch: Any) -> None:
        """The loader gave a batch. It stays here until its copy was started, which may fail or be cancelled."""
        self.taken = batch, self._owner.loader.state_dict()

    def put(self, moved: tuple[Any, Any]) -> None:
        """Its copy was started."""
        self._moving.append((*moved, self.taken[1]))
        self.taken = None

    def ends(self, error: BaseException) -> None:
        """The loader gives no more; what came before is handed out first."""
        self._end = error

    def take(self) -> Any:
        """The next batch.

        Raises:
            BaseException: what `ends` was told, once.
            StopIteration: thereafter.
        """
        if self._moving:
            tensors, event, state = self._moving.popleft()
            self._owner._counts(self._number, state)
            return self.mover.arrive(tensors, event)
        if self._over:
            raise StopIteration
        self._over = True
        self._owner._counts(self._number, None)
        assert self._end is not None
        try:
            raise self._end
        finally:
            self._end = None  # breaks the cycle error -> traceback -> frame -> this


class _Pass:
    """One pass for ``for``."""

    def __init__(self, owner: StatefulLoader, ahead: _Ahead) -> None:
        self._owner = owner  # an iterator keeps its loader alive
        self._way = ahead

    def __iter__(self) -> _Pass:
        return self

    def __next__(self) -> Any:
        way = self._way
        way.enter()
        try:
            while way.wants:
                if way.taken is None:
                    try:
                        way.came(next(way.batches))
                    except Exception as error:
                        way.ends(error)
                        continue
                way.put(way.mover.start(way.taken[0]))
            return way.take()
        finally:
            way.leave()


class _AsyncPass:
    """One pass for ``async for``. A cancelled call loses nothing: call it again."""

    def __init__(self, owner: StatefulLoader, ahead: _Ahead) -> None:
        self._owner = owner
        self._way = ahead

    def __aiter__(self) -> _AsyncPass:
        return self

    async def __anext__(self) -> Any:
        way = self._way
        way.enter()
        try:
            while way.wants:
                if way.taken is None:
                    try:
                        way.came(await anext(way.batches))
                    except Exception as error:
                        way.ends(error)
                        continue
                way.put(await self._started(way.taken[0]))
            return way.take()
        except StopIteration:
            raise StopAsyncIteration from None
        finally:
            way.leave()

    async def _started(self, batch: Any) -> tuple[Any, Any]:
        mover = self._way.mover
        if mover.takes_long:  # into pinned memory, which is no work for the loop's thread
            return await anyio.to_thread.run_sync(mover.start, batch)
        return mover.start(batch)
