"""The smallest JPEG that has the pixels of a crop, the scale at which it may be decoded, and a decoder of a part of it.

Rule: an early stop where data can be left out, else the whole file. The pixels of the box are those of a full decode.
Chroma that is stored at half the resolution is interpolated, so a pixel can depend on the chroma sample below. A margin
of one chroma sample is therefore kept wherever the image continues, and where that margin crosses the border of an MCU,
the next MCU is kept too.

Early stop: the height in the frame header is lowered. The decoder reads the scan row of MCUs by row of MCUs and ends
after the last row that the lowered height needs. Then it looks for the next marker and finds the EOI behind the bytes
of the rows left out. It reports these bytes in a warning, the only one that may be accepted (`harmless`). The pixels
above are those of a full decode, because a pixel depends only on the data of its MCU, on the data coded before it,
and on a margin of one chroma sample.

Of a file with restart markers, the intervals behind these rows are left out, and the last one that is kept ends with
EOI instead of its restart marker. It can continue below the rows, and only then is the warning accepted. All restart
markers are checked beforehand, as `decode_image` does it: where one is missing, the decoder fills in rows.

Damage in the rows that are decoded is detected as far as a full decode detects it. A truncated file is detected,
because without an EOI there is no early stop. Damage below the crop that leaves the EOI in place, and all restart
markers, is not detected.

Search of a scan for its restart markers.

Rule: within entropy-coded data a byte 0xFF is followed by 0x00 (a stuffed zero), by another 0xFF (a fill byte) or by
the number of a marker. Only restart markers are valid there, in cyclic order from RST0 to RST7; the first other marker
ends the data.
"""

from __future__ import annotations

import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Final, Literal

import numpy as np

from aioloader.jpeg.frame import DRI, EOI, RST0, Frame, read_frame
from aioloader.jpeg.turbojpeg import LIBRARY_VARIABLE, Region, turbojpeg_library

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Array


def interval_ends(data: Any, frame: Frame) -> list[int] | None:
    """Search the scan for all restart markers.

    Args:
        data: the file; bytes, or a memoryview of bytes.
        frame: its frame, with restart intervals.

    Returns:
        For each restart interval the offset behind the marker that ends it: RSTn with n = k mod 8 for interval k, EOI
        for the last. None if the markers are not those that the frame announces, in their order and up to the EOI.
    """
    start = frame.scan_start
    text = np.frombuffer(data, np.uint8)
    markers = np.flatnonzero(text[start:-1] == 0xFF) + (start + 1)
    kinds = text[markers]
    real = (kinds != 0) & (kinds != 0xFF)
    markers, kinds = markers[real], kinds[real]
    count = frame.intervals
    if len(markers) < count or kinds[count - 1] != EOI:
        return None
    if ((kinds[: count - 1] - RST0) != (np.arange(count - 1) & 7)).any():
        return None
    ends: list[int] = (markers[:count] + 1).tolist()
    return ends


def markers_are_whole(data: Any) -> bool:
    """Return True if no restart marker of a JPEG is missing or out of order.

    Where one is, a decoder fills in the data that it could not read, and libjpeg reports that only if it is its first
    warning.

    Args:
        data: the file; bytes, or a memoryview of bytes.
    """
    frame = read_frame(data)
    if frame is None:
        # Several scans, or an unusual kind: the only easy check is that it has no restart intervals at all.
        return bytes((0xFF, DRI, 0, 4)) not in bytes(data)
    return not frame.restart_interval or interval_ends(data, frame) is not None


EARLY_STOP_WARNING: Final = re.compile(r"Corrupt JPEG data: \d+ extraneous bytes before marker 0xd9\s*")
"""The warning of libjpeg when it has decoded all rows and found more bytes before the EOI marker. libjpeg records its
first warning only; the warnings for damaged or missing rows come earlier and have other texts."""

_EOI = re.compile(rb"\xff\xd9")

# turbojpeg.h: TJINIT_DECOMPRESS, TJPF_RGB, TJPF_GRAY.
_DECOMPRESS = 1
_PIXEL_FORMATS = {3: 0, 1: 6}

Scale = Literal[1, 2, 4, 8]


@dataclass(slots=True, kw_only=True)
class Cut:
    """A JPEG of a part of an image.

    Attributes:
        data: the JPEG; bytes-like.
        width, height: its extents in pixels.
        left, top: the stored pixel that is its pixel (0, 0); multiples of 8. `left` can be negative: a cut by an entry
            of a crop index can begin with a column of MCUs that the image does not have.
        stops_early: a strict decode may complain about the data left out (`harmless`). If this is False, or the
            complaint is another one, the file is damaged or unusual: decode the whole file, and let its result count.
    """

    data: Any
    width: int
    height: int
    left: int
    top: int
    stops_early: bool


