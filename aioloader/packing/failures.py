"""Images that failed: what is told of them, what ends a packing, and how a journal keeps them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.errors import DecodeError, SampleError, TooManyErrorsError
from aioloader.foundation.error_budget import over_budget
from aioloader.packing.errors import PackError

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from aioloader.packing.sources import Source

__all__ = ("as_raised", "check_errors", "failure_of", "none_packed", "record_of", "recorded")


def failure_of(source: Source, number: int, position: int, cause: BaseException) -> SampleError:
    """What is told of an image that failed.

    Args:
        source: where it is from.
        number: its number there.
        position: its place in the order of packing.
        cause: why.
    """
    stage, reason = "encode", str(cause)
    if isinstance(cause, OSError):
        stage = "read"
    elif isinstance(cause, PackError):
        reason = cause.reason
    failed = SampleError(
        reason,
        dataset="pack",
        index=number,
        position=position,
        key=source.items[number].key,
        path=source.place(number),
        stage=stage,
    )
    failed.__cause__ = cause
    return failed


def as_raised(failed: SampleError) -> BaseException:
    """What ends a packing: the system's own error, or a `PackError` that names the file."""
    cause = failed.__cause__
    if isinstance(cause, (OSError, PackError)):
        return cause
    error = PackError(str(failed.path), failed.reason)
    error.__cause__ = cause
    return error


def none_packed(failed: SampleError, count: int, part: str) -> PackError:
    """What ends a packing of which nothing is left.

    Args:
        failed: the first image of the part.
        count: how many the part has.
        part: its name, or "".
    """
    of = f" of the part {part}" if part else ""
    return PackError(str(failed.path), f"{failed.reason}; and none of the {count} images{of} could be packed")


def check_errors(limit: float | None, errors: Sequence[SampleError], done: int, at_end: bool = False) -> None:
    """Raise if more images failed than may.

    Args:
        limit: how many: a number, a share, or None.
        errors: those that failed.
        done: how many images are done.
        at_end: these are all.

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
    """A failure as JSON has it, from which `recorded` makes it again."""
    cause = error.__cause__
    kept: dict[str, Any] = {"index": error.index, "position": error.position, "path": error.path}
    kept |= {"key": error.key, "stage": error.stage, "reason": error.reason, "by": error.replaced_by}
    if isinstance(cause, DecodeError):
        kept["cause"] = ["decode", cause.reason, cause.format, cause.nbytes]
    elif isinstance(cause, OSError) and cause.errno is not None:
        kept["cause"] = ["system", cause.errno, cause.strerror, cause.filename]
    else:
        kept["cause"] = ["other", type(cause).__name__]
    return kept


def recorded(kept: Mapping[str, Any]) -> SampleError:
    """The failure that `record_of` was given. Of causes of rare kinds only the name of the type comes back."""
    error = SampleError(
        kept["reason"],
        dataset="pack",
        index=kept["index"],
        position=kept["position"],
        key=kept["key"],
        path=kept["path"],
        stage=kept["stage"],
    )
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
