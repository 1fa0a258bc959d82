"""Target: a record file and its index, read by a loader that skips damaged records.

An input is the length of the index's text (uint32, little endian), that text, and the record file.
"""

from __future__ import annotations

import struct
import warnings
import zlib

from aioloader import DataLoader, RecordFileDataset, SampleError
from recordio import CorruptIndexError, CorruptRecordError, verify
from recordio._framing import starts_record
from recordio.errors import DuplicateKeyWarning
from tests.fuzz.records import Records, plain
from tests.fuzz.target import Draw, Finding, change, dictionary, scratch_folder

_LENGTH = struct.Struct("<I")


class Files:
    """Record files: delivered records are correct, skipped ones are named, and only damaged ones are skipped."""

    def __init__(self) -> None:
        self._records = Records()
        self._pieces = dictionary("index")
        self._path = scratch_folder(self) / "a.rec"

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        sound = self._records.sound(draw)
        starts = plain(sound)[1]
        if draw() < 0.3:
            starts = starts[::-1]
        text = bytearray(b"".join(b"%d\t%d\n" % line for line in enumerate(starts)))
        records = sound if draw() < 0.3 else self._records.spoil(sound, draw)
        if draw() < 0.5:
            change(text, text.find(b"\n") + 1, draw, self._pieces)
        return _LENGTH.pack(len(text)) + bytes(text) + records

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        length = _LENGTH.unpack_from(data)[0] if len(data) >= 4 else 0
        text, records = data[4 : 4 + length], data[4 + length :]
        self._path.write_bytes(records)
        index = self._path.with_suffix(".idx")
        if text:
            index.write_bytes(text)
        else:
            index.unlink(missing_ok=True)
        with warnings.catch_warnings():
            warnings.simplefilter("ignore", DuplicateKeyWarning)
            return self._check_records(data, records)

    def _check_records(self, data: bytes, records: bytes) -> bool:
        dataset = RecordFileDataset(self._path)
        try:
            offsets = dataset.table.index.offsets.tolist()
            unreadable = dataset.table.index.faults
        except (CorruptIndexError, CorruptRecordError):
            return False
        with DataLoader(dataset, 2, num_workers=0, on_error="skip") as loader:
            found = [payload for batch in loader for payload in batch]
            errors = {error.index: error for error in loader.errors}
        if zlib.crc32(data) & 7 == 0:
            verify(self._path)
        expected = [number for number in range(len(offsets)) if number not in errors]
        if len(found) != len(expected):
            raise Finding(f"{len(found)} records and {len(errors)} errors of {len(offsets)}")
        for number, payload in zip(expected, found, strict=True):
            right = plain(records[offsets[number] :])[0] if offsets[number] >= 0 else []
            if not right or right[0] != payload:
                raise Finding(f"record {number} at {offsets[number]} is {payload!r}, not {right[:1]}")
        for number, error in errors.items():
            if number not in unreadable:
                self._check_error(records, offsets, number, error)
        for number in unreadable:
            cause = errors[number].__cause__ if number in errors else None
            if not isinstance(cause, CorruptIndexError) or cause.line != number + 1:
                raise Finding(f"line {number + 1} of the index cannot be read, and failed by {cause!r}")
        return bool(found)

    @staticmethod
    def _check_error(records: bytes, offsets: list[int], number: int, error: SampleError) -> None:
        """Check that a skipped record is damaged, or that another line of the index has an offset within it."""
        offset = offsets[number]
        if not isinstance(error.__cause__, CorruptRecordError) or error.offset != offset:
            raise Finding(f"record {number} failed by {error.__cause__!r}") from error
        starts = plain(records[offset:])[1] if offset >= 0 else []
        if offset & 3 or not starts:
            return
        end = offset + starts[1] if len(starts) > 1 else len(records)
        if not any(offset < other < end and starts_record(records[other : other + 8]) for other in offsets):
            raise Finding(
                f"record {number} at {offset} is valid, but failed with {error.__cause__!r}"
            ) from error
