"""Errors of aioloader. Facts are attributes, the text says what to do next.

Every error survives pickling with its attributes, because it may have been raised in a worker process.
"""

from __future__ import annotations

import math
from collections import Counter
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence
    from datetime import datetime

__all__ = (
    "AmbiguousPathError",
    "AspectRatioError",
    "BatchDtypeError",
    "BatchMemoryError",
    "BatchShapeError",
    "BitDepthWarning",
    "BudgetError",
    "CropIndexBusyError",
    "CropIndexError",
    "CropIndexWarning",
    "DecodeError",
    "EmptyDatasetError",
    "ForkedError",
    "ImageError",
    "ImageFetchError",
    "ImageNotAllowedError",
    "ImageReferenceError",
    "ImageServiceError",
    "ImageTimeoutError",
    "ImageTooLargeError",
    "LayoutError",
    "LoaderClosedError",
    "LoaderError",
    "MissingFieldError",
    "MissingPackageError",
    "NotResumableError",
    "ObjectChangedError",
    "ObjectDeniedError",
    "ObjectMissingError",
    "OfflineWarning",
    "OutputError",
    "ParquetError",
    "ReceiptError",
    "RemoteReadError",
    "RemoteWriteError",
    "ResumeError",
    "SampleCacheWarning",
    "SampleError",
    "SampleFormatError",
    "ServiceClosedError",
    "ServiceMemoryError",
    "ServiceOverloadedError",
    "SpanTooShortError",
    "StalledError",
    "TooManyErrorsError",
    "UnevenStepsWarning",
    "UnknownFormatError",
    "UnknownSchemeError",
    "UnshardedWarning",
    "WorkerError",
    "error_report",
    "single",
)

# A share is compared from this number of samples on: one failure among the first few says little about the share.
SHARE_AFTER = 1000
_ROUNDING = 1 + 1e-12


def _rebuild(cls: type[Exception], args: tuple[Any, ...], facts: dict[str, Any]) -> Exception:
    # Python refuses the `__new__` of another base for an OSError, whose objects are larger.
    base: type = OSError if issubclass(cls, OSError) else cls
    error: Exception = base.__new__(cls, *args)
    error.args = args
    error.__dict__.update(facts)
    return error


class LoaderError(Exception):
    """Base class of aioloader's errors."""

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (type(self), self.args, self.__dict__.copy())


class LoaderClosedError(LoaderError, RuntimeError):
    """Error raised by a closed loader; make a new one."""


class MissingPackageError(LoaderError, ImportError):
    """Error raised when an optional package is needed and not installed.

    Attributes:
        package: its name.
        extra: name of the extra that installs it; by default the package's name.

    Args:
        package, extra: see above.
        what: what needs it, with the verb.
    """

    def __init__(self, package: str, *, extra: str | None = None, what: str = "this needs") -> None:
        extra = extra or package
        super().__init__(
            f'{what} the package {package}, which is not installed: pip install "aioloader[{extra}]"'
        )
        self.package = self.name = package
        self.extra = extra


class OutputError(LoaderError):
    """Error raised when the conversion of a batch to ``output`` fails; the cause is chained.

    Attributes:
        batch: the batch, as numpy arrays. It belongs to the caller, but does not count as delivered: a state saved now
            begins with it.
    """

    def __init__(self, reason: str, batch: Any) -> None:
        super().__init__(f"the function given as output failed: {reason}")
        self.batch = batch


class ForkedError(LoaderError, RuntimeError):
    """Error raised in a process forked from one that had read URLs: the threads that read them do not exist in it."""

    def __init__(self) -> None:
        super().__init__(
            "this process was forked from one that had read URLs. It cannot read any, because the threads of the "
            "client library do not exist in it. Start processes by 'spawn' or 'forkserver': "
            "multiprocessing.get_context('spawn'), or PyTorch's DataLoader(..., multiprocessing_context='spawn')"
        )

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), ()


