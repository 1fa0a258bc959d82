"""What packing does to the bytes of one image.

Rule: an image's bytes are touched only for what was asked for. "keep" leaves them as they are; a resize encodes only
those images anew that are too large; tiling a JPEG changes none of its pixels; "raw" decodes. An image that cannot be
treated as asked stays as it is and is counted, but one that is damaged is an error.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioloader.errors import DecodeError
from aioloader.jpeg import NotTileableError, is_tiled, read_frame, restart_interval, with_tile_table
from aioloader.tools.jpegtran import rewrite
from aioloader.tools.profile import icc_segments, insert_segments
from aioloader.transforms import DEFAULT_MAX_PIXELS, decode_image, encode_raw, image_size
from aioloader.transforms.decode import check_scans, too_large
from aioloader.transforms.formats import read_header

if TYPE_CHECKING:
    from aioloader._types import Array

__all__ = ("ENCODINGS", "NOT_JPEG", "NO_TILES", "Encoded", "Encoding")

ENCODINGS = ("keep", "raw")
NOT_JPEG = "not JPEG"
NO_TILES = "JPEG of a kind that cannot be tiled"


@dataclass(frozen=True, slots=True)
class Encoded:
    """One image as it is packed.

    Attributes:
        data: its bytes.
        source_nbytes: how many there were before.
        resized: it was made smaller.
        tiled: it is a tiled JPEG with a tile table.
        kept: why it stays as it is although something else was asked for (`NOT_JPEG`, `NO_TILES`), or "".
    """

    data: bytes
    source_nbytes: int
    resized: bool = False
    tiled: bool = False
    kept: str = ""


@dataclass(frozen=True, slots=True)
class Encoding:
    """How images are packed; called with the bytes of one.

    Attributes:
        name: "keep" or "raw".
        tile: make JPEGs tiled ones; not with "raw".
        resize: images with a longer shorter side than this many pixels are made smaller, so that it has as many; the
            longer one is rounded down. None: no image is.
        quality: of JPEGs that a resize encodes anew, 1 to 100.
        jpegtran: path of that program; needed for `tile`.
        max_pixels: images whose header announces more are refused, before anything else is done; None: none is.

    Raises:
        ValueError: an option is not allowed, or does not go with the others.
    """

    name: str = "keep"
    tile: bool = False
    resize: int | None = None
    quality: int = 95
    jpegtran: str | None = None
    max_pixels: int | None = DEFAULT_MAX_PIXELS

    def __post_init__(self) -> None:
        if self.name not in ENCODINGS:
            raise ValueError(f"encoding must be one of {', '.join(ENCODINGS)}, got {self.name!r}")
        if self.tile and self.name == "raw":
            raise ValueError("raw images have no tiles: leave out either tile or encoding='raw'")
        if self.tile and self.jpegtran is None:
            raise ValueError("tile needs the path of jpegtran (see `find_jpegtran`)")
        if self.resize is not None and self.resize < 1:
            raise ValueError(f"resize must be at least 1 pixel, or None, got {self.resize!r}")
        if self.max_pixels is not None and self.max_pixels < 1:
            raise ValueError(f"max_pixels must be at least 1, or None, got {self.max_pixels!r}")
        if not 1 <= self.quality <= 100:
            raise ValueError(f"quality must lie between 1 and 100, got {self.quality!r}")

    def __call__(self, data: bytes) -> Encoded:
        """Encode one image.

        Raises:
            DecodeError: it had to be looked at and is damaged, or has more pixels than `max_pixels`.
        """
        self._refuse_large(data)
        if self.name == "raw":
            image = decode_image(data, max_pixels=self.max_pixels)
            small = _shrunk(image, self.resize)
            return Encoded(encode_raw(small), len(data), resized=small is not image)
        if self.resize is not None and min(image_size(data)[1:]) > self.resize:
            small = _shrunk(decode_image(data, max_pixels=self.max_pixels), self.resize)
            again = insert_segments(self._jpeg(small), icc_segments(data))
            if not self.tile:
                return Encoded(again, len(data), resized=True)
            return Encoded(with_tile_table(again), len(data), resized=True, tiled=True)
        if self.tile:
            return self._tiled(data)
        return Encoded(data, len(data))

    def _refuse_large(self, data: bytes) -> None:
        if self.max_pixels is None:
            return
        try:
            header = read_header(data)
        except DecodeError:
            return  # who has to look at it says what is wrong with it
        if header.height * header.width > self.max_pixels:
            raise too_large(header, self.max_pixels, len(data))

    def _tiled(self, data: bytes) -> Encoded:
        name = image_size(data)[0]
        if name != "jpeg":
            return Encoded(data, len(data), kept=NOT_JPEG)
        if is_tiled(data):
            return Encoded(data, len(data), tiled=True)
        check_scans(data)
        assert self.jpegtran is not None
        try:
            # Of a progressive JPEG the rewritten one tells the MCUs.
            frame = read_frame(data) or read_frame(rewrite(self.jpegtran, data))
            if frame is not None:
                again = rewrite(self.jpegtran, data, restart_interval(frame))
                return Encoded(with_tile_table(again), len(data), tiled=True)
        except NotTileableError:
            pass
        except DecodeError:
            # Damaged, or only of a kind that the program does not know: the decoder's verdict counts.
            decode_image(data, max_pixels=self.max_pixels)
        return Encoded(data, len(data), kept=NO_TILES)

    def _jpeg(self, image: Array) -> bytes:
        import cv2

        bgr = cv2.cvtColor(image, cv2.COLOR_RGB2BGR)
        options = [cv2.IMWRITE_JPEG_QUALITY, self.quality, cv2.IMWRITE_JPEG_OPTIMIZE, 1]
        if self.tile:
            # How many MCUs a row has depends on the encoder's sampling of chroma: a strip of the image tells.
            frame = read_frame(cv2.imencode(".jpg", bgr[:1], options)[1].tobytes())
            assert frame is not None
            options += [cv2.IMWRITE_JPEG_RST_INTERVAL, restart_interval(frame)]
        encoded: Any = cv2.imencode(".jpg", bgr, options)[1]
        data: bytes = encoded.tobytes()
        return data


def _shrunk(image: Array, shorter: int | None) -> Array:
    """The image with a shorter side of at most `shorter` pixels; `image` itself where nothing is to be done."""
    height, width = image.shape[:2]
    side = min(height, width)
    if shorter is None or side <= shorter:
        return image
    import cv2

    size = (width * shorter // side, height * shorter // side)
    result: Any = cv2.resize(image, size, interpolation=cv2.INTER_AREA)
    small: Array = result
    return small
