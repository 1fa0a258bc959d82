"""RecordIO, the record file format of MXNet: read, write, index, verify and repair it.

The page File formats describes the format. Nothing here needs MXNet; numpy is the only requirement.
OpenCV is imported by `pack_img` and `unpack_img`, and the async readers are in `recordio.aio`.
"""

import importlib
from typing import Any

from recordio import errors
from recordio._file_analysis import Problem
from recordio._framing import MAGIC, MAX_PAYLOAD, extract, payload_spans, serialize
from recordio._image import IRHeader, pack, pack_img, unpack, unpack_img
from recordio._index import Index
from recordio._mxnet import MXIndexedRecordIO, MXRecordIO
from recordio._parser import END, NEED_MORE, RecordParser
from recordio._reader import RecordReader
from recordio._sansio import ReadPlan, plan_reads
from recordio._sources import AsyncRangeSource, RangeSource, register_opener
from recordio._verify import RepairReport, Report, build_index, repair, verify
from recordio._writer import RecordWriter
from recordio.errors import (
    CorruptIndexError,
    CorruptRecordError,
    HeaderError,
    IndexNotFoundError,
    RecordFileNotFoundError,
    RecordIndexError,
    RecordIOError,
    RecordKeyError,
    RecordTooLargeError,
    TruncatedRecordError,
)

__all__ = (
    "END",
    "MAGIC",
    "MAX_PAYLOAD",
    "NEED_MORE",
    "AsyncRangeSource",
    "CorruptIndexError",
    "CorruptRecordError",
    "HeaderError",
    "IRHeader",
    "Index",
    "IndexNotFoundError",
    "MXIndexedRecordIO",
    "MXRecordIO",
    "Problem",
    "RangeSource",
    "ReadPlan",
    "RecordFileNotFoundError",
    "RecordIOError",
    "RecordIndexError",
    "RecordKeyError",
    "RecordParser",
    "RecordReader",
    "RecordTooLargeError",
    "RecordWriter",
    "RepairReport",
    "Report",
    "TruncatedRecordError",
    "build_index",
    "errors",
    "extract",
    "pack",
    "pack_img",
    "payload_spans",
    "plan_reads",
    "register_opener",
    "repair",
    "serialize",
    "unpack",
    "unpack_img",
    "verify",
)


def __getattr__(name: str) -> Any:
    # `recordio.aio` after a plain `import recordio`, without loading it for those who never wait.
    if name in ("aio", "testing"):
        return importlib.import_module(f"recordio.{name}")
    raise AttributeError(f"module 'recordio' has no attribute {name!r}")
