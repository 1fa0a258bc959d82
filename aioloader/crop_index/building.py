"""Making of the entries that go into a crop index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.errors import MissingPackageError
from aioloader.jpeg.crop_entry import HEAD, CropEntryError, EntryHead, check_entry, check_intact
from aioloader.jpeg.huffman import NotIndexableError

if TYPE_CHECKING:
    from aioloader.crop_index.writer import CropIndexWriter


def check_builder() -> None:
    """Raise MissingPackageError if entries cannot be made, because numba is not installed."""
    if not can_build():
        raise MissingPackageError("numba", extra="crops")


def can_build() -> bool:
    """Return whether numba is installed, which makes entries."""
    from importlib.util import find_spec

    return find_spec("numba") is not None


def entry_or_reason(data: bytes | memoryview) -> bytes | str:
    """Return the entry of an image, or the reason why it has none.

    Args:
        data: the encoded image, or anything else.

    Raises:
        MissingPackageError: numba is not installed.
    """
    from aioloader.jpeg.crop_scan import build_entry

    try:
        return build_entry(data)
    except NotIndexableError as error:
        return error.reason


def fits(entry: Any, data: Any) -> bool:
    """Return whether an entry is intact and belongs to exactly these bytes."""
    try:
        check_entry(entry, data)
    except CropEntryError:
        return False
    return True


def is_reproduced(entry: Any, data: bytes | memoryview) -> bool:
    """Return whether making the entry of an image again, with the same interval, yields the same bytes.

    Args:
        entry: an intact entry.
        data: the encoded image.

    Raises:
        MissingPackageError: numba is not installed.
    """
    from aioloader.jpeg.crop_scan import build_entry

    interval = EntryHead._make(HEAD.unpack_from(entry)).interval
    try:
        return interval > 0 and build_entry(data, interval=interval) == entry
    except NotIndexableError:
        return False


def is_intact(entry: Any) -> bool:
    """Return whether an entry is intact and of the present version of the layout."""
    try:
        check_intact(entry)
    except CropEntryError:
        return False
    return True


def put(writer: CropIndexWriter, key: int, nbytes: int, made: bytes | memoryview | str) -> None:
    """Write the entry of an image of `nbytes` bytes, or the reason why it has none."""
    if isinstance(made, str):
        writer.refuse(key, nbytes, made)
    else:
        writer.put(key, nbytes, made)
