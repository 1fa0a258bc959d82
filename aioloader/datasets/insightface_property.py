"""The file `property` of an InsightFace set: the number of identities and the size of the images."""

from __future__ import annotations

import os
from typing import NamedTuple

from aioloader.errors import LayoutError
from aioloader.storage.local.descriptors import open_regular, read_into
from aioloader.storage.urls import is_url, redact_url

PROPERTY = "property"
"""Name of the file."""

_MOST_NBYTES = 4096
_MOST_NUMBER = 1 << 31


class Property(NamedTuple):
    """Content of the file `property`.

    Attributes:
        num_classes: number of identities.
        height, width: extents of the images in pixels.
    """

    num_classes: int
    height: int
    width: int


def read_property(path: str) -> Property:
    """Read a `property` file, local or in object storage.

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
    """Parse the text of a `property` file: ``number of identities,height,width`` on its first line.

    Args:
        text: text of the file; lines after the first are ignored.
        path: path of the file, for the error.

    Raises:
        LayoutError: the first line does not have that form.
    """
    line = text.partition("\n")[0].strip()
    fields = line.split(",")
    try:
        numbers = [int(field) for field in fields]
    except ValueError:
        numbers = []
    if len(numbers) != 3 or not all(1 <= number < _MOST_NUMBER for number in numbers):
        raise LayoutError(
            "the first line must be the number of identities, the height and the width of the images, such as "
            f"'85742,112,112', but is {line[:80]!r}",
            path=path,
        )
    return Property(*numbers)
