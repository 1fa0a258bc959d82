"""Tests of gluon.utils, and of the placeholders for the rest of Gluon."""

import hashlib

import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.mxnet import gluon, nd


def test_split_data():
    data = nd.array(np.arange(24).reshape(6, 4))
    parts = gluon.utils.split_data(data, 3)
    assert [part.shape for part in parts] == [(2, 4)] * 3
    assert np.array_equal(np.concatenate(parts), data)
    assert all(isinstance(part, nd.NDArray) for part in parts)
    assert [part.shape for part in gluon.utils.split_data(data, 2, batch_axis=1)] == [(6, 2)] * 2
    # Measured on MXNet 1.9.1.
    ten = nd.zeros((10, 1))
    assert [part.shape for part in gluon.utils.split_data(ten, 3, even_split=False)] == [
        (4, 1),
        (3, 1),
        (3, 1),
    ]
    assert [len(part) for part in gluon.utils.split_data(ten[:2], 3, even_split=False)] == [1, 1, 0]
    with pytest.raises(ValueError, match="cannot be evenly split into 3 slices along axis 0"):
        gluon.utils.split_data(ten, 3)


def test_split_and_load():
    contexts = [mx.cpu(0), mx.cpu(1)]
    parts = gluon.utils.split_and_load(np.arange(8).reshape(4, 2), contexts)
    assert [part.asnumpy().tolist() for part in parts] == [[[0, 1], [2, 3]], [[4, 5], [6, 7]]]
    assert [part.context for part in parts] == contexts
    assert parts[0].dtype == np.float32
    (whole,) = gluon.utils.split_and_load(nd.ones((3, 2)), [mx.cpu(0)])
    assert whole.shape == (3, 2)
    with pytest.raises(mx.MXNetError, match="no array can be placed on gpu"):
        gluon.utils.split_and_load(nd.ones((4, 2)), [mx.gpu(0), mx.gpu(1)])


def test_check_sha1(tmp_path):
    path = tmp_path / "file"
    path.write_bytes(b"content")
    assert gluon.utils.check_sha1(path, hashlib.sha1(b"content").hexdigest())
    assert not gluon.utils.check_sha1(path, "0" * 40)


def test_download(tmp_path, monkeypatch):
    (tmp_path / "source.bin").write_bytes(b"content")
    url, sha1 = (tmp_path / "source.bin").as_uri(), hashlib.sha1(b"content").hexdigest()
    (tmp_path / "here").mkdir()
    monkeypatch.chdir(tmp_path / "here")
    assert gluon.utils.download(url) == "source.bin"
    assert gluon.utils.download(url, "new/name.bin", sha1_hash=sha1) == "new/name.bin"
    assert gluon.utils.download(url, path=tmp_path / "here" / "new") == str(tmp_path / "here/new/source.bin")
    stale = tmp_path / "stale.bin"
    stale.write_bytes(b"another")
    assert gluon.utils.download(url, stale) == str(stale)
    assert stale.read_bytes() == b"another"
    gluon.utils.download(url, stale, False, sha1, verify_ssl=False)
    assert stale.read_bytes() == b"content"
    with pytest.raises(mx.MXNetError, match=r"stale\.bin.*has not the SHA-1 0000"):
        gluon.utils.download(url, stale, sha1_hash="0" * 40)
