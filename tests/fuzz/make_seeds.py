"""Generator of the corpus's valid JPEGs: `python -m tests.fuzz.make_seeds`. The repository has them already."""

from __future__ import annotations

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


def main() -> None:
    """Write them."""
    rng = np.random.default_rng(0)
    coarse = cv2.resize(rng.integers(0, 256, (16, 16, 3), np.uint8), (128, 128))
    image = cv2.addWeighted(coarse, 0.8, rng.integers(0, 256, (128, 128, 3), np.uint8), 0.2, 0)
    folder = CORPUS / "jpeg"
    folder.mkdir(parents=True, exist_ok=True)
    for width, height, sampling, interval, quality in KINDS:
        pixels = image[:height, :width]
        options = [cv2.IMWRITE_JPEG_QUALITY, quality, cv2.IMWRITE_JPEG_RST_INTERVAL, interval]
        options += [cv2.IMWRITE_JPEG_OPTIMIZE, 1]
        if sampling == "grey":
            pixels = np.ascontiguousarray(pixels[..., 1])
        else:
            options += [cv2.IMWRITE_JPEG_SAMPLING_FACTOR, _SAMPLINGS[sampling]]
        data = cv2.imencode(".jpg", pixels, options)[1].tobytes()
        name = f"{width}x{height}-{sampling}-{interval}.jpg"
        (folder / name).write_bytes(data)


if __name__ == "__main__":
    main()
