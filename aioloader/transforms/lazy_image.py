"""Images that are opened by their headers alone; pixels are decoded on request, and only those requested.

Rule: the caller requests a rectangle by its place in the upright image; how its pixels are made (a decoder that stops
early, a view of raw pixels, a whole decode) is hidden in the image. The pixels are always those that `decode_image`
returns for that place, bit for bit, unless `shrink` is requested. Unusual data goes to `decode_image`, so that its
errors are the same.
"""

from __future__ import annotations

import sys
from collections import Counter
from typing import TYPE_CHECKING, Any, TypeAlias

import numpy as np

from aioloader.errors import DecodeError, IncompleteItemError
from aioloader.foundation.decodes import (
    BAD_ENTRIES,
    COMPLAINT,
    CUT,
    EARLY_STOP,
    INDEXED,
    NEARLY_ALL,
    NO_CROP,
    NO_INDEX,
    NOT_JPEG,
    RAW,
    RECTANGLE,
    REFUSED,
    WHOLE,
    WHOLE_ONLY,
)
from aioloader.foundation.types import StageTimer
from aioloader.jpeg.crop_entry import CropEntryError, check_entry
from aioloader.jpeg.crop_window import check_part, cut_by_entry, needed_rows, read_head
from aioloader.jpeg.cut import Cut, RectangleDecoder, cut, harmless, scaled_size
from aioloader.jpeg.frame import Frame, jpeg_orientation, read_frame
from aioloader.jpeg.turbojpeg import library_path
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS, decode_image, stored_box, upright
from aioloader.transforms.raw import RAW_MAGIC, read_raw_header

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioloader.foundation.types import Array
    from aioloader.jpeg.crop_entry import EntryHead
    from aioloader.transforms.geometry import Box

_RAW_START = RAW_MAGIC[0]
_JPEG_START = b"\xff\xd8"
# Longer headers, which contain a thumbnail or a colour profile, cost more to compare than to read.
_LONGEST_KNOWN = 4096
_MOST_KNOWN = 128  # more than the qualities of an encoder
_GRAIN = 1 << 18


