"""Tests with real photographs from AIOLOADER_TEST_PHOTOS, a folder of JPEGs that is searched with sub-folders."""

from __future__ import annotations

import os
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

from aioloader import jpeg
from aioloader.rng import Rng
from aioloader.transforms import RandomResizedCrop
from tests.aioloader.jpeg.samples import Damaged, crop, full, pixels


@pytest.mark.slow
def test_crops_of_photographs_have_the_pixels_of_a_full_decode():
    folder = os.environ.get("AIOLOADER_TEST_PHOTOS")
    if not folder:
        pytest.skip("AIOLOADER_TEST_PHOTOS names no folder of JPEGs")
    draw, rng = RandomResizedCrop(224), Rng(0)
    outcomes: Counter[str] = Counter()
    for path in sorted(Path(folder).rglob("*")):
        if path.suffix.lower() not in (".jpg", ".jpeg"):
            continue
        data = path.read_bytes()
        frame = jpeg.read_frame(data)
        if frame is None:
            outcomes["no frame"] += 1
            continue
        image = full(data)
        width, height = frame.width, frame.height
        boxes = [draw.box(height, width, rng) for _ in range(8)]
        boxes += [
            (0, 0, 1, 1),
            (width - 1, height - 1, 1, 1),
            (0, height - 1, width, 1),
            (width - 1, 0, 1, height),
        ]
        for box in boxes:
            found = jpeg.cut(data, frame, box)
            outcomes["whole" if found is None else "cut"] += 1
            if found is None:
                continue
            try:
                part = pixels(data, box, found)
            except Damaged as error:
                pytest.fail(f"{path}, {box}: {error}")
            assert np.array_equal(part, crop(image, box)), f"{path}, {box}"
    print(outcomes)
    assert outcomes["cut"] > 0
