"""Tests of batchify functions: MXNet's values, as NDArrays."""

import numpy as np
import pytest

from aioloader.mxnet import gluon, nd
from aioloader.mxnet.gluon.data import batchify
from aioloader.mxnet.gluon.data.dataloader import default_batchify_fn, default_mp_batchify_fn
from tests.cases import with_cases


def test_stack():
    rows = np.array([[1, 2, 3], [4, 5, 6], [7, 8, 9]])
    for samples in (rows.tolist(), list(rows)):
        made = batchify.Stack()(samples)
        if isinstance(samples[0], list):  # fields
            assert [field.asnumpy().tolist() for field in made] == rows.T.tolist()
        else:
            assert isinstance(made, nd.NDArray)
            assert made.asnumpy().tolist() == rows.tolist()
    images, labels = batchify.Stack(use_shared_mem=True)(
        [(np.zeros((2, 3), np.uint8), 1), (np.ones((2, 3), np.uint8), 2)]
    )
    assert (images.shape, images.dtype, labels.dtype) == ((2, 2, 3), np.uint8, np.int64)
    assert isinstance(images, nd.NDArray)
    assert isinstance(labels, nd.NDArray)


@with_cases(("round_to", "width"), [(None, 3), (2, 4), (5, 5)])
def test_pad(round_to, width):
    samples = [[1], [1, 2], [1, 2, 3]]
    made = batchify.Pad(val=-1, dtype="int32", round_to=round_to)(samples)
    expected = np.full((3, width), -1)
    for row, sample in zip(expected, samples, strict=True):
        row[: len(sample)] = sample
    assert isinstance(made, nd.NDArray)
    assert made.dtype == np.int32
    assert np.array_equal(made.asnumpy(), expected)


def test_pad_grows_every_axis():
    made = batchify.Pad()([np.ones((2, 1)), np.full((1, 3), 2.0)])
    assert made.asnumpy().tolist() == [[[1, 0, 0], [1, 0, 0]], [[2, 2, 2], [0, 0, 0]]]
    with pytest.raises(NotImplementedError, match=r"Group\(Pad\(\), Pad\(\), ...\)"):
        batchify.Pad()([(1, 2), (3, 4)])


@with_cases("make", [batchify.Group, lambda *fns: batchify.Group(list(fns))], ids=["args", "list"])
def test_group(make):
    samples = [([1, 2], 0, "a"), ([3], 1, "b")]
    made = make(batchify.Pad(val=0), batchify.Stack(), batchify.AsList())(samples)
    assert isinstance(made, tuple)
    assert made[0].asnumpy().tolist() == [[1, 2], [3, 0]]
    assert made[1].asnumpy().tolist() == [0, 1]
    assert made[2] == ["a", "b"]
    with pytest.raises(
        AssertionError, match="The number of attributes in each data sample should contains 3 elements"
    ):
        make(batchify.Pad(), batchify.Stack(), batchify.Stack())([(1, 2)])


def test_append():
    made = batchify.Append()([np.zeros((2, 2)), np.zeros(3)])
    assert [one.shape for one in made] == [(1, 2, 2), (1, 3)]
    assert all(isinstance(one, nd.NDArray) for one in made)
    assert [one.shape for one in batchify.Append(expand=False)([np.zeros(2)])] == [(2,)]
    assert [one.shape for one in batchify.Append(batch_axis=1)([np.zeros((2, 2))])] == [(2, 1, 2)]


@with_cases("collate", [default_batchify_fn, default_mp_batchify_fn])
def test_the_default_of_mxnet_1(collate):
    assert collate([[1, 2], [3, 4]]).asnumpy().tolist() == [[1, 2], [3, 4]]
    images, (labels, weights) = collate([(nd.ones((2, 2)), (1, 0.5)), (nd.zeros((2, 2)), (2, 1.5))])
    assert (images.shape, images.dtype) == ((2, 2, 2), np.float32)
    assert (labels.dtype, weights.dtype) == (np.int64, np.float64)
    assert all(isinstance(each, nd.NDArray) for each in (images, labels, weights))


FUNCTIONS = {
    "stack": batchify.Stack(),
    "group": batchify.Group(batchify.Pad(val=7), batchify.Stack()),
    "append": batchify.Append(),
    "list": batchify.AsList(),
    "default": default_batchify_fn,
}


class Ragged(gluon.data.Dataset):
    def __init__(self, ragged):
        self.ragged = ragged

    def __len__(self):
        return 7

    def __getitem__(self, index):
        return np.full(1 + index % 3 * self.ragged, index), index


def as_lists(batch):
    if isinstance(batch, (list, tuple)):
        return [as_lists(each) for each in batch]
    return batch.tolist() if hasattr(batch, "tolist") else batch


@with_cases(("name", "workers"), [*((name, 0) for name in FUNCTIONS), ("group", 2), ("append", 2)])
def test_a_loader_makes_of_it_what_calling_does(name, workers):
    fn = FUNCTIONS[name]
    dataset = Ragged(ragged=name in ("group", "append", "list"))
    loader = gluon.data.DataLoader(dataset, 3, batchify_fn=fn, num_workers=workers)
    expected = [fn([dataset[index] for index in range(start, min(7, start + 3))]) for start in (0, 3, 6)]
    found = list(loader)
    assert [type(batch) for batch in found] == [type(batch) for batch in expected]
    for batch, other in zip(found, expected, strict=True):
        assert str(as_lists(batch)) == str(as_lists(other))
    loader.close()


def test_handles_do_the_same():
    samples = [([1, 2], 0), ([3], 1)]
    fn = batchify.Group(batchify.Pad(val=-1), batchify.Stack())
    for made, other in zip(fn(samples), fn.__mx_handle__()(samples), strict=True):
        assert np.array_equal(made, other)
    dataset = gluon.data.SimpleDataset(samples).transform_first(len).take(1).__mx_handle__()
    assert [list(dataset), len(dataset)] == [[(2, 0)], 1]
