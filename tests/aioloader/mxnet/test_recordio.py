"""Tests of `mx.recordio`: MXNet's tests, its golden files, and its errors."""

from __future__ import annotations

import hashlib
import json
import os
import pickle
import random
import struct
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader.mxnet as mx
import recordio

GOLDEN = Path(__file__).parents[2] / "data" / "mxnet"
MANIFEST: dict[str, Any] = json.loads((GOLDEN / "manifest.json").read_text())["files"]


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory: pytest.TempPathFactory, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


def digest(data: Any) -> str:
    return hashlib.sha256(data).hexdigest()


# --- checks of MXNet's tests ---


def test_records_are_read_in_the_order_written(tmp_path: Path) -> None:
    path = str(tmp_path / "a.rec")
    payloads = [bytes(str(chr(i)), "utf-8") for i in range(255)]  # one byte, or two from 128 on
    writer = mx.recordio.MXRecordIO(path, "w")
    for payload in payloads:
        writer.write(payload)
    del writer  # the file is complete when its writer has been collected
    reader = mx.recordio.MXRecordIO(path, "r")
    assert [reader.read() for _ in payloads] == payloads
    assert reader.read() is None
    reader.close()


def test_records_are_found_by_key_in_any_order(tmp_path: Path) -> None:
    idx, rec = str(tmp_path / "a.idx"), str(tmp_path / "a.rec")
    writer = mx.recordio.MXIndexedRecordIO(idx, rec, "w")
    for i in range(255):
        writer.write_idx(i, bytes(str(chr(i)), "utf-8"))
    del writer
    reader = mx.recordio.MXIndexedRecordIO(idx, rec, "r")
    keys = reader.keys
    assert sorted(keys) == list(range(255))
    random.Random(0).shuffle(keys)
    assert all(reader.read_idx(i) == bytes(str(chr(i)), "utf-8") for i in keys)
    reader.close()


@pytest.mark.parametrize("length", [1, 2, 3, 100, 254])
def test_label_arrays_survive_packing(length: int) -> None:
    for value in (0, 1, 254):
        label = np.full(length, value, np.float32)
        header, body = mx.recordio.unpack(mx.recordio.pack((0, label, 0, 0), bytes(str(value), "utf-8")))
        assert header.flag == length
        assert np.array_equal(header.label, label)
        assert body == str(value).encode()


# --- the golden files ---


@pytest.mark.parametrize("name", [name for name in MANIFEST if name.endswith(".rec")])
def test_golden_records(name: str) -> None:
    records = MANIFEST[name]["records"]
    reader = mx.recordio.MXRecordIO(str(GOLDEN / name), "r")
    assert [digest(payload) for payload in reader] == [facts["sha256"] for facts in records]
    reader.close()
    if "key" not in records[0]:
        return
    indexed = mx.recordio.MXIndexedRecordIO(str((GOLDEN / name).with_suffix(".idx")), str(GOLDEN / name), "r")
    assert indexed.keys == [facts["key"] for facts in records]
    assert indexed.idx == {facts["key"]: facts["offset"] for facts in records}
    for facts in reversed(records):
        header, body = mx.recordio.unpack(indexed.read_idx(facts["key"]))
        label = facts.get("label")
        assert len(body) <= facts["len"] - 24
        if isinstance(label, list):
            assert (
                np.asarray(header.label).ravel().tolist() == np.float32(label).ravel().tolist() or not label
            )
        elif label is not None:
            assert header.label == np.float32(label)
    indexed.close()


def test_golden_files_are_written_again(tmp_path: Path) -> None:
    writer = mx.recordio.MXIndexedRecordIO(str(tmp_path / "h.idx"), str(tmp_path / "h.rec"), "w")
    for facts in MANIFEST["headers.rec"]["records"]:
        header = mx.recordio.IRHeader(9, facts["label"], facts["id"], facts["id2"])
        writer.write_idx(facts["key"], mx.recordio.pack(header, facts["body_utf8"]))
    writer.close()
    for suffix in ("rec", "idx"):
        assert (tmp_path / f"h.{suffix}").read_bytes() == (GOLDEN / f"headers.{suffix}").read_bytes()


# --- text, and MXNet's errors ---


