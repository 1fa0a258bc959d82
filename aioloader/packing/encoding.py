"""Encoding of one image for packing.

Rule: an image's bytes change only where an option requires it. "keep" leaves them unchanged; a resize, a crop or a
colour conversion re-encodes only the images that it changes; "raw" decodes; the name of a format re-encodes every
image. A damaged image that has to be decoded is an error.

Operations on pixels for packing: decode, crop, resize, convert channels.
"""

from __future__ import annotations

import threading
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING

import numpy as np

from aioloader.errors import DecodeError
from aioloader.foundation.version import __version__
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS, check_extents, decode_image
from aioloader.transforms.formats import image_size, read_header
from aioloader.transforms.lazy_image import Scratch
from aioloader.transforms.raw import encode_raw

if TYPE_CHECKING:
    from aioloader.foundation.types import Array


_local = threading.local()


def decoded(data: bytes, color: int, max_pixels: int | None = DEFAULT_MAX_PIXELS) -> Array:
    """Decode an image and apply its EXIF orientation.

    Args:
        data: the encoded image.
        color: `flag` of `decode_image`.
        max_pixels: see `decode_image`.

    Returns:
        As `decode_image`. The caller may alter it. Once nothing refers to it any more, its memory is reused for later
        images of this thread.

    Raises:
        DecodeError: not an image, damaged, or too large.
    """
    scratch: Scratch | None = getattr(_local, "scratch", None)
    if scratch is None:
        scratch = _local.scratch = Scratch()
    return decode_image(data, flag=color, max_pixels=max_pixels, scratch=scratch)


def is_grey_jpeg(data: bytes) -> bool:
    """Return whether this is a JPEG with one component.

    Raises:
        DecodeError: it is a JPEG, and its header is damaged.
    """
    if data[:2] != b"\xff\xd8":
        return False
    from simplejpeg import decode_jpeg_header

    try:
        colorspace: str = decode_jpeg_header(data, strict=False)[2]
    except ValueError as error:
        raise DecodeError(str(error), format="jpeg", nbytes=len(data)) from error
    return colorspace.lower() == "gray"


def middle(image: Array) -> Array:
    """Return the middle square as a view."""
    height, width = image.shape[:2]
    side = min(height, width)
    top, left = (height - side) // 2, (width - side) // 2
    return image[top : top + side, left : left + side]


