"""Tests that run the lines of the guide to detection sets unchanged."""

import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import aioloader
import recordio
from aioloader import DataLoader
from aioloader.tools.im2rec import main as im2rec

PAGE = Path(__file__).parents[3] / "docs" / "segmentation-and-detection.md"
OBJECTS = [[[3, 0.25, 0.5, 0.75, 1.0]], [], [[1, 0, 0, 0.5, 0.5], [2, 0.5, 0.5, 1, 1]]] * 4


def make_image(number: int) -> bytes:
    done, data = cv2.imencode(".jpg", np.full((40, 80, 3), 20 * number, np.uint8))
    assert done
    return data.tobytes()


@pytest.mark.slow
def test_the_guide_to_detection(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(tmp_path / "cache"))
    # Written from the list, as the guide shows.
    lines = []
    for key, objects in enumerate(OBJECTS):
        (tmp_path / f"{key}.jpg").write_bytes(make_image(key))
        numbers = [2, 5, *(value for each in objects for value in each)]
        lines.append("\t".join(map(str, [key, *numbers, f"{key}.jpg"])))
    (tmp_path / "objects.lst").write_text("\n".join(lines) + "\n")
    text = PAGE.read_text(encoding="utf-8")
    assert "im2rec objects.lst FOLDER --pack-label --pass-through" in text
    assert im2rec(["objects.lst", ".", "--pack-label", "--pass-through"]) == 0
    block = re.search(r"^```python\n(import numpy[^`]*def to_boxes.*?)^```$", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    found: dict[str, Any] = {"aioloader": aioloader}
    exec(block.group(1), found)

    dataset = found["dataset"]
    assert found["rows"].tolist() == [[20, 20, 60, 40, 3]]
    assert dataset[1][1].shape == (0, 5)
    assert dataset[2][1].tolist() == [[0, 0, 40, 20, 1], [40, 20, 80, 40, 2]]
    with DataLoader(dataset, 2, num_workers=0, batchify_fn=lambda samples: len(samples)) as loader:
        assert sum(loader) == len(OBJECTS)


def test_another_label_is_an_error_that_can_be_left_out(tmp_path: Path) -> None:
    with recordio.RecordWriter(tmp_path / "odd.rec", index=True) as writer:
        for key, label in enumerate([[2, 5], [2, 5, 1.0], [2, 5, 1, 0, 0, 1, 1]]):
            writer.write(recordio.pack((0, label, key, 0), make_image(key)), key)
    text = PAGE.read_text(encoding="utf-8")
    block = re.search(r"^```python\n(import numpy[^`]*?)^dataset", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    found: dict[str, Any] = {"aioloader": aioloader}
    exec(block.group(1), found)
    dataset = aioloader.ImageRecordDataset(tmp_path / "odd.rec").transform(found["to_boxes"])
    with DataLoader(dataset, 1, num_workers=0, on_error="skip") as loader:
        assert [rows.shape[1] for _, rows in loader] == [0, 1]
        assert [(error.key, error.reason) for error in loader.errors] == [
            (1, "ValueError: not a detection label: [2. 5. 1.]")
        ]
