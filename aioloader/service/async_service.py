"""`AsyncImageService`: images on demand in the caller's own event loop, under asyncio or trio."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, TypeVar

import anyio
import anyio.lowlevel
import anyio.to_thread

from aioloader.errors import ServiceClosedError
from aioloader.foundation.concurrency import spawn
from aioloader.foundation.threads import run_in_own_thread
from aioloader.foundation.validation import takes
from aioloader.service.engine import ServiceEngine
from aioloader.service.mapping import Mapping
from aioloader.service.options import CANNOT_BE_PICKLED, ServiceOptions
from aioloader.service.packing import Packing
from aioloader.service.stats import at_end, explain

if TYPE_CHECKING:
    from collections.abc import AsyncIterable, Callable, Hashable, Iterable

    from aioloader.service.probe import ImageInfo
    from aioloader.service.requests import ImageRequests
    from aioloader.service.stats import ServiceStats

P = TypeVar("P")

_READY_POLL_S = 0.01
_CLOSE_S = 1.0


class AsyncImageService:
    """Images on demand: read, decoded and processed by workers, awaited in an event loop.

    ::

        async with aioloader.AsyncImageService(processor, allow=("bytes", "https")) as service:
            image = await service.get("https://example.com/cat.jpg")
            images = await service.gather([first, second])

    The service is a loader's engine that takes requests instead of an epoch's order: the same executors, slab memory
    and errors. An image that several callers want at the same time is made once. An error belongs to its image alone.
    A worker that dies is replaced, and its images are made by another.

    Args:
        processor: a transform of `aioloader.transforms` (fused with decoding), or any picklable function of a uint8
            image (height, width, 3); it returns arrays of any shape, in tuples, lists or dicts. None: the decoded
            pixels.
        num_workers: number of workers; None: the cores that this process may use.
        executor: "process", "fork", "thread", or an `aioloader.abc.Executor`.
        memory_limit: bytes of slab memory, for images in work and those that callers keep; None: a quarter of the
            memory that this process may use. Callers who keep more than half of it receive copies.
        cache_limit: bytes of made images that are kept, of whatever type, by the key of their bytes; 0: none.
        max_pending: most images that calls wait for, and headers that they read, at a time.
        overflow: what happens with one more: "wait" until there is room, or "raise" a `ServiceOverloadedError`; those
            of `map` and `pack` always wait.
        timeout: seconds until an image is ready, from its request on; None: no limit. A worker that makes no progress
            on an image for so long, or for the shorter `timeout` of all calls that waited for it, is ended.
        max_bytes: most bytes of an image, encoded; default 64 MiB.
        max_pixels: most pixels of an image, announced by its header; default 178,956,970, which are half a GiB of RGB;
            None: any number.
        max_frames: most frames or pages of an image; None: any number. Of several only the first is decoded.
        allow: kinds of references that are accepted: "bytes", "data" (``data:`` URIs), "path", "http", "https", "s3",
            "gs", "az" (object storage), "dataset" ((dataset, index)), "array" (uint8 pixels), "pillow" (images of
            Pillow). A row ``{"bytes": ..., "path": ...}`` is its bytes, or where these are None, its path.
        root: folder that contains all files of kind "path".
        hosts: hosts of kinds "http" and "https", such as "example.com", "*.example.com" or "images:8080", and buckets
            ("s3://name"); None: all hosts with public addresses, and all buckets that the credentials open. Only a host
            that is named here exactly may have a private address.
        fetch: async function that returns the bytes of a URL of HTTP, in place of the service's own client. It resolves
            names and follows redirects itself, so it must check where they lead.
        user_agent: header ``User-Agent`` of requests to servers of HTTP, which some want to contain an address of
            yours; printable ASCII. None: "aioloader/" and the version.
        url_cache: directory that keeps bytes of URLs, or "memory"; a server is asked whether they are the latest. None:
            bytes are not kept, only made images (`cache_limit`). What `fetch` returns is not kept.
        url_cache_limit: bytes of it, or a text such as "50GB"; None: 50 GB in a directory, 4 GB in memory.
        output: "numpy", "torch" or "jax": type of the arrays.
        exif: "apply" turns images upright, "ignore" leaves them as stored; None: what the processor prefers (its
            attribute `exif`), or "apply".
        trace: path of a file to write a trace to, for ui.perfetto.dev or chrome://tracing; of 64 MiB at most.

    Raises:
        TypeError, ValueError: an argument is wrong.
        MissingPackageError: the package for `output` is not installed.
        OSError: the file of `trace` cannot be opened; raised on entering.

    It is open inside ``async with``, once. All methods belong to the event loop in which it was entered.
    """

    @takes(ServiceOptions, {})
    def __init__(self, options: ServiceOptions) -> None:
        self._engine = ServiceEngine(options)
        self._ended: anyio.Event | None = None  # the supervisor was started
        self._used = False
        self._closed = False
        self._loop: object = None
        self._final: ServiceStats | None = None
        self._failure: BaseException | None = None

    def __reduce__(self) -> Any:
        raise TypeError(CANNOT_BE_PICKLED)

    # -- life --------------------------------------------------------------------------------------------------------

    async def __aenter__(self) -> AsyncImageService:
        if self._used:
            raise ServiceClosedError("an image service can be entered once; make a new one")
        self._used = True
        self._loop = anyio.lowlevel.current_token().native_token
        self._stop, self._started = anyio.Event(), anyio.Event()
        try:
            await run_in_own_thread("aioloader-open", self._engine.open)
            self._ended = anyio.Event()
            spawn(self._supervise, "aioloader image service")
            await self._until_started(self._ended)
        except BaseException:
            await self.aclose()
            raise
        return self

    async def _until_started(self, ended: anyio.Event) -> None:
        async with anyio.create_task_group() as tasks:

            async def wait_for_end() -> None:
                await ended.wait()
                self._started.set()

            tasks.start_soon(wait_for_end)
            await self._started.wait()
            tasks.cancel_scope.cancel()
        if self._failure is not None:
            raise self._failure

    async def _supervise(self) -> None:
        dispatcher = self._engine.dispatcher
        assert dispatcher is not None
        assert self._ended is not None
        try:
            await dispatcher.run(self._started, self._stop)
        except Exception as error:
            self._failure = error
        finally:
            self._ended.set()

    async def __aexit__(self, *error: object) -> None:
        await self.aclose()

    async def aclose(self) -> None:
        """End the workers and release the memory, within seconds, also when cancelled; may be called twice.

        Whoever waits for an image gets a `ServiceClosedError`. Images that were returned stay valid.
        """
        self._closed = True
        with anyio.CancelScope(shield=True):
            if self._ended is not None:  # the supervisor was started
                self._stop.set()
                with anyio.move_on_after(_CLOSE_S):
                    await self._ended.wait()
            await self._engine.reader.aclose()
            if self._used:
                if self._engine.dispatcher is not None:
                    self._final = self._final or at_end(self._engine.stats())
                await run_in_own_thread("aioloader-close", self._engine.close, or_here=True)

    def _running(self) -> ImageRequests:
        dispatcher, requests = self._engine.dispatcher, self._engine.requests
        if requests is None or dispatcher is None or dispatcher.closed:
            if self._failure is not None:
                raise self._failure
            raise ServiceClosedError("the image service is not open: use it inside 'async with service:'")
        if anyio.lowlevel.current_token().native_token is not self._loop:
            raise RuntimeError(
                "this image service belongs to another event loop: make one for each loop, or use ImageService, which "
                "any thread may call"
            )
        return requests

    async def ready(self) -> None:
        """Wait until all workers can take images, so that the first request need not wait for them.

        Raises:
            WorkerError: no worker can be started.
            ServiceClosedError: the service is not open.
        """
        while True:
            self._running()
            executor = self._engine.executor
            if executor is None or executor.ready >= executor.workers:
                return
            if executor.failure is not None:
                raise executor.failure
            await anyio.sleep(_READY_POLL_S)

    # -- images ------------------------------------------------------------------------------------------------------

    async def get(
        self,
        ref: Any,
        *,
        key: Hashable | None = None,
        priority: int = 0,
        timeout: float | None = None,
        draw: int = 0,
    ) -> Any:
        """Return an image.

        Args:
            ref: a reference of a kind that `allow` names.
            key: identifies the image in the cache and among those in work, instead of a key made of its bytes, path or
                URL. Equal keys must belong to equal images.
            priority: images of a higher priority are made first.
            timeout: seconds; None: the service's.
            draw: number of the random draws of a random processor, 0 or more: equal numbers give equal images.

        Returns:
            what the processor returns, or uint8 (height, width, 3). Of an image that other callers or the cache
            have too, arrays of numpy are read-only, and all else is a copy.

        Raises:
            ImageReferenceError: the reference is malformed, not allowed or too large, or could not be read.
            ImageError: the image is damaged, or the processor failed.
            ImageTimeoutError: it was not ready in time.
            ServiceOverloadedError: there was no room, with ``overflow="raise"``.
            ServiceMemoryError: it needs more than `memory_limit`, or than callers leave of it.
            ServiceClosedError: the service is closed, or was closed meanwhile.
            OutputError: it could not be converted to `output`.
            TypeError, ValueError: `ref` is not a reference at all, or another argument is wrong.

        Cancellation frees the image's place at once, unless another caller waits for it.
        """
        return await self._running().get(ref, key=key, priority=priority, timeout=timeout, draw=draw)

    async def gather(
        self,
        refs: Any,
        *,
        key: Any = None,
        on_error: str = "raise",
        priority: int = 0,
        timeout: float | None = None,
        draw: int = 0,
    ) -> Any:
        """Return images, in the nesting of their references.

        Args:
            refs: references in any nesting of lists, tuples and dicts.
            key: keys in the same nesting, see `get`; None in any place: what is there has no key of yours.
            on_error: "raise" the first error, and give the other images up; or "return" errors in the places of their
                images.
            priority, timeout, draw: see `get`; they hold for each image.

        Raises, and is cancelled, as `get`.
        """
        return await self._running().gather(
            refs, key=key, on_error=on_error, priority=priority, timeout=timeout, draw=draw
        )

    def map(
        self,
        prompts: Iterable[P] | AsyncIterable[P],
        *,
        refs: Callable[[P], Any],
        key: Callable[[P], Any] | None = None,
        ordered: bool = False,
        ahead: int = 64,
        on_error: str = "raise",
        priority: int = 0,
        timeout: float | None = None,
        draw: int = 0,
    ) -> Mapping[P]:
        """Iterate over (prompt, images) of prompts, with the images of several prompts in work.

        Args:
            prompts: an iterable or an async iterable; at most `ahead` prompts are taken before the caller asks for
                their images.
            refs: returns the references of a prompt, in any nesting.
            key: returns their keys, in the same nesting, see `gather`.
            ordered: in the order of the prompts; otherwise those whose images are ready come first.
            ahead: most prompts in work.
            on_error: "raise": the error of an image is raised in place of its prompt, and iteration can go on after it;
                "return": errors are in the places of their images, or of all images of a prompt; "skip": the prompt is
                left out, and its error is in the iterator's `errors`. Attribute `prompt` of each error is the prompt.
            priority, timeout, draw: see `get`. The images wait for places also with ``overflow="raise"``.

        Ending the loop early gives up the images in work, and closes a generator of prompts.
        """
        return Mapping(
            self._running(),
            prompts,
            refs=refs,
            key=key,
            ordered=ordered,
            ahead=ahead,
            on_error=on_error,
            priority=priority,
            timeout=timeout,
            draw=draw,
        )

    def pack(
        self,
        prompts: Iterable[P] | AsyncIterable[P],
        *,
        refs: Callable[[P], Any],
        key: Callable[[P], Any] | None = None,
        max_tokens: int,
        lookahead: int = 64,
        on_error: str = "raise",
        priority: int = 0,
        timeout: float | None = None,
        draw: int = 0,
    ) -> Packing[P]:
        """Iterate over batches of the images of prompts, each within a budget of tokens.

        The sizes of images are read from their headers, so a batch is planned before anything is decoded: the first
        prompt that waits and those after it that fit, and then, of the next `lookahead`, those that fill the rest best.
        The prompts of a batch have the order of their arrival. The processor must announce sizes
        (`aioloader.abc.SizedProcessor`).

        Args:
            prompts, refs, key, priority, draw: see `map`.
            timeout: of each header and of each image, see `get`.
            max_tokens: most tokens of the images of a batch.
            lookahead: prompts that are considered for a batch; more, up to 64 times as many, while they have less than
                two batches of tokens. A batch comes when that many were taken, or there are no more.
            on_error: "raise" the error of a prompt in place of a batch, and iteration can go on after it; "return" it
                in place of a batch; "skip": the prompt is left out, and its error is in the iterator's `errors`.
                Attribute `prompt` of each error is the prompt. One with more tokens than `max_tokens` has a
                `BudgetError`.

        Returns:
            an async iterator over `PromptBatch`: the patches of all images of a batch behind one another.

        Raises:
            TypeError: the processor announces no sizes.
        """
        return Packing(
            self._running(),
            prompts,
            refs=refs,
            key=key,
            max_tokens=max_tokens,
            lookahead=lookahead,
            on_error=on_error,
            priority=priority,
            timeout=timeout,
            draw=draw,
        )

    async def probe(
        self, ref: Any, *, key: Hashable | None = None, timeout: float | None = None
    ) -> ImageInfo:
        """Return the facts in the header of an image: its size, and the size of its result. Nothing is decoded.

        Args:
            ref, key: see `get`.
            timeout: seconds; None: the service's.

        Raises:
            ImageReferenceError: as `get`.
            ImageError: it is not an image, its header is damaged, or the processor refuses its size.
            ImageTimeoutError: its header did not arrive in time.
            ServiceOverloadedError, ServiceClosedError: as `get`.

        `max_frames` is not checked: frames are counted in the whole image, by `get`. Cancellation ends the reading.
        """
        return await self._running().probe(ref, key=key, timeout=timeout)

    # -- facts -------------------------------------------------------------------------------------------------------

    @property
    def closed(self) -> bool:
        """Return True if the service was closed, or could not be opened."""
        return self._closed

    def stats(self) -> ServiceStats:
        """Return the counters at this moment, and after the end those of the end. Any thread may call it.

        Raises:
            ServiceClosedError: the service was never open.
        """
        return self._final or self._engine.stats()

    def explain(self) -> str:
        """Return a text that describes the counters, and what limits the service."""
        return explain(self.stats())
