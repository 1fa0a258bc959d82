"""Tests of DataLoader: MXNet's arguments, order, batches and errors."""

import pickle
import random
import sys

import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.mxnet import gluon, nd
from tests.aioloader.mxnet.gluon.conftest import with_each_kind
from tests.cases import with_cases


class Indices(gluon.data.Dataset):
    def __init__(self, n=20):
        self.n = n

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return index


def numbers(loader):
    return [batch.asnumpy().tolist() for batch in loader]


@with_each_kind
def test_arrays_and_lists(options):
    X, Y = np.random.uniform(size=(10, 20)), np.random.uniform(size=(10,))
    for dataset in (gluon.data.ArrayDataset(nd.array(X, dtype="float64"), Y), list(zip(X, Y, strict=True))):
        with gluon.data.DataLoader(dataset, 2, **options) as loader:
            batches = list(loader)
        assert len(batches) == 5
        for place, batch in enumerate(batches):
            assert type(batch) is list
            x, y = batch
            assert isinstance(x, nd.NDArray)
            assert np.array_equal(x.asnumpy(), X[2 * place : 2 * place + 2])
            assert np.array_equal(y.asnumpy(), Y[2 * place : 2 * place + 2])
    with gluon.data.DataLoader(gluon.data.ArrayDataset(X), 2, **options) as loader:
        assert np.array_equal(np.concatenate(list(loader)), X)


def test_arrays_are_datasets_themselves():
    assert numbers(gluon.data.DataLoader(np.arange(6).reshape(3, 2), 2)) == [[[0, 1], [2, 3]], [[4, 5]]]
    assert numbers(gluon.data.DataLoader(nd.array([[1, 2], [3, 4]]), 2)) == [[[1, 2], [3, 4]]]
    # An element of a vector is an array of shape (1,).
    assert numbers(gluon.data.DataLoader(nd.array([1, 2, 3]), 2)) == [[[1], [2]], [[3]]]


@with_each_kind
def test_order_is_the_samplers(options):
    with gluon.data.DataLoader(Indices(50), 1, **options) as loader:
        assert numbers(loader) == [[index] for index in range(50)]
    with gluon.data.DataLoader(Indices(), 3, sampler=gluon.data.IntervalSampler(7, 3), **options) as loader:
        assert numbers(loader) == [[0, 3, 6], [1, 4, 2], [5]]
    with gluon.data.DataLoader(Indices(), batch_sampler=[[4, 2], [0]], **options) as loader:
        assert numbers(loader) == [[4, 2], [0]]
        assert numbers(loader) == [[4, 2], [0]]


@with_each_kind
@with_cases("dataset", [np.arange(10), Indices(10)], ids=["array", "items"])
def test_numpys_seed_gives_mxnets_order(options, dataset):
    with gluon.data.DataLoader(dataset, 4, shuffle=True, **options) as loader:
        np.random.seed(0)
        # Results of MXNet 1.9.1.
        assert numbers(loader) == [[2, 8, 4, 9], [1, 6, 7, 3], [0, 5]]
        assert numbers(loader) == [[3, 5, 1, 2], [9, 8, 0, 6], [7, 4]]


@with_each_kind
def test_rollover_goes_on_with_what_was_left(options):
    with gluon.data.DataLoader(Indices(7), 3, last_batch="rollover", **options) as loader:
        lengths, passes = [], []
        for _ in range(3):
            lengths.append(len(loader))
            passes.append(numbers(loader))
        assert lengths == [2, 2, 3]
        assert passes == [
            [[0, 1, 2], [3, 4, 5]],
            [[6, 0, 1], [2, 3, 4]],
            [[5, 6, 0], [1, 2, 3], [4, 5, 6]],
        ]


@with_cases(
    ("options", "text"),
    [
        ({}, "batch_size must be specified unless batch_sampler is specified"),
        (
            {"batch_size": 2, "shuffle": True, "sampler": gluon.data.SequentialSampler(4)},
            "shuffle must not be specified if sampler is specified",
        ),
        *(
            (
                {"batch_sampler": [[0]], **other},
                "sampler and last_batch must not be specified if batch_sampler",
            )
            for other in (
                *({"batch_size": 2}, {"shuffle": True}, {"last_batch": "keep"}),
                {"sampler": gluon.data.SequentialSampler(4)},
            )
        ),
        ({"batch_size": 2, "last_batch": "zz"}, "one of 'keep', 'discard', or 'rollover', but got zz"),
        ({"batch_size": 2, "try_nopython": "maybe"}, "try_nopython must be"),
    ],
)
def test_arguments_that_do_not_go_together(options, text):
    with pytest.raises(ValueError, match=text):
        gluon.data.DataLoader(Indices(), **options)


def test_the_timeout_is_looked_at_first():
    with pytest.raises(AssertionError, match="timeout must be positive, given 0"):
        gluon.data.DataLoader(Indices(), timeout=0)


@with_cases("value", [None, True, False, "Auto"])
def test_every_argument_of_both_releases_is_taken(value):
    loader = gluon.data.DataLoader(
        Indices(6), 4, False, None, "keep", None, None, 1, True, 0, 0, True, 60, try_nopython=value
    )
    assert numbers(loader) == [[0, 1, 2, 3], [4, 5]]
    loader.close()
    assert numbers(gluon.data.DataLoader(Indices(3), 2, num_workers=-3, prefetch=-2)) == [[0, 1], [2]]


@with_each_kind
def test_iterators_have_next_and_keep_their_loader(options):
    iterator = iter(gluon.data.DataLoader(Indices(5), 2, **options))
    assert iterator.next().asnumpy().tolist() == [0, 1]
    assert numbers(iterator) == [[2, 3], [4]]
    with pytest.raises(StopIteration):
        iterator.next()
    del iterator


