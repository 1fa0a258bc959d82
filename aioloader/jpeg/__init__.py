"""Functions that derive, from a JPEG and a crop, a smaller JPEG with the same pixels inside the crop.

The modules, in the order in which a crop passes through them:

- `aioloader.jpeg.frame`: read the headers, and decide whether data can be left out
- `aioloader.jpeg.table`: find the restart intervals, by the tile table in the file's COM segments or by a search
- `aioloader.jpeg.tiles`: leave out the data above, below, left and right of the crop
- `aioloader.jpeg.cut`: leave out the data below the crop; choose between the ways; choose the scale of a decoder;
  decode only a rectangle of the result
- `aioloader.jpeg.turbojpeg`: find libjpeg-turbo 3, which decodes that rectangle

With an entry of a crop index, data is left out on all sides:

- `aioloader.jpeg.crop_window`: cut a crop by the entry of its JPEG
- `aioloader.jpeg.crop_entry`: layout, making and checks of an entry
- `aioloader.jpeg.huffman`: read Huffman tables, and give them codes for more symbols
- `aioloader.jpeg.crop_scan`, `aioloader.jpeg.scan_walk`: find the places at which a scan can be entered (by numba)

`harmless` identifies the one decoder warning that such a JPEG may cause.
"""

from __future__ import annotations

from aioloader.jpeg.cut import EARLY_STOP_WARNING, Cut, cut, harmless, scale_for, scaled_size
from aioloader.jpeg.frame import Frame, read_frame
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
