"""Opened images: extents known, pixels made when they are asked for, and only those.

Rule: whoever wants a rectangle asks for it by its place in the upright image; how it comes about is the picture's
affair (a decoder that stops early, a view of raw pixels, a whole decode). The pixels are always those that
`decode_image` gives at that place, bit for bit, unless `shrink` is asked for. Whatever is unusual about the data goes
to `decode_image`, so that its errors are the same.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Protocol

from aioloader.errors import DecodeError
from aioloader.jpeg import Cut, cut, harmless, read_frame, scaled_size
from aioloader.jpeg.turbojpeg import RectangleDecoder, library_path
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS, decode_image
from aioloader.transforms.exif import read_orientation, stored_box, swaps_axes, upright
from aioloader.transforms.raw import RAW_MAGIC, raw_image
from aioloader.transforms.scratch import Scratch

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.jpeg import Frame
    from aioloader.transforms.crop import Box

__all__ = ("LazyImage", "LazyImageReader")

_RAW_START = RAW_MAGIC[0]
_NOTHING_KNOWN = (b"", 0, None, 1)
# Longer headers, which have a thumbnail or a colour profile in them, cost more to compare than to read.
_MOST_KNOWN = 4096


class LazyImage(Protocol):
    """One image whose pixels have not been made yet. Valid as long as its data is.

    Attributes:
        height, width: extents of the upright image in pixels.
        channels: 3 (RGB) or 1 (grey).
        borrowed: the pixels are views of the data: read-only, and gone with it.
        shrinks: `region` and `frame` can leave pixels out (``shrink``).
    """

    height: int
    width: int
    channels: int
    borrowed: bool
    shrinks: bool

    def whole(self, out: Array | None = None) -> Array:
        """All pixels, uint8 (height, width, channels).

        Args:
            out: where they may be put: uint8, of that shape, C-contiguous.

        Raises:
            DecodeError: as `decode_image`.
        """
        ...

    def region(self, box: Box, shrink: int = 1) -> Array:
        """The pixels of a rectangle, uint8; often a view.

        Args:
            box: (x, y, width, height), inside the upright image.
            shrink: 2, 4 or 8: at that part of the size, approximately, where the picture `shrinks`; sides that do
                not divide are rounded.

        Raises:
            DecodeError: as `decode_image`.
        """
        ...

    def frame(self, box: Box, shrink: int = 1) -> Array:
        """An array as `whole` gives it, of which only a rectangle is filled.

        Args:
            box: (x, y, width, height), inside the upright image.
            shrink: as for `region`; the sides of the array are rounded up.

        Returns:
            uint8 (height, width, channels); what lies outside of the rectangle is arbitrary.

        Raises:
            DecodeError: as `decode_image`.
        """
        ...


class LazyImageReader:
    """Opens images; one per thread.

    Args:
        flag, exif, max_pixels: see `decode_image`.
        dct_scaling: JPEGs can be shrunk while they are decoded.
        scratch: where pixels are put; None for a pool of its own.

    Attributes:
        dct_scaling, scratch: as given.
        decode_jpeg: simplejpeg's function; looked up once.
        rectangles: decodes rectangles of JPEGs; None where there is no library for it.
        channels: of all pictures, 3 or 1.
    """

    def __init__(
        self,
        flag: int = 1,
        exif: str = "apply",
        max_pixels: int | None = DEFAULT_MAX_PIXELS,
        dct_scaling: bool = False,
        scratch: Scratch | None = None,
    ) -> None:
        from simplejpeg import decode_jpeg

        self._flag = flag
        self._exif = exif
        self._max_pixels = max_pixels
        self.dct_scaling = dct_scaling
        self.channels = 3 if flag else 1
        self.scratch = Scratch() if scratch is None else scratch
        self.decode_jpeg = decode_jpeg
        self.rectangles = None if library_path() is None else RectangleDecoder()
        self._known: tuple[bytes, int, Frame | None, int] = _NOTHING_KNOWN

    def open(self, data: Any, path: str | None = None) -> LazyImage:
        """Read the header of an image; others than JPEG and raw images are decoded at once.

        Args:
            data: the encoded image, bytes or a flat memoryview of bytes, which the picture reads from later.
            path: file that the data is from, for errors.

        Raises:
            DecodeError: as `decode_image`; damaged pixels may be noticed only when they are asked for.
        """
        # Images of one size made by one program have the same headers: what was found in the last ones holds.
        headers, length, frame, orientation = self._known
        if frame is not None and bytes(data[:length]) == headers:
            return _Jpeg(self, data, path, frame, orientation)
        frame = read_frame(data)
        if frame is not None:
            if self._max_pixels is None or frame.height * frame.width <= self._max_pixels:
                orientation = self._orientation(data, frame)
                if frame.scan_start <= _MOST_KNOWN:
                    self._known = (bytes(data[: frame.scan_start]), frame.scan_start, frame, orientation)
                return _Jpeg(self, data, path, frame, orientation)
        elif len(data) > 8 and data[0] == _RAW_START:
            try:
                pixels = raw_image(data)
            except DecodeError:
                pass
            else:
                height, width, channels = pixels.shape
                if channels == self.channels and (
                    self._max_pixels is None or height * width <= self._max_pixels
                ):
                    return _Pixels(pixels, borrowed=True)
        return _Pixels(self.decode(data, path), borrowed=False)

    def _orientation(self, data: Any, frame: Frame) -> int:
        # An EXIF block behind the frame header is not one.
        if frame.exif is None or self._exif != "apply" or frame.exif[0] > frame.size_at:
            return 1
        return read_orientation(data, *frame.exif)

    def decode(self, data: Any, path: str | None) -> Array:
        """All of an image, whatever it is; see `decode_image`."""
        return decode_image(
            data,
            flag=self._flag,
            exif=self._exif,
            max_pixels=self._max_pixels,
            scratch=self.scratch,
            path=path,
        )


class _Pixels:
    """A picture whose pixels are there."""

    __slots__ = ("_pixels", "borrowed", "channels", "height", "width")
    shrinks = False

    def __init__(self, pixels: Array, borrowed: bool) -> None:
        self._pixels = pixels
        self.borrowed = borrowed
        self.height, self.width, self.channels = pixels.shape

    def whole(self, out: Array | None = None) -> Array:
        return self._pixels

    def region(self, box: Box, shrink: int = 1) -> Array:
        x, y, width, height = box
        return self._pixels[y : y + height, x : x + width]

    def frame(self, box: Box, shrink: int = 1) -> Array:
        return self._pixels


class _Jpeg:
    """A JPEG of which nothing but the headers has been read."""

    __slots__ = (
        "_data",
        "_forgives",
        "_frame",
        "_orientation",
        "_path",
        "_reader",
        "channels",
        "height",
        "shrinks",
        "width",
    )
    borrowed = False

    def __init__(
        self, reader: LazyImageReader, data: Any, path: str | None, frame: Frame, orientation: int
    ) -> None:
        self._reader = reader
        self._data = data
        self._path = path
        self._frame = frame
        self._orientation = orientation
        self.channels = reader.channels
        self.shrinks = reader.dct_scaling
        # The complaint that is harmless after an early stop is so for a whole file too, if it has no restart markers;
        # if it has, `decode_image` looks closer.
        self._forgives = not frame.restart_interval
        if orientation >= 5:
            self.height, self.width = frame.width, frame.height
        else:
            self.height, self.width = frame.height, frame.width

    def whole(self, out: Array | None = None) -> Array:
        frame, orientation = self._frame, self._orientation
        if out is not None and orientation == 1:
            if self._decode(self._data, frame.width, frame.height, out, 1, self._forgives):
                return out
        else:
            pixels = self._piece(self._data, frame.width, frame.height, 1, self._forgives)
            if pixels is not None:
                return pixels if orientation == 1 else self._turned(pixels)
        return self._reader.decode(self._data, self._path)

    def region(self, box: Box, shrink: int = 1) -> Array:
        frame, orientation = self._frame, self._orientation
        stored = box if orientation == 1 else stored_box(box, orientation, frame.height, frame.width)
        piece = cut(self._data, frame, stored, scale=shrink) or self._all
        x, y, width, height = stored
        x -= piece.left
        y -= piece.top
        pixels = self._rectangle(piece, (x, y, width, height)) if shrink == 1 else None
        if pixels is not None:
            return pixels if orientation == 1 else self._turned(pixels)
        pixels = self._piece(piece.data, piece.width, piece.height, shrink, piece.stops_early)
        if pixels is None:
            # Something is wrong, or unusual: the verdict of a whole decode counts.
            x, y, width, height = box
            return self._reader.decode(self._data, self._path)[y : y + height, x : x + width]
        if shrink == 1:
            pixels = pixels[y : y + height, x : x + width]
        else:
            half = shrink // 2
            pixels = pixels[
                (y + half) // shrink : (y + height + half) // shrink,
                (x + half) // shrink : (x + width + half) // shrink,
            ]
        return pixels if orientation == 1 else self._turned(pixels)

    def frame(self, box: Box, shrink: int = 1) -> Array:
        stored, orientation = self._frame, self._orientation
        if orientation != 1:
            box = stored_box(box, orientation, stored.height, stored.width)
        pixels = self._framed(cut(self._data, stored, box, scale=shrink) or self._all, box, shrink)
        if pixels is None:
            return self._reader.decode(self._data, self._path)
        return pixels if orientation == 1 else self._turned(pixels)

    @property
    def _all(self) -> Cut:
        frame = self._frame
        return Cut(self._data, frame.width, frame.height, 0, 0, self._forgives)

    def _rectangle(self, piece: Cut, box: Box, canvas: Array | None = None) -> Array | None:
        """Decode a rectangle of a piece; None where that cannot be done or saves nothing, or its decoder complains.

        Args:
            piece: the JPEG.
            box: the rectangle in it.
            canvas: of the piece's shape, for the rectangle's place in it; None for other memory.
        """
        decoder = self._reader.rectangles
        if decoder is None:
            return None
        x, y, width, height = box
        margin, grain = self._frame.x_margin, self._frame.mcu_width
        left = max(0, x - margin)
        left -= left % grain
        right = min(piece.width, x + width + margin)
        if right - left < 2 * grain:
            # Decoders do not interpolate across one or two chroma samples.
            left = max(0, left - grain)
            right = min(piece.width, left + 3 * grain)
        # To the end of the piece: where rows are left to be skipped, the decoder does not ask for what is below.
        rows, columns = piece.height - y, right - left
        if rows * columns > (1 - decoder.worth) * (piece.height * piece.width):
            return None
        if canvas is None:
            out = self._reader.scratch.take(rows * columns * self.channels)
            out = out.reshape(rows, columns, self.channels)
        else:
            out = canvas[y:, left:right]
        complaint = decoder.decode(piece.data, left, y, out)
        if complaint is None or (piece.stops_early and harmless(complaint)):
            return out[:height, x - left : x - left + width]
        return None

    def _framed(self, piece: Cut, box: Box, shrink: int) -> Array | None:
        """A piece of the picture, of which a rectangle is wanted, at its place; None if its decoder complains."""
        height, width = scaled_size(self._frame.height, shrink), scaled_size(self._frame.width, shrink)
        canvas = self._reader.scratch.take(height * width * self.channels)
        canvas = canvas.reshape(height, width, self.channels)
        top, left = piece.top // shrink, piece.left // shrink
        if shrink == 1:
            place = canvas[top : top + piece.height, left : left + piece.width]
            inside = (box[0] - left, box[1] - top, box[2], box[3])
            if self._rectangle(piece, inside, place) is not None:
                return canvas
        if piece.width == self._frame.width:
            rows = canvas[top:]
            done = self._decode(piece.data, piece.width, piece.height, rows, shrink, piece.stops_early)
            return canvas if done else None
        pixels = self._piece(piece.data, piece.width, piece.height, shrink, piece.stops_early)
        if pixels is None:
            return None
        canvas[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
        return canvas

    def _piece(self, data: Any, width: int, height: int, shrink: int, stops_early: bool) -> Array | None:
        """Decode a JPEG of these extents; None if its decoder complains."""
        if shrink > 1:
            rows, columns = scaled_size(height, shrink), scaled_size(width, shrink)
        else:
            rows, columns = height, width
        buffer = self._reader.scratch.take(rows * columns * self.channels)
        if self._decode(data, width, height, buffer, shrink, stops_early):
            return buffer.reshape(rows, columns, self.channels)
        return None

    def _decode(
        self, data: Any, width: int, height: int, out: Array, shrink: int = 1, stops_early: bool = False
    ) -> bool:
        """Decode a JPEG of these extents; False if its decoder complains."""
        rows = columns = 0
        if shrink > 1:
            rows, columns = scaled_size(height, shrink), scaled_size(width, shrink)
        colours = "RGB" if self.channels == 3 else "GRAY"
        try:
            # By position, in simplejpeg's order: keywords cost time. False: the exact cosine transform and chroma.
            self._reader.decode_jpeg(data, colours, False, False, rows, columns, shrink, out, True)
        except ValueError as error:
            return stops_early and harmless(str(error))
        except RuntimeError:
            return False
        return True

    def _turned(self, pixels: Array) -> Array:
        if not swaps_axes(self._orientation):
            return upright(pixels, self._orientation)
        height, width, channels = pixels.shape
        place = self._reader.scratch.take(height * width * channels).reshape(width, height, channels)
        return upright(pixels, self._orientation, place)