def harmless(message: str) -> bool:
    """Return True if a strict decode's complaint means only that data below the crop was left out.

    Args:
        message: text of the ValueError that `simplejpeg.decode_jpeg(..., strict=True)` raised. If it is harmless, the
            pixels are complete in the array that was passed as `buffer`.
    """
    return EARLY_STOP_WARNING.fullmatch(message) is not None


def cut(data: Any, frame: Frame, box: Sequence[int], *, scale: int = 1) -> Cut | None:
    """Leave out the data below a crop.

    Args:
        data: the file; bytes, or a memoryview of bytes (it may be read-only).
        frame: the result of `read_frame` for the file.
        box: (x, y, width, height) of the crop in pixels as stored, before any EXIF orientation; inside the image.
        scale: 1, 2, 4 or 8: the divisor by which the decoder will shrink the image, which requires a larger margin. The
            pixels are then identical to those of the whole image decoded at that scale. If a cut would have fewer than
            8 pixels in both directions, its scaled size would not determine the scale, and no cut is made.

    Returns:
        A JPEG that contains the box, or None if the whole file has to be decoded: because hardly anything can be left
        out, or because the file is damaged (its restart markers, or its end), which the decoder will report.

    Raises:
        ValueError: the box is empty or not inside the image.
    """
    x, y, box_width, box_height = box
    width, height = frame.width, frame.height
    right, bottom = x + box_width, y + box_height
    if x < 0 or y < 0 or box_width < 1 or box_height < 1 or right > width or bottom > height:
        raise ValueError(
            f"the box {tuple(box)} (x, y, width, height) is not inside {width} x {height} pixels"
        )
    bottom = min(height, bottom + frame.y_margin * scale)
    rows = -(-bottom // frame.mcu_height)
    if rows == frame.mcu_rows or (scale > 1 and bottom < 8 and width < 8):
        return None
    if frame.restart_interval:
        return _stop_at_marker(data, frame, bottom, rows * frame.mcus_per_row)
    return _stop_early(data, frame, bottom)


def _stop_early(data: Any, frame: Frame, height: int) -> Cut | None:
    """Copy a file without restart markers with a lowered height.

    Args:
        data: the file; bytes, or a memoryview of bytes.
        frame: its frame.
        height: rows of pixels to keep, 1 to `frame.height`.

    Returns:
        A JPEG of `frame.width` x `height` pixels, or None if the file has no EOI marker: it is truncated.
    """
    end = len(data)
    # The image ends after its EOI marker, which other data may follow. A file that ends with an EOI marker is trusted,
    # which costs nothing. Else the first one is searched for: a marker never occurs inside entropy-coded data.
    if end < frame.scan_start + 2 or data[end - 2] != 0xFF or data[end - 1] != EOI:
        found = _EOI.search(data, frame.scan_start)
        if found is None:
            return None
        end = found.end()
    return _lowered(data, frame, height, end, stops_early=True)


def _stop_at_marker(data: Any, frame: Frame, height: int, mcus: int) -> Cut | None:
    """Copy the restart intervals that the upper rows of a file need.

    Args:
        data: the file; bytes, or a memoryview of bytes.
        frame: its frame, with restart intervals.
        height: rows of pixels to keep, 1 to `frame.height`.
        mcus: number of MCUs that have these rows.

    Returns:
        A JPEG of `frame.width` x `height` pixels, or None if a restart marker or the EOI marker is missing.
    """
    ends = interval_ends(data, frame)
    if ends is None:
        return None
    intervals = -(-mcus // frame.restart_interval)
    more = mcus < intervals * frame.restart_interval
    part = _lowered(data, frame, height, ends[intervals - 1], stops_early=more)
    part.data[-1] = EOI
    return part


def _lowered(data: Any, frame: Frame, height: int, end: int, *, stops_early: bool) -> Cut:
    copy = bytearray(data if end == len(data) else data[:end])
    copy[frame.size_at] = height >> 8
    copy[frame.size_at + 1] = height & 255
    return Cut(data=copy, width=frame.width, height=height, left=0, top=0, stops_early=stops_early)


def scale_for(box_size: Sequence[int], target_size: Sequence[int]) -> Scale:
    """Return the largest divisor by which a decoder may shrink a crop.

    A decoder can leave out the high frequencies of every 8 x 8 block and produce 4 x 4, 2 x 2 or 1 x 1 pixels for it.
    That is faster and changes the result a little, so it is done only where it was requested, and only as far as every
    pixel of the target still has at least one decoded pixel for itself in both directions. Other fractions than 1/2,
    1/4 and 1/8 are slower than decoding everything.

    Args:
        box_size: two extents of the crop, in stored pixels.
        target_size: the two extents, in the same order, that the crop is resized to; at least 1.

    Returns:
        8, 4 or 2 if the crop is at least that many times larger than the target in both directions, else 1.
    """
    ratio = min(box_size[0] // target_size[0], box_size[1] // target_size[1])
    return 8 if ratio >= 8 else 4 if ratio >= 4 else 2 if ratio >= 2 else 1


def scaled_size(extent: int, scale: int) -> int:
    """Return the extent in pixels of an image that is decoded at 1/`scale`; partial pixels count as whole ones.

    To get exactly this scale from ``simplejpeg.decode_jpeg``, pass ``min_height=scaled_size(height, scale)``,
    ``min_width=scaled_size(width, scale)`` and ``min_factor=scale``.

    Pixel i of the scaled image covers the stored pixels ``i * scale`` to ``(i + 1) * scale`` (exclusive), so a
    stored coordinate x becomes ``x / scale``. `Cut.left` and `Cut.top` are multiples of 8, or 0.

    Args:
        extent: width or height in pixels.
        scale: 1, 2, 4 or 8.
    """
    return -(-extent // scale)


class RectangleDecoder:
    """Decoder for a rectangle of a JPEG, by libjpeg-turbo 3. It keeps nothing from one image to the next.

    Rule: the entropy-coded data above the rectangle and on both sides of it has to be read, but it need not become
    pixels: the cosine transform, the interpolation of chroma and the conversion of colours are skipped there. The
    pixels inside are those of a full decode, if one chroma sample of margin is decoded with them on the left and on
    the right. Damage is detected as in a full decode if the rectangle ends with the image, because all data is then
    read; the library's first warning is returned. Rows below a rectangle are not read: leave them out beforehand
    (`cut`).

    Attributes:
        worth: least share of an image's pixels that should be left out: less does not pay for reading the headers
            again, and for a library that may be older than simplejpeg's.

    Raises:
        RuntimeError: no usable library is installed; call `library_path` before.
    """

    worth = 0.25

    def __init__(self) -> None:
        library = turbojpeg_library()
        if library is None:
            raise RuntimeError(
                "no libjpeg-turbo of version 3 was found: pip install 'aioloader[turbojpeg]', or name its file in "
                f"{LIBRARY_VARIABLE}"
            )
        self._library = library

    def decode(self, data: Any, x: int, y: int, out: Array) -> str | None:
        """Decode a rectangle with the extents of `out`.

        Args:
            data: a JPEG; contiguous and bytes-like. It is not changed.
            x: first column, a multiple of the width of its MCU. Near the rectangle's left and right edge, where the
                image continues, pixels may differ from those of a full decode as far as chroma is interpolated.
            y: first row.
            out: array for the pixels: uint8 (height, width, channels) with 3 channels (RGB) or 1 (grey), contiguous
                except for its rows; the rectangle is inside the image.

        Returns:
            None, or the decoder's complaint: after a warning about the scan the pixels are complete, after any other
            complaint they are not. Complaints about the headers begin with "header: ".

        Raises:
            ValueError: `out` is empty, read-only or not of that kind.
        """
        height, width, channels = out.shape
        # The library reads an extent of 0 as all that is left, and does not check where it writes.
        if (
            not (height and width)
            or channels not in _PIXEL_FORMATS
            or out.strides[1:] != (channels, 1)
            or out.dtype != np.uint8
            or not out.flags.writeable
        ):
            raise ValueError(
                "out must be uint8 (height, width, 3 or 1), not empty, writable and contiguous except for its rows; "
                f"got {out.dtype} {out.shape} with strides {out.strides}"
            )
        short = self._library.short
        source = np.frombuffer(data, np.uint8)
        address = source.__array_interface__["data"][0]
        # A new decoder for every image. One that is used again has the tables of the last image, and uses them for an
        # image that lacks tables; and after an error in the headers it continues in the middle of them.
        handle = short.tj3Init(_DECOMPRESS)
        if not handle:
            raise MemoryError("libjpeg-turbo has no memory for a decoder")
        try:
            failed = short.tj3DecompressHeader(handle, address, source.size)
            if failed or short.tj3SetCroppingRegion(handle, Region(x, y, width, height)):
                return f"header: {self._message(handle)}"
            target = out.__array_interface__["data"][0], out.strides[0], _PIXEL_FORMATS[channels]
            if self._library.long.tj3Decompress8(handle, address, source.size, *target):
                return self._message(handle)
            return None
        finally:
            short.tj3Destroy(handle)

    def _message(self, handle: int) -> str:
        message: bytes = self._library.short.tj3GetErrorStr(handle)
        return message.decode("utf-8", "replace")
