"""Target: Parquet files, read by a loader that skips damaged rows. The parser of the format itself is pyarrow's."""

from __future__ import annotations

import io
from typing import Any

import numpy as np

from aioloader import DataLoader, ParquetDataset
from aioloader.errors import LoaderError, ParquetError
from tests.fuzz.target import Draw, Finding, change, dictionary, pick, scratch_folder

_ROWS = 7
_PIECES = (*dictionary("number"), *dictionary("thrift"))
_FIELDS = ("image", "label", "text", "list", "nested")
# A footer may announce any number of rows; no more than these are read.
_MOST_ROWS = 40
_NOTHING = np.empty(0, np.int64)


def _table() -> Any:
    import pyarrow as pa

    image = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    return pa.table(
        {
            "image": pa.array([{"bytes": bytes([n]) * 50, "path": f"{n}"} for n in range(_ROWS)], image),
            "label": list(range(_ROWS)),
            "text": [f"text {n % 2}" for n in range(_ROWS)],
            "list": [[1.5] * n for n in range(_ROWS)],
            "nested": [{"a": [n, None], "b": "x"} for n in range(_ROWS)],
        }
    )


class ParquetFiles:
    """Parquet files with faults: each row is a sample, or has an error that names the file; nothing else is lost."""

    def __init__(self) -> None:
        import pyarrow.parquet as pq

        self._path = scratch_folder(self) / "a.parquet"
        self._files = []
        for options in (
            {"compression": "none"},
            {"compression": "snappy", "use_dictionary": False},
            {"compression": "zstd", "data_page_version": "2.0"},
        ):
            out = io.BytesIO()
            pq.write_table(_table(), out, row_group_size=3, **options)
            self._files.append(out.getvalue())

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        data = bytearray(pick(draw, self._files))
        footer = len(data) - 8 - int.from_bytes(data[-8:-4], "little")
        if draw() < 0.7 and footer > 4:  # the pages, with a footer that is found
            body = data[:footer]
            change(body, 4, draw, _PIECES)
            return bytes(body) + bytes(data[footer:])
        if draw() < 0.8:  # the footer, with its right length
            tail = data[footer:-8]
            change(tail, 0, draw, _PIECES)
            return bytes(data[:footer] + tail) + len(tail).to_bytes(4, "little") + b"PAR1"
        change(data, len(data) - 12, draw, _PIECES)
        return bytes(data)

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        self._path.write_bytes(data)
        try:
            dataset: Any = ParquetDataset(self._path, fields=_FIELDS, image=(), shuffle_blocks=2)
            count = len(dataset)
            dataset.spans(_NOTHING)
        except ParquetError:
            return False
        chosen = dataset.take(_MOST_ROWS)
        with DataLoader(chosen, 3, shuffle=True, num_workers=0, on_error="skip", batchify_fn=list) as loader:
            found = [sample for batch in loader for sample in batch]
            errors = list(loader.errors)
        if len(found) + len(errors) != min(count, _MOST_ROWS):
            raise Finding(f"{len(found)} rows and {len(errors)} errors of {count}")
        for error in errors:
            if error.path != str(self._path) or not isinstance(
                error.__cause__, (LoaderError, OSError, ValueError)
            ):
                raise Finding(f"row {error.index} failed by {error.__cause__!r}") from error
        return True
