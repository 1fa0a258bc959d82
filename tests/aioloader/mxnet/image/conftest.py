"""Fixtures: sixteen small photographs, as files, as lists of every kind, and as a record file."""

from __future__ import annotations

from pathlib import Path
from typing import Any, NamedTuple

import cv2
import numpy as np
import pytest

import recordio
from aioloader.tools.draw import draw_image

COUNT = 16


class Photos(NamedTuple):
    """Paths of the same images in all forms; image i has the label i % 5."""

    folder: Path
    names: list[str]
    labels: list[float]
    images: list[Any]

    @property
    def imglist(self):
        return [[label, name] for label, name in zip(self.labels, self.names, strict=True)]

    @property
    def lst(self):
        return str(self.folder / "photos.lst")

    @property
    def rec(self):
        return str(self.folder / "photos.rec")

    @property
    def idx(self):
        return str(self.folder / "photos.idx")


@pytest.fixture(scope="session")
def photos(tmp_path_factory):
    """Write sixteen PNGs, photos.lst, and photos.rec with photos.idx, whose keys are 100, 101, ..."""
    folder = tmp_path_factory.mktemp("mx-photos")
    names, labels, images = [], [], []
    with (
        recordio.MXIndexedRecordIO(folder / "photos.idx", folder / "photos.rec", "w") as record,
        open(folder / "photos.lst", "w") as lst,
    ):
        for number in range(COUNT):
            image = draw_image(number, height=40 + number, width=60 - number)
            done, data = cv2.imencode(".png", image[..., ::-1])
            assert done
            name, label = f"{number:02}.png", float(number % 5)
            (folder / name).write_bytes(data.tobytes())
            lst.write(f"{100 + number}\t{label}\t{name}\n")
            record.write_idx(100 + number, recordio.pack((0, label, number, 0), data.tobytes()))
            names.append(name)
            labels.append(label)
            images.append(image)
    return Photos(folder, names, labels, images)


@pytest.fixture
def gradient():
    """Return an image with a different colour in every pixel: float32 (4, 5, 3), 0 to 255, from a fixed seed."""
    return np.random.RandomState(0).randint(0, 256, (4, 5, 3)).astype(np.float32)
