"""Tests of samples that are the payloads of records, which are copied many at a time, also for a batchify function."""

from __future__ import annotations

import random

import numpy as np
import pytest

import recordio
from aioloader import DataLoader, RecordFileDataset
from aioloader.batchify import AsList
from aioloader.formats.recordio.decoding import RecordDecoder
from tests.cases import with_cases
from tests.executors import pool

MAGIC = bytes.fromhex("0a23d7ce")
# An empty payload and one that is stored in several parts are made one by one.
PAYLOADS = [bytes([k]) * (k % 50 + 1) for k in range(60)] + [b"", b"abcd" + MAGIC * 3, MAGIC, bytes(1 << 20)]


class OneByOne(RecordDecoder):
    """Decoder of single records: `RecordDecoder.many` is not for it."""

    def __call__(self, data, extra, location):
        return super().__call__(data, extra, location)


class Shortened(OneByOne):
    """Decoder that returns two bytes of the payload in hexadecimal digits."""

    def __call__(self, data, extra, location):
        return super().__call__(data, extra, location)[:2].hex()


class RecordsOneByOne(RecordFileDataset):
    """Dataset whose payloads are made one by one."""

    own_decoder = OneByOne()

    @property
    def decoder(self):
        return self.own_decoder


class ShortenedRecords(RecordsOneByOne):
    own_decoder = Shortened()


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


def batches(dataset, batchify, executor, **options):
    options = {"shuffle": True, "seed": 3, "batchify_fn": batchify, **pool(executor, 2), **options}
    with DataLoader(dataset, 16, **options) as it:
        return [*it, *it]  # in the second epoch records are looked up in maps, if the executor supports it


@with_cases("batchify", [None, AsList()])
def test_a_batch_has_the_payloads_in_their_order(path, executor, batchify):
    made = batches(RecordFileDataset(path), batchify, executor)
    assert made == batches(RecordsOneByOne(path), batchify, "inline")
    assert sorted(payload for batch in made for payload in batch) == sorted(PAYLOADS * 2)


def test_a_decoder_derived_from_ours_is_asked_for_every_sample(path, executor):
    made = batches(ShortenedRecords(path), None, executor)
    expected = sorted(payload[:2].hex() for payload in PAYLOADS * 2)
    assert sorted(payload for batch in made for payload in batch) == expected


@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_a_damaged_record_is_left_out_or_replaced(path, executor, on_error):
    damage(path, 20)
    options = {"on_error": on_error, "max_errors": 4}
    made = batches(RecordFileDataset(path), AsList(), executor, **options)
    assert made == batches(RecordsOneByOne(path), AsList(), "inline", **options)
    assert sum(map(len, made)) == 2 * (len(PAYLOADS) - (on_error == "skip"))
    assert PAYLOADS[20] not in [payload for batch in made for payload in batch]


@with_cases("executor", ["inline", "process"])
@with_cases("batchify", [None, AsList()])
def test_bytes_text_and_arrays_of_a_transform_are_collated_by_their_types(path, executor, batchify):
    def kinds(payload):
        """Return a sample whose type depends on the payload, so that no row fits all."""
        size = len(payload)
        return [payload, str(size), np.full(2, size), None][size % 4]

    made = batches(RecordFileDataset(path).transform(kinds), batchify, executor)
    expected = [
        [kinds(payload) for payload in batch] for batch in batches(RecordFileDataset(path), None, "inline")
    ]
    assert [list(map(type, batch)) for batch in made] == [list(map(type, batch)) for batch in expected]
    assert [list(map(str, batch)) for batch in made] == [list(map(str, batch)) for batch in expected]


def test_fields_that_are_bytes_become_lists(path):
    made = batches(RecordFileDataset(path).transform(lambda payload: (payload, len(payload))), None, "inline")
    for payloads, sizes in made:
        assert list(map(len, payloads)) == sizes.tolist()
    assert sorted(payload for payloads, _ in made for payload in payloads) == sorted(PAYLOADS * 2)


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
    assert len(called) == 2 * 3
