"""Byte sources: local files, URLs by registered scheme, and any object that reads ranges.

One call requests many ranges, so that a remote source can have them all in flight at once, and a local one needs one
call in a thread for all of them instead of one for each.
"""

from __future__ import annotations

import inspect
import os
import re
from contextlib import closing, contextmanager
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol, TypeAlias, TypeVar, cast, runtime_checkable

from recordio._files import LocalFile, not_seekable_error
from recordio._framing import UNKNOWN_SIZE
from recordio.errors import PayloadTypeError, ShortReadError, UnknownSchemeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from recordio._sansio import ReadGenerator

_T = TypeVar("_T")


@runtime_checkable
class RangeSource(Protocol):
    """Object that is read by position, blocking. Several threads may call it at once.

    It may have further methods, which readers use if they exist:

    - `size()`: its bytes in all. With it, no range extends past the end, and damaged lengths and offsets are refused
      before anything is read. Without it, the end is where a range is returned short.
    - `state()`: a text that changes whenever the bytes change (an ETag), or None. With it, an index of the source is
      kept in the user's cache directory.
    - `in_order()`: another source of the same bytes for one pass over them, which fetches the next bytes before they
      are requested. The caller closes it.
    - `close()`: called when the reader is closed.
    """

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of `(offset, length)` ranges, in the order given.

        A range that extends past the end is returned short, and one that begins at or past the end is returned
        empty, without an error. No other range is short.
        """
        ...


@runtime_checkable
class AsyncRangeSource(Protocol):
    """Object that is read by position with `await`; must not block the event loop.

    It may have the methods `size()` and `state()` of `RangeSource`, with or without `await`, and `aclose()` or
    `close()`.
    """

    async def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of ranges as `RangeSource.read_ranges` does."""
        ...


def has_method(source: RangeSource | AsyncRangeSource, name: str) -> bool:
    """Return True if a source has one of the optional methods."""
    return callable(getattr(source, name, None))


def call_optional(source: RangeSource | AsyncRangeSource, name: str) -> Any:
    """Return the result of an optional method of a source; None if the source does not have it."""
    return getattr(source, name)() if has_method(source, name) else None


def check_lengths(
    path: str, ranges: Sequence[tuple[int, int]], blocks: Sequence[bytes], *, sized: bool
) -> None:
    """Check that a source returned one block for each range, and none that is short if it reports its size.

    Nothing past the end of a sized source is requested, so a short block is an error.

    Raises:
        ShortReadError: A block is short; without this check, records could be lost silently.
    """
    for (offset, length), block in zip(ranges, blocks, strict=True):
        if len(block) < length and sized:
            raise ShortReadError(
                f"{path}: {length} bytes were requested at byte {offset} and only {len(block)} returned, "
                "though its size promises more",
                path=path,
                offset=offset,
                expected=length,
                found=len(block),
            )


class _ObjectSource:
    """Adapter for an object with `read_ranges`: it always has a size, and a short result is an error."""

    def __init__(self, source: RangeSource, url: str | None = None) -> None:
        self.path = source_name(source, url)
        self._source = source
        self._sized = has_method(source, "size")

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        blocks = self._source.read_ranges(ranges)
        check_lengths(self.path, ranges, blocks, sized=self._sized)
        return blocks

    def size(self) -> int:
        return int(call_optional(self._source, "size")) if self._sized else UNKNOWN_SIZE

    def state(self) -> str | None:
        state: str | None = call_optional(self._source, "state")
        return state

    def in_order(self) -> _ObjectSource | None:
        ahead = call_optional(self._source, "in_order")
        return None if ahead is None else _ObjectSource(ahead)

    def close(self) -> None:
        call_optional(self._source, "close")


BlockingSource: TypeAlias = LocalFile | _ObjectSource
OpenTarget: TypeAlias = str | os.PathLike[str] | RangeSource | AsyncRangeSource


@contextmanager
def in_order(source: BlockingSource) -> Iterator[BlockingSource]:
    """Return a source for one pass from the beginning to the end: one that reads ahead, if there is one."""
    ahead = None if isinstance(source, LocalFile) else source.in_order()
    if ahead is None:
        yield source
    else:
        with closing(ahead):
            yield ahead


def drive(
    source: BlockingSource, generator: ReadGenerator[_T], tick: Callable[[int], object] | None = None
) -> _T:
    """Run a generator of `_sansio` to its end and return its result.

    Args:
        source: Source of the bytes.
        generator: Generator that yields ranges and is sent their bytes.
        tick: Called with the byte offset at which each range requested ends.
    """
    try:
        ranges = next(generator)
        while True:
            blocks = source.read_ranges(ranges)
            if tick is not None:
                tick(sum(ranges[-1]))
            ranges = generator.send(blocks)
    except StopIteration as stop:
        result: _T = stop.value
        return result


def read_piece(source: BlockingSource, offset: int, length: int) -> bytes:
    """Read one range of a source."""
    return source.read_ranges([(offset, length)])[0]


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


