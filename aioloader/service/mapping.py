"""`AsyncImageService.map`: the images of many prompts, several prompts ahead of the caller.

Feeds of `map` and `pack`: tasks that take prompts, ahead of the iterators that return what became of them.

The iterator refers to the feed, and the feed not to the iterator, so that dropping the iterator ends the feed's tasks.
"""

from __future__ import annotations

import abc
import weakref
from collections import deque
from collections.abc import AsyncGenerator, AsyncIterable, AsyncIterator, Callable, Generator, Iterable
from typing import TYPE_CHECKING, Any, Generic, NamedTuple, TypeVar

import anyio

from aioloader.errors import OutputError, ServiceClosedError, single
from aioloader.foundation.concurrency import Notification, deferred, loop_notifier
from aioloader.foundation.error_log import strip_exception
from aioloader.foundation.validation import at_least, is_async, one_of
from aioloader.service.requests import check_draw

if TYPE_CHECKING:
    from typing import Unpack

    from anyio.abc import TaskGroup

    from aioloader.service.jobs import Request
    from aioloader.service.requests import Asked, ImageRequests


P = TypeVar("P")
E = TypeVar("E")
R = TypeVar("R")

_CLOSE_S = 1.0


async def prompts_of(prompts: Iterable[P] | AsyncIterable[P]) -> AsyncIterator[P]:
    """Iterate over an iterable or an async iterable."""
    if isinstance(prompts, AsyncIterable):
        async for prompt in prompts:
            yield prompt
    else:
        for prompt in prompts:
            yield prompt


ON_ERROR = ("raise", "return", "skip")
"""Choices for a prompt without images: see `FedIterator`."""


class FailedPrompt(NamedTuple):
    """A prompt that has no images, and the reason. Several prompts may have the same error object."""

    prompt: Any
    error: Exception


def of_prompt(failed: FailedPrompt) -> Exception:
    """Return the error of a prompt with the attribute `prompt`."""
    vars(failed.error)["prompt"] = failed.prompt  # its class may forbid attributes
    return failed.error


class Feed(abc.ABC, Generic[P, E]):
    """Tasks that take prompts, and make elements of them.

    Args:
        prompts: an iterable or an async iterable. A generator is closed at the end, in the task that iterates over it.
        refs: returns the references of a prompt.
        key: returns the keys of a prompt, in the nesting of its references; None: they have none.

    Attributes:
        items: elements for the iterator.
        taken: set when the iterator took one.
        arrived: set when there may be one.
        more: set when there is one more prompt to make elements of, or there are no more at all.
        taken_all: there are no more.
        ended: no more elements will come.
        stopped: nobody wants any.
        error: that of the iterable of prompts, or None.
    """

    def __init__(
        self,
        prompts: Iterable[P] | AsyncIterable[P],
        refs: Callable[[P], Any],
        key: Callable[[P], Any] | None,
    ) -> None:
        if not isinstance(prompts, (Iterable, AsyncIterable)):
            raise TypeError(f"prompts must be an iterable or an async iterable, got {type(prompts).__name__}")
        if not callable(refs):
            raise TypeError("refs must be a function that returns the references of a prompt")
        if key is not None and not callable(key):
            raise TypeError("key must be a function that returns the keys of a prompt's references")
        for name, fn in (("refs", refs), ("key", key)):
            if is_async(fn):
                wanted = "let the iterable of prompts await what it needs"
                raise TypeError(f"{name} is an async function, but it is called for its result: {wanted}")
        self._prompts = prompts
        self._refs = refs
        self._key: Callable[[P], Any] = _no_key if key is None else key
        self._scope: anyio.CancelScope | None = None
        self.items: deque[E] = deque()
        self.taken = Notification()
        self.arrived = Notification()
        self.more = Notification()
        self.taken_all = False
        self.ended = False
        self.stopped = False
        self.error: BaseException | None = None

    @abc.abstractmethod
    async def add(self, prompt: P, tasks: TaskGroup) -> None:
        """Take a prompt; returns when the next one may be taken.

        Args:
            prompt: the prompt.
            tasks: what is to go on meanwhile runs there.
        """

    async def make(self) -> None:
        """Make elements of the prompts that were taken, until there are no more; runs at the same time as `add`."""

    @abc.abstractmethod
    def next(self) -> E | None:
        """Remove an element that is ready, and return it; None: there is none."""

    def give_up(self) -> None:
        """Give up all elements."""
        self.items.clear()

    async def run(self) -> None:
        """Take all prompts, and make all elements."""
        try:
            with anyio.CancelScope() as self._scope:
                if not self.stopped:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(deferred(self._take), tasks)
                        await self.make()
        except Exception as error:
            self.error = self.error or single(error)
        except BaseException:
            self.error = self.error or ServiceClosedError("the image service was closed")
            raise
        finally:
            self.ended = True
            if self.stopped:
                self.give_up()
            self.arrived.set()

    async def _take(self, tasks: TaskGroup) -> None:
        source = prompts_of(self._prompts)
        # Around the generator's own scopes. It is closed in the task that iterates, as they belong to it.
        with anyio.CancelScope() as scope:
            try:
                async for prompt in source:
                    await self.add(prompt, tasks)
            except Exception as error:
                self.error = error
            finally:
                scope.shield = True
                scope.deadline = anyio.current_time() + _CLOSE_S
                try:
                    await _close(source)
                    await _close(self._prompts)
                except Exception as error:
                    self.error = self.error or error
                self.taken_all = True
                self.more.set()

    def stop(self) -> None:
        """Give up all elements, and take no more prompts. In the loop's thread."""
        self.stopped = True
        if self._scope is not None:
            self._scope.cancel()
        if self.ended:
            self.give_up()


