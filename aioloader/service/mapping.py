"""`AsyncImageService.map`: the images of many prompts, several prompts ahead of the caller."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import AsyncIterable, AsyncIterator, Callable, Iterable
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio

from aioloader.foundation.concurrency import Notification, loop_notifier
from aioloader.foundation.supervisor import spawn
from aioloader.foundation.validation import at_least

if TYPE_CHECKING:
    from aioloader.service.jobs import Request
    from aioloader.service.requests import ImageRequests

P = TypeVar("P")


async def prompts_of(prompts: Iterable[P] | AsyncIterable[P]) -> AsyncIterator[P]:
    """Iterate over an iterable or an async iterable."""
    if isinstance(prompts, AsyncIterable):
        async for prompt in prompts:
            yield prompt
    else:
        for prompt in prompts:
            yield prompt


class _Feed(Generic[P]):
    """Task that takes prompts and asks for their images. The iterator refers to it, and it not to the iterator."""

    def __init__(
        self, requests: ImageRequests, prompts: Iterable[P] | AsyncIterable[P], ahead: int, **options: Any
    ) -> None:
        self.requests = requests
        self._prompts = prompts
        self._ahead = ahead
        self._refs: Callable[[P], Any] = options.pop("refs")
        self._options = options
        self.taken = Notification()
        self.arrived = Notification()
        self.items: deque[tuple[P, Request | BaseException, Any]] = deque()
        self.ended = False
        self.error: BaseException | None = None
        self._scope: anyio.CancelScope | None = None
        self.stopped = False

    async def run(self) -> None:
        source = prompts_of(self._prompts)
        try:
            with anyio.CancelScope() as self._scope:
                if not self.stopped:
                    async for prompt in source:
                        await self._ask(prompt)
                        while len(self.items) >= self._ahead:
                            await self.taken.wait()
        except Exception as error:
            self.error = error
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
                try:
                    await source.aclose()  # type: ignore[attr-defined]  # it is a generator
                except Exception as error:
                    self.error = self.error or error
            self.ended = True
            if self.stopped:
                self._give_up()
            self.arrived.set()

    async def _ask(self, prompt: P) -> None:
        try:
            request, build = await self.requests.submit(self._refs(prompt), **self._options)
        except Exception as error:
            self.items.append((prompt, error, None))
        else:
            request.on_end = self.arrived.set
            self.items.append((prompt, request, build))
        self.arrived.set()

    def stop(self) -> None:
        """Give up all images. In the loop's thread."""
        self.stopped = True
        if self._scope is not None:
            self._scope.cancel()
        if self.ended:
            self._give_up()

    def _give_up(self) -> None:
        items, self.items = self.items, deque()
        for _, request, _ in items:
            if not isinstance(request, BaseException):
                self.requests.leave(request)


class Mapping(Generic[P]):
    """Iterator over (prompt, images); `AsyncImageService.map` documents the arguments.

    One task at a time may wait for its next element. Dropping it, or `aclose`, gives up the images in work.
    """

    def __init__(
        self,
        requests: ImageRequests,
        prompts: Iterable[P] | AsyncIterable[P],
        *,
        refs: Callable[[P], Any],
        ordered: bool,
        ahead: int,
        on_error: str,
        priority: int,
        timeout: float | None,
    ) -> None:
        at_least("ahead", ahead, 1)
        if not isinstance(prompts, (Iterable, AsyncIterable)):
            raise TypeError(f"prompts must be an iterable or an async iterable, got {type(prompts).__name__}")
        if not callable(refs):
            raise TypeError("refs must be a function that returns the references of a prompt")
        if on_error not in ("raise", "return"):
            raise ValueError(f"on_error must be 'raise' or 'return', got {on_error!r}")
        self._ordered = ordered
        self._feed: _Feed[P] = _Feed(
            requests, prompts, ahead, refs=refs, on_error=on_error, priority=priority, timeout=timeout
        )
        self._begun = False
        self._busy = False

    def __aiter__(self) -> Mapping[P]:
        return self

    async def __anext__(self) -> tuple[P, Any]:
        """Return the next prompt and its images.

        Raises:
            StopAsyncIteration: there are no more.
            Exception: that of an image, with ``on_error="raise"``; its attribute `prompt` is the prompt. Or the error
                of the iterable of prompts, after all prompts before it.
        """
        if self._busy:
            raise RuntimeError("another task is waiting for the next element of this iterator")
        feed = self._feed
        self._busy = True
        try:
            if not self._begun:
                self._begun = True
                notify = loop_notifier()
                spawn(feed.run, "aioloader image service: map")
                self._finalizer = weakref.finalize(self, notify, feed.stop)
                self._finalizer.atexit = False
            while True:
                found = self._next_done()
                if found is not None:
                    break
                if feed.ended and not feed.items:
                    if feed.error is not None:
                        error, feed.error = feed.error, None
                        raise error
                    raise StopAsyncIteration
                await feed.arrived.wait()
        finally:
            self._busy = False
        prompt, request, build = found
        feed.taken.set()
        try:
            if isinstance(request, BaseException):
                raise request
            return prompt, await feed.requests.finish(request, build)
        except Exception as error:
            error.prompt = prompt  # type: ignore[attr-defined]
            raise

    def _next_done(self) -> tuple[P, Request | BaseException, Any] | None:
        items = self._feed.items
        for place, item in enumerate(items):
            if isinstance(item[1], BaseException) or item[1].event.is_set():
                del items[place]
                return item
            if self._ordered:
                break
        return None

    async def aclose(self) -> None:
        """Give up the images in work."""
        self._feed.stop()
