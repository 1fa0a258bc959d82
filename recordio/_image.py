"""Image records: their header, and images encoded and decoded with OpenCV, which is imported at the first call.

The rule (docs/format.md, "Image record header"): 24 bytes little endian (flag, label, id, id2); a flag of n > 0 means
that n float32 labels follow, and then the body. Arrays are in OpenCV's channel order, BGR, as in MXNet: packing an RGB
array swaps the colours (docs/format.md, "Image records").
"""

from __future__ import annotations

import numbers
import struct
from typing import TYPE_CHECKING, Any, NamedTuple, TypeVar

import numpy as np

from recordio.errors import HeaderError, ImageEncodeError, MissingDependencyError, PayloadTypeError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from recordio._framing import BytesLike

_B = TypeVar("_B", bytes, bytearray, memoryview)

_FORMAT = struct.Struct("<IfQQ")
_SIZE = _FORMAT.size
_unpack_from = _FORMAT.unpack_from
_LABEL_DTYPE = np.dtype("<f4")


class IRHeader(NamedTuple):
    """Header of an image record.

    Attributes:
        flag: Number of float32 labels that follow the header; 0 for one scalar label.
        label: Scalar label, or a float32 array of shape (flag,). `pack` accepts any nesting.
        id: Record id, 0 to 2**64 - 1.
        id2: Upper half of a 128-bit id, normally 0.
    """

    flag: int
    label: Any
    id: int
    id2: int

    def __repr__(self) -> str:  # MXNet's name of the type
        return f"HEADER(flag={self.flag!r}, label={self.label!r}, id={self.id!r}, id2={self.id2!r})"


def pack(header: IRHeader | Sequence[Any], s: BytesLike) -> bytes:
    """Prepend a header to a body.

    Args:
        header: `IRHeader` or any sequence of four. With a number as label the stored flag is always 0; any other label
            is flattened to float32 and the flag is its size.
        s: Body, bytes-like.

    Returns:
        The payload for a writer.

    Raises:
        HeaderError: id or id2 do not fit in 64 unsigned bits, or a label does not fit in a float32; it is also a
            `struct.error`.
        PayloadTypeError: `s` is not bytes-like.
    """
    flag, label, id_, id2 = header
    labels = b""
    if isinstance(label, numbers.Number):
        flag = 0
    else:
        array = np.asarray(label, dtype=_LABEL_DTYPE)
        flag, label, labels = array.size, 0.0, array.tobytes()
    try:
        head = _FORMAT.pack(flag, label, id_, id2)
    except (struct.error, OverflowError, TypeError) as error:
        raise HeaderError(
            f"cannot pack IRHeader(flag={flag!r}, label={label!r}, id={id_!r}, id2={id2!r}): {error}"
        ) from error
    try:
        return b"".join((head, labels, s))
    except TypeError as error:
        raise PayloadTypeError(f"the body of a record must be bytes-like, not {type(s).__name__}") from error


def unpack(s: _B) -> tuple[IRHeader, _B]:
    """Split a payload into its header and body.

    Args:
        s: Payload written by `pack`.

    Returns:
        `(header, body)`. The body is a slice of the same kind as `s`, so a memoryview is not copied. The label is a
        float if the flag is 0, else a read-only float32 view of `s`, shape (flag,).

    Raises:
        HeaderError: `s` is shorter than 24 bytes (also a `struct.error`) or than its flag requires (also a
            `ValueError`).
    """
    if isinstance(s, memoryview):
        s = s if s.format == "B" and s.ndim == 1 else s.cast("B")
    size = len(s)
    if size < _SIZE:
        raise HeaderError(
            f"unpack requires a buffer of {_SIZE} bytes, this payload has {size}; "
            "it was not written by recordio.pack"
        )
    flag, label, id_, id2 = _unpack_from(s)
    if flag == 0:
        return IRHeader(0, label, id_, id2), s[_SIZE:]
    end = _SIZE + 4 * flag
    if end > size:
        raise HeaderError(
            f"buffer is smaller than requested size: the header announces {flag} labels, {end} "
            f"bytes in all, and the payload has {size}; it was not written by recordio.pack"
        )
    labels = np.frombuffer(s, dtype=_LABEL_DTYPE, count=flag, offset=_SIZE)
    labels.flags.writeable = False
    return IRHeader(flag, labels, id_, id2), s[end:]


def _opencv() -> Any:
    try:
        import cv2
    except ImportError as error:
        raise MissingDependencyError(
            "pack_img and unpack_img need OpenCV: pip install opencv-python-headless"
        ) from error
    return cv2


def pack_img(
    header: IRHeader | Sequence[Any],
    img: NDArray[np.uint8],
    quality: int = 95,
    img_fmt: str = ".jpg",
) -> bytes:
    """Encode an image and prepend a header.

    Args:
        header: As for `pack`.
        img: uint8, (height, width), (height, width, 1), (height, width, 3) in BGR, or (height, width, 4) in BGRA.
        quality: For ".jpg" and ".jpeg" the JPEG quality, 1 to 100. For ".png" the compression level, 0 to 9; greater
            values count as 9. Ignored for other formats.
        img_fmt: File suffix of the format, with the dot; case does not matter.

    Raises:
        ImageEncodeError: OpenCV cannot encode this image in this format.
        MissingDependencyError: OpenCV is not installed.
        HeaderError: As for `pack`.
    """
    cv2 = _opencv()
    suffix = img_fmt.lower()
    params: list[int] = []
    if suffix in (".jpg", ".jpeg"):
        params = [cv2.IMWRITE_JPEG_QUALITY, quality]
    elif suffix == ".png":
        params = [cv2.IMWRITE_PNG_COMPRESSION, min(max(quality, 0), 9)]
    try:
        done, encoded = cv2.imencode(img_fmt, img, params)
    except cv2.error as error:
        raise ImageEncodeError(f"failed to encode image as {img_fmt}: {error}") from error
    if not done:
        raise ImageEncodeError(f"failed to encode image as {img_fmt}")
    return pack(header, encoded.tobytes())


def unpack_img(s: BytesLike, iscolor: int = -1) -> tuple[IRHeader, NDArray[np.uint8] | None]:
    """Split a payload into its header and its decoded image.

    Args:
        s: Payload written by `pack_img`.
        iscolor: -1: as stored (grey is 2-D, PNG alpha is kept, EXIF orientation is ignored). 0: grey, 2-D. 1: (height,
            width, 3) in BGR, EXIF orientation applied.

    Returns:
        `(header, image)`, uint8; the image is None if the body cannot be decoded.

    Raises:
        HeaderError: As for `unpack`.
        MissingDependencyError: OpenCV is not installed.
    """
    cv2 = _opencv()
    header, body = unpack(memoryview(s))
    data = np.frombuffer(body, dtype=np.uint8)
    if data.size == 0:
        return header, None
    try:
        return header, cv2.imdecode(data, iscolor)
    except cv2.error:
        # OpenCV also raises for bodies that it recognises but refuses, for example extreme dimensions.
        return header, None
