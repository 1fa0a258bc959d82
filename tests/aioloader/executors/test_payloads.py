"""Tests of samples that are the payloads of records, which are copied many at a time, also for a batchify function."""

from __future__ import annotations

import random

import numpy as np
import pytest

import recordio
from aioloader import DataLoader, RecordFileDataset
from aioloader.batchify import AsList
from aioloader.datasets.decoding import RecordDecoder

MAGIC = bytes.fromhex("0a23d7ce")
# An empty payload and one that is stored in several parts are made one by one.
PAYLOADS = [bytes([k]) * (k % 50 + 1) for k in range(60)] + [b"", b"abcd" + MAGIC * 3, MAGIC]
EXECUTORS = {
    "inline": {"executor": "inline", "num_workers": 0},
    "thread": {"executor": "thread", "num_workers": 2},
    "process": {"executor": "process", "num_workers": 1},
}


class OneByOne(RecordDecoder):
    """Decoder of single records: `RecordDecoder.many` is not for it."""

    def __call__(self, data, extra, location):
        return super().__call__(data, extra, location)


class RecordsOneByOne(RecordFileDataset):
    """Dataset whose payloads are made one by one."""

    @property
    def decoder(self):
        return OneByOne()


def draws(samples):
    """Return the samples, and numbers from the global generators."""
    return samples, random.random(), float(np.random.rand())


@pytest.fixture
def path(tmp_path):
    with recordio.RecordWriter(tmp_path / "a.rec", index=True) as writer:
        for key, payload in enumerate(PAYLOADS):
            writer.write(payload, key)
    return tmp_path / "a.rec"


def damage(path, line):
    """Overwrite the magic number of a record."""
    with open(path, "r+b") as file:
        file.seek(int(RecordFileDataset(path).table.index.offsets[line]))
        file.write(b"none")


def batches(dataset, batchify, kind, **options):
    with DataLoader(
        dataset, 16, shuffle=True, seed=3, batchify_fn=batchify, **EXECUTORS[kind], **options
    ) as it:
        return list(it)


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("batchify", [None, AsList()])
def test_a_batch_has_the_payloads_in_their_order(path, kind, batchify):
    made = batches(RecordFileDataset(path), batchify, kind)
    one_by_one = batches(RecordsOneByOne(path), batchify, "inline")
    assert made == one_by_one
    assert sorted(payload for batch in made for payload in batch) == sorted(PAYLOADS)


@pytest.mark.parametrize("kind", EXECUTORS)
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_damaged_record_is_left_out_or_replaced(path, kind, on_error):
    damage(path, 20)
    options = {"on_error": on_error, "max_errors": 2}
    made = batches(RecordFileDataset(path), AsList(), kind, **options)
    assert made == batches(RecordsOneByOne(path), AsList(), "inline", **options)
    assert sum(map(len, made)) == len(PAYLOADS) - (on_error == "skip")
    assert PAYLOADS[20] not in [payload for batch in made for payload in batch]


@pytest.mark.parametrize("kind", ["inline", "process"])
@pytest.mark.parametrize("batchify", [None, AsList()])
def test_bytes_text_and_arrays_of_a_transform_are_collated_by_their_types(path, kind, batchify):
    def kinds(payload):
        """Return a sample whose type depends on the payload, so that no row fits all."""
        size = len(payload)
        return [payload, str(size), np.full(2, size), None][size % 4]

    made = batches(RecordFileDataset(path).transform(kinds), batchify, kind)
    expected = [
        [kinds(payload) for payload in batch] for batch in batches(RecordFileDataset(path), None, "inline")
    ]
    assert [list(map(type, batch)) for batch in made] == [list(map(type, batch)) for batch in expected]
    assert [list(map(str, batch)) for batch in made] == [list(map(str, batch)) for batch in expected]


def test_fields_that_are_bytes_become_lists(path):
    made = batches(RecordFileDataset(path).transform(lambda payload: (payload, len(payload))), None, "inline")
    for payloads, sizes in made:
        assert list(map(len, payloads)) == sizes.tolist()
    assert sorted(payload for payloads, _ in made for payload in payloads) == sorted(PAYLOADS)


def test_a_batchify_function_draws_the_same_numbers_in_a_worker_process(path):
    many = batches(RecordFileDataset(path), draws, "process")
    assert many == batches(RecordsOneByOne(path), draws, "process")
    assert len({first for _, first, _ in many}) == len(many)


def test_the_decoder_is_called_only_for_records_that_need_it(path, monkeypatch):
    called = []
    decode = RecordDecoder.__call__

    def counted(self, data, extra, location):
        called.append(len(data))
        return decode(self, data, extra, location)

    monkeypatch.setattr(RecordDecoder, "__call__", counted)
    batches(RecordFileDataset(path), AsList(), "inline")
    assert len(called) == 3
