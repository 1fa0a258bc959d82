"""Tests of datasets and their operations: MXNet's samples, lazily and at once, alone and in loaders."""

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.datasets.resolve import resolve
from aioloader.mxnet import gluon, nd, recordio
from tests.cases import with_cases


class Counted(gluon.data.Dataset):
    """Dataset whose item i is i, or with `label` (i, -i)."""

    def __init__(self, n, label=False):
        self.n = n
        self.label = label

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if index >= self.n:
            raise IndexError(index)
        return (index, -index) if self.label else index


def test_the_base_defines_nothing():
    base = gluon.data.Dataset()
    for call in (lambda: base[0], lambda: len(base)):
        with pytest.raises(NotImplementedError):
            call()


def test_array_datasets_give_rows_of_their_arrays():
    X, Y = np.random.rand(10, 20), np.random.rand(10)
    image, label = gluon.data.ArrayDataset(X, Y)[3]
    assert type(image) is np.ndarray
    assert np.array_equal(image, X[3])
    assert label == Y[3]
    assert np.array_equal(gluon.data.ArrayDataset(X)[4], X[4])
    image, label = gluon.data.ArrayDataset(nd.array(X), nd.array(Y))[3]
    assert isinstance(image, nd.NDArray)
    assert np.allclose(image.asnumpy(), X[3])
    # Items of vectors are numbers, so that labels can be compared and looked up.
    assert np.ndim(label) == 0
    assert isinstance(label, np.float32)


def test_array_datasets_refuse_what_does_not_fit():
    with pytest.raises(AssertionError, match="Needs at least 1 arrays"):
        gluon.data.ArrayDataset()
    text = r"All arrays must have the same length; array\[0\] has length 3 while array\[2\] has 4."
    with pytest.raises(AssertionError, match=text):
        gluon.data.ArrayDataset([1, 2, 3], [1, 2, 3, 4])


@with_cases("lazy", [True, False])
def test_transform(lazy):
    seen = []
    dataset = gluon.data.SimpleDataset([0, 1]).transform(seen.append, lazy)
    assert seen == ([] if lazy else [0, 1])
    _ = dataset[1]
    assert seen == ([1] if lazy else [0, 1])
    assert list(Counted(4).transform(lambda x: x + 1, lazy)) == [1, 2, 3, 4]
    assert list(Counted(2, label=True).transform(lambda x, y: (x, y - 1), lazy)) == [(0, -1), (1, -2)]
    assert list(Counted(3, label=True).transform_first(lambda x: x * 2, lazy)) == [(0, 0), (2, -1), (4, -2)]
    assert list(Counted(3).transform_first(lambda x: x * 2, lazy)) == [0, 2, 4]
    listed = gluon.data.SimpleDataset([[1, 2], [3, 4]])
    assert list(listed.transform(sum, lazy)) == [3, 7]
    assert isinstance(listed.transform(sum, lazy), gluon.data.Dataset)


def noisy(x, y=0, rng=None):
    assert rng is None
    return x


def test_a_parameter_of_any_name_keeps_its_default():
    for dataset in (Counted(6).transform(noisy), Counted(6, label=True).transform_first(noisy)):
        assert len(list(gluon.data.DataLoader(dataset, 3))) == 2
    assert list(Counted(3, label=True).transform(noisy)) == [0, 1, 2]


def test_views_are_sent_to_workers():
    tripled = Counted(60).filter(lambda x: x % 2).transform(lambda x: 3 * x).filter(lambda x: x % 5 == 0)
    with gluon.data.DataLoader(tripled, 7, num_workers=2) as loader:
        found = np.concatenate([batch.asnumpy() for batch in loader]).tolist()
    assert found == [3 * x for x in range(1, 60, 2) if x % 5 == 0]


def test_parts_that_there_are_not():
    for wrong, text in (
        ((3, 3), "Shard index of out bound: 3 out of 3"),
        ((0, -1), "Number of shards must be greater than 0"),
        ((3, -1), "Index must be non-negative"),
    ):
        with pytest.raises(AssertionError, match=text):
            Counted(10).shard(*wrong)


