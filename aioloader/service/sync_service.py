"""`ImageService`: the blocking twin of `AsyncImageService`, for any number of threads."""

from __future__ import annotations

import os
import threading
import weakref
from collections.abc import Awaitable, Callable, Collection, Hashable, Iterable, Iterator
from functools import partial
from typing import TYPE_CHECKING, Any, TypeVar

import anyio

from aioloader.errors import ServiceClosedError
from aioloader.foundation.threads import run_off_loop, run_uninterrupted
from aioloader.foundation.validation import advises
from aioloader.loader.portal import Portal
from aioloader.service.async_service import AsyncImageService
from aioloader.service.options import CANNOT_BE_PICKLED
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS

if TYPE_CHECKING:
    from aioloader.abc import Executor
    from aioloader.service.mapping import FedIterator
    from aioloader.service.packing import PromptBatch
    from aioloader.service.probe import ImageInfo
    from aioloader.service.references import Fetch
    from aioloader.service.stats import ServiceStats

P = TypeVar("P")
T = TypeVar("T")

_CHECK_S = 1.0


class _Call:
    """A call that runs in the portal's loop, while a thread waits for it."""

    def __init__(self, fn: Callable[[], Awaitable[Any]]) -> None:
        self._fn = fn
        self._done = threading.Event()
        self._scope: anyio.CancelScope | None = None
        self._cancelled = False
        self._result: Any = None
        self._error: BaseException | None = None

    async def run(self) -> None:
        """Run it. A task of the portal."""
        self._error = ServiceClosedError("the image service was closed")
        try:
            with anyio.CancelScope() as self._scope:
                if not self._cancelled:
                    self._result = await self._fn()
                    self._error = None
        except Exception as error:
            self._error = error
        finally:
            self._done.set()

    def cancel(self) -> None:
        """Cancel it. In the portal's thread."""
        self._cancelled = True
        if self._scope is not None:
            self._scope.cancel()

    def wait(self, portal: Portal) -> Any:
        """Return its result, or raise its error."""
        try:
            while not self._done.wait(_CHECK_S):
                if not portal.thread.is_alive():
                    raise ServiceClosedError("the thread of the image service has ended; make a new service")
        except BaseException:  # Ctrl-C in this thread
            portal.notify(self.cancel)
            raise
        if self._error is not None:
            try:
                raise self._error
            finally:
                self._error = None
        return self._result


class _Life:
    """The async service in its portal, from `start` to `stop`."""

    def __init__(self, service: AsyncImageService) -> None:
        self.service = service
        self._portal = Portal()
        self._pid = os.getpid()
        self._closing: Callable[[], object] | None = None
        self._begun = threading.Event()
        self._ended = threading.Event()
        self._error: BaseException | None = None

    def start(self) -> None:
        """Start the thread and the service, and wait until it has begun."""
        try:
            self._portal.open()
            self._portal.start(self._run)
            self._begun.wait()
        except BaseException:
            self.stop()
            raise
        if self._error is not None:
            self._portal.stop()
            raise self._error

    async def _run(self) -> None:
        stop = anyio.Event()
        self._closing = stop.set
        try:
            async with self.service:
                self._begun.set()
                await stop.wait()
        except Exception as error:
            self._error = error
        finally:
            self._begun.set()
            self._ended.set()

    def call(self, fn: Callable[[], Awaitable[T]]) -> T:
        """Await `fn()` in the loop, and return its result; blocks."""
        if self._ended.is_set() or self._pid != os.getpid():
            raise ServiceClosedError("the image service is closed, or belongs to the process that was forked")
        if self._portal.thread is threading.current_thread():
            raise RuntimeError(
                "an ImageService cannot be used in its own thread; use AsyncImageService there"
            )
        call = _Call(fn)
        self._portal.start(call.run)
        result: T = call.wait(self._portal)
        return result

    def stop(self) -> None:
        """End the service and the thread; may be called twice."""
        if self._pid != os.getpid() or not self._portal.thread.is_alive():
            return
        if self._closing is not None:
            self._portal.notify(self._closing)
            self._ended.wait(3.0)
        self._portal.stop()