class Scratch:
    """Pool of uint8 buffers for decoding. Not thread-safe: one per thread.

    Fresh memory for every image costs page faults, and threads contend for them. A buffer is handed out again only when
    no view of it is left: numpy keeps the owner of memory alive for as long as any view of it lives, so the owner's
    reference count shows that. It is compared with the count of an idle buffer that the same expression has read,
    because the references that the expression itself adds differ between Python versions.

    An array in a buffer may be kept without limit: its buffer is then not used again, and the pool allocates a new one.
    Only a bare address (``ctypes.data``) does not keep a buffer; keep the array too.

    Args:
        buffers: the most buffers that are kept.
        max_nbytes: larger requests get separate memory, which is not kept.

    Pickling makes an empty pool with the same limits.
    """

    __slots__ = ("_buffers", "_idle", "_oldest", "buffers", "max_nbytes")

    def __init__(self, buffers: int = 4, max_nbytes: int = 1 << 26) -> None:
        if buffers < 1 or max_nbytes < 0:
            raise ValueError(
                f"Scratch needs buffers >= 1 and max_nbytes >= 0, got {buffers!r} and {max_nbytes!r}"
            )
        self.buffers = buffers
        self.max_nbytes = max_nbytes
        self._buffers: list[Array] = [np.empty(1, np.uint8)]
        self._oldest = 0
        self._idle = self._references(0)
        held = self._buffers[0][:]
        if self._references(0) != self._idle + 1:
            # An interpreter that does not count references: no buffer is ever known to be idle.
            self._idle = -1
        del held
        self._buffers.clear()

    def __reduce__(self) -> tuple[type[Scratch], tuple[int, int]]:
        return type(self), (self.buffers, self.max_nbytes)

    def __repr__(self) -> str:
        return f"Scratch(buffers={self.buffers}, max_nbytes={self.max_nbytes})"

    def _references(self, place: int) -> int:
        return sys.getrefcount(self._buffers[place])

    @property
    def nbytes(self) -> int:
        """Return the bytes held by the pool, in use or idle."""
        return sum(buffer.nbytes for buffer in self._buffers)

    def take(self, nbytes: int) -> Array:
        """Return a buffer that nothing else refers to; its content is arbitrary.

        Args:
            nbytes: size, at least 0.

        Returns:
            uint8 (nbytes,), C-contiguous and writable.
        """
        buffers = self._buffers
        small = -1
        for place in range(len(buffers)):
            if self._references(place) == self._idle:
                if buffers[place].size >= nbytes:
                    return buffers[place][:nbytes]
                small = place
        if nbytes > self.max_nbytes:
            return np.empty(nbytes, np.uint8)
        size = min(-(-max(nbytes, 1) // _GRAIN) * _GRAIN, max(self.max_nbytes, nbytes, 1))
        if small < 0:
            if len(buffers) < self.buffers:
                small = len(buffers)
                buffers.append(np.empty(0, np.uint8))
            else:
                # All are in use: the pool forgets the oldest, which stays with its user.
                small = self._oldest
                self._oldest = (self._oldest + 1) % self.buffers
        # Freed before its successor is allocated, so that the two never exist at the same time.
        buffers[small] = np.empty(0, np.uint8)
        buffers[small] = np.empty(size, np.uint8)
        return buffers[small][:nbytes]


class _KnownHeaders:
    """Headers of JPEGs that were read, with their frame and orientation.

    Images of one size written by one program with one quality have the same headers, byte for byte. Those of a few
    qualities differ in the tables, but have the same length.
    """

    __slots__ = ("_found", "_length")

    def __init__(self) -> None:
        self._found: dict[bytes, tuple[Frame, int]] = {}
        self._length = 0  # of all of them

    def find(self, data: Any) -> tuple[Frame, int] | None:
        """Return the frame and orientation of an image that begins with known headers; None if it does not."""
        return self._found.get(bytes(data[: self._length]))

    def add(self, data: Any, frame: Frame, orientation: int) -> None:
        """Keep the headers of an image, unless they are long."""
        if frame.scan_start > _LONGEST_KNOWN:
            return
        if frame.scan_start != self._length or len(self._found) == _MOST_KNOWN:
            self._found.clear()
            self._length = frame.scan_start
        self._found[bytes(data[: self._length])] = frame, orientation


class LazyImageReader:
    """Reader that opens encoded images; one per thread.

    Args:
        flag, exif, max_pixels: see `decode_image`.
        dct_scaling: JPEGs can be shrunk while they are decoded.
        scratch: pool for the pixels; None for a new one.

    Attributes:
        max_pixels, dct_scaling, scratch: as passed.
        decode_jpeg: simplejpeg's function; looked up once.
        rectangles: decoder for rectangles of JPEGs; None if there is no library for it.
        channels: of all images, 3 or 1.
        colorspace: of all images, simplejpeg's name.
        known: headers of the JPEGs that were opened.
        bad_entries: number of entries of a crop index that were not used, by the reason (see `CropEntryError`).
        timer: counts in which ways the images are decoded.
    """

    def __init__(
        self,
        flag: int = 1,
        *,
        exif: str = "apply",
        max_pixels: int | None = DEFAULT_MAX_PIXELS,
        dct_scaling: bool = False,
        scratch: Scratch | None = None,
    ) -> None:
        from simplejpeg import decode_jpeg

        self._flag = flag
        self._exif = exif
        self.max_pixels = max_pixels
        self.dct_scaling = dct_scaling
        self.channels = 3 if flag else 1
        self.colorspace = "RGB" if flag else "GRAY"
        self.scratch = Scratch() if scratch is None else scratch
        self.decode_jpeg = decode_jpeg
        self.rectangles = None if library_path() is None else RectangleDecoder()
        self.bad_entries: Counter[str] = Counter()
        self.known = _KnownHeaders()
        self.timer = StageTimer()

    def open(self, data: Any, path: str | None = None, *, entry: Any = NO_INDEX) -> LazyImage:
        """Read the header of an image; formats other than JPEG and raw images are decoded at once.

        Args:
            data: the encoded image, bytes or a flat memoryview of bytes; the image reads from it later. Or its pixels,
                uint8 (height, width, channels), which are not altered.
            path: file that the data is from, for errors.
            entry: its entry of a crop index, bytes or a memoryview of bytes; or a str, the reason why there is none
                (see `aioloader.foundation.decodes`). It is used only if it is intact and was made from exactly this
                data.

        Raises:
            DecodeError: as `decode_image`; damaged pixels may be detected only when they are requested.
        """
        if type(data) is np.ndarray:
            return _Pixels(data[:], borrowed=True)  # a view: an array itself would count as this image's own
        image = self.jpeg(data, path, entry=entry)
        if image is not None:
            return image
        pixels = self.raw(data)
        if pixels is not None:
            self.timer.decodes[RAW][_reason_of_whole(data, entry)] += 1
            return _Pixels(pixels, borrowed=True)
        pixels = self.decode(data, path)
        self.timer.decodes[WHOLE][_reason_of_whole(data, entry)] += 1
        return _Pixels(pixels, borrowed=False)

    def measure(self, data: Any, height: int, width: int) -> None:
        """Count the size of an image; not of one that was kept decoded, nor of those that are not decoded whole."""
        if type(data) is not np.ndarray and not self.dct_scaling:
            self.timer.measured_images = 1
            self.timer.image_nbytes = height * width * self.channels

    def open_part(
        self, data: Any, path: str | None = None, *, entry: Any, rows: tuple[int, int]
    ) -> LazyImage:
        """Open a JPEG of which only the headers and some rows of MCUs are there (see `aioloader.jpeg.crop_window`).

        Args:
            data: the part, bytes or a flat memoryview of bytes; the image reads from it later.
            path: as for `open`.
            entry: its entry of a crop index, bytes or a memoryview of bytes; or the reason why there is none.
            rows: the first row of MCUs in the data, and the one behind the last.

        Raises:
            IncompleteItemError: it cannot be shown that this is a part of the entry's image. The methods of the image
                raise it too, where they need other rows or a whole decode.
        """
        if type(entry) is str:
            raise IncompleteItemError(f"{entry}, so that there is no entry of a crop index")
        try:
            head = read_head(entry)
            left_out = check_part(data, entry, head, rows)
        except CropEntryError as error:
            raise IncompleteItemError(str(error)) from None
        header = self.known.find(data)
        if header is None:
            frame = read_frame(data)
            if frame is None or not self._may_be_decoded(frame.height, frame.width):
                raise IncompleteItemError("the image is unusual")
            header = self._header(data, frame)
        if not _describes(head, header[0]):
            raise IncompleteItemError("the headers are not those of the entry")
        return _JpegPart(self, data, path, header, entry, part=(head, rows, left_out))

    def jpeg(self, data: Any, path: str | None = None, *, entry: Any = NO_INDEX) -> _Jpeg | None:
        """Open a JPEG as `open` does; None for other formats, and for a JPEG that can only be decoded whole."""
        header = self.known.find(data)
        if header is None:
            frame = read_frame(data)
            if frame is None or not self._may_be_decoded(frame.height, frame.width):
                return None
            header = self._header(data, frame)
        return _Jpeg(self, data, path, header, entry)

    def _header(self, data: Any, frame: Frame) -> tuple[Frame, int]:
        """Return the frame and orientation of a JPEG, and keep its headers."""
        orientation = jpeg_orientation(data, frame) if self._exif == "apply" else 1
        self.known.add(data, frame, orientation)
        return frame, orientation

    def _may_be_decoded(self, height: int, width: int) -> bool:
        return self.max_pixels is None or height * width <= self.max_pixels

    def raw(self, data: Any) -> Array | None:
        """Return the pixels of a raw image, a view of the data; None for all that has to be decoded, or is an error."""
        if len(data) <= 8 or data[0] != _RAW_START:
            return None
        try:
            height, width, channels, start = read_raw_header(data)
        except DecodeError:
            return None
        if channels != self.channels or not self._may_be_decoded(height, width):
            return None
        return np.ndarray((height, width, channels), np.uint8, data, start)

    def decode_into(
        self, data: Any, out: Array, *, stops_early: bool, shrink: Mapping[str, int] | None = None
    ) -> bool:
        """Decode a JPEG to the start of an array.

        Args:
            data: the JPEG.
            out: the array.
            stops_early: one warning is harmless, see `Cut`.
            shrink: arguments of the decoder for a smaller image.

        Returns:
            False if the decoder complains.
        """
        try:
            # By default the cosine transform and the interpolation of chroma are the exact ones.
            if shrink is None:
                self.decode_jpeg(data, self.colorspace, buffer=out, strict=True)
            else:
                self.decode_jpeg(data, self.colorspace, buffer=out, strict=True, **shrink)
        except ValueError as error:
            return stops_early and harmless(str(error))
        except RuntimeError:
            return False
        return True

    def decode(self, data: Any, path: str | None) -> Array:
        """Decode all of an image of any format; see `decode_image`."""
        return decode_image(
            data,
            flag=self._flag,
            exif=self._exif,
            max_pixels=self.max_pixels,
            scratch=self.scratch,
            path=path,
        )


def _describes(head: EntryHead, frame: Frame) -> bool:
    """Return whether the head of an entry has the sizes of a frame. Only that of an entry that was made up has not."""
    found = head.scan_start, head.width, head.height, 8 * head.mcu_blocks_down, head.y_margin
    return found == (frame.scan_start, frame.width, frame.height, frame.mcu_height, frame.y_margin)


def _reason_of_whole(data: Any, entry: Any) -> str:
    """Return the reason why an image that is not opened lazily is not cut; see `LazyImageReader.open`."""
    if type(entry) is str and (entry == NO_CROP or entry.startswith(REFUSED)):
        return entry
    return WHOLE_ONLY if data[:2] == _JPEG_START else NOT_JPEG


class _Pixels:
    """An image whose pixels are decoded already. Valid as long as its data is.

    Attributes:
        height, width: extents of the upright image in pixels.
        channels: 3 (RGB) or 1 (grey).
        borrowed: the pixels are views of the data: read-only, and invalid once the data is freed.
        shrinks: `region` and `frame` can leave out pixels (``shrink``).
    """

    __slots__ = ("_pixels", "borrowed", "channels", "height", "width")
    shrinks = False

    def __init__(self, pixels: Array, borrowed: bool) -> None:
        self._pixels = pixels
        self.borrowed = borrowed
        self.height, self.width, self.channels = pixels.shape

    def pixels(self, out: Array | None = None) -> Array:
        """Return all pixels, uint8 (height, width, channels).

        Args:
            out: array that they may be written to: uint8, of that shape, C-contiguous.

        Raises:
            DecodeError: as `decode_image`.
        """
        return self._pixels

    def region(self, box: Box, shrink: int = 1) -> Array:
        """Return the pixels of a rectangle, uint8; often a view.

        Args:
            box: (x, y, width, height), inside the upright image.
            shrink: 2, 4 or 8: at that part of the size, approximately, if the image `shrinks`; sides that do not
                divide are rounded.

        Raises:
            DecodeError: as `decode_image`.
        """
        x, y, width, height = box
        return self._pixels[y : y + height, x : x + width]

    def frame(self, box: Box, shrink: int = 1) -> Array:
        """Return an array as from `pixels`, of which only a rectangle is filled.

        Args:
            box: (x, y, width, height), inside the upright image.
            shrink: as for `region`; the sides of the array are rounded up.

        Returns:
            uint8 (height, width, channels); the values outside the rectangle are arbitrary.

        Raises:
            DecodeError: as `decode_image`.
        """
        return self._pixels


class _Jpeg:
    """A JPEG of which only the headers have been read; its members are those of `_Pixels`."""

    __slots__ = (
        "_data",
        "_entry",
        "_frame",
        "_orientation",
        "_path",
        "_reader",
        "_reason",
        "_way",
        "channels",
        "height",
        "shrinks",
        "width",
    )
    borrowed = False

    def __init__(
        self,
        reader: LazyImageReader,
        data: Any,
        path: str | None,
        header: tuple[Frame, int],
        entry: Any,
    ) -> None:
        self._reader = reader
        self._data = data
        self._path = path
        self._frame, self._orientation = frame, orientation = header
        self._entry = entry
        self.channels = reader.channels
        self.shrinks = reader.dct_scaling
        if orientation >= 5:  # turning upright exchanges height and width
            self.height, self.width = frame.width, frame.height
        else:
            self.height, self.width = frame.height, frame.width

    def pixels(self, out: Array | None = None) -> Array:
        if out is not None and self._orientation == 1:
            # As `_everything`, without the object for the piece, which costs a hundredth of decoding a small image.
            done = self._reader.decode_into(self._data, out, stops_early=not self._frame.restart_interval)
            pixels = out if done else None
        else:
            pixels = self._piece(self._everything, 1)
            if pixels is not None:
                pixels = self._upright(pixels)
        reader = self._reader
        if pixels is None:
            pixels = reader.decode(self._data, self._path)
        reason = self._entry
        if reason is NO_CROP:
            # Small images are decoded in this way, for which a dict would be noticed.
            reader.timer.uncropped += 1
        else:
            reader.timer.decodes[WHOLE][reason if type(reason) is str else NEARLY_ALL] += 1
        return pixels

    def region(self, box: Box, shrink: int = 1) -> Array:
        stored = self._stored(box)
        piece = self._cut(stored, shrink)
        x, y, width, height = stored
        x -= piece.left
        y -= piece.top
        pixels = self._rectangle(piece, (x, y, width, height)) if shrink == 1 else None
        if pixels is not None:
            self._reader.timer.decodes[CUT if self._way is CUT else RECTANGLE][self._reason] += 1
            return self._upright(pixels)
        pixels = self._piece(piece, shrink)
        if pixels is None:
            x, y, width, height = box
            return self._whole()[y : y + height, x : x + width]
        self._reader.timer.decodes[self._way][self._reason] += 1
        half = shrink // 2
        rows = slice((y + half) // shrink, (y + height + half) // shrink)
        return self._upright(pixels[rows, (x + half) // shrink : (x + width + half) // shrink])

    def frame(self, box: Box, shrink: int = 1) -> Array:
        stored = self._stored(box)
        piece = self._cut(stored, shrink)
        canvas = self._take(scaled_size(self._frame.height, shrink), scaled_size(self._frame.width, shrink))
        if shrink == 1 and self._rectangle_at_its_place(piece, stored, canvas):
            self._reader.timer.decodes[CUT if self._way is CUT else RECTANGLE][self._reason] += 1
        elif self._piece_at_its_place(piece, shrink, canvas):
            self._reader.timer.decodes[self._way][self._reason] += 1
        else:
            return self._whole()
        return self._upright(canvas)

    def _whole(self) -> Array:
        """Decode all of the image after the decoder complained about the piece: something is wrong, or unusual."""
        pixels = self._reader.decode(self._data, self._path)
        self._reader.timer.decodes[WHOLE][self._reason if self._way is WHOLE else COMPLAINT] += 1
        return pixels

    def _stored(self, box: Box) -> Box:
        if self._orientation == 1:
            return box
        return stored_box(box, self._orientation, self._frame.height, self._frame.width)

    def _cut(self, box: Box, shrink: int) -> Cut:
        """Leave out the data that a stored box does not need, as far as possible; note the way and the reason."""
        entry = reason = self._entry
        if type(entry) is not str:
            try:
                check_entry(entry, self._data)
                piece = cut_by_entry(self._data, self._frame, entry, box, scale=shrink)
            except CropEntryError as error:
                self._reader.bad_entries[error.reason] += 1
                reason = BAD_ENTRIES[error.reason]
            else:
                if piece is not None:
                    self._way, self._reason = CUT, INDEXED
                    return piece
                reason = NEARLY_ALL
        piece = cut(self._data, self._frame, box, scale=shrink)
        self._way, self._reason = EARLY_STOP, reason
        if piece is None:
            piece, self._way = self._everything, WHOLE
        if reason is NO_INDEX and not self._reader.timer.measured_crops:
            timer = self._reader.timer
            timer.measured_crops = 1
            timer.crop_pixels = box[2] * box[3]
            timer.read_pixels = piece.width * piece.height
        return piece

    @property
    def _everything(self) -> Cut:
        frame = self._frame
        # The warning that is harmless after an early stop is harmless for a whole file too, if it has no restart
        # markers; if it has, `decode_image` checks them.
        return Cut(
            data=self._data,
            width=frame.width,
            height=frame.height,
            left=0,
            top=0,
            stops_early=not frame.restart_interval,
        )

    def _rectangle(self, piece: Cut, box: Box, canvas: Array | None = None) -> Array | None:
        """Decode a rectangle of a piece.

        Args:
            piece: the JPEG.
            box: the rectangle in it.
            canvas: array of the piece's shape that the rectangle is written to at its place; None for other memory.

        Returns:
            Its pixels; None if that is not possible or saves nothing, or the decoder complains.
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
        # To the end of the piece: if rows are left to be skipped, the decoder does not check the data below.
        rows, columns = piece.height - y, right - left
        if rows * columns > (1 - decoder.worth) * (piece.height * piece.width):
            return None
        out = self._take(rows, columns) if canvas is None else canvas[y:, left:right]
        complaint = decoder.decode(piece.data, left, y, out)
        if complaint is None or (piece.stops_early and harmless(complaint)):
            return out[:height, x - left : x - left + width]
        return None

    def _rectangle_at_its_place(self, piece: Cut, box: Box, canvas: Array) -> bool:
        """Decode a rectangle of a piece to its place in the image; return False where `_rectangle` returns None."""
        top, left = piece.top, piece.left
        if left < 0:
            return False
        place = canvas[top : top + piece.height, left : left + piece.width]
        return self._rectangle(piece, (box[0] - left, box[1] - top, box[2], box[3]), place) is not None

    def _piece_at_its_place(self, piece: Cut, shrink: int, canvas: Array) -> bool:
        """Decode a piece to its place in the image; return False if the decoder complains."""
        top, left = piece.top // shrink, piece.left // shrink
        if left == 0 and piece.width == self._frame.width:
            return self._decode_piece(piece, shrink, canvas[top:])
        pixels = self._piece(piece, shrink)
        if pixels is None:
            return False
        # A cut by an entry can begin outside of the image.
        pixels = pixels[:, max(0, -left) :]
        left = max(0, left)
        canvas[top : top + pixels.shape[0], left : left + pixels.shape[1]] = pixels
        return True

    def _piece(self, piece: Cut, shrink: int) -> Array | None:
        """Decode a piece to a buffer; None if the decoder complains."""
        pixels = self._take(scaled_size(piece.height, shrink), scaled_size(piece.width, shrink))
        return pixels if self._decode_piece(piece, shrink, pixels) else None

    def _take(self, height: int, width: int) -> Array:
        pixels = self._reader.scratch.take(height * width * self.channels)
        return pixels.reshape(height, width, self.channels)

    def _decode_piece(self, piece: Cut, shrink: int, out: Array) -> bool:
        """Decode a piece to the start of an array; return False if the decoder complains."""
        if shrink == 1:
            return self._reader.decode_into(piece.data, out, stops_early=piece.stops_early)
        least = {
            "min_height": scaled_size(piece.height, shrink),
            "min_width": scaled_size(piece.width, shrink),
            "min_factor": shrink,
        }
        return self._reader.decode_into(piece.data, out, stops_early=piece.stops_early, shrink=least)

    def _upright(self, pixels: Array) -> Array:
        if self._orientation == 1:
            return pixels
        return upright(pixels, self._orientation, self._reader.scratch)


class _JpegPart(_Jpeg):
    """A JPEG of which only the headers and some rows of MCUs are there; its members are those of `_Pixels`.

    They raise IncompleteItemError where they need more than that.

    Args:
        reader, data, path, header, entry: as for `_Jpeg`.
        part: the head of the entry; the first row that is there and the one behind the last; and the bytes of the scan
            before these rows.
    """

    __slots__ = ("_head", "_left_out", "_rows")

    def __init__(
        self,
        reader: LazyImageReader,
        data: Any,
        path: str | None,
        header: tuple[Frame, int],
        entry: Any,
        *,
        part: tuple[EntryHead, tuple[int, int], int],
    ) -> None:
        super().__init__(reader, data, path, header, entry)
        self._head, self._rows, self._left_out = part

    def pixels(self, out: Array | None = None) -> Array:
        raise IncompleteItemError("all pixels are needed")

    def _cut(self, box: Box, shrink: int) -> Cut:
        first, stop = needed_rows(self._head, box, shrink)
        if not self._rows[0] <= first < stop <= self._rows[1]:
            raise IncompleteItemError("other rows are needed")
        try:
            piece = cut_by_entry(
                self._data, self._frame, self._entry, box, scale=shrink, left_out=self._left_out
            )
        except CropEntryError as error:
            raise IncompleteItemError(str(error)) from None
        if piece is None:
            raise IncompleteItemError("they cannot be cut")
        self._way, self._reason = CUT, INDEXED
        return piece

    def _whole(self) -> Array:
        raise IncompleteItemError("a decoder complains")


LazyImage: TypeAlias = _Pixels | _Jpeg
"""One image whose pixels are requested by their places."""
