"""`AsyncImageService.pack`: the images of many prompts in batches of a budget of tokens."""

from __future__ import annotations

from collections import deque
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, Generic, TypeVar, cast

import anyio
import numpy as np

from aioloader.errors import single
from aioloader.foundation.concurrency import Notification, deferred
from aioloader.foundation.validation import at_least
from aioloader.samplers.batches import FirstFit
from aioloader.service.mapping import FailedPrompt, FedIterator, Feed, of_prompt
from aioloader.service.nested import flatten_keys, flatten_references
from aioloader.service.requests import check_draw

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Iterable
    from typing import Unpack

    from anyio.abc import TaskGroup

    from aioloader.foundation.types import Array
    from aioloader.service.requests import Asked, ImageRequests

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

    Arrays are of the type that the service's `output` says.

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


@dataclass(slots=True, eq=False)
class _Probed(Generic[P]):
    """A prompt; `done` is set when its headers were read, and its tokens or its error are known."""

    prompt: P
    refs: list[Any] = field(default_factory=list)
    keys: list[Any] = field(default_factory=list)
    tokens: int = 0
    error: Exception | None = None
    done: anyio.Event = field(default_factory=anyio.Event)


class _BatchFeed(Feed[P, "PromptBatch | FailedPrompt"]):
    """Tasks that probe several prompts at a time, plan batches and have them made, a few ahead of the caller.

    Args:
        requests: makes the images.
        prompts, refs: see `Feed`.
        key: returns the keys of a prompt, or None.
        fit: plans the batches.
        asked: options of the images.
    """

    def __init__(
        self,
        requests: ImageRequests,
        prompts: Iterable[P] | AsyncIterable[P],
        refs: Callable[[P], Any],
        *,
        key: Callable[[P], Any] | None,
        fit: FirstFit[_Probed[P]],
        asked: Asked,
    ) -> None:
        super().__init__(prompts, refs, key)
        self._requests = requests
        self._fit = fit
        self._asked = asked
        self._probed: deque[_Probed[P]] = deque()  # in the order of arrival
        self._probes = anyio.Semaphore(_PROBES)
        self._planned = Notification()

    async def add(self, prompt: P, tasks: TaskGroup) -> None:
        """Have the headers of a prompt read, while those before it are planned and made."""
        each = _Probed(prompt)
        self._probed.append(each)
        tasks.start_soon(deferred(self._probe), each)
        self.more.set()
        while len(self._probed) >= _PROBED_AHEAD:
            await self._planned.wait()

    async def _probe(self, each: _Probed[P]) -> None:
        tokens: list[int] = []

        async def probe(ref: Any, key: Any) -> None:
            async with self._probes:
                timeout = self._asked["timeout"]
                info = await self._requests.probe(ref, key=key, timeout=timeout, waits_for_room=True)
                tokens.append(info.num_tokens or 0)

        try:
            refs = self._refs(each.prompt)
            each.refs, _ = flatten_references(refs)
            each.keys = flatten_keys(refs, self._key(each.prompt))
            if len(each.refs) == 1:
                await probe(each.refs[0], each.keys[0])
            else:
                async with anyio.create_task_group() as tasks:
                    for ref, key in zip(each.refs, each.keys, strict=True):
                        tasks.start_soon(deferred(probe), ref, key)
            each.tokens = sum(tokens)
        except Exception as error:
            each.error = cast("Exception", single(error))
        each.done.set()

    async def make(self) -> None:
        """Plan batches of the prompts in the order of their arrival, and have them made."""
        while True:
            while not self._probed and not self.taken_all:
                await self.more.wait()
            if not self._probed:
                break
            each = self._probed[0]
            await each.done.wait()
            self._probed.popleft()
            self._planned.set()
            try:
                if each.error is not None:
                    raise each.error
                self._fit.add(each, each.tokens)
            except Exception as error:
                await self._deliver(FailedPrompt(each.prompt, error))
            while self._fit.full:
                await self._make()
        while len(self._fit):
            await self._make()

    def next(self) -> PromptBatch | FailedPrompt | None:
        return self.items.popleft() if self.items else None

    async def _make(self) -> None:
        planned = self._fit.take()
        found = await self._requests.gather(
            [each.refs for each, _ in planned],
            key=[each.keys for each, _ in planned],
            on_error="return",
            waits_for_room=True,
            convert=False,
            **self._asked,
        )
        chosen: list[tuple[P, list[Any], int]] = []
        for (each, tokens), images in zip(planned, found, strict=True):
            error = next((image for image in images if isinstance(image, Exception)), None)
            if error is not None:
                await self._deliver(FailedPrompt(each.prompt, error))
            else:
                chosen.append((each.prompt, images, tokens))
        del found
        if chosen:
            arrays = await self._requests.in_thread(_arrays, chosen)
            prompts, tokens = [prompt for prompt, _, _ in chosen], sum(tokens for _, _, tokens in chosen)
            chosen.clear()
            await self._deliver(
                PromptBatch(**await self._requests.converted(arrays), prompts=prompts, num_tokens=tokens)
            )

    async def _deliver(self, made: PromptBatch | FailedPrompt) -> None:
        self.items.append(made)
        self.arrived.set()
        while len(self.items) >= _BATCHES_AHEAD:
            await self.taken.wait()