class _Openers(NamedTuple):
    blocking: Callable[[str], RangeSource]
    awaiting: Callable[[str], AsyncRangeSource] | None


_registered: dict[str, _Openers] = {}


def register_opener(
    scheme: str,
    opener: Callable[[str], RangeSource],
    *,
    async_opener: Callable[[str], AsyncRangeSource] | None = None,
) -> None:
    """Register the opener for URLs of a scheme. A later call for the same scheme replaces it.

    A package can do so at the first URL of a scheme: by an entry point of the group ``recordio.openers`` that has the
    scheme's name, a function without arguments that calls this one. Openers registered before are kept.

    Args:
        scheme: For example "s3", without "://". Case does not matter.
        opener: Called with the whole URL; returns a `RangeSource`. It raises a FileNotFoundError if there is no such
            object. If the source has a `close` method, the reader calls it.
        async_opener: The same for the async readers, called in the event loop. Without it they run the blocking
            source in a thread.
    """
    _registered[scheme.lower()] = _Openers(opener, async_opener)


def scheme_of(name: str) -> str | None:
    """Return the scheme of a URL in lower case; None for a plain path."""
    match = _SCHEME.match(name)
    return match.group(1).lower() if match else None


def local_path(target: object) -> str | None:
    """Return the local path that a target names (`file://` is one), or None if it is not local."""
    if not isinstance(target, str | os.PathLike):
        return None
    name = os.fspath(target)
    scheme = scheme_of(name)
    if scheme == "file" and scheme not in _registered:
        return name[len("file://") :]
    return name if scheme is None else None


def target_name(target: object) -> str:
    """Return the name of a target in errors."""
    if isinstance(target, str | os.PathLike):
        return local_path(target) or os.fspath(target)
    return source_name(target)


def source_name(source: object, url: str | None = None) -> str:
    """Return the name of a source in errors.

    Its own `path` or `url` comes first: the URL that it was opened from may contain a signature, which differs each
    time.
    """
    named = getattr(source, "path", None) or getattr(source, "url", None)
    return str(named or url or f"<{type(source).__name__}>")


def _register_installed(scheme: str) -> None:
    """Let the installed packages that have openers for a scheme register them."""
    from importlib.metadata import entry_points

    before = dict(_registered)
    for point in entry_points(group="recordio.openers", name=scheme):
        point.load()()
    _registered.update(before)


def _openers_for(url: str) -> _Openers:
    scheme = scheme_of(url) or ""
    if scheme not in _registered:
        _register_installed(scheme)
    if scheme not in _registered:
        raise UnknownSchemeError(
            f"{url}: no opener is registered for {scheme}://; "
            f"call recordio.register_opener({scheme!r}, opener), or pass a local path",
            url=url,
        )
    return _registered[scheme]


def is_stream(source: object) -> bool:
    """Return True for a source that can only be read once and in order, see `LocalFile`."""
    return isinstance(source, LocalFile) and source.is_stream


def open_source(target: OpenTarget, *, streams: bool = False) -> BlockingSource:
    """Open the target of a blocking reader.

    Args:
        target: See `RecordReader`.
        streams: A pipe or device, which can only be read in order, is opened too.

    Raises:
        NotSeekableError: It is a pipe or a device.
        RecordFileNotFoundError: A local file does not exist.
        UnknownSchemeError: No opener is registered for the URL.
        PayloadTypeError: The target is neither a path, nor a URL, nor an object with a blocking `read_ranges`.
    """
    path = local_path(target)
    if path is not None:
        file = LocalFile(path)
        if file.is_stream and not streams:
            raise not_seekable_error(path)
        return file
    if isinstance(target, str | os.PathLike):
        url = os.fspath(target)
        return _ObjectSource(_openers_for(url).blocking(url), url)
    if not isinstance(target, RangeSource):
        raise PayloadTypeError(
            f"cannot read records from {type(target).__name__}: pass a path, a URL, or an object "
            "with read_ranges(ranges)"
        )
    if inspect.iscoroutinefunction(target.read_ranges):
        raise PayloadTypeError(
            f"{type(target).__name__}.read_ranges is async: read it with recordio.aio.AsyncRecordReader"
        )
    return _ObjectSource(target)


def open_async_source(target: OpenTarget) -> BlockingSource | AsyncRangeSource:
    """Open the target of an async reader; a blocking source is for threads, an async one is returned unchanged."""
    if isinstance(target, str | os.PathLike):
        url = os.fspath(target)
        if local_path(url) is None and (opener := _openers_for(url).awaiting) is not None:
            source = opener(url)
            if inspect.iscoroutinefunction(source.read_ranges):
                return source
            return _ObjectSource(cast("RangeSource", source), url)
    elif isinstance(target, AsyncRangeSource) and inspect.iscoroutinefunction(target.read_ranges):
        return target
    return open_source(target)