@with_each_kind
def test_several_passes_at_once(options):
    with gluon.data.DataLoader(Indices(6), 2, **options) as loader:
        first, second = iter(loader), iter(loader)
        assert [next(each).asnumpy().tolist() for each in (second, first, second)] == [[0, 1], [0, 1], [2, 3]]
        assert len(first) == 3
        assert numbers(first) == [[2, 3], [4, 5]]


class Noisy(gluon.data.Dataset):
    """Dataset that draws from numpy's and Python's generators."""

    def __len__(self):
        return 6

    def __getitem__(self, index):
        return np.random.rand(), random.random()


def test_without_workers_the_global_generators_are_drawn_from_in_order():
    loader = gluon.data.DataLoader(Noisy(), 3)
    np.random.seed(1)
    random.seed(1)
    made = list(loader)
    np.random.seed(1)
    random.seed(1)
    expected = [(np.random.rand(), random.random()) for _ in range(6)]
    assert np.concatenate([batch[0] for batch in made]).tolist() == [pair[0] for pair in expected]
    assert np.concatenate([batch[1] for batch in made]).tolist() == [pair[1] for pair in expected]


def drawn(seed, options, passes=2):
    mx.random.seed(seed)
    with gluon.data.DataLoader(Noisy(), 4, **options) as loader:
        return [np.concatenate([batch[0].asnumpy() for batch in loader]).tolist() for _ in range(passes)]


def test_workers_draw_by_mx_random_seed():
    one, two = {"num_workers": 1}, {"num_workers": 2}
    made = drawn(7, two)
    assert drawn(7, one) == made
    assert drawn(8, two) != made
    # Neither workers nor epochs repeat each other's numbers.
    assert len(set(sum(made, []))) == 12


@with_each_kind
def test_transforms_draw_by_mx_random_seed(options):
    images = np.random.default_rng(2).integers(0, 256, (12, 8, 8, 3)).astype(np.uint8)
    transform = gluon.data.vision.transforms.RandomResizedCrop(6)
    loader = gluon.data.DataLoader(gluon.data.SimpleDataset(images).transform(transform), 5, **options)
    runs = []
    for seed in (3, 3, 4):
        mx.random.seed(seed)  # also of a loader that was constructed before
        runs.append([np.concatenate([batch.asnumpy() for batch in loader]).tobytes() for _ in range(2)])
    assert runs[0] == runs[1]
    assert len({*runs[0], *runs[2]}) == 4
    mx.random.seed(3)
    other = gluon.data.DataLoader(gluon.data.SimpleDataset(images).transform(transform), 12)
    assert next(iter(other)).asnumpy().tobytes() == runs[0][0]
    loader.close()


class Asked(gluon.data.Dataset):
    def __init__(self, seen):
        self.seen = seen

    def __len__(self):
        return 4

    def __getitem__(self, index):
        self.seen.put(index)
        return index


def test_auto_reload_begins_before_it_is_asked(leftovers):
    import queue

    seen = queue.SimpleQueue()
    loader = gluon.data.DataLoader(Asked(seen), 2, num_workers=1, thread_pool=True, auto_reload=True)
    assert [seen.get(timeout=30) for _ in range(4)] == [0, 1, 2, 3]
    assert numbers(loader) == [[0, 1], [2, 3]]
    assert [seen.get(timeout=30) for _ in range(4)] == [0, 1, 2, 3]
    assert numbers(loader) == [[0, 1], [2, 3]]
    del loader


@with_each_kind
@with_cases("shape", [(0,), (2, 0), (3, 2)])
def test_shapes_are_kept(shape, options):
    dataset = gluon.data.SimpleDataset([nd.ones(shape) for _ in range(5)])
    with gluon.data.DataLoader(dataset, 2, **options) as loader:
        assert [batch.shape for batch in loader] == [(2, *shape), (2, *shape), (1, *shape)]


def test_dtypes_are_numpys():
    samples = [(1, 1.5, np.float32(2), np.uint8([3]), True)] * 3
    (batch,) = gluon.data.DataLoader(samples, 3)
    assert [each.dtype for each in batch] == [np.int64, np.float64, np.float32, np.uint8, np.bool_]


def test_a_low_limit_of_recursion_is_enough(label_rec):
    dataset = gluon.data.vision.ImageRecordDataset(label_rec)
    depth, frame = 0, sys._getframe()
    while frame is not None:
        depth, frame = depth + 1, frame.f_back
    limit = sys.getrecursionlimit()
    sys.setrecursionlimit(depth + 300)
    try:
        with gluon.data.DataLoader(dataset, 1, num_workers=2) as loader:
            assert [y.asscalar() for _, y in loader] == list(range(20))
    finally:
        sys.setrecursionlimit(limit)


def test_kept_batches_stay_as_they_are():
    X = np.arange(400).reshape(100, 4)
    kept = list(gluon.data.DataLoader(gluon.data.ArrayDataset(X), 10))
    assert np.array_equal(np.concatenate(kept), X)
    assert pickle.loads(pickle.dumps(kept[3])).asnumpy().tolist() == X[30:40].tolist()


def test_pinned_memory_is_a_name():
    X = np.random.uniform(size=(10, 20))
    dataset = gluon.data.ArrayDataset(X, X)
    own = gluon.data.batchify.Group(*[gluon.data.batchify.Pad()] * 2)
    for options, context in (
        ({}, mx.cpu(0)),
        ({"pin_memory": True, "pin_device_id": 1}, mx.cpu_pinned(1)),
        ({"pin_memory": True, "batchify_fn": own}, mx.cpu_pinned()),
    ):
        for batch in gluon.data.DataLoader(dataset, 8, **options):
            assert [each.context for each in batch] == [context, context]
