"""Contact sheet: the images of a batch in a grid, with a label under each."""

from __future__ import annotations

import math
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

if TYPE_CHECKING:
    import os
    from collections.abc import Sequence

    from aioloader.foundation.types import Array

_GROUND = (245, 245, 247)
_INK = (52, 54, 62)
_GAP = 12
_CAPTION = 24


def contact_sheet(
    images: Array, captions: Sequence[str], *, title: str = "", columns: int | None = None
) -> Array:
    """Lay images out in a grid.

    Args:
        images: uint8 (n, height, width, 3) RGB.
        captions: one per image; text that does not fit is cut off.
        title: a line above the grid.
        columns: images in a row; None: the sheet is about square.

    Returns:
        uint8 (height, width, 3) RGB.

    Raises:
        ValueError: there are no images, or not one caption per image.
    """
    count, height, width, _ = images.shape
    if not count or len(captions) != count:
        raise ValueError(f"need one caption for each of at least one image, got {len(captions)} for {count}")
    columns = min(count, columns or math.ceil(math.sqrt(count * height / width)))
    rows = -(-count // columns)
    top = _GAP + (34 if title else 0)
    cell_w, cell_h = width + _GAP, height + _CAPTION + _GAP
    sheet = np.empty((top + rows * cell_h, _GAP + columns * cell_w, 3), np.uint8)
    sheet[...] = _GROUND
    if title:
        _write(sheet, title, at=(_GAP, 30), width=sheet.shape[1] - 2 * _GAP, size=0.7)
    for place, (image, caption) in enumerate(zip(images, captions, strict=True)):
        y, x = top + place // columns * cell_h, _GAP + place % columns * cell_w
        sheet[y : y + height, x : x + width] = image
        _write(sheet, caption, at=(x, y + height + 17), width=width, size=0.5)
    return sheet


def write_png(path: str | os.PathLike[str], image: Array) -> Path:
    """Write uint8 (height, width, 3) RGB as a PNG file; its folder is created if it is missing."""
    import cv2

    target = Path(path)
    target.parent.mkdir(parents=True, exist_ok=True)
    good, data = cv2.imencode(".png", image[..., ::-1])
    if not good:
        raise OSError(f"OpenCV could not write a PNG of shape {image.shape}")
    target.write_bytes(data.tobytes())
    return target


def _write(sheet: Array, text: str, *, at: tuple[int, int], width: int, size: float) -> None:
    import cv2

    font = cv2.FONT_HERSHEY_SIMPLEX
    text = text.encode("ascii", "replace").decode()  # the font has no other characters
    fitted = text
    while len(fitted) > 1 and cv2.getTextSize(fitted, font, size, 1)[0][0] > width:
        text = text[:-1]
        fitted = text.rstrip() + ".."
    cv2.putText(
        sheet, fitted, at, fontFace=font, fontScale=size, color=_INK, thickness=1, lineType=cv2.LINE_AA
    )
