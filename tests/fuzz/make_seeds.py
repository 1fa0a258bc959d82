"""Generator of the corpus's valid JPEGs and of their entries of a crop index: `python -m tests.fuzz.make_seeds`.

The repository has them already.
"""

from __future__ import annotations

import struct
from collections.abc import Sequence
from pathlib import Path

import cv2
import numpy as np

from tests.fuzz.target import CORPUS

_SAMPLINGS = {"444": 0x111111, "422": 0x211111, "440": 0x121111, "420": 0x221111, "411": 0x411111}

# width, height, sampling, MCUs of a restart interval, quality
KINDS = (
    (1, 1, "420", 0, 90),
    (17, 13, "420", 0, 90),
    (33, 47, "grey", 0, 80),
    (48, 40, "420", 0, 70),
    (61, 53, "444", 0, 70),
    (64, 40, "422", 0, 70),
    (40, 64, "440", 0, 70),
    (72, 24, "411", 0, 70),
    (64, 48, "420", 1, 60),
    (64, 48, "420", 2, 60),
    (64, 48, "420", 4, 60),
    (64, 48, "420", 3, 60),
    (70, 44, "420", 5, 60),
    (64, 48, "444", 2, 50),
    (64, 48, "444", 8, 50),
    (57, 41, "444", 4, 50),
    (64, 32, "422", 2, 60),
    (32, 64, "440", 2, 60),
    (96, 24, "411", 1, 60),
    (56, 56, "grey", 1, 60),
    (56, 56, "grey", 7, 60),
    (104, 96, "444", 1, 10),
    (104, 96, "grey", 1, 20),
)

# width, height, sampling, MCUs of a restart interval, quality, optimised tables, bytes of a comment
KINDS_OF_CROPS = (
    (64, 48, "420", 0, 75, 0, 0),
    (64, 64, "420", 4, 75, 0, 0),
    (64, 64, "420", 8, 50, 1, 0),
    (63, 41, "444", 0, 60, 0, 0),
    (56, 40, "444", 7, 60, 0, 0),
    (64, 40, "422", 0, 70, 0, 0),
    (40, 64, "440", 0, 70, 0, 0),
    (64, 24, "411", 0, 60, 0, 0),
    (64, 64, "grey", 0, 70, 0, 0),
    (57, 64, "grey", 8, 70, 1, 0),
    (62, 64, "420", 0, 5, 1, 0),
    (64, 62, "grey", 0, 2, 1, 0),
    (8, 8, "444", 0, 90, 0, 0),
    (33, 33, "420", 0, 60, 1, 0),
    (48, 32, "444", 0, 100, 0, 0),
    # The comment makes it long enough for the checksum of large files.
    (48, 48, "420", 0, 80, 1, 20_000),
)


def main() -> None:
    """Write them."""
    for kind in KINDS:
        _write("jpeg", encode(*kind, 1), kind)
    # Imported here: it needs numba.
    from aioloader.jpeg.crop_scan import build_entry

    for number, (*kind, optimised, comment) in enumerate(KINDS_OF_CROPS):
        data = encode(*kind, optimised)
        if comment:
            data = data[:2] + struct.pack(">HH", 0xFFFE, comment + 2) + bytes(comment) + data[2:]
        path = _write("crops", data, kind)
        path.with_suffix(".entry").write_bytes(build_entry(data, interval=1 + number % 2))


def encode(width: int, height: int, sampling: str, interval: int, quality: int, optimised: int) -> bytes:
    """Return a JPEG of noise over coarse structure."""
    rng = np.random.default_rng(0)
    coarse = cv2.resize(rng.integers(0, 256, (16, 16, 3), np.uint8), (128, 128))
    image = cv2.addWeighted(coarse, 0.8, rng.integers(0, 256, (128, 128, 3), np.uint8), 0.2, 0)
    pixels = image[:height, :width]
    options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_RST_INTERVAL, interval]
    options += [cv2.IMWRITE_JPEG_OPTIMIZE, optimised]
    if sampling == "grey":
        pixels = np.ascontiguousarray(pixels[..., 1])
    else:
        options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, _SAMPLINGS[sampling]]
    return bytes(cv2.imencode(".jpg", pixels, options)[1].tobytes())


def _write(folder: str, data: bytes, kind: Sequence[object]) -> Path:
    width, height, sampling, interval, _ = kind
    path = CORPUS / folder / f"{width}x{height}-{sampling}-{interval}.jpg"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


if __name__ == "__main__":
    main()