def test_text_is_stored_as_utf8(tmp_path: Path) -> None:
    idx, rec = str(tmp_path / "a.idx"), str(tmp_path / "a.rec")
    with mx.recordio.MXIndexedRecordIO(idx, rec, "w") as writer:
        writer.write_idx(3, "größe")
        writer.write("more")
        writer.write(bytearray(b"bytes"))
    with mx.recordio.MXIndexedRecordIO(idx, rec, "r") as reader:
        assert [*reader] == ["größe".encode(), b"more", b"bytes"]
        assert reader.read_idx(3) == "größe".encode()
        reader.seek(3)
        assert reader.read() == "größe".encode()
    assert mx.recordio.pack((0, 1.0, 1, 0), "data") == recordio.pack((0, 1.0, 1, 0), b"data")


def test_an_array_of_this_package_can_be_packed() -> None:
    image = mx.nd.array(np.arange(48).reshape(4, 4, 3), dtype="uint8")
    header, back = mx.recordio.unpack_img(
        mx.recordio.pack_img((0, 5, 0, 0), image, quality=9, img_fmt=".png")
    )
    assert header.label == 5
    assert np.array_equal(back, image)


def test_errors_that_are_mxnet_s_are_both(tmp_path: Path) -> None:
    missing = str(tmp_path / "missing.rec")
    with pytest.raises(mx.MXNetError) as caught:
        mx.recordio.MXRecordIO(missing, "r")
    assert isinstance(caught.value, recordio.RecordFileNotFoundError)
    assert isinstance(caught.value, FileNotFoundError)
    assert caught.value.path == missing
    assert str(pickle.loads(pickle.dumps(caught.value))) == str(caught.value)

    damaged = tmp_path / "damaged.rec"
    damaged.write_bytes(b"no record at all")
    with mx.recordio.MXRecordIO(str(damaged), "r") as reader, pytest.raises(mx.MXNetError) as caught:
        reader.read()
    assert isinstance(caught.value, recordio.CorruptRecordError)
    assert caught.value.offset == 0

    damaged.write_bytes((GOLDEN / "plain.rec").read_bytes()[:-6])
    with mx.recordio.MXRecordIO(str(damaged), "r") as reader, pytest.raises(mx.MXNetError) as caught:
        list(reader)
    assert isinstance(caught.value, recordio.TruncatedRecordError)
    assert isinstance(caught.value, mx.recordio.CorruptRecordError)


def test_a_damaged_record_found_by_key_is_an_mxnet_error(tmp_path: Path) -> None:
    (tmp_path / "a.rec").write_bytes(bytes(64))
    (tmp_path / "a.idx").write_text("0\t0\n1\t400\n")
    with mx.recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(tmp_path / "a.rec"), "r") as reader:
        with pytest.raises(mx.MXNetError):
            reader.read_idx(0)
        with pytest.raises(ValueError, match="offset"):
            reader.seek(1)
        with pytest.raises(KeyError):
            reader.read_idx("0")


def test_other_errors_keep_their_built_in_type(tmp_path: Path) -> None:
    path = str(tmp_path / "a.rec")
    with pytest.raises(ValueError, match="Invalid flag x"):
        mx.recordio.MXRecordIO(path, "x")
    writer = mx.recordio.MXRecordIO(path, "w")
    with pytest.raises(AssertionError):
        writer.read()
    writer.close()
    with pytest.raises(RuntimeError, match="Forbidden operation in multiple processes"):
        writer.write(b"late")
    with pytest.raises(struct.error):
        mx.recordio.unpack(b"short")


def test_a_reader_works_after_a_fork_and_a_pickle(tmp_path: Path) -> None:
    idx, rec = str(GOLDEN / "headers.idx"), str(GOLDEN / "headers.rec")
    reader = mx.recordio.MXIndexedRecordIO(idx, rec, "r")
    first = reader.read_idx(reader.keys[0])
    copied = pickle.loads(pickle.dumps(reader))
    assert type(copied) is mx.recordio.MXIndexedRecordIO
    assert copied.read_idx(copied.keys[0]) == first
    child = os.fork()
    if child == 0:
        os._exit(0 if reader.read_idx(reader.keys[0]) == first else 1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0
    copied.close()
    reader.close()
