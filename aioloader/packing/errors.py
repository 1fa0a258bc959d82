"""Errors of packing, and how those of images are reported, when they end packing, and how the journal stores them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.errors import (
    DecodeError,
    LoaderError,
    MissingFieldError,
    SampleError,
    SampleFormatError,
    TooManyErrorsError,
    over_budget,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioloader.packing.sources import Source

_JOURNALLED = ("index", "position", "key", "path", "stage")


class PackError(LoaderError, ValueError):
    """Error raised when an image cannot be packed; the cause is chained.

    Attributes:
        path: its file.
        reason: the cause in one line.
    """

    def __init__(self, path: str, reason: str) -> None:
        super().__init__(f"cannot pack {path}: {reason}")
        self.path = path
        self.reason = reason


class PackBusyError(LoaderError, BlockingIOError):
    """Error raised when another process is packing into the same files.

    Attributes:
        out: path of the output of both, without its extension.
        pid: the other process, or None where it is not known.
    """

    def __init__(self, out: str, pid: int | None) -> None:
        who = "another process" if pid is None else f"process {pid}"
        super().__init__(f"{who} is packing into {out}; wait until it ends, or choose another name")
        self.out = out
        self.pid = pid


def failure_of(source: Source, number: int, position: int, cause: BaseException) -> SampleError:
    """Return the error that reports a failed image.

    Args:
        source: the source of the image.
        number: its number in the source.
        position: its position in the packing order.
        cause: the original exception.
    """
    stage, reason = "encode", str(cause)
    if isinstance(cause, OSError):
        stage = "read"
    elif isinstance(cause, PackError):
        reason = cause.reason
    elif isinstance(cause, SampleFormatError):
        facts = "" if cause.expected is None else f" (expected {cause.expected}, found {cause.found})"
        reason = f"{cause.reason}{facts}"
    elif isinstance(cause, MissingFieldError):
        reason = (
            f"it has no field {cause.field!r}, but {', '.join(cause.found) or 'none'}: choose others with image, label "
            "and fields (--image, --label, --fields); no_label (--no-label) packs all images with the label 0"
        )
    failed = SampleError(
        reason,
        dataset="pack",
        index=number,
        position=position,
        key=source.item(number).key,
        path=source.place(number),
        stage=stage,
    )
    failed.__cause__ = cause
    return failed


def as_raised(failed: SampleError) -> BaseException:
    """Return the exception that ends packing: the original `OSError`, or a `PackError` that names the file."""
    cause = failed.__cause__
    if isinstance(cause, (OSError, PackError)):
        return cause
    error = PackError(str(failed.path), failed.reason)
    error.__cause__ = cause
    return error


def check_errors(limit: float | None, errors: Sequence[SampleError], done: int, at_end: bool = False) -> None:
    """Raise an error if more images failed than are allowed.

    Args:
        limit: largest number or share of failed images; None: no limit.
        errors: errors of the failed images.
        done: number of images processed.
        at_end: whether all images are processed.

    Raises:
        TooManyErrorsError: more did; its `errors` has them.
    """
    too_many = over_budget(limit, len(errors), len(errors), done, at_end)
    if too_many is not None:
        last = errors[-1]
        error = TooManyErrorsError(too_many.max_errors, len(errors), too_many.samples, f"the last: {last}")
        error.errors = tuple(errors)
        raise error from last


def record_of(error: SampleError) -> dict[str, Any]:
    """Return an error as JSON values; `recorded` is the inverse."""
    cause = error.__cause__
    kept: dict[str, Any] = {name: getattr(error, name) for name in ("reason", *_JOURNALLED)}
    kept["by"] = error.replaced_by
    if isinstance(cause, DecodeError):
        kept["cause"] = ["decode", cause.reason, cause.format, cause.nbytes]
    elif isinstance(cause, OSError) and cause.errno is not None:
        kept["cause"] = ["system", cause.errno, cause.strerror, cause.filename]
    else:
        kept["cause"] = ["other", type(cause).__name__]
    return kept


def recorded(kept: Mapping[str, Any]) -> SampleError:
    """Return the error that `record_of` converted; of a cause of a rare type only the type's name is restored."""
    error = SampleError(kept["reason"], dataset="pack", **{name: kept[name] for name in _JOURNALLED})
    error.replaced_by = kept["by"]
    kind, *facts = kept["cause"]
    cause: BaseException
    if kind == "decode":
        cause = DecodeError(facts[0], format=facts[1], nbytes=facts[2])
    elif kind == "system":
        cause = OSError(*facts)
    else:
        cause = type(str(facts[0]), (PackError,), {})(kept["path"] or "", kept["reason"])
    error.__cause__ = cause
    return error
