"""Where bytes come from: local files, URLs by registered scheme, or any object that reads ranges.

The contract is plural on purpose: one call asks for many ranges, so a remote source can have them
all in flight at once, and a local one pays for one thread hop instead of many.
"""

from __future__ import annotations

import inspect
import os
import re
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias, cast, runtime_checkable

from recordio._files import LocalFile
from recordio._framing import UNKNOWN_SIZE
from recordio.errors import PayloadTypeError, ShortReadError, UnknownSchemeError

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

__all__ = (
    "AsyncRangeSource",
    "BlockingSource",
    "OpenTarget",
    "RangeSource",
    "check_lengths",
    "in_order",
    "local_path",
    "open_async_source",
    "open_source",
    "register_opener",
    "scheme_of",
    "source_name",
    "target_name",
)


@runtime_checkable
class RangeSource(Protocol):
    """Anything that can be read by position, blocking. Must be safe to call from several
    threads.

    It may also have a method `size()`, its bytes in all. With one, no range ever goes beyond the end,
    and damaged lengths and offsets are refused before anything is read. Without one, the end is where
    a range comes back short.

    It may have a method `state()`: a text that is another whenever the bytes are others (an ETag), or None. With one,
    an index of it is kept in the user's cache directory.

    It may have a method `in_order()`: another source of the same bytes, for one pass over them, that fetches what comes
    next before it is asked for. It is closed by who has asked for it.
    """

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """Return the bytes of `(offset, length)` ranges, in the order given.

        A range that goes beyond the end comes back short, and one that begins there or behind it
        empty, without an error. No other range is short.
        """
        ...


@runtime_checkable
class AsyncRangeSource(Protocol):
    """The same with `await`, the optional `size()` and `state()` too; must not block the event loop."""

    async def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        """As `RangeSource.read_ranges`."""
        ...


def check_lengths(source: object, ranges: Sequence[tuple[int, int]], blocks: Sequence[bytes]) -> None:
    """Refuse what a source that can tell its size has returned short: nothing beyond it was asked for.

    Raises:
        ShortReadError: records would be lost in silence otherwise.
    """
    for (offset, length), block in zip(ranges, blocks, strict=True):
        if len(block) < length and callable(getattr(source, "size", None)):
            name = target_name(source)
            raise ShortReadError(
                f"{name}: {length} bytes were to be read at byte {offset} and only {len(block)} came, "
                "though its size promises more",
                path=name,
                offset=offset,
                expected=length,
                found=len(block),
            )


