"""Leave out what is below the crop: lower the height in the frame header, and the decoder stops there.

Rule: the decoder reads the scan as before, row of MCUs by row, and ends after the last one that the lowered height
needs. Then it looks for the next marker and finds the EOI behind the bytes of the rows left out; it says so in a
warning, which is the only one that may be accepted (`harmless`). The pixels above are those of a full decode, because
all that a pixel depends on is the data of its own MCU, what was coded before it, and a margin of one chroma sample.

What is noticed: damage in the rows that are decoded, as far as a full decode notices it; and a file that was cut off,
because without an EOI there is no early stop. What is not: damage below the crop that leaves the EOI in place.
"""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any, Final

from aioloader.jpeg.scan import image_end

if TYPE_CHECKING:
    from aioloader.jpeg.frame import Frame

__all__ = ("EARLY_STOP_WARNING", "harmless", "stop_after")

EARLY_STOP_WARNING: Final = re.compile(r"Corrupt JPEG data: \d+ extraneous bytes before marker 0xd9\s*")
"""What libjpeg says when it has decoded all rows and there were more bytes before the EOI marker. It records its first
warning only; a damaged row or a missing one comes earlier and reads otherwise."""


def harmless(message: str) -> bool:
    """Whether a strict decode's complaint means only that data below the crop was left out.

    Args:
        message: text of the ValueError that `simplejpeg.decode_jpeg(..., strict=True)` raised. The pixels are then
            complete in the array that was given as `buffer`.
    """
    return EARLY_STOP_WARNING.fullmatch(message) is not None


def stop_after(data: Any, frame: Frame, height: int) -> bytearray | None:
    """Copy the file with a lowered height.

    Args:
        data: the file; bytes, or a memoryview of bytes.
        frame: its frame; without restart intervals.
        height: rows of pixels to keep, 1 to `frame.height`.

    Returns:
        A JPEG of `frame.width` x `height` pixels, or None if the file has no EOI marker.
    """
    end = image_end(data, frame.scan_start)
    if end is None:
        return None
    copy = bytearray(data if end == len(data) else data[:end])
    copy[frame.size_at] = height >> 8
    copy[frame.size_at + 1] = height & 255
    return copy