class WorkerError(LoaderError, RuntimeError):
    """Error raised when workers cannot be started, or the loader's program cannot be sent to them.

    Attributes:
        exit_code: exit status of the process (negative: the signal's number), or None.
    """

    def __init__(self, message: str, *, exit_code: int | None = None) -> None:
        super().__init__(message)
        self.exit_code = exit_code


class ForkRefusedError(WorkerError):
    """Error raised when workers cannot be forks of this process (``executor="fork"``).

    Attributes:
        reason: why, in words.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"workers cannot be forks of this process: {reason}. Use executor='process'")
        self.reason = reason

    def __reduce__(self) -> tuple[Any, ...]:
        return type(self), (self.reason,)


class ForkWarning(UserWarning):
    """Warning that workers are forks of a process in which other threads run.

    Attributes:
        threads: names of the threads.
    """

    def __init__(self, threads: Sequence[str]) -> None:
        super().__init__(
            f"workers become forks of this process, in which other threads run ({', '.join(threads)}): a lock that one "
            "of them holds at that moment is never released in a worker, which may then hang. Use executor='process', "
            "or take the first batch before the threads start"
        )
        self.threads = tuple(threads)


class ThreadStartError(LoaderError, RuntimeError):
    """Error raised when the system refuses a thread, because of a limit of processes or of memory.

    Attributes:
        name: name of the thread.
    """

    def __init__(self, name: str) -> None:
        super().__init__(
            f"the system refused the thread {name}: raise the limit of processes (ulimit -u, the container's pids), or "
            "use fewer workers and loaders at a time"
        )
        self.name = name


class UnprintableError(LoaderError):
    """Replacement of an exception that a sample raised and that cannot be printed: its ``__str__`` or the like fails.

    They may also fail only in `DataLoader.errors`, where exceptions lose the large objects that they refer to.

    Attributes:
        type_name: name of that exception's class.
    """

    def __init__(self, type_name: str, text: str) -> None:
        super().__init__(text)
        self.type_name = type_name


class StalledError(LoaderError, TimeoutError, RuntimeError):
    """Error of a sample that made no progress for the loader's ``timeout``.

    Attributes:
        timeout: seconds; NaN if the error was made again from its text.

    Args:
        timeout: seconds; or the whole text, from which torch makes errors of other processes again.
        advice: rest of the text.
    """

    def __init__(self, timeout: float | str, advice: str = "") -> None:
        if isinstance(timeout, str):
            super().__init__(timeout + advice)
            self.timeout = math.nan
        else:
            super().__init__(f"no progress for {timeout:g} s{advice}")
            self.timeout = timeout


class UnknownSchemeError(LoaderError, ValueError):
    """Error raised for a path that is a URL with an unsupported scheme.

    Attributes:
        path: the path as given.
        scheme: its scheme, in lower case.
        known: the supported schemes.
    """

    def __init__(self, path: str, scheme: str, known: Sequence[str]) -> None:
        super().__init__(
            f"{path!r}: {scheme}:// URLs are not read; supported schemes are {', '.join(known)}. If it is a folder "
            "with such a name, put ./ before it"
        )
        self.path = path
        self.scheme = scheme
        self.known = tuple(known)


class ResumeError(LoaderError, ValueError):
    """Error raised when a state belongs to other data or options than this loader, or is damaged.

    Attributes:
        field: name of the entry of the state that differs.
        expected: the value of this loader.
        found: the value in the state.
    """

    def __init__(self, field: str, expected: object, found: object, advice: str = "") -> None:
        text = f"the state does not fit this loader: {field} is {found!r}, expected {expected!r}"
        super().__init__(f"{text}; {advice}" if advice else text)
        self.field = field
        self.expected = expected
        self.found = found


class NotResumableError(LoaderError, TypeError):
    """Error raised when an epoch of this dataset cannot be resumed, because its source has no state."""


class ReceiptError(LoaderError, ValueError):
    """Error raised when the delivered samples are not those of the epoch.

    Attributes:
        field: "samples": their number differs; "digest": the number is right, but other samples were delivered.
        expected: the epoch's value.
        found: the receipt's value.
    """

    def __init__(self, field: str, expected: int, found: int, reason: str) -> None:
        super().__init__(reason)
        self.field = field
        self.expected = expected
        self.found = found


class BatchShapeError(LoaderError, ValueError):
    """Error raised when the shape of a sample does not fit its batch.

    Attributes:
        place: place of the sample among those that the batchify function was called with.
        shape: shape of its array, or None if it has a nesting of lists that does not fit.
        expected: the shape or the limit that it does not fit, as text.
        field: the field of the sample, such as "[1]", "['boxes']" or ".label"; "" if the sample is one array, or the
            batchify function does not treat fields separately.
        index: index of the sample in the dataset, or None; known where the loader stacks the samples itself.
    """

    def __init__(
        self,
        reason: str,
        *,
        place: int,
        shape: tuple[int, ...] | None = None,
        expected: str = "",
        field: str = "",
    ) -> None:
        super().__init__(f"field {field}: {reason}" if field else reason)
        self.place = place
        self.shape = shape
        self.expected = expected
        self.field = field
        self.index: int | None = None
        self._reason = reason

    def in_field(self, field: str) -> BatchShapeError:
        """Return the same error, for a field around that of this error."""
        return BatchShapeError(
            self._reason,
            place=self.place,
            shape=self.shape,
            expected=self.expected,
            field=f"{field}{self.field}",
        )


class BatchDtypeError(LoaderError, TypeError):
    """Error raised when samples of a batch that keeps their dtype have different dtypes.

    Attributes:
        place: place of the sample that differs from the first one, among those that the function was called with.
        dtype: numpy name of its dtype.
        expected: numpy name of the dtype of the samples before it.
    """

    def __init__(self, place: int, dtype: str, expected: str, *, function: str) -> None:
        super().__init__(
            f"{function} keeps the dtype of the samples, so they must agree: sample {place} has dtype {dtype}, those "
            f"before it {expected}; convert them in a transform"
        )
        self.place = place
        self.dtype = dtype
        self.expected = expected


class BudgetError(LoaderError, ValueError):
    """Error raised when an item alone costs more than the budget of a batch, or less than nothing.

    Attributes:
        item: the item's index or place; None if it has none.
        cost: its cost.
        budget: the budget.
    """

    def __init__(self, cost: int, budget: int, *, item: int | None = None) -> None:
        named = "an item" if item is None else f"item {item}"
        if cost < 0:
            text = f"{named} costs {cost:,}, and costs must not be negative"
        else:
            text = (
                f"{named} costs {cost:,}, and the budget of a batch is {budget:,}: raise the budget, make the item "
                "smaller (resize it), or leave it out of the dataset"
            )
        super().__init__(text)
        self.item = item
        self.cost = cost
        self.budget = budget


class BatchMemoryError(LoaderError):
    """Error raised when a batch does not fit into slab memory.

    Attributes:
        samples: number of samples of the batch.
        nbytes: bytes that they are known to need, encoded and made.
        memory_limit: bytes of the slab memory.
        held: bytes of batches that you keep, here or in forks of this process.
    """

    def __init__(self, samples: int, nbytes: int, memory_limit: int, held: int) -> None:
        super().__init__(
            f"a batch of {samples} samples needs {nbytes} bytes, but of memory_limit={memory_limit} bytes "
            f"only {memory_limit - held} are not held by batches that you keep, here or in forks of this process: "
            "raise memory_limit, make batches smaller, or keep fewer of them"
        )
        self.samples = samples
        self.nbytes = nbytes
        self.memory_limit = memory_limit
        self.held = held


class DecodeError(LoaderError, ValueError):
    """Error raised when bytes are not an image, or a damaged one.

    Attributes:
        reason: the fault, in words.
        format: the format according to the first bytes ("jpeg", "png", ...), or None.
        nbytes: length of the data in bytes.
    """

    def __init__(self, reason: str, *, format: str | None = None, nbytes: int = 0) -> None:
        what = f"{format} image" if format else "data of unknown format"
        super().__init__(f"cannot decode {what} of {nbytes} bytes: {reason}")
        self.reason = reason
        self.format = format
        self.nbytes = nbytes


class BitDepthWarning(UserWarning):
    """Warning about the first image of a process of whose samples only the upper 8 bits are delivered.

    Attributes:
        bits: of a sample of the image.
        format: its format ("png", "tiff", ...).
        path: file that it is from, or None.
    """

    def __init__(self, bits: int, *, format: str, path: str | None = None) -> None:
        super().__init__(
            f"{'an image' if path is None else path} ({format}) has samples of {bits} bits, which become 8 bits; to "
            "keep them, pass flag=-1 to the dataset or to decode_image, or --color -1 to `aioloader pack`"
        )
        self.bits = bits
        self.format = format
        self.path = path

    def __reduce__(self) -> tuple[Any, ...]:  # it may be raised in a worker, as an error
        return _rebuild, (type(self), self.args, self.__dict__.copy())


class AspectRatioError(LoaderError, ValueError):
    """Error raised when an image is too long and narrow for a processor.

    Attributes:
        height, width: extents of the image in pixels.
        limit: the largest ratio of the longer side to the shorter one that is accepted.
    """

    def __init__(self, height: int, width: int, limit: int) -> None:
        super().__init__(
            f"an image of {height} x {width} (height x width) is refused: its longer side may be at most {limit} times "
            "as long as the shorter one; crop it, or leave it out"
        )
        self.height = height
        self.width = width
        self.limit = limit


class LayoutError(LoaderError, ValueError):
    """Error raised when the files of a dataset contradict each other, or lack what their layout requires.

    Attributes:
        path: the faulty file.
        key: key of the faulty record, or None.
    """

    def __init__(self, reason: str, *, path: str, key: int | None = None) -> None:
        super().__init__(f"{path}: {reason}")
        self.path = path
        self.key = key


class UnknownFormatError(LoaderError, ValueError):
    """Error raised when a path is not a data set of a format that is read.

    Attributes:
        path: the path.
        found: description of what is there.
        advice: what helps, or "".
    """

    def __init__(self, path: str, found: str, *, advice: str = "", supported: str = "") -> None:
        text = f"{path!r} is {found}{f': {advice}' if advice else ''}"
        super().__init__(f"{text}. These can be read: {supported}" if supported else text)
        self.path = path
        self.found = found
        self.advice = advice


class EmptyDatasetError(LoaderError, ValueError):
    """Error raised by a loader of `aioloader.images`, and by `aioloader bench` and `pack`, if files have no samples.

    Attributes:
        path: the file, or the first one of several.
        files: number of files.
    """

    def __init__(self, path: str, files: int) -> None:
        others = f" and the {files - 1:,} file{'s' * (files > 2)} after it" if files > 1 else ""
        super().__init__(
            f"there are no samples in {path!r}{others}: check how the files were made; `aioloader verify` finds damage"
        )
        self.path = path
        self.files = files


class AmbiguousPathError(LoaderError, ValueError):
    """Error raised when a folder contains several data sets, and the path does not say which of them is meant.

    Attributes:
        path: the folder.
        choices: a path or pattern for each data set.
        reason: description of what the folder contains.
        images: True if its own sub-folders of images are one of the data sets.
        nested: True if each choice is a folder with a sub-folder of images for each class.
    """

    def __init__(
        self,
        path: str,
        choices: Sequence[str],
        reason: str,
        *,
        images: bool = False,
        nested: bool = False,
        advice: str = "",
    ) -> None:
        text = f"{path!r} contains {reason}: pass one of {', '.join(map(repr, choices))}"
        super().__init__(f"{text}{advice}")
        self.path = path
        self.choices = tuple(choices)
        self.reason = reason
        self.images = images
        self.nested = nested


class MissingFieldError(LoaderError, ValueError):
    """Error raised when a sample does not have a field that was asked for.

    Attributes:
        field: the name, or several names separated by ``;``.
        found: names of the fields that the sample has.
        path: the shard, or None.
        key: key of the sample; None in a worker, where the `SampleError` has it.
    """

    def __init__(
        self, field: str, found: Sequence[str], *, path: str | None = None, key: object = None
    ) -> None:
        has = ", ".join(sorted(found)[:20]) or "no field"
        sample = "a sample" if key is None else f"the sample {key!r}"
        super().__init__(
            f"{sample} of {path} has no field {field!r}; it has {has}: pass the names of yours as image=, "
            "label= or fields= to the dataset"
        )
        self.field = field
        self.found = tuple(found)
        self.path = path
        self.key = key


class SampleFormatError(LoaderError, ValueError):
    """Error raised when a shard, or a sample in it, is not what its format demands: damaged, truncated or changed.

    Attributes:
        reason: the fault, in words.
        path: the shard, or None.
        offset: where in it, bytes, or None.
        key: key of the sample, or None.
        expected, found: what should be there, and what is; None where the fault is of another kind.
    """

    def __init__(
        self,
        reason: str,
        *,
        path: str | None = None,
        offset: int | None = None,
        key: object = None,
        expected: object = None,
        found: object = None,
    ) -> None:
        place = "" if path is None else f"{path}: " if offset is None else f"{path}, byte {offset}: "
        facts = "" if expected is None else f" (expected {expected}, found {found})"
        super().__init__(f"{place}{reason}{facts}")
        self.reason = reason
        self.path = path
        self.offset = offset
        self.key = key
        self.expected = expected
        self.found = found


class ParquetError(SampleFormatError):
    """Error raised when a Parquet file, a row group or a row cannot be read, or the file lacks a column.

    Attributes:
        reason, path, offset, expected, found: see `SampleFormatError`.
        row_group: number of the row group in the file, or None.
        row: number of the row in the file, or None; it is also the `key`.
    """

    def __init__(
        self,
        reason: str,
        *,
        path: str,
        offset: int | None = None,
        row_group: int | None = None,
        row: int | None = None,
        expected: object = None,
        found: object = None,
    ) -> None:
        places = (("row group", row_group), ("row", row))
        where = ", ".join(f"{name} {number}" for name, number in places if number is not None)
        text = f"{where}: {reason}" if where else reason
        super().__init__(text, path=path, offset=offset, key=row, expected=expected, found=found)
        self.reason = reason
        self.row_group = row_group
        self.row = row


class CropIndexError(LoaderError, ValueError):
    """Error raised when a file is not a crop index, is a damaged one, or is that of other data.

    Attributes:
        path: the file.
        reason: the fault, in words.
    """

    def __init__(self, reason: str, *, path: str) -> None:
        super().__init__(f"{path}: {reason}; make it again with `aioloader index --crops PATH`")
        self.path = path
        self.reason = reason


class CropIndexBusyError(LoaderError, BlockingIOError):
    """Error raised when another process writes the same crop index.

    Attributes:
        path: the file.
    """

    def __init__(self, path: str) -> None:
        super().__init__(f"another process is writing {path}; wait until it ends")
        self.path = path


class CropIndexWarning(UserWarning):
    """Warning about a crop index that cannot be used, or does not fit its images: crops are decoded as without it.

    Also issued where one is made without the compiled part, which takes a hundred times as long.
    """


class SampleCacheWarning(UserWarning):
    """Warning about kept samples that cannot be used, or samples that cannot be kept: they are made in each epoch."""


class UnshardedWarning(UserWarning):
    """Warning about a loader that shuffles in one of several ranks and has no ``shard``: each gets all samples."""


class UnevenStepsWarning(UserWarning):
    """Warning about the state of a rank that is further than other ranks are after as many batches."""


class IncompleteItemError(LoaderError):
    """Error of a sample that cannot be made of the parts of its item that were read; the loader reads the whole item.

    Attributes:
        reason: description of what is missing or wrong.
    """

    def __init__(self, reason: str) -> None:
        super().__init__(f"the parts of this item that were read are not enough: {reason}")
        self.reason = reason


class SpanTooShortError(LoaderError, EOFError):
    """Error reported by a byte source when an item is longer than its span; loaders read it again with `needed` bytes.

    Attributes:
        path: the file.
        offset: where the item begins, bytes.
        planned: bytes that were read.
        needed: length of the item in bytes.
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
    """Error of one sample. The cause is chained (``__cause__``) with its own type.

    Attributes:
        dataset: name of the dataset's class.
        index: place in the dataset (0-based).
        position: place in the epoch's order (0-based), or None.
        key: the record's key in the .idx, or None.
        path: file that contains the sample, or None.
        offset: byte offset in that file, or None.
        stage: "fetch", "decode", "transform" or "collate"; a transform's name follows a colon. "dataset": the
            dataset's own ``__getitem__``. Of a sample whose worker died or hung: the stage that it had entered last, or
            "transform" where that is not known (with Ray).
        reason: the cause in one line.
        replaced_by: index of the sample that replaces it, with ``on_error="replace"``; else None.
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
        """Return all attributes as JSON values, and the type of the cause as `type`."""
        cause = self.__cause__
        names = (
            "dataset",
            "index",
            "position",
            "key",
            "path",
            "offset",
            "stage",
            "type",
            "reason",
            "replaced_by",
        )
        if isinstance(cause, UnprintableError):
            name: str | None = cause.type_name
        else:
            name = None if cause is None else class_name(cause)
        facts = {**vars(self), "type": name}
        return {each: _plain(facts[each]) for each in names}

    def __str__(self) -> str:
        # Formatted on demand: a run may record very many of these.
        place = [f"index {self.index}"]
        if self.key is not None:
            place.append(f"key {self.key!r}")
        if self.path is not None:
            place.append(f"path {self.path}")
        if self.offset is not None:
            place.append(f"offset {self.offset}")
        return f"{self.dataset}: sample at {', '.join(place)} failed in {self.stage}: {self.reason}"


def class_name(error: BaseException) -> str:
    """Return the name of an exception's class, also where a metaclass hides it."""
    name: str = type.__dict__["__name__"].__get__(type(error))
    return name