def test_take_and_sample():
    assert len(Counted(10).take(None)) == len(Counted(10).take(1000)) == 10
    sampler = gluon.data.RandomSampler(10)
    chosen = Counted(10).sample(sampler)
    assert list(chosen) == list(chosen)
    assert sorted(chosen) == list(range(10))
    assert list(Counted(10).sample(gluon.data.IntervalSampler(10, 5, rollover=False))) == [0, 5]
    with pytest.raises(TypeError, match=r"Invalid sampler type: <class 'list'>. Expected gluon.data.Sampler"):
        Counted(10).sample([1, 2])


@with_cases(
    "dataset",
    [
        gluon.data.ArrayDataset(np.arange(12).reshape(6, 2), np.arange(6)),
        gluon.data.ArrayDataset(nd.array(np.arange(12).reshape(6, 2)), nd.array(np.arange(6))),
        gluon.data.ArrayDataset(nd.array(np.arange(12).reshape(6, 2)), list(range(6))).shard(2, 1).take(2),
    ],
    ids=["numpy", "nd", "views"],
)
def test_arrays_are_gathered_by_loaders(dataset):
    assert resolve(dataset).base_kind == "gather"
    assert not resolve(dataset).stages
    images, labels = next(iter(gluon.data.DataLoader(dataset, 2)))
    for place in range(2):
        image, label = dataset[place]
        assert np.array_equal(images[place].asnumpy(), np.asarray(image))
        assert labels[place].asscalar() == label
        assert images.dtype == image.dtype


def test_records_are_items_in_the_order_of_the_index(tmp_path):
    rec = str(tmp_path / "a.rec")
    writer = recordio.MXIndexedRecordIO(str(tmp_path / "a.idx"), rec, "w")
    for key in (5, 3, 9):
        writer.write_idx(key, b"record %d" % key)
    writer.close()
    dataset = gluon.data.RecordFileDataset(rec)
    assert [dataset[index] for index in (0, 1, 2, -1)] == [b"record 5", b"record 3", b"record 9", b"record 9"]
    assert list(dataset.transform(lambda record: record[-1:])) == [b"5", b"3", b"9"]
    with pytest.raises(IndexError):
        dataset[3]


def part(items, number, index):
    share, longer = divmod(len(items), number)
    start = index * share + min(index, longer)
    return items[start : start + share + (index < longer)]


# An operation on a dataset, and the same on a list.
OPERATIONS = st.one_of(
    st.integers(0, 30).map(lambda n: (lambda data: data.take(n), lambda items: items[:n])),
    st.tuples(st.integers(1, 5), st.integers(0, 4)).map(
        lambda pair: (
            lambda data: data.shard(pair[0], pair[1] % pair[0]),
            lambda items: part(items, pair[0], pair[1] % pair[0]),
        )
    ),
    st.integers(1, 4).map(
        lambda n: (lambda data: data.filter(lambda x: x % n), lambda items: [x for x in items if x % n])
    ),
    st.integers(-3, 3).map(
        lambda n: (lambda data: data.transform(lambda x: x + n), lambda items: [x + n for x in items])
    ),
    st.just(
        (
            lambda data: data.sample(gluon.data.SequentialSampler(len(data))),
            lambda items: items,
        )
    ),
)


@given(st.integers(0, 40), st.lists(OPERATIONS, max_size=5), st.integers(1, 7))
def test_any_chain_of_views_is_what_lists_would_be(length, chain, size):
    dataset, items = gluon.data.SimpleDataset(list(range(length))), list(range(length))
    for on_dataset, on_list in chain:
        dataset, items = on_dataset(dataset), on_list(items)
    assert isinstance(dataset, gluon.data.Dataset)
    assert len(dataset) == len(items)
    assert [dataset[index] for index in range(len(dataset))] == items
    if items:
        batches = [batch.asnumpy().tolist() for batch in gluon.data.DataLoader(dataset, size)]
        assert batches == [items[start : start + size] for start in range(0, len(items), size)]
