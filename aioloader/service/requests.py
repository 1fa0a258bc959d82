"""Requests of an image service: asking for images, waiting for them, converting them, reading their headers."""

from __future__ import annotations

from functools import partial
from time import perf_counter
from typing import TYPE_CHECKING, Any, TypedDict

import anyio
import anyio.lowlevel
import anyio.to_thread

from aioloader.errors import DecodeError, ImageError, ImageTimeoutError, ServiceClosedError
from aioloader.foundation.validation import at_least, one_of, whole_number
from aioloader.service.jobs import Shared
from aioloader.service.nested import flatten_keys, flatten_references
from aioloader.service.probe import HeaderReader
from aioloader.service.references import HEAD_NBYTES
from aioloader.transforms.formats import ENDS_EARLY, LongHeaderError

if TYPE_CHECKING:
    from collections.abc import Callable, Coroutine, Hashable
    from typing import Unpack

    from aioloader.foundation.threads import Threads
    from aioloader.loader.outputs import Converter
    from aioloader.service.dispatcher import Dispatcher
    from aioloader.service.jobs import Request
    from aioloader.service.options import ServiceOptions
    from aioloader.service.probe import ImageInfo
    from aioloader.service.references import ReadImage, Reference, ReferenceReader

_ON_ERROR = ("raise", "return")
# What is read of an image whose header did not fit into the first read.
_LONG_HEAD_NBYTES = 1 << 20
# A shared image is copied, as nothing but numpy has read-only arrays.
_COPIED_HERE = 1 << 18
# A header may take as long, and a request have thousands.
_HELD_S = 0.002
_LAST_DRAW = (1 << 63) - 1


class Asked(TypedDict):
    """Options of the images of a request; see `AsyncImageService.get`."""

    priority: int
    timeout: float | None
    draw: int


