"""Image records, encoded and decoded with OpenCV, which is imported at the first call.

Arrays are in OpenCV's channel order, BGR, as in MXNet: packing an RGB array swaps the colours (docs/format.md, "Image
records").
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from recordio._header import IRHeader, pack, unpack
from recordio.errors import ImageEncodeError, MissingDependencyError

if TYPE_CHECKING:
    from collections.abc import Sequence

    from numpy.typing import NDArray

    from recordio._framing import BytesLike


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
