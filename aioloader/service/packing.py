"""`AsyncImageService.pack`: the images of many prompts in batches of a budget of tokens."""

from __future__ import annotations

import weakref
from collections import deque
from collections.abc import AsyncIterable, Callable, Iterable
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Generic, TypeVar

import anyio
import numpy as np

from aioloader.abc import SizedProcessor
from aioloader.foundation.concurrency import Notification, loop_notifier
from aioloader.foundation.supervisor import spawn
from aioloader.foundation.validation import at_least
from aioloader.samplers.first_fit import FirstFit
from aioloader.service.mapping import prompts_of
from aioloader.service.nested import flatten_references

if TYPE_CHECKING:
    from aioloader.foundation.types import Array, IntArray
    from aioloader.service.requests import ImageRequests

P = TypeVar("P")

# Batches that are made while the caller works with one.
_BATCHES_AHEAD = 2


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


class _Feed(Generic[P]):
    """Task that probes prompts, plans batches and has them made, a few ahead of the caller."""

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
        self.made: deque[PromptBatch | BaseException] = deque()
        self.taken = Notification()
        self.arrived = Notification()
        self.ended = False
        self._scope: anyio.CancelScope | None = None
        self.stopped = False

    async def run(self) -> None:
        source = prompts_of(self._prompts)
        try:
            with anyio.CancelScope() as self._scope:
                if not self.stopped:
                    async for prompt in source:
                        await self._add(prompt)
                        while self._fit.full:
                            await self._make()
                    while len(self._fit):
                        await self._make()
        except Exception as error:
            self.made.append(error)
        finally:
            with anyio.CancelScope(shield=True), anyio.move_on_after(1.0):
                try:
                    await source.aclose()  # type: ignore[attr-defined]  # it is a generator
                except Exception as error:
                    self.made.append(error)
            self.ended = True
            self.arrived.set()

    async def _add(self, prompt: P) -> None:
        try:
            refs, _ = flatten_references(self._refs(prompt))
            tokens = 0
            for ref in refs:
                info = await self._requests.probe(ref)
                tokens += info.num_tokens or 0
            self._fit.add(_Planned(prompt, refs), tokens)
        except Exception as error:
            await self._deliver(_of_prompt(error, prompt))

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