class ImageRequests:
    """Requests of one service that is open.

    Args:
        dispatcher: makes the images.
        reader: reads references.
        threads: what takes long runs there.
        options: of the service.
        exif: "apply" or "ignore".
        convert: converts images, or None.

    Attributes:
        headers: reads what headers say of images and results.
    """

    def __init__(
        self,
        dispatcher: Dispatcher,
        reader: ReferenceReader,
        threads: Threads,
        options: ServiceOptions,
        *,
        exif: str,
        convert: Converter | None,
    ) -> None:
        self._dispatcher = dispatcher
        self._reader = reader
        self._threads = threads
        self._convert = convert
        self.headers = HeaderReader(options.processor, exif, options.max_pixels)
        self._options = options
        self._held_s = 0.0  # by images of one request after the other

    async def get(self, ref: Any, *, key: Hashable | None, **asked: Unpack[Asked]) -> Any:
        """Return an image; see `AsyncImageService.get`."""
        dispatcher = self._dispatcher
        draw = check_draw(asked["draw"])
        request = self._request(asked)
        try:
            await dispatcher.submit(ref, request, key=key, draw=draw)
            if request.waiting:
                await request.event.wait()
        except BaseException:
            dispatcher.leave(request)
            raise
        ((value, error),) = request.take()
        if error is not None:
            raise error
        return await self._delivered(value)

    async def gather(self, refs: Any, *, convert: bool = True, **options: Any) -> Any:
        """Return images, in the nesting of their references; see `AsyncImageService.gather`.

        Args:
            refs: the references.
            convert: return them as the service's output; else as arrays of numpy.
            options: of `submit`.
        """
        request, build = await self.submit(refs, **options)
        try:
            if request.waiting:
                await request.event.wait()
        except BaseException:
            self.leave(request)
            raise
        return await self.finish(request, build, convert=convert)

    async def submit(
        self,
        refs: Any,
        *,
        key: Any = None,
        on_error: str,
        waits_for_room: bool = False,
        **asked: Unpack[Asked],
    ) -> tuple[Request, Callable[[list[Any]], Any]]:
        """Ask for all images of nested references.

        Args:
            refs, key, on_error: see `AsyncImageService.gather`.
            waits_for_room: see `Request`.
            asked: see `Asked`.

        Returns:
            the request, with one waiter for each reference, and the function that puts results into the nesting.

        Raises:
            ImageReferenceError: a reference is not accepted, with ``on_error="raise"``.
            ValueError: `on_error` is unknown, or `key` has another nesting.
        """
        one_of("on_error", on_error, _ON_ERROR)
        dispatcher = self._dispatcher
        draw = check_draw(asked["draw"])
        found, build = flatten_references(refs)
        keys = flatten_keys(refs, key)
        request = self._request(asked, fail_fast=on_error == "raise", waits_for_room=waits_for_room)
        request.hold()
        try:
            for ref, each in zip(found, keys, strict=True):
                began = perf_counter()
                try:
                    await dispatcher.submit(ref, request, key=each, draw=draw)
                except Exception as error:
                    if on_error == "raise" or isinstance(error, ServiceClosedError):
                        raise
                    request.add_failed(error)
                if request.fail_fast and request.event.is_set():
                    break
                await self._let_others_run(began)
        except BaseException:
            dispatcher.leave(request)
            raise
        request.release()
        return request, build

    def leave(self, request: Request) -> None:
        """Stop waiting for the images of a request; work that nobody else waits for ends."""
        self._dispatcher.leave(request)

    async def finish(
        self, request: Request, build: Callable[[list[Any]], Any], *, convert: bool = True
    ) -> Any:
        """Return the images of a request that has nothing to wait for, or raise its first error; see `gather`."""
        error = request.first_error()
        if request.fail_fast and error is not None:
            self.leave(request)
            try:
                raise error
            finally:
                error = None  # breaks the cycle error -> traceback -> frame -> error
        results: list[Any] = []
        for value, failed in request.take():
            began = perf_counter()
            try:
                results.append(failed if failed is not None else await self._delivered(value, convert))
            except ImageError as problem:
                if request.fail_fast:
                    raise
                results.append(problem)
            await self._let_others_run(began)
        return build(results)

    async def _let_others_run(self, began: float) -> None:
        """Take note of work on an image that began at a time; yield to other tasks where it adds up."""
        self._held_s += perf_counter() - began
        if self._held_s > _HELD_S:
            self._held_s = 0.0
            await anyio.lowlevel.checkpoint()

    def start(self, fn: Callable[[], Coroutine[Any, Any, None]], name: str) -> None:
        """Run an async function in a task of the service, until it returns or the service is closed.

        Args:
            fn: the function; it raises nothing.
            name: name of its task.

        Raises:
            ServiceClosedError: the service is closed.
        """
        self._dispatcher.start(fn, name)

    async def in_thread(self, fn: Callable[..., Any], *args: Any) -> Any:
        """Call a function in a thread, and return its result."""
        return await self._threads.run(fn, *args)

    async def _delivered(self, value: Any, convert: bool = True) -> Any:
        """Return an image for one caller, as the service's output.

        Args:
            value: the image, `Shared` if others have it too.
            convert: False: as arrays of numpy, which the caller must not change.
        """
        if not isinstance(value, Shared):
            return await self.converted(value) if convert else value
        if not convert:
            return value.value
        if value.takes_long or (self._convert is not None and value.nbytes > _COPIED_HERE):
            return await anyio.to_thread.run_sync(self._own, value)
        return self._own(value)

    def _own(self, shared: Shared) -> Any:
        value = shared.private()
        return value if self._convert is None else self._convert(value)

    async def converted(self, value: Any) -> Any:
        """Return an image as the service's output."""
        if self._convert is None:
            return value
        if self._convert.takes_long:
            return await anyio.to_thread.run_sync(self._convert, value)
        return self._convert(value)

    def _request(self, asked: Asked, **waiting: bool) -> Request:
        timeout, priority = asked["timeout"], whole_number("priority", asked["priority"])
        at_least("timeout", timeout, 0, exclusive=True)
        if timeout is None:
            timeout = self._options.timeout
        return self._dispatcher.request(priority=priority, timeout=timeout, **waiting)

    async def probe(
        self,
        ref: Any,
        *,
        key: Hashable | None = None,
        timeout: float | None = None,
        waits_for_room: bool = False,
    ) -> ImageInfo:
        """Return the facts in the header of an image; see `AsyncImageService.probe`.

        Args:
            ref, key, timeout: see there.
            waits_for_room: see `Request`.
        """
        at_least("timeout", timeout, 0, exclusive=True)
        allowed_s = self._options.longest_s if timeout is None else timeout
        reference = self._reader.accept(ref, key=key)
        request = self._dispatcher.request(priority=0, timeout=allowed_s, waits_for_room=waits_for_room)
        return await self._dispatcher.visit(reference, request, partial(self._probe, reference, allowed_s))

    async def _probe(self, reference: Reference, allowed_s: float) -> ImageInfo:
        with anyio.move_on_after(allowed_s):
            # A header may be longer than most: photographs carry previews and profiles. Other data, or a
            # damaged header, are not read further.
            for nbytes in (HEAD_NBYTES, _LONG_HEAD_NBYTES):
                head = await self._reader.read_header(reference, nbytes)
                try:
                    return await self._info(reference, head)
                except ImageError as error:
                    if head.complete or not _ends_early(error):
                        raise
            return await self._info(reference, await self._reader.read(reference))
        raise ImageTimeoutError(reference.name, allowed_s, "read")

    async def _info(self, reference: Reference, read: ReadImage) -> ImageInfo:
        info = partial(
            self.headers.info,
            read.payload,
            name=reference.name,
            key=read.key,
            complete=read.complete,
        )
        try:
            try:
                return info(quick=True)
            except LongHeaderError:
                return await self._reader.in_thread(info)
        except DecodeError as error:
            raise ImageError(reference.name, "decode", f"{type(error).__name__}: {error}") from error


def check_draw(draw: int) -> int:
    """Return the number as an int that the index table of a chunk can hold, with those of other images.

    Raises:
        TypeError, ValueError: it is not a whole number from 0 to 2**63 - 1.
    """
    number = whole_number("draw", draw)
    if not 0 <= number <= _LAST_DRAW:
        raise ValueError(f"draw must be 0 to 2**63 - 1, got {draw}")
    return number


def _ends_early(error: ImageError) -> bool:
    """Return whether more bytes may be all that a header lacks."""
    return isinstance(error.__cause__, DecodeError) and error.__cause__.reason == ENDS_EARLY
