"""Tests of batches of unchanged payloads: made many at a time, with separate errors."""

import numpy as np
import pytest

from aioloader import DataLoader, RecordFileDataset, SampleError
from aioloader.datasets.decoding import RecordDecoder
from recordio import CorruptRecordError, RecordWriter
from tests.executors import pool

MAGIC = b"\x0a\x23\xd7\xce"


def write(path, payloads):
    with RecordWriter(path, index=True) as writer:
        return [writer.write(payload, key) for key, payload in enumerate(payloads)]


def test_payloads_of_every_kind_come_as_they_are(tmp_path, executor):
    draws = np.random.default_rng(0)
    payloads = [draws.bytes(int(size)) for size in draws.integers(0, 3000, 300)]
    payloads[3] = b""
    payloads[5] = MAGIC  # stored in parts
    payloads[7] = b"abcd" + MAGIC * 3 + b"x"
    payloads[11] = bytes(3 << 20)
    write(tmp_path / "some.rec", payloads)
    dataset = RecordFileDataset(tmp_path / "some.rec")
    with DataLoader(dataset, 64, **pool(executor, 2)) as loader:
        for _ in range(2):
            assert [payload for batch in loader for payload in batch] == payloads


def test_a_damaged_record_costs_itself_only(tmp_path, executor):
    payloads = [bytes([number]) * 50 for number in range(100)]
    path = tmp_path / "some.rec"
    offsets = write(path, payloads)
    with open(path, "r+b") as file:
        file.seek(offsets[40])
        file.write(b"\0\0\0\0")
    dataset = RecordFileDataset(path)
    with DataLoader(dataset, 32, **pool(executor, 2), on_error="skip") as loader:
        assert [payload for batch in loader for payload in batch] == payloads[:40] + payloads[41:]
        (error,) = loader.errors
        assert (error.index, error.key, error.offset, error.stage) == (40, 40, offsets[40], "decode")
        assert isinstance(error.__cause__, CorruptRecordError)
    with DataLoader(dataset, 32, **pool(executor, 2)) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(SampleError, match="Invalid RecordIO"):
            next(batches)


class Shortened(RecordDecoder):
    """Decoder that returns two bytes of the payload in hexadecimal digits."""

    def __call__(self, data, extra, location):
        return super().__call__(data, extra, location)[:2].hex()


class ShortenedRecords(RecordFileDataset):
    @property
    def decoder(self):
        return Shortened()


def test_a_decoder_derived_from_ours_is_asked_for_every_sample(tmp_path, executor):
    write(tmp_path / "some.rec", [bytes([number]) * 9 for number in range(100)])
    with DataLoader(ShortenedRecords(tmp_path / "some.rec"), 30, **pool(executor, 2)) as loader:
        got = [sample for batch in loader for sample in batch]
    assert got == [f"{number:02x}" * 2 for number in range(100)]
