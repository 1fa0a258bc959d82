"""RecordIO, the record file format of MXNet: read, write, index, verify and repair it.

The page File formats describes the format. Nothing here needs MXNet; numpy is the only requirement.
OpenCV is imported by `pack_img` and `unpack_img`, and the async readers are in `recordio.aio`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordio._lazy_names import lazy_names

if TYPE_CHECKING:
    from recordio import errors as errors
    from recordio._file_analysis import Problem as Problem
    from recordio._framing import MAGIC as MAGIC
    from recordio._framing import MAX_PAYLOAD as MAX_PAYLOAD
    from recordio._framing import extract as extract
    from recordio._framing import payload_spans as payload_spans
    from recordio._framing import serialize as serialize
    from recordio._image import IRHeader as IRHeader
    from recordio._image import pack as pack
    from recordio._image import pack_img as pack_img
    from recordio._image import unpack as unpack
    from recordio._image import unpack_img as unpack_img
    from recordio._index import Index as Index
    from recordio._mxnet import MXIndexedRecordIO as MXIndexedRecordIO
    from recordio._mxnet import MXRecordIO as MXRecordIO
    from recordio._parser import END as END
    from recordio._parser import NEED_MORE as NEED_MORE
    from recordio._parser import RecordParser as RecordParser
    from recordio._reader import RecordReader as RecordReader
    from recordio._sansio import ReadPlan as ReadPlan
    from recordio._sansio import plan_reads as plan_reads
    from recordio._sources import AsyncRangeSource as AsyncRangeSource
    from recordio._sources import RangeSource as RangeSource
    from recordio._sources import register_opener as register_opener
    from recordio._verify import RepairReport as RepairReport
    from recordio._verify import Report as Report
    from recordio._verify import build_index as build_index
    from recordio._verify import repair as repair
    from recordio._verify import verify as verify
    from recordio._writer import RecordWriter as RecordWriter
    from recordio.errors import CorruptIndexError as CorruptIndexError
    from recordio.errors import CorruptRecordError as CorruptRecordError
    from recordio.errors import HeaderError as HeaderError
    from recordio.errors import IndexNotFoundError as IndexNotFoundError
    from recordio.errors import RecordFileNotFoundError as RecordFileNotFoundError
    from recordio.errors import RecordIndexError as RecordIndexError
    from recordio.errors import RecordIOError as RecordIOError
    from recordio.errors import RecordKeyError as RecordKeyError
    from recordio.errors import RecordTooLargeError as RecordTooLargeError
    from recordio.errors import TruncatedRecordError as TruncatedRecordError

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "recordio._file_analysis": "Problem",
        "recordio._framing": "MAGIC MAX_PAYLOAD extract payload_spans serialize",
        "recordio._image": "IRHeader pack pack_img unpack unpack_img",
        "recordio._index": "Index",
        "recordio._mxnet": "MXIndexedRecordIO MXRecordIO",
        "recordio._parser": "END NEED_MORE RecordParser",
        "recordio._reader": "RecordReader",
        "recordio._sansio": "ReadPlan plan_reads",
        "recordio._sources": "AsyncRangeSource RangeSource register_opener",
        "recordio._verify": "RepairReport Report build_index repair verify",
        "recordio._writer": "RecordWriter",
        "recordio.errors": (
            "CorruptIndexError CorruptRecordError HeaderError IndexNotFoundError RecordFileNotFoundError "
            "RecordIndexError RecordIOError RecordKeyError RecordTooLargeError TruncatedRecordError"
        ),
    },
    "errors",
)
