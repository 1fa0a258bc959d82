"""Tests of DataDesc, DataBatch, DataIter, ResizeIter, PrefetchingIter and DataLoaderIter."""

import pickle
import threading

import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.mxnet.io import DataBatch, DataDesc, DataIter, NDArrayIter, PrefetchingIter, ResizeIter
from tests.cases import with_cases

# --- DataDesc, DataBatch ---


def test_a_description_is_its_name_and_shape():
    desc = DataDesc("data", (2, 3))
    name, shape = desc
    assert (name, shape) == desc == ("data", (2, 3))
    assert repr(desc) == "DataDesc[data,(2, 3),<class 'numpy.float32'>,NCHW]"
    other = pickle.loads(pickle.dumps(DataDesc("x", (1,), np.int32, "NC")))
    assert (other, other.dtype, other.layout) == (("x", (1,)), np.int32, "NC")


def test_layouts_and_lists_of_descriptions():
    assert [DataDesc.get_batch_axis(layout) for layout in ("NCHW", "TNC", "HW", None)] == [0, 1, -1, 0]
    shapes = [("a", (1, 2)), ("b", (3,))]
    assert DataDesc.get_list(shapes) == shapes
    typed = DataDesc.get_list(shapes, [("b", np.int32), ("a", np.uint8)])
    assert [(desc.name, desc.dtype) for desc in typed] == [("a", np.uint8), ("b", np.int32)]


def test_a_batch_has_lists_and_a_text():
    batch = DataBatch(data=[mx.nd.ones((2, 3)), mx.nd.ones((7, 8))], label=[mx.nd.ones((4, 5))])
    assert str(batch) == "DataBatch: data shapes: [(2, 3), (7, 8)] label shapes: [(4, 5)]"
    assert str(DataBatch(data=[mx.nd.ones((2, 3))])) == "DataBatch: data shapes: [(2, 3)] label shapes: None"
    assert (batch.pad, batch.index, batch.bucket_key, batch.provide_data) == (None, None, None, None)
    with pytest.raises(AssertionError, match="Data must be list of NDArrays"):
        DataBatch(data=mx.nd.ones(2))
    with pytest.raises(AssertionError, match="Label must be list of NDArrays"):
        DataBatch(data=[mx.nd.ones(2)], label=mx.nd.ones(2))


# --- DataIter ---


class Counting(DataIter):
    """Iterator of batches of two rows with the batch's number; raises or ends at a given batch."""

    def __init__(self, count, fail_at=None, pad=0):
        super().__init__(2)
        self.count, self.fail_at, self.pad = count, fail_at, pad
        self.at = -1
        self.resets = 0
        self.provide_data = [DataDesc("data", (2, 1))]
        self.provide_label = [("label", (2,))]

    def reset(self):
        self.at = -1
        self.resets += 1

    def iter_next(self):
        self.at += 1
        if self.at == self.fail_at:
            raise OSError(f"batch {self.at} is damaged")
        return self.at < self.count

    def getdata(self):
        return [mx.nd.full((2, 1), self.at)]

    def getlabel(self):
        return [mx.nd.full((2,), -self.at)]

    def getpad(self):
        return self.pad


def values(iterator):
    return [int(batch.data[0][0, 0]) for batch in iterator]


def test_next_calls_the_parts():
    iterator = Counting(2)
    batch = iterator.next()
    assert (batch.data[0].tolist(), batch.label[0].tolist(), batch.pad, batch.index) == (
        [[0], [0]],
        [0, 0],
        0,
        None,
    )
    assert values(iterator) == [1]
    assert values(iterator) == []  # a loop does not go back
    iterator.reset()
    assert values(iterator) == [0, 1]


def test_a_data_iter_without_parts_says_what_is_missing():
    iterator = DataIter(3)
    assert iterator.batch_size == 3
    iterator.reset()
    for call in (iterator.next, iterator.getdata):
        with pytest.raises(NotImplementedError, match="DataIter"):
            call()


