"""LanceDB: a table of JPEGs, its loading for torch, images decoded by OpenCV in a transform.

"streaming": its `StreamingDataset`, which transforms batches of rows in threads, in a DataLoader without workers, as
"PyTorch Data Loader" of its documentation advises (https://docs.lancedb.com/training/data-loading). The order of a
dataset is fixed, so every epoch opens one, as the page's training loop does.
"permutation": a `Permutation`, which the DataLoader shuffles, in worker processes started by a fork server, as
"PyTorch Integration" advises (https://docs.lancedb.com/training/torch).
"""

from __future__ import annotations

import random
from contextlib import contextmanager
from typing import TYPE_CHECKING, Any

import lancedb
import numpy as np
import pyarrow as pa
import torch
from lancedb.permutation import Permutation
from lancedb.streaming import StreamingDataset
from torch.utils.data import DataLoader, default_collate

from benchmarks.contenders.batches import NumpyBatches
from benchmarks.contenders.contract import RecFile, Source
from benchmarks.contenders.opencv import make_image

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from benchmarks.cases import Case

VARIANTS = ("streaming", "permutation")
PACKAGES = ("lancedb", "torch", "pyarrow", "opencv-python-headless", "numpy")

_TABLE = "samples"
_ROWS = 512  # of a record batch that is written


def supports(case: Case, variant: str) -> str | None:
    """Return None for JPEGs and records, which are binary columns."""
    return "measured with bytes in its columns" if case.store in ("raw", "arrays") else None


def settings(case: Case, variant: str, cores: int) -> list[dict[str, Any]]:
    """Return settings of rows that are read and transformed together, in threads; of worker processes."""
    if variant == "streaming":
        return [{"read_batch_size": rows, "transform_parallelism": cores} for rows in (64, 16, 256)]
    numbers = dict.fromkeys((cores, 1, cores + 1, 4) if case.images else (0, cores))
    return [{"num_workers": number} for number in numbers]


def prepare(case: Case, variant: str, source: Source, folder: Path) -> Path:
    """Write a table of (content, label)."""
    records = RecFile(source.rec, source.samples)
    schema = pa.schema([("content", pa.binary()), ("label", pa.int64())])

    def batches() -> Iterator[Any]:
        for start in range(0, len(records), _ROWS):
            numbers = range(start, min(start + _ROWS, len(records)))
            content = [records.image(n)[0] if case.images else records.payload(n) for n in numbers]
            yield pa.record_batch([pa.array(content, pa.binary()), pa.array(numbers, pa.int64())], schema)

    lancedb.connect(str(folder)).create_table(_TABLE, batches(), schema=schema, mode="overwrite")
    return folder


@contextmanager
def open_batches(case: Case, variant: str, data: Path, setting: dict[str, Any]) -> Iterator[Any]:
    """Open a loader over the table."""
    torch.set_num_threads(1)
    table = lancedb.connect(str(data)).open_table(_TABLE)
    options: dict[str, Any] = {
        "batch_size": case.batch_size,
        "collate_fn": list if case.store == "bytes" else default_collate,
    }
    if variant == "streaming":
        loader: Any = _Streams(table, case, setting, options)
    else:
        if setting["num_workers"]:
            options |= {"multiprocessing_context": "forkserver", "persistent_workers": True}
        rows = Permutation.identity(table).with_transform(Transform(case))
        loader = DataLoader(rows, shuffle=case.shuffle, **options, **setting)
    yield loader if case.store == "bytes" else NumpyBatches(loader)


class _Streams:
    """Batches of a streaming dataset; each iteration is the next epoch."""

    def __init__(self, table: Any, case: Case, setting: dict[str, Any], options: dict[str, Any]) -> None:
        self._table = table
        self._case = case
        self._setting = setting
        self._options = options
        self._epoch = 0

    def __iter__(self) -> Iterator[Any]:
        dataset = StreamingDataset(
            self._table,
            shuffle=self._case.shuffle,
            epoch=self._epoch,
            transform=Transform(self._case),
            **self._setting,
        )
        self._epoch += 1
        return iter(DataLoader(dataset, num_workers=0, **self._options))


class Transform:
    """Transform from rows to samples: (image, number), or the bytes of a record."""

    def __init__(self, case: Case) -> None:
        self._case = case

    def __call__(self, rows: pa.RecordBatch) -> list[Any]:
        content = rows.column("content")
        if not self._case.images:
            return content.to_pylist()
        images = (make_image(self._case, jpeg.as_buffer(), random) for jpeg in content)
        return [
            (torch.from_numpy(np.ascontiguousarray(image)), label)
            for image, label in zip(images, rows.column("label").to_pylist(), strict=True)
        ]