def _no_key(prompt: object) -> None:
    return None


async def _close(prompts: object) -> None:
    if isinstance(prompts, AsyncGenerator):
        await prompts.aclose()
    elif isinstance(prompts, Generator):
        prompts.close()


class FedIterator(abc.ABC, Generic[E, R]):
    """Iterator over what a feed makes. The feed begins when the first element is asked for.

    One task at a time may wait for its next element. Dropping it, or `aclose`, gives up the images in work.

    Args:
        requests: of the service, which ends the feed when it is closed.
        feed: makes the elements.
        name: name of the feed's task.
        on_error: "raise" the error of a prompt; "return" it, see `_failed`; "skip" the prompt.
    """

    def __init__(self, requests: ImageRequests, feed: Feed[Any, E], name: str, *, on_error: str) -> None:
        one_of("on_error", on_error, ON_ERROR)
        self._requests = requests
        self._feed = feed
        self._on_error = on_error
        self._errors: list[Any] = []  # with the attribute `prompt`, which no class of exceptions declares
        self._task_name = name
        self._begun = False
        self._busy = False

    @abc.abstractmethod
    async def __anext__(self) -> R:
        """Return the next element, by `_next`."""

    @property
    def errors(self) -> list[Any]:
        """Return the errors of the prompts that were left out, with ``on_error="skip"``; attribute `prompt` of each.

        What is long in a prompt, such as the bytes of its images, is a short text there. A tuple, a list, a dict, and
        an object of a NamedTuple, a dataclass, attrs or pydantic keep their form; of another object the text stays.
        """
        return list(self._errors)

    @abc.abstractmethod
    async def _result(self, element: E) -> R:
        """Return what an element becomes for the caller, or raise the error of its prompt."""

    @abc.abstractmethod
    def _failed(self, error: Exception) -> R:
        """Return what the error of a prompt becomes for the caller, with ``on_error="return"``."""

    async def _next(self) -> R:
        """Return the next element.

        Raises:
            StopAsyncIteration: there are no more.
            ServiceClosedError: the service is closed, or was closed before all prompts were taken.
            Exception: that of a prompt, with ``on_error="raise"``; or that of the iterable of prompts, after all
                elements before it.
        """
        if self._busy:
            raise RuntimeError("another task is waiting for the next element of this iterator")
        self._busy = True
        try:
            while True:
                element = await self._element()
                try:
                    return await self._result(element)
                except Exception as error:
                    # The prompts are not at fault.
                    ours = isinstance(error, (ServiceClosedError, OutputError))
                    if ours or self._on_error == "raise":
                        raise
                    if self._on_error == "return":
                        return self._failed(error)
                    strip_exception(error)  # there may be many, and each holds its prompt
                    self._errors.append(error)
        finally:
            self._busy = False

    async def _element(self) -> E:
        feed = self._feed
        if not self._begun:
            notify = loop_notifier()
            self._requests.start(feed.run, self._task_name)
            self._begun = True
            self._finalizer = weakref.finalize(self, notify, feed.stop)
            self._finalizer.atexit = False
        while (element := feed.next()) is None:
            if feed.ended and not feed.items:
                if feed.error is not None:
                    error, feed.error = feed.error, None
                    raise error
                raise StopAsyncIteration
            await feed.arrived.wait()
        feed.taken.set()
        return element

    async def aclose(self) -> None:
        """Give up the images in work."""
        self._feed.stop()


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
        on_error, asked: of `ImageRequests.submit`.
    """

    def __init__(
        self,
        requests: ImageRequests,
        prompts: Iterable[P] | AsyncIterable[P],
        refs: Callable[[P], Any],
        key: Callable[[P], Any] | None,
        *,
        ordered: bool,
        ahead: int,
        on_error: str,
        asked: Asked,
    ) -> None:
        super().__init__(prompts, refs, key)
        self.requests = requests
        self._ordered = ordered
        self._ahead = ahead
        self._on_error = on_error
        self._asked = asked

    async def add(self, prompt: P, tasks: TaskGroup) -> None:
        try:
            request, build = await self.requests.submit(
                self._refs(prompt),
                key=self._key(prompt),
                on_error=self._on_error,
                waits_for_room=True,
                **self._asked,
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
        **asked: Unpack[Asked],
    ) -> None:
        at_least("ahead", ahead, 1)
        check_draw(asked["draw"])
        of_images = "return" if on_error == "return" else "raise"
        feed = _RequestFeed(
            requests, prompts, refs, key, ordered=ordered, ahead=ahead, on_error=of_images, asked=asked
        )
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
