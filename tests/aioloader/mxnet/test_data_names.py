"""Tests of names that libraries and scripts take from MXNet around its data layer."""

import ctypes
import gzip
import multiprocessing.pool
import random
import subprocess
import sys
import zipfile

import numpy as np
import pytest
from PIL import Image

import aioloader.mxnet as mx
from aioloader.mxnet.base import _LIB, OutsideError, _as_list, check_call
from aioloader.mxnet.executor_manager import _split_input_slice
from aioloader.mxnet.gluon.data.dataloader import ForkingPickler, _as_in_context, _MultiWorkerIter
from aioloader.mxnet.gluon.utils import _get_repo_file_url, _get_repo_url, replace_file
from aioloader.mxnet.image.image import _get_interp_method
from tests.cases import with_cases


def test_the_version_is_that_of_the_names():
    assert mx.__version__ == mx.libinfo.__version__ == "1.9.1"


def test_types_of_base():
    assert isinstance("", mx.base.string_types)
    assert not isinstance(b"", mx.base.string_types)
    for number in (1, 1.5, np.float32(1), np.uint8(1)):
        assert isinstance(number, mx.base.numeric_types)
    assert isinstance(np.int64(1), mx.base.integer_types)
    assert _as_list(1) == [1]
    assert _as_list((1,)) == (1,)
    assert _get_interp_method(9, (10, 10, 20, 20)) == 2
    assert isinstance(mx.nd.zeros(1), mx.gluon.tensor_types)


def test_urls_of_the_repository(monkeypatch, tmp_path):
    assert _get_repo_url().startswith("https://")
    monkeypatch.setenv("MXNET_GLUON_REPO", "https://example.org/mirror")
    assert _get_repo_file_url("gluon/dataset", "a.zip") == "https://example.org/mirror/gluon/dataset/a.zip"
    for name in "ab":
        (tmp_path / name).write_text(name)
    replace_file(tmp_path / "a", tmp_path / "b")
    assert [(each.name, each.read_text()) for each in tmp_path.iterdir()] == [("b", "a")]


@with_cases(
    ("rows", "loads", "expected"),
    [
        (10, [1, 1, 1], [(0, 3), (3, 6), (6, 10)]),
        (7, [1, 2], [(0, 2), (2, 7)]),
        (5, [1, 1], [(0, 2), (2, 5)]),
    ],
)
def test_batches_are_divided_among_devices(rows, loads, expected):
    assert _split_input_slice(rows, loads) == [slice(*each) for each in expected]
    with pytest.raises(ValueError, match="Too many slices"):
        _split_input_slice(1, [1, 1])


def test_classes_are_registered_by_name():
    class Base:
        def __init__(self, size=1):
            self.size = size

    register = mx.registry.get_register_func(Base, "thing")
    alias = mx.registry.get_alias_func(Base, "thing")
    create = mx.registry.get_create_func(Base, "thing")

    @register
    class First(Base):
        pass

    @alias("other", "Another")
    class Second(Base):
        pass

    assert mx.registry.get_registry(Base) == {"first": First, "other": Second, "another": Second}
    made = create("FIRST", size=3)
    assert (type(made), made.size) == (First, 3)
    assert create(made) is made
    for text in ('["other", {"size": 2}]', '{"thing": "other", "size": 2}'):
        assert create(text).size == 2
    assert type(create(thing="another")) is Second
    for wrong in (("nothing",), (made, 1), (5,)):
        with pytest.raises(AssertionError):
            create(*wrong)
    with pytest.raises(AssertionError, match="Can only register subclass of Base"):
        register(int)
    with pytest.warns(UserWarning, match="overrides existing"):
        register(Second, "first")