class Unlabelled(DataIter):
    """Iterator with only the required attributes."""

    at = 0

    def iter_next(self):
        self.at += 1
        return self.at < 3

    def getdata(self):
        return [mx.nd.full((2, 1), self.at)]


def test_labels_and_pads_are_optional():
    batches = list(Unlabelled(2))
    assert [batch.data[0].ravel().tolist() for batch in batches] == [[1, 1], [2, 2]]
    assert {(batch.label, batch.pad, batch.index) for batch in batches} == {(None, None, None)}


# --- ResizeIter ---


@with_cases(("size", "expected"), [(5, [0, 1, 2, 0, 1]), (2, [0, 1])])
def test_resized_to_so_many_batches(size, expected):
    iterator = ResizeIter(Counting(3), size)
    for _ in range(2):
        assert values(iterator) == expected
        assert values(iterator) == []
        iterator.reset()
    assert (iterator.provide_data, iterator.provide_label) == ([("data", (2, 1))], [("label", (2,))])
    assert iterator.batch_size == 2


def test_resized_and_going_on_in_the_inner_iterator():
    inner = Counting(3)
    inner.default_bucket_key = 7
    iterator = ResizeIter(inner, 2, reset_internal=False)
    found = []
    for _ in range(3):
        found += values(iterator)
        iterator.reset()
    assert found == [0, 1, 2, 0, 1, 2]
    assert iterator.default_bucket_key == 7


def test_nothing_cannot_be_repeated():
    with pytest.raises(ValueError, match="has no batch"):
        ResizeIter(Counting(0), 2).next()


def test_a_resized_iterator_has_the_parts_of_its_batch():
    iterator = ResizeIter(Counting(1, pad=1), 1)
    assert iterator.iter_next()
    assert (iterator.getdata()[0].tolist(), iterator.getlabel()[0].tolist()) == ([[0], [0]], [0, 0])
    assert (iterator.getpad(), iterator.getindex()) == (1, None)


# --- PrefetchingIter ---


@pytest.mark.usefixtures("leftovers")
def test_prefetched_batches_are_those_of_the_iterator():
    inner = Counting(4)
    iterator = PrefetchingIter(inner)
    for _ in range(2):
        assert values(iterator) == [0, 1, 2, 3]
        assert values(iterator) == []
        iterator.reset()
    assert inner.resets == 2
    assert (iterator.batch_size, iterator.n_iter) == (2, 1)
    assert iterator.iter_next()
    assert iterator.getdata()[0].tolist() == [[0], [0]]


def test_several_iterators_are_joined_under_new_names():
    iterator = PrefetchingIter(
        [Counting(2), NDArrayIter(np.arange(4), np.arange(4), 2)],
        rename_data=[{"data": "one"}, {"data": "two"}],
        rename_label=[{"label": "first"}, {}],
    )
    assert iterator.provide_data == [("one", (2, 1)), ("two", (2,))]
    assert iterator.provide_label == [("first", (2,)), ("softmax_label", (2,))]
    batches = list(iterator)
    assert [[array.tolist() for array in batch.data] for batch in batches] == [
        [[[0], [0]], [0, 1]],
        [[[1], [1]], [2, 3]],
    ]
    assert [len(batch.label) for batch in batches] == [2, 2]
    assert batches[0].provide_data == iterator.provide_data
    plain = PrefetchingIter([Counting(1), Counting(1)])
    assert [desc[0] for desc in plain.provide_data] == ["data", "data"]
    plain.reset()


@with_cases("other", [Counting(3), Counting(2, pad=1)], ids=["longer", "other pad"])
def test_iterators_that_do_not_fit_together(other):
    iterator = PrefetchingIter([Counting(2), other])
    with pytest.raises(AssertionError, match="Number of entry mismatches between iterators"):
        list(iterator)
    assert not iterator.iter_next()
    with pytest.raises(ValueError, match="at least one iterator"):
        PrefetchingIter([])
    with pytest.raises(ValueError, match="2 dicts of names"):
        PrefetchingIter([Counting(1), Counting(1)], rename_data=[{}])


