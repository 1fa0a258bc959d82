"""Making of the entries that go into a crop index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.errors import MissingPackageError
from aioloader.jpeg.crop_entry import CropEntryError, check_entry
from aioloader.jpeg.huffman import NotIndexableError

if TYPE_CHECKING:
    from aioloader.crop_index.writer import CropIndexWriter


def check_builder() -> None:
    """Raise MissingPackageError if entries cannot be made, because numba is not installed."""
    from importlib.util import find_spec

    if find_spec("numba") is None:
        raise MissingPackageError("numba", extra="crops")


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


def put(writer: CropIndexWriter, key: int, nbytes: int, made: bytes | memoryview | str) -> None:
    """Write the entry of an image of `nbytes` bytes, or the reason why it has none."""
    if isinstance(made, str):
        writer.refuse(key, nbytes, made)
    else:
        writer.put(key, nbytes, made)
