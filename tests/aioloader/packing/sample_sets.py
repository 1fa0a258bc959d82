"""The sets that tests of packing write, in every format or as folders of images, and what they read of packed ones."""

from __future__ import annotations

from collections.abc import Callable, Mapping
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg

import recordio
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


def write_folder(root: Path, bad: set[int] | None = None, count: int = 8) -> Path:
    """Write images of different greys in two classes, those in `bad` invalid; return their folder."""
    for number in range(count):
        path = root / ("cat" if number < count // 2 else "dog") / f"{number:03}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        image = np.full((16, 16, 3), 30 * number % 256, np.uint8)
        path.write_bytes(b"no image" if number in (bad or ()) else simplejpeg.encode_jpeg(image))
    return root


def records(rec: Path) -> list[tuple[recordio.IRHeader, bytes]]:
    """Return the header and the image of each record, whose keys are the ids of the headers."""
    with recordio.RecordReader(rec) as reader:
        unpacked = [recordio.unpack(record) for record in reader]
        assert list(reader.keys) == [header.id for header, _ in unpacked]
    return [(header, bytes(image)) for header, image in unpacked]


def bodies(rec: Path) -> list[bytes]:
    """Return the image of each record."""
    return [image for _, image in records(rec)]


def files(folder: Path) -> dict[str, bytes]:
    """Return the contents of the files of a folder."""
    return {path.name: path.read_bytes() for path in sorted(folder.iterdir())}


def stop_at(done: int) -> Callable[[int], None]:
    """Return a `tick` that interrupts packing behind so many images."""

    def tick(now: int) -> None:
        if now == done:
            raise KeyboardInterrupt

    return tick
