"""`AsyncImageService.pack`: the images of many prompts in batches of a budget of tokens."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import anyio
import numpy as np

from aioloader.abc import SizedProcessor
from aioloader.errors import single
from aioloader.foundation.concurrency import Notification, deferred, loop_notifier
from aioloader.foundation.supervisor import spawn
from aioloader.foundation.validation import at_least
from aioloader.samplers.first_fit import FirstFit
from aioloader.service.mapping import prompts_of
from aioloader.service.nested import flatten_references

if TYPE_CHECKING:
    from anyio.abc import TaskGroup

    from aioloader.foundation.types import Array, IntArray
    from aioloader.service.requests import ImageRequests

P = TypeVar("P")

# Batches that are made while the caller works with one.
_BATCHES_AHEAD = 2
# Prompts whose headers are read before their turn, and headers that are read at a time: enough to hide the latency of
# servers.
_PROBED_AHEAD = 16
_PROBES = 16


@dataclass(frozen=True, slots=True)
class PromptBatch:
    """Patches of the images of several prompts, behind one another, in the order of Qwen2-VL.

    Attributes:
        pixel_values: float32 (patches, values of a patch).
        image_grid_thw: int64 (images, 3), the number of patches of each image: in time, rows, columns.
        cu_seqlens: int32 (images + 1,), the first patch of each image, and the number of all.
        owners: int64 (images,), the place of each image's prompt in `prompts`.
        prompts: the prompts.
        num_tokens: tokens of all images.
    """

    pixel_values: Any
    image_grid_thw: Any
    cu_seqlens: Any
    owners: Any
    prompts: list[Any]
    num_tokens: int


@dataclass(slots=True)
class _Planned(Generic[P]):
    """A prompt whose tokens are known."""

    prompt: P
    refs: list[Any]


@dataclass(slots=True, eq=False)
class _Probed(Generic[P]):
    """A prompt whose headers are being read; `done` is set when its tokens or its error are known."""

    prompt: P
    refs: list[Any] = field(default_factory=list)
    tokens: int = 0
    error: Exception | None = None
    done: anyio.Event = field(default_factory=anyio.Event)


class _Feed(Generic[P]):
    """Tasks that take prompts, probe several at a time, plan batches and have them made, a few ahead of the caller."""

    def __init__(
        self,
        requests: ImageRequests,
        prompts: Iterable[P] | AsyncIterable[P],
        *,
        refs: Callable[[P], Any],
        fit: FirstFit[_Planned[P]],
        priority: int,
        timeout: float | None,
    ) -> None:
        self._requests = requests
        self._prompts = prompts
        self._refs = refs
        self._fit = fit
        self._priority = priority
        self._timeout = timeout
        self._probed: deque[_Probed[P]] = deque()  # in the order of arrival
        self._taken_all = False
        self._error: BaseException | None = None  # of the iterable of prompts
        self._more = Notification()
        self._planned = Notification()
        self.made: deque[PromptBatch | BaseException] = deque()
        self.taken = Notification()
        self.arrived = Notification()
        self.ended = False
        self._scope: anyio.CancelScope | None = None
        self.stopped = False

    async def run(self) -> None:
        try:
            with anyio.CancelScope() as self._scope:
                if not self.stopped:
                    async with anyio.create_task_group() as tasks:
                        tasks.start_soon(deferred(self._take), tasks)
                        await self._plan()
        except Exception as error:
            self.made.append(single(error))
        finally:
            if self._error is not None:
                self.made.append(self._error)
            self.ended = True
            self.arrived.set()

    async def _take(self, tasks: TaskGroup) -> None:
        """Take prompts, and have their headers read while those before them are planned and made."""
        limit = anyio.Semaphore(_PROBES)
        source = prompts_of(self._prompts)
        try:
            async for prompt in source:
                each = _Probed(prompt)
                self._probed.append(each)
                tasks.start_soon(deferred(self._probe), each, limit)
                self._more.set()
                while len(self._probed) >= _PROBED_AHEAD:
                    await self._planned.wait()
        except Exception as error:
            self._error = error
        finally:
            # In the task that iterates, as a generator may have scopes of this task open.
            with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
                try:
                    await source.aclose()  # type: ignore[attr-defined]  # it is a generator
                except Exception as error:
                    self._error = self._error or error
            self._taken_all = True
            self._more.set()

    async def _probe(self, each: _Probed[P], limit: anyio.Semaphore) -> None:
        tokens: list[int] = []

        async def probe(ref: Any) -> None:
            async with limit:
                tokens.append((await self._requests.probe(ref)).num_tokens or 0)

        try:
            each.refs, _ = flatten_references(self._refs(each.prompt))
            if len(each.refs) == 1:
                await probe(each.refs[0])
            else:
                async with anyio.create_task_group() as tasks:
                    for ref in each.refs:
                        tasks.start_soon(deferred(probe), ref)
            each.tokens = sum(tokens)
        except Exception as error:
            each.error = cast("Exception", single(error))
        each.done.set()

    async def _plan(self) -> None:
        """Plan batches of the prompts in the order of their arrival, and have them made."""
        while True:
            while not self._probed and not self._taken_all:
                await self._more.wait()
            if not self._probed:
                break
            each = self._probed[0]
            await each.done.wait()
            self._probed.popleft()
            self._planned.set()
            try:
                if each.error is not None:
                    raise each.error
                self._fit.add(_Planned(each.prompt, each.refs), each.tokens)
            except Exception as error:
                await self._deliver(_of_prompt(error, each.prompt))
            while self._fit.full:
                await self._make()
        while len(self._fit):
            await self._make()

    async def _make(self) -> None:
        planned = self._fit.take()
        refs = [each.refs for each, _ in planned]
        found = await self._requests.gather(
            refs, on_error="return", priority=self._priority, timeout=self._timeout
        )
        chosen: list[tuple[P, list[Any], int]] = []
        for (each, tokens), images in zip(planned, found, strict=True):
            error = next((image for image in images if isinstance(image, Exception)), None)
            if error is not None:
                await self._deliver(_of_prompt(error, each.prompt))
            else:
                chosen.append((each.prompt, images, tokens))
        del found
        if chosen:
            await self._deliver(await self._requests.in_thread(_batch, chosen))

    async def _deliver(self, made: PromptBatch | BaseException) -> None:
        self.made.append(made)
        self.arrived.set()
        while len(self.made) >= _BATCHES_AHEAD:
            await self.taken.wait()

    def stop(self) -> None:
        """Stop making batches. In the loop's thread."""
        self.stopped = True
        if self._scope is not None:
            self._scope.cancel()