class _ObjectSource:
    """A caller's object or an opener's, as the readers use it: it has a size, and nothing of it is short unseen."""

    def __init__(self, inner: RangeSource, url: str | None = None) -> None:
        self.inner = inner
        self.path = source_name(inner, url)

    def read_ranges(self, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
        blocks = self.inner.read_ranges(ranges)
        check_lengths(self.inner, ranges, blocks)
        return blocks

    def size(self) -> int:
        size: Any = getattr(self.inner, "size", None)
        return int(size()) if callable(size) else UNKNOWN_SIZE

    def state(self) -> str | None:
        state: Any = getattr(self.inner, "state", None)
        return state() if callable(state) else None

    def close(self) -> None:
        close = getattr(self.inner, "close", None)
        if close is not None:
            close()


BlockingSource: TypeAlias = LocalFile | _ObjectSource
OpenTarget: TypeAlias = str | os.PathLike[str] | RangeSource | AsyncRangeSource


@contextmanager
def in_order(source: BlockingSource) -> Iterator[BlockingSource]:
    """The source for a pass from its beginning to its end: one that reads ahead, if it has such."""
    make: Any = getattr(getattr(source, "inner", None), "in_order", None)
    if not callable(make):
        yield source
        return
    ahead = _ObjectSource(make())
    try:
        yield ahead
    finally:
        ahead.close()


_SCHEME = re.compile(r"([A-Za-z][A-Za-z0-9+.-]+)://")


@dataclass(frozen=True, slots=True)
class _Openers:
    blocking: Callable[[str], RangeSource]
    awaiting: Callable[[str], AsyncRangeSource] | None


_registered: dict[str, _Openers] = {}


def register_opener(
    scheme: str,
    opener: Callable[[str], RangeSource],
    *,
    async_opener: Callable[[str], AsyncRangeSource] | None = None,
) -> None:
    """Teach the readers to open URLs of a scheme. A later call for the same scheme replaces it.

    Args:
        scheme: For example "s3", without "://". Case does not matter.
        opener: Called with the whole URL; returns a `RangeSource`. It raises a FileNotFoundError if
            nothing is there. If the source has a `close` method, the reader calls it.
        async_opener: The same for the async readers, called in the event loop. Without it they run
            the blocking source in a thread.
    """
    _registered[scheme.lower()] = _Openers(opener, async_opener)


def scheme_of(name: str) -> str | None:
    """The scheme of a URL in lower case; None for a plain path."""
    match = _SCHEME.match(name)
    return match.group(1).lower() if match else None


def local_path(target: object) -> str | None:
    """The local path that a target names (`file://` is one), or None if it is not local."""
    if not isinstance(target, str | os.PathLike):
        return None
    name = os.fspath(target)
    scheme = scheme_of(name)
    if scheme == "file" and scheme not in _registered:
        return name[len("file://") :]
    return name if scheme is None else None


def target_name(target: object) -> str:
    """How a target is called in errors."""
    if isinstance(target, str | os.PathLike):
        return local_path(target) or os.fspath(target)
    name = getattr(target, "path", None) or getattr(target, "url", None)
    return str(name) if name else f"<{type(target).__name__}>"


def source_name(source: object, url: str | None = None) -> str:
    """How a source is called, which may have been opened from a URL.

    Its own name goes first: it may be without the signature of the URL, which is another one each time.
    """
    named = getattr(source, "path", None) or getattr(source, "url", None)
    return str(named or url or target_name(source))


def _openers_for(url: str) -> _Openers:
    scheme = scheme_of(url) or ""
    try:
        return _registered[scheme]
    except KeyError:
        raise UnknownSchemeError(
            f"{url}: no opener is registered for {scheme}://; "
            f"call recordio.register_opener({scheme!r}, opener), or give a local path",
            url=url,
        ) from None


def open_source(target: OpenTarget) -> BlockingSource:
    """Open what a blocking reader was given.

    Raises:
        RecordFileNotFoundError: a local file that does not exist.
        UnknownSchemeError: a URL without a registered opener.
        PayloadTypeError: neither a path, nor a URL, nor an object with a blocking `read_ranges`.
    """
    path = local_path(target)
    if path is not None:
        return LocalFile(path)
    if isinstance(target, str | os.PathLike):
        url = os.fspath(target)
        return _ObjectSource(_openers_for(url).blocking(url), url)
    _check_source(target)
    if inspect.iscoroutinefunction(target.read_ranges):
        raise PayloadTypeError(
            f"{type(target).__name__}.read_ranges is async: read it with recordio.aio.AsyncRecordReader"
        )
    return _ObjectSource(cast("RangeSource", target))


def open_async_source(target: OpenTarget) -> BlockingSource | AsyncRangeSource:
    """The same for an async reader; a blocking source is for threads, an async one is returned as it is."""
    if isinstance(target, str | os.PathLike) and local_path(target) is None:
        url = os.fspath(target)
        openers = _openers_for(url)
        if openers.awaiting is not None:
            return openers.awaiting(url)
    elif inspect.iscoroutinefunction(getattr(target, "read_ranges", None)):
        return cast("AsyncRangeSource", target)
    return open_source(target)


def _check_source(target: Any) -> None:
    if not callable(getattr(target, "read_ranges", None)):
        raise PayloadTypeError(
            f"cannot read records from {type(target).__name__}: give a path, a URL, or an object "
            "with read_ranges(ranges)"
        )
