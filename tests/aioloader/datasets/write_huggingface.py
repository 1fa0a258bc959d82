"""Writer of the files of `test_parquet_huggingface.py`: `python write_huggingface.py FOLDER`.

Needs `datasets` and `pillow`. The golden files in tests/data/parquet are its results.
"""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any

import numpy as np


def picture(number: int) -> Any:
    from PIL import Image

    return Image.fromarray(np.full((12, 16, 3), 10 * number, np.uint8))


def write(folder: Path) -> None:
    """Write images with class labels in two files, a file with other features, and one with paths only."""
    from datasets import ClassLabel, Dataset, Features, Image, List, Value
    from datasets.table import embed_table_storage

    features = Features({"image": Image(), "label": ClassLabel(names=["cat", "dog", "eel"])})
    rows = {"image": [picture(n) for n in range(20)], "label": [n % 3 for n in range(20)]}
    whole = Dataset.from_dict(rows, features=features)
    for shard in range(2):
        part = whole.shard(2, shard, contiguous=True)
        part.to_parquet(str(folder / f"images-{shard:05}-of-00002.parquet"), batch_size=4)

    numbers = range(4)
    Dataset.from_dict(
        {
            "caption": [f"number {n}" for n in numbers],
            "image": [picture(n) for n in numbers],
            "views": [[picture(n), picture(n + 1)] for n in numbers],
            "boxes": [[[float(n), n + 1.0], [n + 2.0, n + 3.0]] for n in numbers],
            "embedding": [[float(n), n + 0.5] for n in numbers],
            "meta": [{"name": f"n{n}", "tags": ["a", "b"]} for n in numbers],
            "score": [0.5] * 4,
        },
        features=Features(
            {
                "caption": Value("string"),
                "image": Image(),
                "views": List(Image()),
                "boxes": List(List(Value("float32"))),
                "embedding": List(Value("float32"), length=2),
                "meta": {"name": Value("string"), "tags": List(Value("string"))},
                "score": Value("float32"),
            }
        ),
    ).to_parquet(str(folder / "fields.parquet"))

    image = folder / "outside.png"
    picture(1).save(image)
    outside = Dataset.from_dict({"image": [str(image)], "label": [0]}, features=features)
    table = outside.data.table
    assert embed_table_storage is not None
    import pyarrow.parquet as pq

    pq.write_table(table, folder / "paths.parquet")
    image.unlink()


if __name__ == "__main__":
    write(Path(sys.argv[1]))
