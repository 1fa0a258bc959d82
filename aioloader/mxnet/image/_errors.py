"""Errors of single images, as `ImageIter` raises them."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.errors import DecodeError
from aioloader.mxnet.base import MXNetError

if TYPE_CHECKING:
    from aioloader.errors import SampleError

__all__ = ("BrokenImageError", "broken_image", "original")


class BrokenImageError(MXNetError):
    """Error raised when an image of an `ImageIter` cannot be decoded. The decoder's error is chained.

    Attributes:
        key: key of the image in the index or list; None if it is unknown, like the next two.
        path: the image file, or the record file.
        offset: byte at which the record begins; None for an image file.
        reason: the defect.
    """

    def __init__(self, text: str, key: object, path: str | None, offset: int | None, reason: str) -> None:
        super().__init__(text, key, path, offset, reason)
        self.key = key
        self.path = path
        self.offset = offset
        self.reason = reason

    def __str__(self) -> str:
        return str(self.args[0])


def broken_image(
    cause: DecodeError, key: object, path: str | None, offset: int | None, *, is_file: bool
) -> BrokenImageError:
    """Return the error of a bad image, in MXNet's words.

    Args:
        cause: the decoder's error.
        key, path, offset: see `BrokenImageError`.
        is_file: the image is a separate file.
    """
    place = f" filename: {path}" if is_file else "" if key is None else f" index: {key}"
    return BrokenImageError(f"Broken image{place}, {cause.reason}", key, path, offset, cause.reason)


def original(error: SampleError, *, is_file: bool) -> BaseException:
    """Return the cause of a failure: `BrokenImageError` for a bad image, else the error with a note of the image.

    Args:
        error: the loader's error.
        is_file: the image is a separate file.
    """
    cause = error.__cause__
    if cause is None:
        return error
    if isinstance(cause, DecodeError):
        return broken_image(cause, error.key, error.path, error.offset, is_file=is_file)
    error.__cause__ = None  # it is raised from this one
    cause.add_note(f"image with the key {error.key!r}, path {error.path}, in {error.stage}")
    return cause