@pytest.mark.usefixtures("leftovers")
def test_an_error_is_raised_at_its_batch_and_a_reset_begins_again():
    inner = Counting(4, fail_at=2)
    iterator = PrefetchingIter(inner)
    assert [int(iterator.next().data[0][0, 0]) for _ in range(2)] == [0, 1]
    with pytest.raises(OSError, match="batch 2 is damaged"):
        iterator.next()
    assert not iterator.iter_next()
    inner.fail_at = None
    iterator.reset()
    assert values(iterator) == [0, 1, 2, 3]


def test_the_next_batch_is_made_while_the_current_one_is_used():
    made = threading.Event()

    class Telling(Counting):
        def getdata(self):
            if self.at == 1:
                made.set()
            return super().getdata()

    iterator = PrefetchingIter(Telling(2))
    iterator.next()
    assert made.wait(10)  # it was not requested yet
    assert values(iterator) == [1]


# --- DataLoaderIter ---


class Loader:
    """Loader with the attributes that DataLoaderIter needs; counts its epochs."""

    def __init__(self, rows, size):
        self.rows, self.size, self.passes = rows, size, 0

    def __iter__(self):
        self.passes += 1
        for start in range(0, self.rows, self.size):
            labels = np.arange(start, min(start + self.size, self.rows))
            yield labels[:, None] * 2.0, labels


def test_a_loader_as_data_iter():
    loader = Loader(5, 2)
    iterator = mx.contrib.io.DataLoaderIter(loader, label_name="y")
    assert (iterator.provide_data, iterator.provide_label) == ([("data", (2, 1))], [("y", (2,))])
    for passes in (1, 2):
        found = [(b.data[0].ravel().tolist(), b.label[0].tolist(), b.pad) for b in iterator]
        assert found == [([0, 2], [0, 1], 0), ([4, 6], [2, 3], 0), ([8, 0], [4, 0], 1)]
        assert loader.passes == passes  # no unneeded epoch is started
        assert list(iterator) == []
        iterator.reset()
    assert iterator.next().data[0].dtype == np.float32
    assert iterator.batch_size == 2


class Damaged:
    """Dataset of numbers, some of which fail."""

    def __init__(self, *bad):
        self.bad = bad

    def __len__(self):
        return 7

    def __getitem__(self, index):
        if index in self.bad:
            raise ValueError(f"{index} is damaged")
        return np.float32([index]), index


def test_samples_that_are_left_out_are_counted_by_the_pad():
    # Two rows of the first batch are missing: its length is not the batch size.
    loader = mx.gluon.data.DataLoader(Damaged(0, 2, 5), 3, on_error="skip")
    iterator = mx.contrib.io.DataLoaderIter(loader)
    assert iterator.batch_size == 3
    assert (iterator.provide_data, iterator.provide_label) == ([("data", (3, 1))], [("softmax_label", (3,))])
    found = [(batch.label[0].asnumpy().tolist(), batch.pad) for batch in iterator]
    assert found == [([1, 0, 0], 2), ([3, 4, 0], 1), ([6, 0, 0], 2)]
    replaced = mx.contrib.io.DataLoaderIter(mx.gluon.data.DataLoader(Damaged(0, 2, 5), 3, on_error="replace"))
    found = [(batch.label[0].asnumpy().tolist(), batch.pad) for batch in replaced]
    assert found == [([1, 1, 1], 0), ([3, 4, 3], 0), ([6, 0, 0], 2)]


def test_a_loader_without_batches_has_no_shapes():
    with pytest.raises(ValueError, match="no batch"):
        mx.contrib.io.DataLoaderIter(Loader(0, 2))
