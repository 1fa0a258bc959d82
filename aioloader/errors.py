"""Errors of aioloader. Facts are attributes, the text says what to do next.

Every error survives pickling with its attributes, because it may have been raised in a worker process.
"""

from __future__ import annotations

from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = (
    "DecodeError",
    "ForkedError",
    "LayoutError",
    "LoaderClosedError",
    "LoaderError",
    "MissingPackageError",
    "NotResumableError",
    "ObjectChangedError",
    "ObjectDeniedError",
    "ObjectMissingError",
    "OutputError",
    "ReceiptError",
    "RemoteReadError",
    "RemoteWriteError",
    "ResumeError",
    "SampleError",
    "SpanTooShortError",
    "StalledError",
    "TooManyErrorsError",
    "UnknownSchemeError",
    "WorkerError",
    "error_report",
    "single",
)


def _rebuild(cls: type[LoaderError], args: tuple[Any, ...], facts: dict[str, Any]) -> LoaderError:
    error = cls.__new__(cls, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class LoaderError(Exception):
    """Base of every error that aioloader raises on its own account."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())


class LoaderClosedError(LoaderError, RuntimeError):
    """The loader was closed; make a new one."""


class MissingPackageError(LoaderError, ImportError):
    """An optional package is asked for and not installed.

    Attributes:
        package: its name, which is that of the extra too.
    """

    def __init__(self, package: str) -> None:
        super().__init__(
            f'this needs the package {package}, which is not installed: pip install "aioloader[{package}]"'
        )
        self.package = self.name = package


class OutputError(LoaderError):
    """A batch was made, but could not be converted to what ``output`` asks for; why is chained.

    Attributes:
        batch: the batch, as numpy arrays. It is the caller's, but does not count as delivered: a state that is saved
            now begins with it.
    """

    def __init__(self, reason: str, batch: Any) -> None:
        super().__init__(f"the function given as output failed: {reason}")
        self.batch = batch


class ForkedError(LoaderError, RuntimeError):
    """This process was forked from one that had read URLs; the threads that read them did not come along."""

    def __init__(self) -> None:
        super().__init__(
            "this process was forked from one that had read URLs, and cannot read any, because the threads of the "
            "client library are missing here; start processes by 'spawn' or 'forkserver': "
            "multiprocessing.get_context('spawn'), or PyTorch's DataLoader(..., multiprocessing_context='spawn')"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class WorkerError(LoaderError, RuntimeError):
    """Workers cannot be started, or the loader's program cannot be sent to them.

    Attributes:
        exit_code: exit status of the process (negative: the signal's number), or None.
    """

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class StalledError(LoaderError, TimeoutError):
    """A sample made no progress for the loader's ``timeout``.

    Attributes:
        timeout: seconds.
    """

    def __init__(self, timeout: float, advice: str) -> None:
        super().__init__(f"no progress for {timeout:g} s{advice}")
        self.timeout = timeout


class UnknownSchemeError(LoaderError, ValueError):
    """A path is a URL of a kind that is not read.

    Attributes:
        path: the path as given.
        scheme: its scheme, in lower case.
        known: the schemes that are read.
    """

    def __init__(self, path: str, scheme: str, known: Sequence[str]) -> None:
        super().__init__(
            f"{path!r}: URLs of {scheme}:// are not read, those of {', '.join(known)} are. A folder of the file system "
            "whose name looks like that is written with ./ before it"
        )
        self.path = path
        self.scheme = scheme
        self.known = tuple(known)


class ResumeError(LoaderError, ValueError):
    """A state does not belong to this loader, or is damaged.

    Attributes:
        field: name of the entry of the state that differs.
        expected: what this loader has, or needs.
        found: what the state holds.
    """

    def __init__(self, field: str, expected: object, found: object, advice: str = "") -> None:
        text = f"the state does not fit this loader: {field} is {found!r}, expected {expected!r}"
        super().__init__(f"{text}; {advice}" if advice else text)
        self.field = field
        self.expected = expected
        self.found = found


class NotResumableError(LoaderError, TypeError):
    """A pass over this dataset has no state that it could be resumed from."""


class ReceiptError(LoaderError, ValueError):
    """What was delivered is not what the epoch has.

    Attributes:
        field: "samples": their number differs; "digest": as many, but not the same ones.
        expected: what the epoch has.
        found: what the receipt says.
    """

    def __init__(self, field: str, expected: int, found: int, reason: str) -> None:
        super().__init__(reason)
        self.field = field
        self.expected = expected
        self.found = found


class DecodeError(LoaderError, ValueError):
    """Bytes that were meant to be an image are not one, or are damaged.

    Attributes:
        reason: what is wrong, in words.
        format: the format that the first bytes announce ("jpeg", "png", ...), or None.
        nbytes: length of the data in bytes.
    """

    def __init__(self, reason: str, *, format: str | None = None, nbytes: int = 0) -> None:
        what = f"{format} image" if format else "data of unknown format"
        super().__init__(f"cannot decode {what} of {nbytes} bytes: {reason}")
        self.reason = reason
        self.format = format
        self.nbytes = nbytes


class LayoutError(LoaderError, ValueError):
    """The files of a set do not fit together, or do not say what their layout needs.

    Attributes:
        path: the file that is at fault.
        key: key of the record that is, or None.
    """

    def __init__(self, reason: str, *, path: str, key: int | None = None) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.key = key


class SpanTooShortError(LoaderError, EOFError):
    """An item is longer than the span that was read of it: `needed` bytes. Byte sources report it, loaders read again.

    Attributes:
        path: the file.
        offset: where the item begins, bytes.
        planned: bytes that were read.
        needed: bytes that it has.
    """

    def __init__(self, path: str, offset: int, planned: int, needed: int) -> None:
        super().__init__(
            f"{path}, byte {offset}: the item has {needed} bytes, of which {planned} were read; an index that names "
            "a place inside it is wrong, rebuild it with `aioloader index FILE`"
        )
        self.path = path
        self.offset = offset
        self.planned = planned
        self.needed = needed


class SampleError(LoaderError):
    """One sample could not be made. The cause is chained (``__cause__``) with its own type.

    Attributes:
        dataset: name of the dataset's class.
        index: place in the dataset (0-based).
        position: place in the epoch's order (0-based), or None.
        key: the record's key in the .idx, or None.
        path: file that holds the sample, or None.
        offset: byte offset in that file, or None.
        stage: "fetch", "decode", "transform" or "collate"; a transform's name follows a colon.
        reason: the cause in one line.
        replaced_by: index of the sample that took its place, with ``on_error="replace"``; else None.
    """

    def __init__(
        self,
        reason: str,
        *,
        dataset: str,
        index: int,
        stage: str,
        position: int | None = None,
        key: object = None,
        path: str | None = None,
        offset: int | None = None,
    ) -> None:
        super().__init__(reason)
        self.reason = reason
        self.dataset = dataset
        self.index = index
        self.position = position
        self.key = key
        self.path = path
        self.offset = offset
        self.stage = stage
        self.replaced_by: int | None = None

    def facts(self) -> dict[str, Any]:
        """All that it tells, in values that JSON has; the cause's type as `type`."""
        cause = self.__cause__
        return {
            "dataset": self.dataset,
            "index": self.index,
            "position": self.position,
            "key": _plain(self.key),
            "path": self.path,
            "offset": _plain(self.offset),
            "stage": self.stage,
            "type": None if cause is None else type(cause).__name__,
            "reason": self.reason,
            "replaced_by": self.replaced_by,
        }

    def __str__(self) -> str:
        # Made when it is asked for: there may be very many of these.
        place = [f"index {self.index}"]
        if self.key is not None:
            place.append(f"key {self.key!r}")
        if self.path is not None:
            place.append(f"path {self.path}")
        if self.offset is not None:
            place.append(f"offset {self.offset}")
        return f"{self.dataset}: sample at {', '.join(place)} failed in {self.stage}: {self.reason}"


def _plain(value: Any) -> int | str | None:
    """A key or an offset as JSON has it."""
    if value is None or isinstance(value, str):
        return value
    return int(value) if hasattr(value, "__index__") else repr(value)


class RemoteReadError(LoaderError, OSError):
    """Bytes of an object could not be had over the network.

    Attributes:
        url: the object; without a password and without the values of a query.
        offset: first byte that was asked for.
        length: bytes that were asked for; None for the whole object, or what it is.
        attempts: requests that were made for them.
        seconds: from the first request to the last failure.
        reason: what happened at the last one.
        kind: "missing", "denied", "refused", "unranged" (the server does not serve parts of objects), "busy", "lost"
            (no connection, or no whole answer), "nowhere" (the host's name is unknown), or "changed".
    """

    def __init__(
        self,
        url: str,
        offset: int,
        length: int | None,
        *,
        attempts: int,
        seconds: float,
        reason: str,
        kind: str = "lost",
        advice: str = "",
    ) -> None:
        what = "the object" if length is None else f"bytes {offset} to {offset + length - 1}"
        tries = "1 attempt" if attempts == 1 else f"{attempts} attempts in {seconds:.1f} s"
        super().__init__(f"cannot read {what} of {url}: {reason} ({tries}){f'; {advice}' if advice else ''}")
        self.url = url
        self.offset = offset
        self.length = length
        self.attempts = attempts
        self.seconds = seconds
        self.reason = reason
        self.kind = kind


class ObjectMissingError(RemoteReadError, FileNotFoundError):
    """There is no such object."""


class ObjectDeniedError(RemoteReadError, PermissionError):
    """An object must not be read with these credentials, or with none."""


class ObjectChangedError(RemoteReadError):
    """An object is not the one any more that it was when the dataset was made: it was replaced meanwhile."""


class RemoteWriteError(LoaderError, OSError):
    """An object cannot be written over the network.

    Attributes:
        url: the object.
        reason: what happened.
    """

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"cannot write {url}: {reason}; see docs/remote.md for credentials and what can be written to"
        )
        self.url = url
        self.reason = reason


class TooManyErrorsError(LoaderError):
    """More samples failed than ``max_errors`` allows; the last one is chained.

    Attributes:
        max_errors: the limit that was set.
        count: failed samples: of the loader so far, or, where the limit is a share, of this pass.
        samples: samples of this pass so far, failed ones included, where the limit is a share; else None.
        errors: the failed samples, where there is no loader that has them.
    """

    def __init__(
        self,
        max_errors: float,
        count: int,
        samples: int | None = None,
        advice: str = "see loader.errors for all of them",
    ) -> None:
        of = "" if samples is None else f" of {samples}"
        super().__init__(f"{count}{of} samples failed, more than max_errors={max_errors}; {advice}")
        self.max_errors = max_errors
        self.count = count
        self.samples = samples
        self.errors: Sequence[SampleError] = ()


def error_report(errors: Iterable[SampleError]) -> dict[str, Any]:
    """Failed samples as a JSON object.

    Args:
        errors: what failed, such as `AsyncDataLoader.errors`.

    Returns:
        ``count``; ``by_reason``: how many samples failed of each type of cause, most first; ``errors``: one object for
        each, see `SampleError.facts`.
    """
    facts = [error.facts() for error in errors]
    counts = Counter(str(each["type"]) for each in facts)
    return {"count": len(facts), "by_reason": dict(counts.most_common()), "errors": facts}


def single(error: BaseException) -> BaseException:
    """The error itself where a task group wrapped it; of several the first, with the others told in a note."""
    while isinstance(error, BaseExceptionGroup):
        first, *others = error.exceptions
        if others:
            first.add_note("raised together with: " + "; ".join(map(repr, others)))
        error = first
    return error
