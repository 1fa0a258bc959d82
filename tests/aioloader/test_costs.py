"""Tests of the costs of a dataset's images."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
import simplejpeg

import aioloader
from aioloader import ImageFolderDataset, image_costs


def test_image_costs_reads_headers(tmp_path: Path) -> None:
    sizes = [(40, 60), (33, 20), (128, 64)]
    for number, (height, width) in enumerate(sizes):
        folder = tmp_path / "a"
        folder.mkdir(exist_ok=True)
        image = np.zeros((height, width, 3), np.uint8)
        (folder / f"{number}.jpg").write_bytes(simplejpeg.encode_jpeg(image))
    dataset = ImageFolderDataset(tmp_path)
    assert image_costs(dataset).tolist() == [height * width for height, width in sizes]
    assert image_costs(dataset, lambda height, width: height).tolist() == [40, 33, 128]
    assert image_costs(dataset.take(2), max).tolist() == [60, 33]
    processor = aioloader.transforms.Qwen2VLImageProcessor()
    assert image_costs(dataset, processor).tolist() == [processor.spec(*size).num_tokens for size in sizes]
    with pytest.raises(TypeError, match="encoded images"):
        image_costs([1, 2])