def test_sentences_are_encoded_and_put_into_buckets(capsys):
    words = "abcdef"
    sentences = [[words[(i * 7 + j) % 6] for j in range(2 + i % 4)] for i in range(22)]
    coded, vocab = mx.rnn.encode_sentences(sentences, invalid_label=0, start_label=1)
    assert vocab == {"\n": 0, "a": 1, "b": 2, "c": 3, "d": 4, "e": 5, "f": 6}
    assert mx.rnn.encode_sentences([["a", "f"]], vocab)[0] == [[1, 6]]
    with pytest.raises(AssertionError, match="Unknown token x"):
        mx.rnn.encode_sentences([["x"]], vocab)
    assert mx.rnn.encode_sentences([["x"]], {"?": 9}, unknown_token="?", start_label=3)[0] == [[3]]
    random.seed(1)
    np.random.seed(2)
    batches = mx.rnn.BucketSentenceIter(coded, 2, buckets=[4, 3], invalid_label=0)
    assert "discarded 5 sentences" in capsys.readouterr().out
    first, second = next(batches), next(batches)  # as MXNet 1.9.1 draws them
    assert (first.bucket_key, first.data[0].asnumpy().tolist()) == (3, [[1, 2, 0], [6, 1, 2]])
    assert first.label[0].asnumpy().tolist() == [[2, 0, 0], [1, 2, 0]]
    assert (second.bucket_key, second.data[0].shape) == (4, (2, 4))
    assert [each.shape for each in (*batches.provide_data, *batches.provide_label)] == [(2, 4), (2, 4)]
    assert len(list(batches)) == len(batches.idx) - 2
    batches.reset()
    assert len(list(batches)) == len(batches.idx)
    turned = mx.rnn.BucketSentenceIter(coded, 2, invalid_label=0, layout="TN")
    assert {batch.data[0].shape for batch in turned} == {(n, 2) for n in (2, 3, 4, 5)}
    with pytest.raises(ValueError, match="Invalid layout"):
        mx.rnn.BucketSentenceIter(coded, 2, layout="T")


def test_headers_print_as_mxnets():
    header = mx.recordio.IRHeader(0, 1.0, 1, 0)
    assert repr(header) == str(header) == "HEADER(flag=0, label=1.0, id=1, id2=0)"
    unpacked, _ = mx.recordio.unpack(mx.recordio.pack(header, b""))
    assert repr(unpacked) == repr(header)


def test_scripts_ask_the_library_for_positions(tmp_path):
    path = str(tmp_path / "a.rec")
    writer, pos = mx.recordio.MXRecordIO(path, "w"), ctypes.c_size_t()
    ends = []
    for record in (b"a", b"bbbbb", b""):
        writer.write(record)
        check_call(_LIB.MXRecordIOWriterTell(writer.handle, ctypes.byref(pos)))
        ends.append(pos.value)
    writer.close()
    reader = mx.recordio.MXRecordIO(path, "r")
    starts = []
    while True:
        check_call(_LIB.MXRecordIOReaderTell(reader.handle, ctypes.byref(pos)))
        if reader.read() is None:
            break
        starts.append(pos.value)
    assert starts == [0, *ends[:-1]]
    check_call(_LIB.MXRecordIOReaderSeek(reader.handle, ctypes.c_size_t(starts[1])))
    assert reader.read() == b"bbbbb"
    with pytest.raises(OutsideError, match=r"_LIB\.MXNDArrayCreate: there is no C library"):
        _LIB.MXNDArrayCreate(1)
    with pytest.raises(mx.MXNetError, match="no handle of an open reader"):
        _LIB.MXRecordIOReaderTell(object(), ctypes.byref(pos))
    with pytest.raises(mx.MXNetError):
        check_call(-1)


def test_im2rec_is_where_scripts_look_for_it(tmp_path):
    for folder in ("ant", "bee"):
        (tmp_path / "images" / folder).mkdir(parents=True)
        Image.new("RGB", (8, 8)).save(tmp_path / "images" / folder / "1.png")
    tool = mx.test_utils.get_im2rec_path()
    assert tool == f"{mx.__path__[0]}/tools/im2rec.py"
    command = [sys.executable, tool, "--list", "--recursive", str(tmp_path / "out"), str(tmp_path / "images")]
    subprocess.run(command, check=True, capture_output=True)
    lines = (tmp_path / "out.lst").read_text().splitlines()
    assert sorted(float(line.split("\t")[1]) for line in lines) == [0, 1]


def write_mnist(folder, count, zipped):
    folder.mkdir(parents=True, exist_ok=True)
    images = np.random.default_rng(0).integers(0, 256, (count, 28, 28), dtype=np.uint8)
    for part in ("train", "t10k"):
        header = np.array([2051, count, 28, 28], ">u4").tobytes()
        labels = np.array([2049, count], ">u4").tobytes() + bytes(i % 10 for i in range(count))
        files = {f"{part}-images-idx3-ubyte": header + images.tobytes(), f"{part}-labels-idx1-ubyte": labels}
        for name, data in files.items():
            (folder / (name + ".gz" * zipped)).write_bytes(gzip.compress(data) if zipped else data)
    return images