class Packing(FedIterator["PromptBatch | FailedPrompt", "PromptBatch | Any"], Generic[P]):
    """Iterator over `PromptBatch`; `AsyncImageService.pack` documents the arguments.

    One task at a time may wait for its next batch. Dropping it, or `aclose`, gives up the images in work.
    """

    def __init__(
        self,
        requests: ImageRequests,
        prompts: Iterable[P] | AsyncIterable[P],
        *,
        refs: Callable[[P], Any],
        key: Callable[[P], Any] | None,
        max_tokens: int,
        lookahead: int,
        on_error: str,
        **asked: Unpack[Asked],
    ) -> None:
        at_least("max_tokens", max_tokens, 1)
        at_least("lookahead", lookahead, 1)
        check_draw(asked["draw"])
        if requests.headers.sized is None:
            raise TypeError(
                "pack() needs a processor that announces sizes, such as transforms.Qwen2VLImageProcessor(); it would "
                "have to decode images to count their tokens"
            )
        fit: FirstFit[_Probed[P]] = FirstFit(max_tokens, lookahead=lookahead)
        feed = _BatchFeed(requests, prompts, refs, key=key, fit=fit, asked=asked)
        super().__init__(requests, feed, "aioloader image service: pack", on_error=on_error)

    def __aiter__(self) -> Packing[P]:
        return self

    async def __anext__(self) -> PromptBatch | Any:
        """Return the next batch, or with ``on_error="return"`` the error of a prompt.

        Raises:
            StopAsyncIteration: there are no more.
            ServiceClosedError: the service is closed, or was closed meanwhile.
            Exception: that of a prompt, with ``on_error="raise"``; its attribute `prompt` is the prompt, and iteration
                can go on after it. Or the error of the iterable of prompts, after all prompts before it.
        """
        return await self._next()

    async def _result(self, element: PromptBatch | FailedPrompt) -> PromptBatch:
        if isinstance(element, FailedPrompt):
            raise of_prompt(element)
        return element

    def _failed(self, error: Exception) -> Exception:
        return error.with_traceback(None)


def _arrays(chosen: list[tuple[P, list[Any], int]]) -> dict[str, Array]:
    """Return the arrays of a batch."""
    images = [image for _, each, _ in chosen for image in each]
    patches: list[Array] = [np.asarray(image["pixel_values"]) for image in images]
    grids: list[Array] = [np.asarray(image["image_grid_thw"]) for image in images]
    counts = [len(each) for each in patches]
    return {
        "pixel_values": np.concatenate(patches) if patches else np.empty((0, 0), np.float32),
        "image_grid_thw": np.concatenate(grids).astype(np.int64) if grids else np.empty((0, 3), np.int64),
        "cu_seqlens": np.cumsum([0, *counts]).astype(np.int32),
        "owners": np.repeat(np.arange(len(chosen)), [len(each) for _, each, _ in chosen]),
    }