class Packing(Generic[P]):
    """Iterator over `PromptBatch`; `AsyncImageService.pack` documents the arguments.

    One task at a time may wait for its next batch. Dropping it, or `aclose`, gives up the images in work.
    """

    def __init__(
        self,
        requests: ImageRequests,
        prompts: Iterable[P] | AsyncIterable[P],
        *,
        refs: Callable[[P], Any],
        max_tokens: int,
        lookahead: int,
        priority: int,
        timeout: float | None,
    ) -> None:
        at_least("max_tokens", max_tokens, 1)
        at_least("lookahead", lookahead, 1)
        if not isinstance(requests.processor, SizedProcessor):
            raise TypeError(
                "pack() needs a processor that announces sizes, such as transforms.Qwen2VLImageProcessor(); it would "
                "have to decode images to count their tokens"
            )
        if not isinstance(prompts, (Iterable, AsyncIterable)):
            raise TypeError(f"prompts must be an iterable or an async iterable, got {type(prompts).__name__}")
        fit: FirstFit[_Planned[P]] = FirstFit(max_tokens, lookahead=lookahead)
        self._feed: _Feed[P] = _Feed(
            requests, prompts, refs=refs, fit=fit, priority=priority, timeout=timeout
        )
        self._begun: bool = False
        self._busy: bool = False

    def __aiter__(self) -> Packing[P]:
        return self

    async def __anext__(self) -> PromptBatch:
        """Return the next batch.

        Raises:
            StopAsyncIteration: there are no more.
            Exception: that of a prompt, whose attribute `prompt` it is; iteration can go on after it.
        """
        if self._busy:
            raise RuntimeError("another task is waiting for the next element of this iterator")
        feed = self._feed
        self._busy = True
        try:
            if not self._begun:
                self._begun = True
                notify = loop_notifier()
                spawn(feed.run, "aioloader image service: pack")
                self._finalizer = weakref.finalize(self, notify, feed.stop)
                self._finalizer.atexit = False
            while not feed.made:
                if feed.ended:
                    raise StopAsyncIteration
                await feed.arrived.wait()
        finally:
            self._busy = False
        made = feed.made.popleft()
        feed.taken.set()
        if isinstance(made, BaseException):
            raise made
        return made

    async def aclose(self) -> None:
        """Give up the images in work."""
        self._feed.stop()


def _batch(chosen: list[tuple[P, list[Any], int]]) -> PromptBatch:
    images = [image for _, each, _ in chosen for image in each]
    patches: list[Array] = [np.asarray(image["pixel_values"]) for image in images]
    grids: list[Array] = [np.asarray(image["image_grid_thw"]) for image in images]
    counts = [len(each) for each in patches]
    owners: IntArray = np.repeat(np.arange(len(chosen)), [len(each) for _, each, _ in chosen])
    return PromptBatch(
        np.concatenate(patches) if patches else np.empty((0, 0), np.float32),
        np.concatenate(grids).astype(np.int64) if grids else np.empty((0, 3), np.int64),
        np.cumsum([0, *counts]).astype(np.int32),
        owners,
        [prompt for prompt, _, _ in chosen],
        sum(tokens for _, _, tokens in chosen),
    )


def _of_prompt(error: Exception, prompt: object) -> Exception:
    error.prompt = prompt  # type: ignore[attr-defined]
    return error