@pytest.mark.parametrize(("where", "zipped"), [(".", False), ("data", True), ("home", True)])
def test_mnist_is_read_from_local_files(where, zipped, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("MXNET_HOME", str(tmp_path / "home"))
    with pytest.raises(mx.MXNetError, match=r"train-images-idx3-ubyte.*nothing is downloaded"):
        mx.test_utils.get_mnist()
    images = write_mnist(tmp_path / ("home/datasets/mnist" if where == "home" else where), 12, zipped)
    found = mx.test_utils.get_mnist()
    kinds = {"data": ((12, 1, 28, 28), "float32"), "label": ((12,), "int8")}
    for name, each in found.items():
        assert (each.shape, each.dtype.name) == kinds[name.partition("_")[2]]
    assert found.keys() == {"train_data", "train_label", "test_data", "test_label"}
    assert np.array_equal(found["test_data"][:, 0], images.astype(np.float32) / 255)
    assert found["train_label"].tolist() == [i % 10 for i in range(12)]
    if where != ".":
        training, test = mx.test_utils.get_mnist_iterator(4, (1, 28, 28))
        assert [batch.data[0].shape for batch in test] == [(4, 1, 28, 28)] * 3
        assert len(list(training)) == 3
        assert next(iter(mx.test_utils.get_mnist_iterator(4, (784,))[1])).data[0].shape == (4, 784)


def test_cifar10_is_unpacked_from_a_local_file(tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    with pytest.raises(FileNotFoundError, match=r"cifar10\.zip"):
        mx.test_utils.get_cifar10()
    (tmp_path / "data").mkdir()
    with zipfile.ZipFile(tmp_path / "data" / "cifar10.zip", "w") as archive:
        for name in ("train.rec", "test.rec", "train.lst", "test.lst"):
            archive.writestr(f"cifar/{name}", b"")
    mx.test_utils.get_cifar10()
    mx.test_utils.get_cifar10()
    assert len(list((tmp_path / "data" / "cifar").iterdir())) == 4


def test_modules_that_libraries_take_from_others():
    datasets = mx.gluon.data.vision.datasets
    assert datasets.image is mx.image
    assert datasets.nd is mx.nd
    assert mx.image.image is mx.image
    assert datasets._get_repo_file_url is _get_repo_file_url
    assert ForkingPickler.dumps(mx.nd.ones(2))


class Numbers:
    def __len__(self):
        return 7

    def __getitem__(self, index):
        return mx.nd.array([index])


@with_cases("pinned", [False, True])
def test_iterators_over_a_pool_of_the_caller(pinned):
    sampler = mx.gluon.data.BatchSampler(mx.gluon.data.SequentialSampler(7), 3, "keep")
    make = mx.gluon.data.dataloader.default_batchify_fn
    with multiprocessing.pool.ThreadPool(2) as pool:
        batches = _MultiWorkerIter(pool, make, sampler, pin_memory=pinned, prefetch=2, dataset=Numbers())
        assert len(batches) == 3
        found = list(batches)
    assert [batch.asnumpy().reshape(-1).tolist() for batch in found] == [[0, 1, 2], [3, 4, 5], [6]]
    assert {str(batch.context) for batch in found} == {"cpu_pinned(0)" if pinned else "cpu(0)"}
    moved = _as_in_context([mx.nd.ones(1), (mx.nd.ones(1), 5)], mx.cpu_pinned())
    assert (str(moved[0].context), moved[1][1]) == ("cpu_pinned(0)", 5)


def test_loaders_that_derive_find_the_loaders_settings():
    with mx.gluon.data.DataLoader(Numbers(), 2, num_workers=1, pin_memory=True, pin_device_id=1) as loader:
        settings = loader._num_workers, loader._prefetch, loader._pin_memory, loader._pin_device_id
        assert settings == (1, 2, True, 1)
        assert loader._batchify_fn is mx.gluon.data.dataloader.default_batchify_fn
        assert list(loader._batch_sampler) == [[0, 1], [2, 3], [4, 5], [6]]
