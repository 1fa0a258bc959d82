"""Ray Data: the records of a RecordIO file as rows, one read task for each span of the file."""

from __future__ import annotations

import functools
import itertools
import os
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import MissingPackageError
from recordio import Index, RecordReader

try:
    import pyarrow as pa
    from ray.data import Datasource, ReadTask
    from ray.data.block import BlockMetadata
except ImportError as error:
    raise MissingPackageError("ray[data]", extra="ray") from error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.foundation.types import IntArray

__all__ = ("RecordIODatasource", "spans_of")

_BLOCK_BYTES = 16 << 20


class RecordIODatasource(Datasource):  # type: ignore[misc]  # Ray is not installed where types are checked
    """The records of a .rec file for ``ray.data.read_datasource``.

    ::

        rows = ray.data.read_datasource(RecordIODatasource("train.rec"))
        rows.map(lambda row: {"label": recordio.unpack(row["payload"])[0].label})

    A row has two columns: "key" (int64, or string if any key is not an integer) and "payload" (binary), the record's
    bytes. Rows are in the order of the file. Each read task reads one span of it; all spans have about the same number
    of bytes.

    The constructor reads the index once; each task receives the part that it needs.

    Args:
        path: the .rec file, or a URL of a scheme registered by `recordio.register_opener`. All nodes must be able to
            open it by this name.
        index: as for `recordio.RecordReader`.

    Raises:
        RecordFileNotFoundError: there is no such record file.
        IndexNotFoundError: the index named does not exist.
    """

    def __init__(
        self, path: str | os.PathLike[str], index: str | os.PathLike[str] | Index | None = None
    ) -> None:
        super().__init__()
        self._path = os.path.expanduser(os.fspath(path))
        with RecordReader(self._path, index) as reader:
            offsets = reader.offsets
            order = np.argsort(offsets, kind="stable")
            self._offsets = np.asarray(offsets[order], dtype=np.int64)
            keys = reader.keys
        named = isinstance(keys, list)
        self._keys: Any = np.asarray(keys, dtype=object)[order] if named else np.asarray(keys)[order]
        self._key_type = pa.string() if named else pa.int64()
        # The size of a file that is not local is unknown: its last record is assumed to have the mean length.
        if os.path.exists(self._path):
            self._end = os.path.getsize(self._path)
        else:
            self._end = int(self._offsets[-1] * (1 + 1 / len(self._offsets))) + 1 if len(self._offsets) else 0

    def estimate_inmemory_data_size(self) -> int:
        """Return the bytes of all rows, estimated by the size of the file."""
        return self._end

    def get_read_tasks(
        self, parallelism: int, per_task_row_limit: int | None = None, data_context: Any = None
    ) -> list[Any]:
        """Return `parallelism` read tasks, or one for each record if there are fewer records.

        Args:
            parallelism: number of tasks, at least 1.
            per_task_row_limit: maximum number of rows of a task, or None.
            data_context: context of Ray Data; not used.
        """
        schema = pa.schema([("key", self._key_type), ("payload", pa.binary())])
        tasks = []
        for start, stop in spans_of(self._offsets, self._end, parallelism):
            # One offset more is the end of the last record.
            offsets = self._offsets[start : stop + 1]
            end = int(offsets[-1]) if stop < len(self._offsets) else self._end
            metadata = BlockMetadata(
                num_rows=stop - start,
                size_bytes=end - int(offsets[0]),
                exec_stats=None,
                input_files=(self._path,),
            )
            read = functools.partial(_read_span, self._path, offsets, self._keys[start:stop], self._key_type)
            tasks.append(ReadTask(read, metadata, schema, per_task_row_limit))
        return tasks


def spans_of(offsets: IntArray, end: int, count: int) -> list[tuple[int, int]]:
    """Split records into spans of about the same number of bytes.

    Args:
        offsets: int64 (n,), offsets of the records in bytes, ascending.
        end: end of the last record in bytes.
        count: number of spans, at least 1.

    Returns:
        (start, stop) of each span, in records; none is empty, and together they cover 0 to n.
    """
    if not len(offsets):
        return []
    wanted = np.linspace(int(offsets[0]), end, max(1, count) + 1)[1:-1]
    cuts = np.unique(np.searchsorted(offsets, wanted)).tolist()
    places = [0, *[cut for cut in cuts if 0 < cut < len(offsets)], len(offsets)]
    return list(itertools.pairwise(places))


def _read_span(path: str, offsets: IntArray, keys: Any, key_type: Any) -> Iterator[Any]:
    """Iterate over tables of the records at the first `len(keys)` offsets, of some megabytes each."""
    with RecordReader(path, Index.of(offsets)) as reader:
        start = 0
        while start < len(keys):
            # All records that begin within the limit, and at least one.
            limit = int(np.searchsorted(offsets, offsets[start] + _BLOCK_BYTES))
            stop = min(len(keys), max(start + 1, limit))
            payloads = reader.read_many(range(start, stop))
            columns = [pa.array(keys[start:stop].tolist(), key_type), pa.array(payloads, pa.binary())]
            yield pa.table(columns, names=["key", "payload"])
            start = stop