def shrunk(image: Array, shorter: int | None) -> Array:
    """Scale an image down to a shorter side of at most `shorter` pixels; return a smaller `image` itself."""
    height, width = image.shape[:2]
    side = min(height, width)
    if shorter is None or side <= shorter:
        return image
    import cv2

    size = (width * shorter // side, height * shorter // side)
    small = np.asarray(cv2.resize(image, size, interpolation=cv2.INTER_AREA))
    return small[:, :, None] if small.ndim == 2 else small


def to_bgr(image: Array) -> Array:
    """Convert an image to OpenCV's order of colours, C-contiguous; `image` itself may be overwritten."""
    return _swapped(image, image if image.flags.c_contiguous else None)


def _swapped(image: Array, out: Array | None = None) -> Array:
    """Exchange red and blue."""
    channels = image.shape[2]
    if channels not in (3, 4):
        return np.ascontiguousarray(image)
    import cv2

    code = cv2.COLOR_RGB2BGR if channels == 3 else cv2.COLOR_RGBA2BGRA
    return np.asarray(cv2.cvtColor(image, code, dst=out))


ENCODINGS = ("keep", "raw", "jpg", "png", "webp")
COLORS = (-1, 0, 1)

_QUALITIES = {"png": (0, 9, 3)}
_QUALITY = (1, 100, 95)


@dataclass(frozen=True, slots=True)
class Encoded:
    """Bytes of one image to be packed, and what was done to them.

    Attributes:
        data: the encoded image.
        source_nbytes: size of the original in bytes.
        resized: whether it was made smaller.
        cropped: whether it was cropped to its middle square.
        reencoded: whether it was decoded and encoded again.
        entry: its entry of a crop index, or the reason why it has none; None without a crop index.
        labels: its labels, if they were read with the image; else None.
        fields: other fields of its sample, as JSON, or None.
    """

    data: bytes
    source_nbytes: int
    resized: bool = False
    cropped: bool = False
    reencoded: bool = False
    entry: bytes | str | None = None
    labels: tuple[float, ...] | None = None
    fields: str | None = None


@dataclass(frozen=True, slots=True)
class Encoding:
    """Function from the bytes of an image to its packed form, with its options.

    Attributes:
        name: one of `ENCODINGS`.
        resize: images whose shorter side is longer than this number of pixels are scaled down to it; the longer side
            is rounded down. None: no image is resized.
        quality: of re-encoded images: JPEG and WebP 1 to 100, PNG 0 to 9 (compression effort). None: 95, and 3 for
            PNG.
        max_pixels: images whose header declares more pixels are refused before anything else is done; None: no limit.
        center_crop: crop to the middle square, before a resize.
        color: 1: re-encoded images become RGB; 0: all images become grey; -1: re-encoded images keep their channels,
            alpha too where the format has it.
        optimize: compute optimal Huffman tables for re-encoded JPEGs: a few percent smaller, and slower.
        pass_through: store the bytes unchanged and unchecked; cannot be combined with options that change images.
        crops: make an entry of a crop index of each image.

    Raises:
        ValueError: an option is not allowed, or conflicts with another one.
    """

    name: str = "keep"
    resize: int | None = None
    quality: int | None = None
    max_pixels: int | None = DEFAULT_MAX_PIXELS
    center_crop: bool = False
    color: int = 1
    optimize: bool = False
    pass_through: bool = False
    crops: bool = False

    def __post_init__(self) -> None:
        if self.name not in ENCODINGS:
            raise ValueError(f"encoding must be one of {', '.join(ENCODINGS)}, got {self.name!r}")
        if self.resize is not None and self.resize < 1:
            raise ValueError(f"resize must be at least 1 pixel, or None, got {self.resize!r}")
        if self.max_pixels is not None and self.max_pixels < 1:
            raise ValueError(f"max_pixels must be at least 1, or None, got {self.max_pixels!r}")
        if self.color not in COLORS:
            raise ValueError(f"color must be 1 (colour), 0 (grey) or -1 (as it is), got {self.color!r}")
        low, high, _ = _QUALITIES.get(self.name, _QUALITY)
        if self.quality is not None and not low <= self.quality <= high:
            raise ValueError(f"quality must lie between {low} and {high}, got {self.quality!r}")
        changed = self.name != "keep" or self.resize or self.center_crop or self.color != 1
        if self.pass_through and (changed or self.optimize):
            raise ValueError("pass_through stores images unchanged: leave out the options that change them")
        if self.crops and self.name not in ("keep", "jpg"):
            raise ValueError(
                f"a crop index has entries of JPEGs: leave out either crops or encoding={self.name!r}"
            )

    @property
    def copies(self) -> bool:
        """Return whether every file stays unchanged."""
        return self.pass_through or not self.touches_pixels

    @property
    def touches_pixels(self) -> bool:
        """Return whether an image may have to be decoded."""
        return self.name != "keep" or bool(self.resize or self.center_crop or self.color == 0)

    def __call__(self, data: bytes) -> Encoded:
        """Encode one image.

        Raises:
            DecodeError: it is empty, has more pixels than `max_pixels`, or is damaged and an option needs its pixels.
        """
        return self._with_entry(self._encoded(data))

    def _encoded(self, data: bytes) -> Encoded:
        if not data:
            raise DecodeError("the file is empty")
        if self.pass_through:
            return Encoded(data, len(data))
        self._refuse_large(data)
        if self.name != "keep" or self._would_change(data):
            image = decoded(data, self.color, self.max_pixels)
            return self._encoded_pixels(
                image, len(data), _icc_segments(data) if self.name in ("keep", "jpg") else b""
            )
        return Encoded(data, len(data))

    def of_pixels(self, image: Array, source_nbytes: int) -> Encoded:
        """Encode a decoded image.

        Args:
            image: uint8 (height, width, channels): grey, RGB, or RGB with alpha; it may be overwritten.
            source_nbytes: size of the original in bytes, for the result.

        Raises:
            DecodeError: it cannot be encoded: a side is limited to 16,383 pixels in WebP and 65,535 in JPEG.
        """
        return self._with_entry(self._encoded_pixels(image, source_nbytes, b""))

    def _with_entry(self, image: Encoded) -> Encoded:
        if not self.crops:
            return image
        from aioloader.crop_index.writer import entry_or_reason

        return replace(image, entry=entry_or_reason(image.data))

    def _encoded_pixels(self, image: Array, source_nbytes: int, profile: bytes) -> Encoded:
        """Encode a decoded image; `profile` has the JPEG segments with the colour profile of RGB pixels, or is b""."""
        if image.dtype not in (np.uint8, np.uint16):
            raise DecodeError(
                f"its samples are {image.dtype}, which {self.name} cannot store", nbytes=source_nbytes
            )
        square = middle(image) if self.center_crop else image
        small = shrunk(square, self.resize)
        if self.name != "png" and small.dtype == np.uint16:
            small = (small >> 8).astype(np.uint8)  # only PNG has 16 bits a channel
        if self.name == "raw":
            data = encode_raw(np.ascontiguousarray(small[:, :, :3]))
        else:
            data = self._by_opencv(to_bgr(small))
            if profile and small.shape[2] == 3:
                data = _insert_segments(data, profile)
        cropped, resized = square.shape != image.shape, small.shape != square.shape
        return Encoded(data, source_nbytes, resized=resized, cropped=cropped, reencoded=True)

    def _would_change(self, data: bytes) -> bool:
        """Return whether "keep" with these options changes an image."""
        if self.resize is not None or self.center_crop:
            height, width = image_size(data)[1:]
            if self.resize is not None and min(height, width) > self.resize:
                return True
            if self.center_crop and height != width:
                return True
        return self.color == 0 and not is_grey_jpeg(data)

    def _refuse_large(self, data: bytes) -> None:
        if self.max_pixels is None:
            return
        try:
            header = read_header(data)
        except DecodeError:
            return  # the code that has to decode it reports what is wrong
        check_extents(header, self.max_pixels, len(data))

    def _by_opencv(self, bgr: Array) -> bytes:
        """Encode an image as PNG, as WebP, or else as JPEG."""
        import cv2

        name = self.name if self.name in ("png", "webp") else "jpg"
        flags = {"png": cv2.IMWRITE_PNG_COMPRESSION, "webp": cv2.IMWRITE_WEBP_QUALITY}
        default = _QUALITIES.get(name, _QUALITY)[2]
        options = [
            flags.get(name, cv2.IMWRITE_JPEG_QUALITY),
            default if self.quality is None else self.quality,
        ]
        if self.optimize and name == "jpg":
            options += [cv2.IMWRITE_JPEG_OPTIMIZE, 1]
        return _by_opencv(f".{name}", bgr, options)


def _by_opencv(suffix: str, bgr: Array, options: list[int]) -> bytes:
    import cv2

    try:
        done, buffer = cv2.imencode(suffix, bgr, options)
    except cv2.error as error:
        done, reason = False, " ".join(str(error).split())
    else:
        reason = "OpenCV cannot encode it"
    if not done:
        height, width = bgr.shape[:2]
        raise DecodeError(f"cannot encode {width} x {height} pixels as {suffix}: {reason}")
    return np.asarray(buffer).tobytes()


def library_versions() -> dict[str, str]:
    """Return the versions of the libraries that decode and encode; other versions may produce other bytes."""
    import importlib.metadata

    import cv2

    return {
        "aioloader": __version__,
        "opencv": cv2.__version__,
        "simplejpeg": importlib.metadata.version("simplejpeg"),
    }


# -- colour profiles ---------------------------------------------------------------------------------------------------

# Rule: a profile is stored in APP2 segments, in several if it is large (ICC.1, annex B.4). It is valid only for the
# colour space of the pixels: of a CMYK image that was converted to RGB, only an RGB profile may be copied.

_ICC_NAME = b"ICC_PROFILE\0"
_ICC_COLOUR_SPACE_AT = len(_ICC_NAME) + 2 + 16  # number and count of the part, then the profile's own field


def _icc_segments(data: bytes) -> bytes:
    """Return the segments of a JPEG that contain its RGB profile, unchanged; b"" if there are none.

    Args:
        data: an image; for other formats than JPEG the result is b"".
    """
    found = []
    place = 2
    while data[:2] == b"\xff\xd8" and place + 4 <= len(data) and data[place] == 0xFF:
        marker = data[place + 1]
        if marker == 0xFF:  # a fill byte
            place += 1
            continue
        end = place + 2 + int.from_bytes(data[place + 2 : place + 4], "big")
        if marker == 0xDA or end < place + 4 or end > len(data):
            break
        if marker == 0xE2 and data.startswith(_ICC_NAME, place + 4):
            found.append(data[place:end])
        place = end
    if not found or found[0][4 + _ICC_COLOUR_SPACE_AT : 4 + _ICC_COLOUR_SPACE_AT + 4] != b"RGB ":
        return b""
    return b"".join(found)


def _insert_segments(jpeg: bytes, segments: bytes) -> bytes:
    """Insert segments into a JPEG after its JFIF segment.

    Args:
        jpeg: the JPEG; encoders write an APP0 segment first.
        segments: whole segments, markers included.
    """
    place = 4 + int.from_bytes(jpeg[4:6], "big") if jpeg[2:4] == b"\xff\xe0" else 2
    return jpeg[:place] + segments + jpeg[place:]