class ImageService:
    """Images on demand for blocking code; any number of threads may call its methods at the same time.

    ::

        with aioloader.ImageService(processor, allow=("bytes", "https")) as service:
            image = service.get("https://example.com/cat.jpg")

    It has one thread with an event loop, in which an `AsyncImageService` runs. All arguments are those of
    `AsyncImageService`. A service that is garbage-collected ends its workers.
    """

    @advises({})
    def __init__(
        self,
        processor: Callable[..., Any] | None = None,
        *,
        num_workers: int | None = None,
        executor: str | Executor = "process",
        memory_limit: int | None = None,
        cache_limit: int = 0,
        max_pending: int = 1024,
        overflow: str = "wait",
        timeout: float | None = 60,
        max_bytes: int = 64 << 20,
        max_pixels: int | None = DEFAULT_MAX_PIXELS,
        max_frames: int | None = None,
        allow: Collection[str] = ("bytes", "data"),
        root: str | os.PathLike[str] | None = None,
        hosts: Collection[str] | None = None,
        fetch: Fetch | None = None,
        user_agent: str | None = None,
        url_cache: str | os.PathLike[str] | None = None,
        url_cache_limit: int | str | None = None,
        output: str = "numpy",
        exif: str | None = None,
        trace: str | os.PathLike[str] | None = None,
    ) -> None:
        self._service = AsyncImageService(
            processor,
            num_workers=num_workers,
            executor=executor,
            memory_limit=memory_limit,
            cache_limit=cache_limit,
            max_pending=max_pending,
            overflow=overflow,
            timeout=timeout,
            max_bytes=max_bytes,
            max_pixels=max_pixels,
            max_frames=max_frames,
            allow=allow,
            root=root,
            hosts=hosts,
            fetch=fetch,
            user_agent=user_agent,
            url_cache=url_cache,
            url_cache_limit=url_cache_limit,
            output=output,
            exif=exif,
            trace=trace,
        )
        self._life: _Life | None = None
        self._finalizer: weakref.finalize[Any, Any] | None = None

    def __reduce__(self) -> Any:
        raise TypeError(CANNOT_BE_PICKLED)

    def __enter__(self) -> ImageService:
        if self._life is not None:
            raise ServiceClosedError("an image service can be entered once; make a new one")
        self._life = life = _Life(self._service)
        self._finalizer = weakref.finalize(self, run_off_loop, life.stop)
        life.start()
        return self

    def __exit__(self, *error: object) -> None:
        self.close()

    def close(self) -> None:
        """End the workers and release the memory; may be called twice. Other threads get a `ServiceClosedError`."""
        if self._life is not None and self._finalizer is not None:
            if self._finalizer.alive:
                run_uninterrupted(self._life.stop)
            self._finalizer.detach()

    def _call(self, fn: Callable[[], Awaitable[T]]) -> T:
        if self._life is None:
            raise ServiceClosedError("the image service is not open: use it inside 'with service:'")
        return self._life.call(fn)

    def ready(self) -> None:
        """Wait until all workers can take images; see `AsyncImageService.ready`."""
        self._call(self._service.ready)

    def probe(self, ref: Any, *, key: Hashable | None = None, timeout: float | None = None) -> ImageInfo:
        """Return the facts in the header of an image; see `AsyncImageService.probe`."""
        return self._call(partial(self._service.probe, ref, key=key, timeout=timeout))

    def get(
        self,
        ref: Any,
        *,
        key: Hashable | None = None,
        priority: int = 0,
        timeout: float | None = None,
        draw: int = 0,
    ) -> Any:
        """Return an image; see `AsyncImageService.get`. Ctrl-C in this thread abandons it."""
        return self._call(
            partial(self._service.get, ref, key=key, priority=priority, timeout=timeout, draw=draw)
        )

    def gather(
        self,
        refs: Any,
        *,
        key: Any = None,
        on_error: str = "raise",
        priority: int = 0,
        timeout: float | None = None,
        draw: int = 0,
    ) -> Any:
        """Return images, in the nesting of their references; see `AsyncImageService.gather`."""
        return self._call(
            partial(
                self._service.gather,
                refs,
                key=key,
                on_error=on_error,
                priority=priority,
                timeout=timeout,
                draw=draw,
            )
        )

    def map(
        self,
        prompts: Iterable[P],
        *,
        refs: Callable[[P], Any],
        key: Callable[[P], Any] | None = None,
        ordered: bool = False,
        ahead: int = 64,
        on_error: str = "raise",
        priority: int = 0,
        timeout: float | None = None,
        draw: int = 0,
    ) -> ImageIterator[tuple[P, Any]]:
        """Iterate over (prompt, images); see `AsyncImageService.map`. The prompts are taken in the service's thread."""
        make = partial(
            self._service.map,
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
        return ImageIterator(self, self._call(partial(_awaited, make)))

    def pack(
        self,
        prompts: Iterable[P],
        *,
        refs: Callable[[P], Any],
        key: Callable[[P], Any] | None = None,
        max_tokens: int,
        lookahead: int = 64,
        on_error: str = "raise",
        priority: int = 0,
        timeout: float | None = None,
        draw: int = 0,
    ) -> ImageIterator[PromptBatch | Any]:
        """Iterate over batches of patches; see `AsyncImageService.pack`. The service's thread takes the prompts."""
        make = partial(
            self._service.pack,
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
        return ImageIterator(self, self._call(partial(_awaited, make)))

    @property
    def closed(self) -> bool:
        """Return True if the service was closed, or could not be opened."""
        return self._service.closed

    def stats(self) -> ServiceStats:
        """Return the counters at this moment; see `AsyncImageService.stats`."""
        return self._service.stats()

    def explain(self) -> str:
        """Return a text that describes the counters; see `AsyncImageService.explain`."""
        return self._service.explain()


class ImageIterator(Iterator[T]):
    """Elements of `ImageService.map` or `pack`. An error of a prompt does not end it."""

    def __init__(self, service: ImageService, elements: FedIterator[Any, T]) -> None:
        self._service = service
        self._elements = elements

    @property
    def errors(self) -> list[Exception]:
        """Return the errors of the prompts that were left out; see `FedIterator.errors`."""
        return self._elements.errors

    def __next__(self) -> T:
        async def following() -> tuple[T] | None:
            try:
                return (await self._elements.__anext__(),)
            except StopAsyncIteration:
                return None

        found = self._service._call(following)
        if found is None:
            raise StopIteration
        return found[0]


async def _awaited(make: Callable[[], T]) -> T:
    """Return the result of a function that has to be called in the loop's thread."""
    return make()
