"""Functions that derive, from a JPEG and a crop, a smaller JPEG with the same pixels inside the crop.

The modules, in the order in which a crop passes through them:

- `aioloader.jpeg.frame`: read the headers, and decide whether data can be left out
- `aioloader.jpeg.cut`: find the restart markers, of files that have them; leave out the data below the crop; choose the
  scale of a decoder; decode only a rectangle of the result
- `aioloader.jpeg.turbojpeg`: find libjpeg-turbo 3, which decodes that rectangle

With an entry of a crop index, data is left out on all sides:

- `aioloader.jpeg.crop_window`: cut a crop by the entry of its JPEG
- `aioloader.jpeg.crop_entry`: layout, making and checks of an entry
- `aioloader.jpeg.huffman`: read Huffman tables, and give them codes for more symbols
- `aioloader.jpeg.crop_scan`: find the places at which a scan can be entered

`harmless` identifies the one decoder warning that such a JPEG may cause.
"""

from __future__ import annotations

from aioloader.jpeg.cut import (
    EARLY_STOP_WARNING,
    Cut,
    cut,
    harmless,
    markers_are_whole,
    scale_for,
    scaled_size,
)
from aioloader.jpeg.frame import Frame, read_frame

__all__ = (
    "EARLY_STOP_WARNING",
    "Cut",
    "Frame",
    "cut",
    "harmless",
    "markers_are_whole",
    "read_frame",
    "scale_for",
    "scaled_size",
)