def _plain(value: Any) -> int | str | None:
    """Return a fact as a JSON value; a key and an offset may be of any type."""
    if value is None or isinstance(value, str):
        return value
    return int(value) if hasattr(value, "__index__") else repr(value)


class RemoteReadError(LoaderError, OSError):
    """Error raised when bytes of an object cannot be read over the network.

    Attributes:
        url: the object, without a password and without the values of a query.
        offset: first byte of the request.
        length: number of requested bytes; None for the whole object, or for its attributes.
        attempts: number of requests sent for them.
        seconds: from the first request to the last failure.
        reason: the failure of the last one.
        kind: "missing", "denied", "refused", "unranged" (the server does not serve parts of objects), "busy", "lost"
            (no whole answer), "unreached" (no connection), "nowhere" (the host's name is unknown), or "changed".
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
    """Error raised when an object does not exist."""


class ObjectDeniedError(RemoteReadError, PermissionError):
    """Error raised when the server denies access to an object with these credentials, or without any."""


class ObjectChangedError(RemoteReadError):
    """Error raised when an object was replaced after the dataset was made."""


class OfflineWarning(UserWarning):
    """Warning about a dataset that is opened from its cache alone, because no server is reached.

    Attributes:
        url: first of its objects, without a password and without the values of a query.
        at: when the server last described the object.
        version: of the object then: its size, and its ETag or date; "" if it is none but a listing.
        reason: the failure of the last request.
    """

    def __init__(self, url: str, at: datetime, version: str, reason: str) -> None:
        copy = f"the copy of {at:%Y-%m-%d %H:%M} UTC" + (f" ({version})" if version else "")
        super().__init__(f"no server is reached at {url} ({reason}): {copy} in the cache is used")
        self.url = url
        self.at = at
        self.version = version
        self.reason = reason


class RemoteWriteError(LoaderError, OSError):
    """Error raised when an object cannot be written over the network.

    Attributes:
        url: the object.
        reason: the failure.
    """

    def __init__(self, url: str, reason: str) -> None:
        super().__init__(
            f"cannot write {url}: {reason}; see the page Remote data for credentials and writable stores"
        )
        self.url = url
        self.reason = reason


class ImageServiceError(LoaderError):
    """Base class of the errors of an image service."""


class ServiceClosedError(ImageServiceError, LoaderClosedError):
    """Error raised by an image service that is not open: use it inside ``async with`` or ``with``."""


class ServiceOverloadedError(ImageServiceError):
    """Error raised by a service with ``overflow="raise"`` that has no room for another image.

    Attributes:
        pending: images that calls wait for, and headers that are read.
        max_pending: the limit.
        share: the lower limit of those that are read from the same server, or the same kind of source, if they have
            reached it; else None.
    """

    def __init__(self, pending: int, max_pending: int, share: int | None = None) -> None:
        most = "" if share is None else f", {share} at most of one server or kind of source"
        super().__init__(
            f"the image service has {pending} images pending, and max_pending={max_pending}{most}: try again later, "
            "send requests to another service, or wait for room with overflow='wait'"
        )
        self.share = share
        self.pending = pending
        self.max_pending = max_pending


class ServiceMemoryError(ImageServiceError):
    """Error raised by a service whose slab memory has no room for an image.

    Attributes:
        nbytes: bytes that the image needs, encoded and made, with those that share its worker's work.
        memory_limit: bytes of the slab memory.
        held: bytes of images that callers keep.
    """

    def __init__(self, nbytes: int, memory_limit: int, held: int) -> None:
        super().__init__(
            f"an image needs {nbytes:,} bytes, and memory_limit={memory_limit:,} has no room for them, because callers "
            f"hold {held:,}: raise memory_limit, or keep fewer images"
            if nbytes <= memory_limit
            else f"an image needs {nbytes:,} bytes, more than memory_limit={memory_limit:,}: raise memory_limit, or "
            "refuse such images with max_pixels"
        )
        self.nbytes = nbytes
        self.memory_limit = memory_limit
        self.held = held


class ImageTimeoutError(ImageServiceError, TimeoutError):
    """Error of an image that was not ready in time.

    Attributes:
        reference: short text that names the image.
        timeout: seconds.
        phase: what it waited for: "admission" (room in the service), "queue", "read" or "work".
    """

    def __init__(self, reference: str, timeout: float, phase: str) -> None:
        advice = {
            "admission": "the service has max_pending images already",
            "queue": "it waited for a worker: use more workers, or fewer requests at a time",
            "read": "its bytes did not arrive",
            "work": "it was being decoded or processed",
        }[phase]
        super().__init__(f"{reference} was not ready within {timeout:g} s: {advice}")
        self.reference = reference
        self.timeout = timeout
        self.phase = phase


class ImageError(ImageServiceError):
    """Error of one image that could not be made; the cause is chained (``__cause__``).

    Attributes:
        reference: short text that names the image.
        stage: "read", "decode", "transform:<name>" or "collate", as in `SampleError`.
        reason: the cause in one line.
    """

    def __init__(self, reference: str, stage: str, reason: str) -> None:
        super().__init__(f"{reference}: {reason} (in the stage {stage})")
        self.reference = reference
        self.stage = stage
        self.reason = reason


class ImageReferenceError(ImageServiceError, ValueError):
    """Error raised for a reference that is not one to an image.

    Attributes:
        reference: short text that names it; no query of a URL, and no credentials.
        kind: its kind, a word of ``allow=``; None where that is not known.
        reason: the fault, in words.
    """

    def __init__(self, reference: str, reason: str, *, kind: str | None = None) -> None:
        super().__init__(f"{reference}: {reason}")
        self.reference = reference
        self.kind = kind
        self.reason = reason


class ImageNotAllowedError(ImageReferenceError, PermissionError):
    """Error raised for a reference of a kind, to a host or to a path that the service does not allow."""


class ImageTooLargeError(ImageReferenceError):
    """Error raised for an image that exceeds a limit of the service.

    Attributes:
        what: "bytes", "pixels" or "frames".
        limit: the largest number that is allowed.
        found: the image's number; None where reading stopped at the limit.
    """

    def __init__(
        self, reference: str, what: str, limit: int, found: int | None = None, *, kind: str | None = None
    ) -> None:
        has = f"more than {limit:,}" if found is None else f"{found:,}"
        super().__init__(reference, f"it has {has} {what}, and max_{what} is {limit:,}", kind=kind)
        self.what = what
        self.limit = limit
        self.found = found


class ImageFetchError(ImageReferenceError, OSError):
    """Error raised for a URL or a path that could not be read.

    Attributes:
        status: status of the HTTP response, or None.
    """

    def __init__(
        self, reference: str, reason: str, *, status: int | None = None, kind: str | None = None
    ) -> None:
        super().__init__(reference, reason, kind=kind)
        self.status = status


class TooManyErrorsError(LoaderError):
    """Error raised when more samples failed than ``max_errors`` or ``max_error_rate`` allows; the last one is chained.

    Attributes:
        max_errors: the limit: a number of samples, or a share of them.
        count: number of failed samples: of the loader so far, or, if the limit is a share, of this epoch.
        samples: number of samples of this epoch so far, failed ones included, if the limit is a share; else None.
        errors: the failed samples, if no loader keeps them.
    """

    def __init__(
        self,
        max_errors: float,
        count: int,
        samples: int | None = None,
        advice: str = "see loader.errors for all of them",
        *,
        option: str = "max_errors",
    ) -> None:
        of = "" if samples is None else f" of {samples}"
        super().__init__(f"{count}{of} samples failed, more than {option}={max_errors}; {advice}")
        self.max_errors = max_errors
        self.count = count
        self.samples = samples
        self.errors: Sequence[SampleError] = ()


def over_budget(
    limit: float | None,
    total: int,
    failed: int,
    samples: int,
    at_end: bool = False,
    *,
    option: str = "max_errors",
) -> TooManyErrorsError | None:
    """Return the error if too many samples failed, or None.

    Args:
        limit: an integer is a number of samples, a float less than 1 a share of them; None: no limit.
        total: failed samples so far, in all epochs; compared with a limit that is a number.
        failed: failed samples of this epoch.
        samples: samples of this epoch so far, failed ones included.
        at_end: the epoch is over, so that a share is compared after fewer samples too.
        option: name of the option that set the limit, for the error.
    """
    if limit is None:
        return None
    if hasattr(limit, "__index__"):
        return TooManyErrorsError(limit, total, option=option) if total > limit else None
    if samples < SHARE_AFTER and not at_end:
        return None
    if failed > limit * samples * _ROUNDING:
        return TooManyErrorsError(limit, failed, samples, option=option)
    return None


def error_report(errors: Iterable[SampleError]) -> dict[str, Any]:
    """Return failed samples as a JSON object.

    Args:
        errors: the failed samples, such as `AsyncDataLoader.errors`.

    Returns:
        ``count``; ``by_reason``: how many samples failed of each type of cause, most first; ``errors``: one object for
        each, see `SampleError.facts`.
    """
    facts = [error.facts() for error in errors]
    counts = Counter(str(each["type"]) for each in facts)
    return {"count": len(facts), "by_reason": dict(counts.most_common()), "errors": facts}


def single(error: BaseException) -> BaseException:
    """Return the error that a task group wrapped; of several the first, with a note that lists the others."""
    while isinstance(error, BaseExceptionGroup):
        first, *others = error.exceptions
        if others:
            first.add_note("raised together with: " + "; ".join(map(repr, others)))
        error = first
    return error
