"""Tests of contact sheets: every image is at its place, unaltered, with its caption below."""

from __future__ import annotations

from pathlib import Path

import cv2
import numpy as np
import pytest

from aioloader.tools.demo import contact_sheet, write_png
from tests.cases import with_cases


def _images(count: int, height: int = 40, width: int = 60) -> np.ndarray:
    return np.stack([np.full((height, width, 3), (n * 7, 255 - n, 90), np.uint8) for n in range(count)])


@with_cases("title", ["", "batch 0"], ids=["plain", "titled"])
@with_cases("count", [1, 2, 5, 36])
def test_every_image_is_on_the_sheet_once(count: int, title: str) -> None:
    images = _images(count)
    sheet = contact_sheet(images, [str(n) for n in range(count)], title=title)
    for image in images:
        assert (sheet == image[0, 0]).all(axis=2).sum() == 40 * 60


def test_captions_do_not_run_into_the_neighbour() -> None:
    images = _images(2)
    short = contact_sheet(images, ["i" * 200, ""], columns=2)
    gap = short[:, 12 + 60 : 12 + 60 + 12]
    assert (gap == gap[0, 0]).all()


def test_captions_are_needed_for_all() -> None:
    with pytest.raises(ValueError, match="got 1 for 2"):
        contact_sheet(_images(2), ["one"])
    with pytest.raises(ValueError, match="at least one image"):
        contact_sheet(_images(1)[:0], [])


def test_a_png_holds_the_same_pixels(tmp_path: Path) -> None:
    image = np.random.default_rng(0).integers(0, 256, (20, 30, 3), np.uint8)
    path = write_png(tmp_path / "new" / "sheet.png", image)
    np.testing.assert_array_equal(cv2.imread(str(path))[..., ::-1], image)
