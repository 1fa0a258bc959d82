"""JPEG bytes in, JPEG bytes out: a smaller file that decodes to the same pixels where the crop is.

The way of a crop through the files:

- `aioloader.jpeg.frame`: what the headers say, and whether anything can be left out
- `aioloader.jpeg.scan`: where the restart intervals lie, and where the image ends
- `aioloader.jpeg.table`: the same, written down in the file (COM segments)
- `aioloader.jpeg.early_stop`: leave out what is below the crop
- `aioloader.jpeg.tiles`: leave out what is above, below, left and right of it
- `aioloader.jpeg.cut`: choose between them
- `aioloader.jpeg.scaling`: when a decoder may shrink the picture while it decodes

Nothing here decodes. What a decoder may say about the result is in `harmless`.
"""

from __future__ import annotations

from aioloader.jpeg.cut import Cut, cut
from aioloader.jpeg.early_stop import EARLY_STOP_WARNING, harmless
from aioloader.jpeg.frame import Frame, read_frame
from aioloader.jpeg.scaling import scale_for, scaled_size
from aioloader.jpeg.table import (
    NotTileableError,
    is_tiled,
    markers_are_whole,
    restart_interval,
    tile_table,
    with_tile_table,
)

__all__ = (
    "EARLY_STOP_WARNING",
    "Cut",
    "Frame",
    "NotTileableError",
    "cut",
    "harmless",
    "is_tiled",
    "markers_are_whole",
    "read_frame",
    "restart_interval",
    "scale_for",
    "scaled_size",
    "tile_table",
    "with_tile_table",
)
