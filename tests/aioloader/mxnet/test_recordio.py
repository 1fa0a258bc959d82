"""Tests of `mx.recordio`: text, arrays and MXNet's errors; tests/recordio has the classes that it derives from."""

import pickle
import struct
from pathlib import Path

import numpy as np
import pytest

import aioloader.mxnet as mx
import recordio

GOLDEN = Path(__file__).parents[2] / "data" / "mxnet"


@pytest.fixture(autouse=True)
def _own_cache(tmp_path_factory, monkeypatch):
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))


def test_text_is_stored_as_utf8(tmp_path):
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


def test_an_array_of_this_package_can_be_packed():
    image = mx.nd.array(np.arange(48).reshape(4, 4, 3), dtype="uint8")
    header, back = mx.recordio.unpack_img(
        mx.recordio.pack_img((0, 5, 0, 0), image, quality=9, img_fmt=".png")
    )
    assert header.label == 5
    assert np.array_equal(back, image)


def test_errors_that_are_mxnet_s_are_both(tmp_path):
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


def test_a_reader_stays_one_of_this_module_after_pickling():
    idx, rec = str(GOLDEN / "headers.idx"), str(GOLDEN / "headers.rec")
    with mx.recordio.MXIndexedRecordIO(idx, rec, "r") as reader:
        with pickle.loads(pickle.dumps(reader)) as copied:
            assert type(copied) is mx.recordio.MXIndexedRecordIO
            assert copied.read_idx(copied.keys[0]) == reader.read_idx(reader.keys[0])


def test_a_damaged_record_found_by_key_is_an_mxnet_error(tmp_path):
    (tmp_path / "a.rec").write_bytes(bytes(64))
    (tmp_path / "a.idx").write_text("0\t0\n1\t400\n")
    with mx.recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), str(tmp_path / "a.rec"), "r") as reader:
        with pytest.raises(mx.MXNetError):
            reader.read_idx(0)
        with pytest.raises(ValueError, match="offset"):
            reader.seek(1)
        with pytest.raises(KeyError):
            reader.read_idx("0")


def test_other_errors_keep_their_built_in_type(tmp_path):
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
