"""Target: image headers and the whole decode of every format."""

from __future__ import annotations

import struct
import zlib
from pathlib import Path

import cv2
import numpy as np

from aioloader.errors import DecodeError
from aioloader.transforms.decode import decode_image
from aioloader.transforms.formats import read_header
from aioloader.transforms.raw import encode_raw
from tests.fuzz.jpegs import seeds
from tests.fuzz.target import ROOT, Draw, Finding, change, change_number, dictionary, pick

_MOST_PIXELS = 1 << 14
PIECES = dictionary("image")


class Images:
    """Images of a few hundred pixels in every format that OpenCV can write here."""

    def __init__(self) -> None:
        image = cv2.resize(np.random.default_rng(6).integers(0, 256, (4, 5, 3), np.uint8), (15, 11))
        grey = image[..., 1]
        kinds = (
            (".png", image, ()),
            (".png", grey, ()),
            (".png", np.dstack((image, grey)), ()),
            (".bmp", image, ()),
            (".webp", image, (cv2.IMWRITE_WEBP_QUALITY, 50)),
            (".webp", image, (cv2.IMWRITE_WEBP_QUALITY, 101)),
            (".tiff", image, (cv2.IMWRITE_TIFF_COMPRESSION, 1)),
            (".tiff", grey, (cv2.IMWRITE_TIFF_COMPRESSION, 5)),
            (".ppm", image, (cv2.IMWRITE_PXM_BINARY, 1)),
            (".pgm", grey, (cv2.IMWRITE_PXM_BINARY, 0)),
            (".jp2", image, ()),
            (".avif", image, ()),
        )
        self._bases = []
        for suffix, pixels, options in kinds:
            try:
                done, data = cv2.imencode(suffix, pixels, list(options))
            except cv2.error:
                continue  # OpenCV was built without it
            if done:
                self._bases.append(data.tobytes())
        folder = Path(ROOT, "tests", "data", "images")
        names = ("palette.gif", "palette.png", "cmyk.jpg", "cmyk-no-adobe.jpg", "ycck.jpg")
        self._bases += [(folder / name).read_bytes() for name in names]
        self._bases += [encode_raw(image), encode_raw(grey), *seeds()[:3]]

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        data = bytearray(pick(draw, self._bases))
        low = 12 if draw() < 0.8 else 0
        for _ in range(int(draw() * 3) + 1):
            kind = draw()
            if kind < 0.4 and len(data) > 24:
                at, nbytes = low + int(draw() * (min(len(data), 80) - low)), pick(draw, (2, 4))
                change_number(data, at, nbytes, draw)
                if draw() < 0.5:  # big endian
                    data[at : at + nbytes] = data[at : at + nbytes][::-1]
            else:
                change(data, low, draw, PIECES)
        if data[:4] == b"\x89PNG" and draw() < 0.8:
            _sum(data)
        return bytes(data)

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        flag = 0 if zlib.crc32(data) & 3 == 0 else 1
        try:
            header = read_header(data)
        except DecodeError:
            header = None
        try:
            image = decode_image(data, flag=flag, exif="ignore", max_pixels=_MOST_PIXELS)
        except DecodeError as error:
            if "nsufficient memory" in error.reason or "Failed to allocate" in error.reason:
                raise Finding(f"{header} is small, its decoder wanted more than there is: {error}") from error
            return header is not None
        if header is None or image.shape[2] != (3 if flag else 1) or image.dtype != np.uint8:
            raise Finding(f"{header} announced, {image.dtype} {image.shape} decoded")
        if image.shape[0] * image.shape[1] > _MOST_PIXELS:
            raise Finding(f"{image.shape} is more than {_MOST_PIXELS} pixels")
        return True


def _sum(data: bytearray) -> None:
    """Correct the checksums of a PNG's chunks, so that the decoder accepts them."""
    at = 8
    while at + 12 <= len(data):
        end = at + 8 + int.from_bytes(data[at : at + 4], "big")
        if end + 4 > len(data):
            return
        data[end : end + 4] = struct.pack(">I", zlib.crc32(data[at + 4 : end]))
        at = end + 4
