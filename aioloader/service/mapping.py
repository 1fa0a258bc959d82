"""`AsyncImageService.map`: the images of many prompts, several prompts ahead of the caller."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

from aioloader.foundation.validation import at_least
from aioloader.service.feeding import FailedPrompt, FedIterator, Feed, of_prompt
from aioloader.service.requests import check_draw

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable

    from anyio.abc import TaskGroup

    from aioloader.service.jobs import Request
    from aioloader.service.requests import ImageRequests

P = TypeVar("P")


class _Asked(NamedTuple):
    """A prompt whose images were asked for: its request, or the error; and the function that builds the nesting."""

    prompt: Any
    request: Request | BaseException
    build: Any


class _RequestFeed(Feed[P, _Asked]):
    """Task that takes prompts and asks for their images.

    Args:
        requests: makes the images.
        prompts, refs: see `Feed`.
        key: returns the keys of a prompt, or None.
        ordered: elements come in the order of the prompts.
        ahead: most prompts in work.
        options: of `ImageRequests.submit`.
    """

    def __init__(
        self,
        requests: ImageRequests,
        prompts: Iterable[P] | AsyncIterable[P],
        refs: Callable[[P], Any],
        *,
        key: Callable[[P], Any] | None,
        ordered: bool,
        ahead: int,
        **options: Any,
    ) -> None:
        super().__init__(prompts, refs, key)
        self.requests = requests
        self._ordered = ordered
        self._ahead = ahead
        self._options = options

    async def add(self, prompt: P, tasks: TaskGroup) -> None:
        try:
            request, build = await self.requests.submit(
                self._refs(prompt), key=self._key(prompt), waits_for_room=True, **self._options
            )
        except Exception as error:
            self.items.append(_Asked(prompt, error, None))
        else:
            request.on_end = self.arrived.set
            self.items.append(_Asked(prompt, request, build))
        self.arrived.set()
        while len(self.items) >= self._ahead:
            await self.taken.wait()

    def next(self) -> _Asked | None:
        for place, asked in enumerate(self.items):
            if isinstance(asked.request, BaseException) or asked.request.event.is_set():
                del self.items[place]
                return asked
            if self._ordered:
                break
        return None

    def give_up(self) -> None:
        for asked in self.items:
            if not isinstance(asked.request, BaseException):
                self.requests.leave(asked.request)
        super().give_up()


class Mapping(FedIterator[_Asked, "tuple[P, Any]"], Generic[P]):
    """Iterator over (prompt, images); `AsyncImageService.map` documents the arguments.

    One task at a time may wait for its next element. Dropping it, or `aclose`, gives up the images in work.
    """

    def __init__(
        self,
        requests: ImageRequests,
        prompts: Iterable[P] | AsyncIterable[P],
        *,
        refs: Callable[[P], Any],
        key: Callable[[P], Any] | None,
        ordered: bool,
        ahead: int,
        on_error: str,
        priority: int,
        timeout: float | None,
        draw: int,
    ) -> None:
        at_least("ahead", ahead, 1)
        check_draw(draw)
        options = {
            "on_error": "return" if on_error == "return" else "raise",
            "priority": priority,
            "timeout": timeout,
            "draw": draw,
        }
        feed = _RequestFeed(requests, prompts, refs, key=key, ordered=ordered, ahead=ahead, **options)
        super().__init__(requests, feed, "aioloader image service: map", on_error=on_error)

    def __aiter__(self) -> Mapping[P]:
        return self

    async def __anext__(self) -> tuple[P, Any]:
        """Return the next prompt and its images.

        Raises:
            StopAsyncIteration: there are no more.
            ServiceClosedError: the service is closed, or was closed meanwhile.
            Exception: that of an image, with ``on_error="raise"``; its attribute `prompt` is the prompt. Or the error
                of the iterable of prompts, after all prompts before it.
        """
        return await self._next()

    async def _result(self, element: _Asked) -> tuple[P, Any]:
        prompt, request, build = element
        try:
            if isinstance(request, BaseException):
                raise request
            return prompt, await self._requests.finish(request, build)
        except Exception as error:
            of_prompt(FailedPrompt(prompt, error))
            raise

    def _failed(self, error: Exception) -> tuple[P, Any]:
        # That of the whole prompt, as errors of images are in their places.
        return vars(error)["prompt"], error
