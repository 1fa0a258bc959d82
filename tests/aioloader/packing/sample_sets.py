"""The samples that the tests of packing write in every format: images, labels, text, JSON and bytes."""

from __future__ import annotations

from collections.abc import Mapping
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg

from tests.aioloader.datasets import tars
from tests.aioloader.format_sets import TAR, Sample, SetFormat

COUNT = 12
SHARDS = 3


def images(count: int = COUNT) -> list[bytes]:
    """Return small JPEGs of different greys."""
    return [simplejpeg.encode_jpeg(np.full((16, 24, 3), 20 * number, np.uint8)) for number in range(count)]


def label(number: int) -> int:
    return number % 3


def text(number: int) -> str:
    return f"a photo of number {number} ß"


def meta(number: int) -> dict[str, Any]:
    return {"number": number, "ü": None}


def write(made: SetFormat, folder: Path, count: int = COUNT) -> Path:
    """Write a set of a format; return its folder."""
    samples = [
        Sample(
            key=f"{number:04}",
            image=image,
            label=label(number),
            text=text(number),
            json=meta(number),
            data=bytes([number]),
        )
        for number, image in enumerate(images(count))
    ]
    return made.write(folder, samples, shards=SHARDS)


def write_tars(folder: Path, count: int = COUNT) -> Path:
    """Write a set of tars; return its folder."""
    return write(TAR, folder, count)


def write_tar(path: Path, members: Mapping[str, bytes]) -> Path:
    """Write a tar in a folder that is made if it is missing."""
    path.parent.mkdir(parents=True, exist_ok=True)
    return tars.write_tar(path, members.items())
