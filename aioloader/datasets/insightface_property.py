"""The file `property` beside an InsightFace set's records: how many identities, and how large the images are."""

from __future__ import annotations

import os
from typing import NamedTuple

from aioloader.errors import LayoutError
from aioloader.storage.local.descriptors import open_regular, read_into
from aioloader.storage.urls import is_url, redact_url

__all__ = ("PROPERTY", "Property", "parse_property", "read_property")

PROPERTY = "property"
"""Its name."""

_MOST_NBYTES = 4096
_MOST_NUMBER = 1 << 31


class Property(NamedTuple):
    """What the file `property` says.

    Attributes:
        num_classes: number of identities.
        height, width: extents of the images in pixels.
    """

    num_classes: int
    height: int
    width: int


def read_property(path: str) -> Property:
    """Read a file `property`, or an object.

    Raises:
        OSError: it cannot be read.
        LayoutError: it is malformed.
    """
    if is_url(path):
        from aioloader.storage.remote.opening import read_text

        return parse_property(read_text(path)[:_MOST_NBYTES].decode("ascii", "replace"), redact_url(path))
    fd = open_regular(path)
    try:
        data = bytearray(_MOST_NBYTES)
        text = data[: read_into(fd, memoryview(data), 0)].decode("ascii", "replace")
    finally:
        os.close(fd)
    return parse_property(text, path)


def parse_property(text: str, path: str) -> Property:
    """Read the text of a file `property`: ``number of identities,height,width`` on its first line.

    Args:
        text: of the file; further lines have no say.
        path: of the file, for the error.

    Raises:
        LayoutError: it is not of that form.
    """
    line = text.partition("\n")[0].strip()
    fields = line.split(",")
    try:
        numbers = [int(field) for field in fields]
    except ValueError:
        numbers = []
    if len(numbers) != 3 or not all(1 <= number < _MOST_NUMBER for number in numbers):
        raise LayoutError(
            f"the first line should be the number of identities, the height and the width of the images, as in "
            f"'85742,112,112', but is {line[:80]!r}",
            path=path,
        )
    return Property(*numbers)
