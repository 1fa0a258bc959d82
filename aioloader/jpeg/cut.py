"""The smallest JPEG that has the pixels of a crop.

Rule: tiles where restart markers allow it, else an early stop, else the whole file. Pixels of the box are those of a
full decode: chroma that is stored at half the resolution is interpolated, so a pixel can depend on the next chroma
sample on each side. One chroma sample of margin is therefore kept where the picture goes on, and where that crosses the
border of an MCU or tile, so is the next one.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioloader.jpeg.early_stop import stop_after
from aioloader.jpeg.tiles import cover, gather

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.jpeg.frame import Frame

__all__ = ("Cut", "cut")


@dataclass(slots=True)
class Cut:
    """A JPEG of a part of a picture.

    Attributes:
        data: the JPEG; bytes-like.
        width, height: its extents in pixels.
        left, top: the stored pixel that its pixel (0, 0) is; multiples of 8.
        stops_early: whether a strict decode may complain about the data left out (`harmless`). If it is False, or the
            complaint is another one, the file is damaged or unusual: decode it whole, and let that verdict count.
    """

    data: Any
    width: int
    height: int
    left: int
    top: int
    stops_early: bool


def cut(
    data: Any, frame: Frame, box: Sequence[int], *, vertical_only: bool = False, scale: int = 1
) -> Cut | None:
    """Leave out what a crop does not need.

    Args:
        data: the file; bytes, or a memoryview of bytes (it may be read-only).
        frame: what `read_frame` said about it.
        box: (x, y, width, height) of the crop in pixels as stored, before any EXIF orientation; inside the picture.
        vertical_only: keep the full width.
        scale: 1, 2, 4 or 8: the decoder will shrink the picture by it, and so the margins must be larger. Pixels are
            then identical to those of the whole picture decoded at that scale. Where a cut would have fewer than 8
            pixels in both directions, its scaled size would not say at which scale it is decoded: none is made.

    Returns:
        A JPEG that contains the box, or None if the file has to be decoded whole: because hardly anything can be left
        out, or because the file is damaged (its restart markers, or its end), which the decoder will say.

    Raises:
        ValueError: a box that is empty or not inside the picture.
    """
    x, y, box_width, box_height = box
    width, height = frame.width, frame.height
    right, bottom = x + box_width, y + box_height
    if x < 0 or y < 0 or box_width < 1 or box_height < 1 or right > width or bottom > height:
        raise ValueError(
            f"the box {tuple(box)} (x, y, width, height) is not inside {width} x {height} pixels"
        )
    margin = frame.y_margin * scale
    top = max(0, y - margin)
    bottom = min(height, bottom + margin)
    last_row = -(-bottom // frame.mcu_height)
    if not frame.restart_interval:
        if last_row == frame.mcu_rows:
            return None
        if scale > 1 and bottom < 8 and width < 8:
            return None
        copy = stop_after(data, frame, bottom)
        return None if copy is None else Cut(copy, width, bottom, 0, 0, True)
    margin = frame.x_margin * scale
    left = max(0, x - margin)
    right = min(width, right + margin)
    if margin and right - left <= 4 * scale:
        # Decoders do not interpolate across pictures of one or two chroma samples.
        right = min(width, left + 4 * scale + 1)
        left = max(0, right - 4 * scale - 1)
    chosen = cover(
        frame,
        left // frame.mcu_width,
        top // frame.mcu_height,
        -(-right // frame.mcu_width),
        last_row,
        vertical_only=vertical_only,
    )
    if chosen.mcus + frame.mcus_per_row > frame.mcus_per_row * frame.mcu_rows:
        return None
    left, top = chosen.left * frame.mcu_width, chosen.top * frame.mcu_height
    if chosen.columns == frame.mcus_per_row:
        right = width
    else:
        # The last column of MCUs that is covered must have a pixel at least.
        right = max(right, min(width, left + (chosen.columns - 1) * frame.mcu_width + 1))
    width, height = right - left, bottom - top
    if scale > 1 and height < 8 and width < 8:
        return None
    copy = gather(data, frame, chosen, width, height)
    return None if copy is None else Cut(copy, width, height, left, top, chosen.more)
