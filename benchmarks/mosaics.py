"""Large photographs made of small ones, because sets of many large ones are rare."""

from __future__ import annotations

import random
from typing import TYPE_CHECKING

import cv2
import numpy as np
import simplejpeg

if TYPE_CHECKING:
    from collections.abc import Sequence


_WIDTH, _SIDE = 4000, 6
_TILE = (667, 500)
_OPTIONS = [cv2.IMWRITE_JPEG_QUALITY, 90, cv2.IMWRITE_JPEG_SAMPLING_FACTOR, 0x221111]


def mosaics(files: Sequence[bytes], count: int = 6) -> list[bytes]:
    """Return images of 4000 x 3000 pixels made of JPEG files, 4:2:0, quality 90, as cameras write them."""
    rng = random.Random(2)
    found = []
    for _ in range(count):
        rows = []
        for _ in range(_SIDE):
            parts = [
                cv2.resize(simplejpeg.decode_jpeg(rng.choice(files)), _TILE, interpolation=cv2.INTER_AREA)
                for _ in range(_SIDE)
            ]
            rows.append(np.concatenate(parts, axis=1)[:, :_WIDTH])
        found.append(cv2.imencode(".jpg", np.concatenate(rows), _OPTIONS)[1].tobytes())
    return found
