"""Parquet files for tests, as Hugging Face's `datasets` writes them. Needs pyarrow."""

from __future__ import annotations

import json
from collections.abc import Sequence
from pathlib import Path
from typing import Any

import numpy as np
import simplejpeg

CLASSES = ("cat", "dog", "eel")
FEATURES = {
    "image": {"_type": "Image"},
    "label": {"_type": "ClassLabel", "names": list(CLASSES)},
}


def jpeg(number: int, size: int = 16) -> bytes:
    """Return a JPEG of one colour that shows its number, 0 to 255."""
    return simplejpeg.encode_jpeg(np.full((size, size, 3), number % 256, np.uint8), quality=95)


def images(numbers: Sequence[int]) -> Any:
    """Return a column of images."""
    import pyarrow as pa

    kind = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return pa.array([{"bytes": jpeg(number), "path": f"{number}.jpg"} for number in numbers], kind)


def write(
    path: Path, columns: dict[str, Any], *, group: int = 5, features: Any = FEATURES, **options: Any
) -> Path:
    """Write a file.

    Args:
        path: of the file.
        columns: name to values or an Arrow array.
        group: rows of a row group.
        features: metadata of `datasets`, or None.
        options: of `pyarrow.parquet.write_table`.
    """
    import pyarrow as pa
    import pyarrow.parquet as pq

    table = pa.table(columns)
    if features is not None:
        table = table.replace_schema_metadata({"huggingface": json.dumps({"info": {"features": features}})})
    pq.write_table(table, path, row_group_size=group, **options)
    return path


def write_images(path: Path, first: int, count: int, **options: Any) -> Path:
    """Write a file of images with consecutive numbers, which are also their labels."""
    import pyarrow as pa

    numbers = range(first, first + count)
    return write(path, {"image": images(numbers), "label": pa.array(numbers, pa.int64())}, **options)
