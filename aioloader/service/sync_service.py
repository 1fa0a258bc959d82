"""`ImageService`: the blocking twin of `AsyncImageService`, for any number of threads."""

from __future__ import annotations

import functools
import threading
import weakref
from collections.abc import Awaitable, Callable, Iterator
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeVar

import anyio

from aioloader.errors import ServiceClosedError
from aioloader.foundation.forks import ForkGuard
from aioloader.foundation.threads import run_off_loop, run_uninterrupted
from aioloader.foundation.validation import describe_arguments, takes
from aioloader.loader.portal import Portal
from aioloader.service.async_service import AsyncImageService
from aioloader.service.options import CANNOT_BE_PICKLED, ServiceOptions

if TYPE_CHECKING:
    from aioloader.service.mapping import FedIterator
    from aioloader.service.stats import ServiceStats

Q = ParamSpec("Q")
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
        self._guard = ForkGuard()
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
        if self._ended.is_set() or self._guard.forked:
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
        if self._guard.forked or not self._portal.thread.is_alive():
            return
        if self._closing is not None:
            self._portal.notify(self._closing)
            self._ended.wait(3.0)
        self._portal.stop()


def _blocking(
    method: Callable[Concatenate[AsyncImageService, Q], Awaitable[T]],
) -> Callable[Concatenate[ImageService, Q], T]:
    """Return a method that waits for the result of a method of the async service."""

    @functools.wraps(method)
    def call(self: ImageService, /, *args: Q.args, **options: Q.kwargs) -> T:
        # Without a reference to `self`, so that a service that is dropped is collected.
        return self._call(functools.partial(method, self._service, *args, **options))

    call.__doc__ = (
        f"Call `AsyncImageService.{method.__name__}` and wait. Ctrl-C in this thread abandons the call."
    )
    return call


def _iterating(
    method: Callable[Concatenate[AsyncImageService, Q], FedIterator[Any, T]],
) -> Callable[Concatenate[ImageService, Q], ImageIterator[T]]:
    """Return a method that returns a blocking iterator over what a method of the async service yields."""

    @functools.wraps(method)
    def begin(self: ImageService, /, *args: Q.args, **options: Q.kwargs) -> ImageIterator[T]:
        service = self._service

        async def make() -> FedIterator[Any, T]:
            return method(service, *args, **options)

        return ImageIterator(self, self._call(make))

    begin.__doc__ = (
        f"Iterate as `AsyncImageService.{method.__name__}` does; the service's thread takes the prompts."
    )
    return begin


class ImageService:
    """Images on demand for blocking code; any number of threads may call its methods at the same time.

    ::

        with aioloader.ImageService(processor, allow=("bytes", "https")) as service:
            image = service.get("https://example.com/cat.jpg")

    It has one thread with an event loop, in which an `AsyncImageService` runs. All arguments are those of
    `AsyncImageService`. A service that is garbage-collected ends its workers.
    """

    @takes(ServiceOptions, {})
    def __init__(self, options: ServiceOptions) -> None:
        self._service = AsyncImageService(**vars(options))
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

    ready = _blocking(AsyncImageService.ready)
    """Wait until all workers can take images; see `AsyncImageService.ready`."""
    probe = _blocking(AsyncImageService.probe)
    """Return the facts in the header of an image; see `AsyncImageService.probe`."""
    get = _blocking(AsyncImageService.get)
    """Return an image; see `AsyncImageService.get`. Ctrl-C in this thread abandons it."""
    gather = _blocking(AsyncImageService.gather)
    """Return images, in the nesting of their references; see `AsyncImageService.gather`."""
    map = _iterating(AsyncImageService.map)
    """Iterate over (prompt, images); see `AsyncImageService.map`. The prompts are taken in the service's thread."""
    pack = _iterating(AsyncImageService.pack)
    """Iterate over batches of patches; see `AsyncImageService.pack`. The service's thread takes the prompts."""

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


describe_arguments(ImageService, AsyncImageService)


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
