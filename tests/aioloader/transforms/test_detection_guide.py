"""Tests of the function of the guide that makes boxes of the labels of detection sets; tests/docs runs its commands."""

import re
from pathlib import Path
from typing import Any

import cv2
import numpy as np

import aioloader
import recordio

PAGE = Path(__file__).parents[3] / "docs" / "recipes.md"
LABELS = [
    *([2, 5, 3, 0.25, 0.5, 0.75, 1.0], [2, 5], [2, 5, 1.0]),
    [2, 5, 1, 0, 0, 0.5, 0.5, 2, 0.5, 0.5, 1, 1],
]


def test_labels_are_boxes_and_another_label_is_an_error_that_can_be_left_out(tmp_path: Path) -> None:
    image = cv2.imencode(".jpg", np.full((40, 80, 3), 20, np.uint8))[1].tobytes()
    with recordio.RecordWriter(tmp_path / "odd.rec", index=True) as writer:
        for key, label in enumerate(LABELS):
            writer.write(recordio.pack((0, label, key, 0), image), key)
    text = PAGE.read_text(encoding="utf-8")
    block = re.search(r"^```python\n(import numpy[^`]*?)^dataset", text, re.MULTILINE | re.DOTALL)
    assert block is not None
    found: dict[str, Any] = {"aioloader": aioloader}
    exec(block.group(1), found)
    dataset = aioloader.ImageRecordDataset(tmp_path / "odd.rec").transform(found["to_boxes"])
    with aioloader.DataLoader(dataset, 1, num_workers=0, on_error="skip") as loader:
        rows = [batch[1][0].tolist() for batch in loader]
    assert rows == [[[20, 20, 60, 40, 3]], [], [[0, 0, 40, 20, 1], [40, 20, 80, 40, 2]]]
    reasons = [(error.key, error.reason) for error in loader.errors]
    assert reasons == [(2, "ValueError: not a detection label: [2. 5. 1.]")]
