"""Tests of drawn images: reproducible, different from each other, with the announced classes and sizes."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import simplejpeg

from aioloader.tools.draw import CLASSES, draw_folder, draw_image, main
from tests.cases import with_cases


def test_an_image_is_the_same_every_time() -> None:
    first, second = (draw_image(5, height=120, width=160, seed=3) for _ in range(2))
    assert first.shape == (120, 160, 3)
    assert first.dtype == np.uint8
    np.testing.assert_array_equal(first, second)


@pytest.mark.parametrize(("number", "seed"), [(6, 3), (5, 4)], ids=["number", "seed"])
def test_another_number_or_seed_is_another_image(number: int, seed: int) -> None:
    one = draw_image(5, height=64, width=64, seed=3, label=0).astype(int)
    other = draw_image(number, height=64, width=64, seed=seed, label=0)
    assert np.abs(one - other).mean() > 5


@with_cases("label", range(len(CLASSES)), ids=CLASSES)
def test_every_class_is_seen(label: int) -> None:
    # Same draws, another shape: the images differ at the shapes.
    mine = draw_image(1, height=96, width=96, label=label).astype(int)
    other = draw_image(1, height=96, width=96, label=label + 1)
    assert (np.abs(mine - other).max(axis=2) > 20).mean() > 0.02


@pytest.mark.parametrize("size", [(16, 16), (16, 400), (400, 16)], ids=str)
def test_small_and_narrow_images_can_be_drawn(size: tuple[int, int]) -> None:
    height, width = size
    assert draw_image(0, height=height, width=width).shape == (height, width, 3)


def test_a_folder_has_classes_in_turns_and_sizes_that_tell_nothing(tmp_path: Path) -> None:
    sizes = ((48, 64), (64, 48), (50, 50))
    counts = []
    folder = draw_folder(tmp_path / "made", count=12, classes=3, sizes=sizes, tick=counts.append)
    files = {path.name: sorted(path.iterdir()) for path in folder.iterdir()}
    assert sorted(files) == sorted(CLASSES[:3])
    assert [len(found) for found in files.values()] == [4, 4, 4]
    assert counts == list(range(1, 13))
    for found in files.values():
        seen = {simplejpeg.decode_jpeg_header(path.read_bytes())[:2] for path in found}
        assert seen == set(sizes)


@pytest.mark.parametrize("classes", [0, 11])
def test_a_number_of_classes_that_there_is_not_is_refused(tmp_path: Path, classes: int) -> None:
    with pytest.raises(ValueError, match=f"got {classes}"):
        draw_folder(tmp_path, count=1, classes=classes)
    assert list(tmp_path.iterdir()) == []


def test_the_command_draws_and_says_what(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "drawn"
    assert main([str(folder), "--count", "3", "--classes", "2"]) == 0
    assert capsys.readouterr().out == f"{folder}: 3 images of circle, cross\n"
    assert sorted(path.name for path in folder.rglob("*.jpg")) == ["00000.jpg", "00001.jpg", "00002.jpg"]
    assert main([str(folder), "--classes", "11"]) == 2
    assert "classes must be 1 to 10" in capsys.readouterr().err
