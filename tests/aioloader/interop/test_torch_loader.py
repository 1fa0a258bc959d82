"""Torch's DataLoader and ours, side by side: the same arguments, the same batches, the same errors."""

import collections
import copy
import dataclasses
import enum
import gc
import json
import os
import pickle
import random
import signal
import threading
import types

import numpy as np
import psutil
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aioloader
from tests.aioloader.loader.samples import Numbers

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # on a machine with few cores
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork"),
]
Point = collections.namedtuple("Point", "x y")


@pytest.fixture(scope="module")
def torch():
    return pytest.importorskip("torch")


@pytest.fixture(scope="module")
def ours(torch):
    from aioloader.interop.torch import DataLoader

    return DataLoader


class Colour(enum.IntEnum):
    RED = 3


class Table(dict):
    """A mapping of the caller's own."""


@dataclasses.dataclass
class Record:
    x: object


class Samples:
    """Any samples."""

    def __init__(self, samples):
        self.samples = samples

    def __len__(self):
        return len(self.samples)

    def __getitem__(self, index):
        return copy.deepcopy(self.samples[index])


def same(torch, first, second):
    """Whether two batches are the same, types and dtypes included."""
    if isinstance(first, (list, tuple)) and not isinstance(first, str):
        return (
            type(first) is type(second)
            and len(first) == len(second)
            and all(same(torch, *pair) for pair in zip(first, second, strict=True))
        )
    if isinstance(first, dict):
        return (
            type(first) is type(second)
            and list(first) == list(second)
            and all(same(torch, first[key], second[key]) for key in first)
        )
    if isinstance(first, torch.Tensor):
        if first.layout != torch.strided:
            return first.layout == second.layout and torch.equal(first.to_dense(), second.to_dense())
        return (
            type(first) is type(second)
            and first.dtype == second.dtype
            and first.shape == second.shape
            and torch.equal(torch.nan_to_num(first), torch.nan_to_num(second))
        )
    if isinstance(first, np.ndarray):
        return type(first) is type(second) and first.dtype == second.dtype and np.array_equal(first, second)
    if dataclasses.is_dataclass(first):
        return type(first) is type(second) and same(torch, vars(first), vars(second))
    return type(first) is type(second) and (first == second or first != first)


def outcome(make, dataset, **options):
    """The batches of two passes, or the type and text of the error."""
    loader = make(dataset, **options)
    try:
        return [list(loader), list(loader)]
    except Exception as error:
        return type(error), str(error).partition("\n")[0]
    finally:
        if hasattr(loader, "close"):
            loader.close()


def check(torch, ours, dataset, **options):
    expected = outcome(torch.utils.data.DataLoader, dataset, **options)
    got = outcome(ours, dataset, **options)
    assert same(torch, expected, got), f"{expected}\n{got}"
    return got


# --- collating ---


def column_samples(torch):
    """Columns of samples: what default_collate makes of each is the question."""
    flat = torch.arange(6.0)
    return {
        "integers": [1, 2, 3],
        "floats": [1.5, 2.5, float("nan")],
        "booleans": [True, False, True],
        "integers, then floats": [1, 2.5, 3],
        "floats, then integers": [1.5, 2, 3],
        "booleans and integers": [True, 2, 3],
        "integers and booleans": [2, True, False],
        "large integers": [2**62, -(2**63), 0],
        "too large integers": [2**63, 1, 2],
        "texts": ["a", "bc", ""],
        "bytes": [b"a", b"b\0", b""],
        "nothing": [None, None, None],
        "nothing at the end": [1, 2, None],
        "enums": [Colour.RED, Colour.RED, Colour.RED],
        "complex": [1j, 2j, 3j],
        "tensors": [flat, flat + 1, flat * 2],
        "scalar tensors": [torch.tensor(1), torch.tensor(2), torch.tensor(3)],
        "tensors and floats": [torch.tensor(1.0), 2.0, 3.0],
        "floats and tensors": [1.0, torch.tensor(2.0), torch.tensor(3.0)],
        "tensors of two dtypes": [flat, flat.double(), flat],
        "tensors of two shapes": [flat, flat[:3], flat],
        "empty tensors": [torch.empty(0, 3)] * 3,
        "views": [flat.view(2, 3).t(), flat.view(2, 3).t() + 1, flat.view(2, 3).t()],
        **{
            f"tensors of {dtype}": [torch.ones(2, 2, dtype=dtype)] * 3
            for dtype in (
                torch.uint8,
                torch.int16,
                torch.bool,
                torch.float16,
                torch.bfloat16,
                torch.complex64,
            )
        },
        "sparse tensors": [flat.to_sparse()] * 3,
        "tensors with a gradient": [flat.clone().requires_grad_()] * 3,
        "arrays": [np.arange(4, dtype=np.float32) + number for number in range(3)],
        "arrays without axes": [np.array(1.0), np.array(2.0), np.array(3.0)],
        "arrays of two shapes": [np.zeros(2), np.zeros(3), np.zeros(2)],
        "arrays of two dtypes": [np.zeros(2), np.zeros(2, np.float32), np.zeros(2)],
        "arrays and tensors": [np.zeros(2), torch.zeros(2), np.zeros(2)],
        "arrays of texts": [np.array(["a"])] * 3,
        "arrays of objects": [np.array([None])] * 3,
        **{
            f"numpy's scalars of {dtype}": [np.dtype(dtype).type(1)] * 3
            for dtype in ("i1", "u1", "i2", "u2", "i4", "u4", "i8", "u8", "f2", "f4", "f8", "c8", "c16", "?")
        },
        **{
            f"arrays of {dtype}": [np.ones((2, 2), dtype)] * 3
            for dtype in ("u2", "u4", "f2", "c8", "?", "g", "M8[s]")
        },
        "numpy's texts": [np.str_("a"), np.str_("b"), np.str_("c")],
        "numpy's scalars and numbers": [np.float32(1), 2.5, 3],
        "numbers and numpy's scalars": [1, np.int32(2), np.int64(3)],
        "tuples": [(1, 2.5, "a"), (2, 3.5, "b"), (3, 4.5, "c")],
        "lists": [[1, 2.5, "a"], [2, 3.5, "b"], [3, 4.5, "c"]],
        "tuples of two lengths": [(1, 2), (1, 2, 3), (1, 2)],
        "empty tuples": [(), (), ()],
        "named tuples": [Point(1, "a"), Point(2, "b"), Point(3, "c")],
        "dicts": [{"x": 1, "name": "a"}, {"x": 2, "name": "b"}, {"x": 3, "name": "c"}],
        "dicts in another order": [{"x": 1, "y": 2}, {"y": 1, "x": 2}, {"x": 3, "y": 4}],
        "dicts with more keys": [{"x": 1}, {"x": 2, "y": 3}, {"x": 4}],
        "dicts with fewer keys": [{"x": 1, "y": 2}, {"x": 2}, {"x": 4, "y": 2}],
        "empty dicts": [{}, {}, {}],
        "ordered dicts": [collections.OrderedDict(b=1, a=2)] * 3,
        "dicts of the caller's own": [Table(x=1), Table(x=2), Table(x=3)],
        "dataclasses": [Record(1), Record(2), Record(3)],
        "deep": [{"a": (n, [flat + n, {"b": Point("t", n)}]), "c": [["u", (n,)]]} for n in range(3)],
        "tuples and lists": [(1, 2), [3, 4], (5, 6)],
        "ranges": [range(3), range(3), range(3)],
        "sets": [{1}, {2}, {3}],
    }


def test_every_column_is_collated_as_torch_does(torch, ours):
    for name, samples in column_samples(torch).items():
        dataset = Samples(samples)
        try:
            check(torch, ours, dataset, batch_size=2)
            check(torch, ours, dataset, batch_size=3)
            check(torch, ours, dataset, batch_size=None)
        except AssertionError as error:
            raise AssertionError(name) from error


@pytest.mark.slow
def test_every_column_is_collated_as_torch_does_in_worker_processes(torch, ours):
    # All columns in one dataset, so that there is one pair of workers: those that fail are tested inline.
    columns = {}
    for name, samples in column_samples(torch).items():
        made = outcome(torch.utils.data.DataLoader, Samples(samples), batch_size=3)
        if isinstance(made, list) and "gradient" not in name:
            columns[name] = samples
    rows = [dict(zip(columns, row, strict=True)) for row in zip(*columns.values(), strict=True)]
    for batch_size in (2, 3, None):
        check(torch, ours, Samples(rows), batch_size=batch_size, num_workers=2)
    check(
        torch, ours, Samples(rows), batch_size=2, num_workers=2, collate_fn=torch.utils.data.default_collate
    )
    check(torch, ours, Samples([*columns.values()]), batch_size=2, num_workers=2, collate_fn=list)


leaves = st.one_of(
    st.integers(-(2**40), 2**40),
    st.floats(allow_nan=False),
    st.booleans(),
    st.text(max_size=2),
    st.just("tensor"),
)
trees = st.recursive(
    leaves,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3),
        st.tuples(inner, inner),
        st.builds(Point, inner, inner),
        st.dictionaries(st.sampled_from("abc"), inner, min_size=1, max_size=2),
    ),
    max_leaves=5,
)


@settings(max_examples=60)
@given(structure=trees, kinds=st.lists(trees, max_size=2), batch_size=st.integers(1, 4))
def test_any_samples_are_collated_as_torch_does(torch, ours, structure, kinds, batch_size):
    def made(tree, number):
        if tree == "tensor":
            return torch.full((2,), number)
        if isinstance(tree, dict):
            return {key: made(each, number) for key, each in tree.items()}
        if isinstance(tree, tuple) and hasattr(tree, "_fields"):
            return type(tree)(*[made(each, number) for each in tree])
        return type(tree)(made(each, number) for each in tree) if isinstance(tree, (list, tuple)) else tree

    samples = [made(structure, number) for number in range(4)] + [made(tree, 9) for tree in kinds]
    check(torch, ours, Samples(samples), batch_size=batch_size)


def collate_objects(samples):
    """What only the caller's own function can do."""
    import torch

    images = torch.stack([image for image, _ in samples])
    numbers = np.array([number for _, number in samples])
    return {
        "images": images,
        "again": images,
        "numbers": numbers,
        "record": Record(images.sum()),
        "table": Table(a=numbers.T, b=images.mT),
        "namespace": types.SimpleNamespace(half=images.bfloat16()).half,
        "empty": torch.empty(0),
        "kinds": (Point(1, "x"), frozenset([1]), None, torch.float16),
        "nested": torch.utils.data.default_collate(samples),
    }


@pytest.mark.parametrize("workers", [0, 2])
def test_a_collate_function_gives_what_it_gives(torch, ours, workers):
    dataset = Samples([(torch.full((3, 2), float(number)), number) for number in range(10)])
    (first, *_), _ = check(
        torch, ours, dataset, batch_size=4, num_workers=workers, collate_fn=collate_objects
    )
    assert first["again"] is first["images"]
    first["images"] += 1  # it may be written to
    check(torch, ours, dataset, batch_size=4, num_workers=workers, collate_fn=lambda samples: None)
    check(torch, ours, dataset, batch_size=None, num_workers=workers, collate_fn=lambda sample: [sample[1]])


def test_batches_that_are_kept_do_not_change(torch, ours):
    dataset = Samples([(torch.full((64, 64), float(number)), number) for number in range(40)])
    for options in ({}, {"collate_fn": torch.utils.data.default_collate}, {"collate_fn": collate_objects}):
        loader = ours(dataset, 4, num_workers=2, **options)
        kept = list(loader)
        for _ in range(3):
            for _ in loader:
                pass
        loader.close()
        images = [batch["images"] if isinstance(batch, dict) else batch[0] for batch in kept]
        assert [each[:, 0, 0].tolist() for each in images] == [
            list(map(float, range(start, start + 4))) for start in range(0, 40, 4)
        ]


# --- order ---


@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("persistent", [False, True])
def test_the_order_is_torchs_and_so_are_its_draws(torch, ours, workers, persistent):
    if persistent and not workers:
        pytest.skip("torch refuses it")
    dataset = Samples(list(range(101)))
    runs = []
    for make in (torch.utils.data.DataLoader, ours):
        torch.manual_seed(5)
        loader = make(dataset, 8, shuffle=True, num_workers=workers, persistent_workers=persistent)
        run = []
        for _ in range(3):
            for batch in loader:
                run.append(batch.tolist())
            run.append(torch.rand(2).tolist())  # what the script draws next
        runs.append(run)
        del loader
        gc.collect()
    assert runs[0] == runs[1]
    assert sorted(sum(runs[1][:13], [])) == list(range(101))


def samplers(torch):
    data = torch.utils.data
    dataset = Samples(list(range(23)))

    def generator():
        return torch.Generator().manual_seed(3)

    class OfTensors:
        def __iter__(self):
            return iter(torch.arange(23).flip(0))

        def __len__(self):
            return 23

    return dataset, {
        "a generator": lambda: {"shuffle": True, "generator": generator(), "batch_size": 4},
        "drop_last": lambda: {"shuffle": True, "generator": generator(), "batch_size": 4, "drop_last": True},
        "a sampler": lambda: {"sampler": [3, 1, 1, 22, -1], "batch_size": 2},
        "tensors": lambda: {"sampler": OfTensors(), "batch_size": 5},
        "a batch sampler": lambda: {"batch_sampler": [[1, 2], [22], [4, 4, 4]]},
        "weights": lambda: {
            "sampler": data.WeightedRandomSampler(np.arange(23), 40, generator=generator()),
            "batch_size": 7,
        },
        "a subset": lambda: {"sampler": data.SubsetRandomSampler([1, 5, 9], generator=generator())},
        "ranks": lambda: {
            "sampler": data.DistributedSampler(dataset, num_replicas=3, rank=1, seed=4),
            "batch_size": 3,
        },
        "no batches": lambda: {"sampler": [3, 1], "batch_size": None},
    }


@pytest.mark.parametrize("workers", [0, 1])
def test_samplers_of_torch(torch, ours, workers):
    dataset, all_options = samplers(torch)
    if workers:  # each starts processes
        all_options = {name: all_options[name] for name in ("a generator", "weights", "no batches")}
    for make_options in all_options.values():
        expected = outcome(torch.utils.data.DataLoader, dataset, num_workers=workers, **make_options())
        got = outcome(ours, dataset, num_workers=workers, **make_options())
        assert isinstance(got, list)
        assert same(torch, expected, got)


def test_a_sampler_without_an_end(torch, ours):
    class Endless:
        def __iter__(self):
            number = 0
            while True:
                yield number % 10
                number += 1

    for workers in (0, 1):
        loader = ours(Samples(list(range(10))), 4, sampler=Endless(), num_workers=workers)
        passing = iter(loader)
        assert [next(passing).tolist() for _ in range(3)] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 0, 1]]
        loader.close()


def test_a_batch_without_indices_is_refused(ours):
    with pytest.raises(ValueError, match="a batch without indices"):
        list(ours(Samples([1, 2]), batch_sampler=[[1], []]))


def test_indices_that_are_no_numbers_are_refused(ours):
    with pytest.raises(TypeError, match="indices are whole numbers"):
        list(ours(Samples([1, 2]), sampler=["a", "b"]))


# --- datasets ---


def test_tensor_datasets_and_subsets(torch, ours):
    data = torch.utils.data
    x, y = torch.arange(60.0).view(20, 3), torch.arange(20)
    sets = [
        data.TensorDataset(x, y),
        data.TensorDataset(x),
        data.Subset(data.TensorDataset(x, y), [3, 1, 1, 19]),
        data.Subset(data.TensorDataset(x, y), torch.tensor([3, 1])),
        data.Subset(data.TensorDataset(x, y), [-1, 2]),
        data.Subset(data.TensorDataset(x.bfloat16()), [5]),
        data.ConcatDataset([data.TensorDataset(x, y), data.TensorDataset(x, y)]),
        [(1, "a"), (2, "b")],
        np.arange(10),
        torch.arange(10),
    ]
    for dataset in sets:
        check(torch, ours, dataset, batch_size=4)
        check(torch, ours, dataset, batch_size=4, collate_fn=tuple)
        check(torch, ours, dataset, batch_size=None)
    x += 100  # the dataset's own memory, which it is still
    check(torch, ours, sets[0], batch_size=4)


@pytest.mark.parametrize("workers", [0, 2])
def test_datasets_of_this_project(torch, ours, photo_rec, workers):
    plain = aioloader.ImageRecordDataset(photo_rec).transform_first(aioloader.transforms.CenterCrop(48))
    for dataset in (
        plain,
        torch.utils.data.Subset(plain, [3, 1]),
        aioloader.ArrayDataset(np.arange(9), np.ones((9, 2))),
    ):
        check(torch, ours, dataset, batch_size=4, num_workers=workers)
    check(torch, ours, plain, batch_size=4, num_workers=workers, collate_fn=tuple)
    check(torch, ours, aioloader.RecordFileDataset(photo_rec), batch_size=4, num_workers=workers)


class Together(Samples):
    """Gives the samples of a batch together."""

    def __getitem__(self, index):
        raise AssertionError("asked for one alone")

    def __getitems__(self, indices):
        if 11 in indices:
            raise Own(11, more="m")
        return [{"x": self.samples[index], "of": len(indices)} for index in indices]


@pytest.mark.parametrize("workers", [0, 1])
def test_datasets_that_read_a_batch_together(torch, ours, workers):
    options = {"num_workers": workers, "batch_size": 4}
    dataset = Together([float(number) for number in range(10)])
    check(torch, ours, dataset, sampler=[9, 0, 3, 3, 1], **options)
    loader = ours(Together(list(range(20))), collate_fn=list, **options)
    with pytest.raises(Own, match="11"):
        list(loader)
    loader.close()
    if workers == 0:
        data = torch.utils.data
        check(torch, ours, data.Subset(dataset, [3, 9]), collate_fn=tuple, **options)
        check(torch, ours, data.StackDataset(a=dataset, b=Samples([*"abcdefghij"])), **options)
        for plain in (data.Subset(Samples([1, 2]), [1]), data.StackDataset(Samples([1, 2]), Samples([3, 4]))):
            check(torch, ours, plain, **options)


class Stream:
    """What an IterableDataset of torch gives: each worker its part."""

    def __iter__(self):
        import torch

        info = torch.utils.data.get_worker_info()
        first, step = (0, 1) if info is None else (info.id, info.num_workers)
        return iter(range(first, 11, step))


def test_an_iterable_dataset_is_loaded_as_torch_does(torch, ours):
    dataset = type("StreamDataset", (Stream, torch.utils.data.IterableDataset), {})()
    for workers in (0, 2):
        check(torch, ours, dataset, batch_size=2, num_workers=workers, drop_last=True)
    check(torch, ours, torch.utils.data.ChainDataset([dataset, dataset]), batch_size=3)
    check(torch, ours, dataset, batch_size=None, collate_fn=str)
    loader = ours(dataset, 2, num_workers=1, persistent_workers=True)
    assert len(list(loader)) == len(list(loader)) == 6
    loader.close()
    assert loader._iterator is None  # which had the workers
    for ask in (loader.stats, loader.explain):
        with pytest.raises(TypeError, match="StreamDataset is an IterableDataset: torch's own engine"):
            ask()


def test_streams_of_this_project_have_a_loader_of_their_own(ours):
    async def numbers():
        yield 1

    with pytest.raises(TypeError, match=r"aioloader\.DataLoader\(dataset, batch_size, output='torch'\)"):
        ours(aioloader.IterableDataset(numbers))


def test_loaders_can_be_pickled_and_copied(ours):
    loader = ours(Samples(list(range(10))), 4)
    expected = [batch.tolist() for batch in loader]
    for make in (lambda each: pickle.loads(pickle.dumps(each)), copy.copy, copy.deepcopy):
        made = make(loader)
        assert made._engine is None
        assert [batch.tolist() for batch in made] == expected
    assert [batch.tolist() for batch in loader] == expected


def test_the_profiler_of_torch_tells_the_time_of_loading(torch, ours):
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        list(ours(Samples([1, 2]), 1))
    names = [event.key for event in profile.key_averages()]
    assert "enumerate(DataLoader)#aioloader.__next__" in names


def test_what_cannot_be_sent_is_said(torch, ours):
    dataset = Samples([1, 2])
    dataset.lock = threading.Lock()
    with pytest.raises(aioloader.LoaderError, match="cannot be sent to worker processes") as caught:
        list(ours(dataset, num_workers=1))
    assert "set num_workers=0" in caught.value.__notes__[-1]


def test_a_dataset_that_was_changed_is_sent_again(torch, ours):
    dataset = Samples([0, 1, 2, 3])
    for persistent in (False, True):
        dataset.samples[0] = 0
        loader = ours(dataset, 4, num_workers=1, persistent_workers=persistent)
        assert next(iter(loader)).tolist() == [0, 1, 2, 3]
        engine = loader._engine
        assert next(iter(loader)).tolist() == [0, 1, 2, 3]
        assert loader._engine is engine
        dataset.samples[0] = 9
        assert next(iter(loader)).tolist() == [0 if persistent else 9, 1, 2, 3]
        loader.close()


# --- workers ---


class Seen(Samples):
    """Tells what its worker process is."""

    def __getitem__(self, index):
        import torch

        info = torch.utils.data.get_worker_info()
        word = os.environ.get("TOLD", "")
        if info is None:
            return {"id": -1, "told": word, "threads": torch.get_num_threads()}
        return {
            "id": info.id,
            "workers": info.num_workers,
            "seed": info.seed - info.id,
            "samples": len(info.dataset),
            "told": word,
            "threads": torch.get_num_threads(),
        }


def tell(worker):
    os.environ["TOLD"] = f"worker {worker}"


def test_worker_processes_know_what_they_are(torch, ours):
    torch.manual_seed(1)
    loader = ours(Seen([0] * 40), 5, num_workers=2, worker_init_fn=tell)
    batches = list(loader)
    for batch in batches:
        for worker, told in zip(batch["id"].tolist(), batch["told"], strict=True):
            assert worker in (0, 1)
            assert told == f"worker {worker}"
        assert set(batch["workers"].tolist()) == {2}
        assert set(batch["samples"].tolist()) == {40}
        assert set(batch["threads"].tolist()) == {1}
    seeds = {seed for batch in batches for seed in batch["seed"].tolist()}
    loader.close()
    torch.manual_seed(1)
    assert seeds == {int(torch.empty((), dtype=torch.int64).random_().item())}
    (inline,) = ours(Seen([0]), worker_init_fn=tell)
    assert inline["id"].tolist() == [-1]
    assert inline["told"] == [""]


def test_worker_init_fn_with_a_dataset_of_this_project(torch, ours, photo_rec):
    def told(image, label):
        return image[:4, :4], int(os.environ.get("TOLD", "-1")[-1])

    for workers in (0, 2):
        dataset = aioloader.ImageRecordDataset(photo_rec).transform(told)
        loader = ours(dataset, 4, num_workers=workers, worker_init_fn=tell)
        found = {worker for _, numbers in loader for worker in numbers.tolist()}
        assert found <= {0, 1} if workers else found == {1}
        loader.close()
    crop = aioloader.ImageRecordDataset(photo_rec).transform_first(aioloader.transforms.CenterCrop(8))
    plain, with_init = ([*ours(crop, 4, num_workers=1, worker_init_fn=fn)] for fn in (None, tell))
    assert same(torch, plain, with_init)


class Draws(Samples):
    def __getitem__(self, index):
        import torch

        return {"p": random.random(), "n": np.random.random(), "t": torch.rand(1)}


def test_random_transforms_follow_manual_seed_and_not_the_workers(torch, ours):
    runs = []
    for workers, seed in ((1, 7), (2, 7), (1, 8)):
        torch.manual_seed(seed)
        loader = ours(Draws(range(24)), 4, num_workers=workers)
        runs.append(
            [{key: value.tolist() for key, value in batch.items()} for _ in range(2) for batch in loader]
        )
        loader.close()
    assert runs[0] == runs[1] != runs[2]
    drawn = [str(value) for batch in runs[0] for column in batch.values() for value in column]
    assert len(set(drawn)) == len(drawn)  # nothing twice, in no epoch


def test_without_workers_random_transforms_are_torchs(torch, ours):
    def seed():
        torch.manual_seed(7)
        np.random.seed(7)
        random.seed(7)

    runs = []
    for make in (torch.utils.data.DataLoader, ours):
        seed()
        runs.append(list(make(Draws(range(24)), 4, shuffle=True)))
    assert same(torch, *runs)


def test_a_worker_that_is_killed_is_replaced(torch, ours):
    loader = ours(Numbers(60, pause_s=0.005), 4, num_workers=2)
    got = []
    for number, (_, labels) in enumerate(loader):
        got.append(labels.tolist())
        if number == 2:
            os.kill(loader._engine._core._engine.executor.pids[0], signal.SIGKILL)
    loader.close()
    assert sum(got, []) == list(range(60))


def test_closing_and_dropping_end_the_workers(torch, ours):
    me = psutil.Process()
    for how in ("close", "drop"):
        loader = ours(Numbers(40), 4, num_workers=2)
        next(iter(loader))
        assert len(me.children()) == 2
        if how == "close":
            loader.close()
            assert len(list(loader)) == 10  # and may be used again
            loader.close()
        del loader
        gc.collect()
        assert me.children() == []


# --- errors ---


class Own(Exception):
    """One that takes other arguments than a text."""

    def __init__(self, code, *, more):
        super().__init__(code)
        self.more = more


class Fails(Samples):
    def __getitem__(self, index):
        if index == 5:
            raise Own(3, more="m")
        return index


@pytest.mark.parametrize("workers", [0, 1])
@pytest.mark.parametrize("collate_fn", [None, list])
def test_a_sample_that_fails_raises_its_own_exception(torch, ours, workers, collate_fn):
    loader = ours(Fails(range(8)), 2, num_workers=workers, collate_fn=collate_fn)
    got = []
    with pytest.raises(Own) as caught:
        for batch in loader:
            got.append(list(batch))
    assert len(got) == 2
    assert caught.value.more == "m"
    assert "sample at index 5" in "".join(caught.value.__notes__)
    loader.close()


class Ends(Samples):
    def __getitem__(self, index):
        if index == 3:
            raise self.samples[index]
        return index


@pytest.mark.parametrize(("kind", "workers"), [(StopIteration, 0), (SystemExit, 1)])
def test_a_sample_that_fails_ends_neither_the_epoch_nor_the_program(ours, kind, workers):
    loader = ours(Ends([kind("x")] * 8), 2, num_workers=workers)
    with pytest.raises(aioloader.SampleError, match=f"Ends: sample at index 3 .*{kind.__name__}") as caught:
        list(loader)
    assert type(caught.value.__cause__) is kind
    loader.close()


def test_arguments_are_refused_as_torch_does(torch, ours):
    dataset = Samples([1, 2])
    wrong = [
        {"num_workers": -1},
        {"timeout": -1},
        {"prefetch_factor": 2},
        {"persistent_workers": True},
        {"shuffle": True, "sampler": [1]},
        {"batch_sampler": [[1]], "batch_size": 2},
        {"batch_size": None, "drop_last": True},
        {"batch_size": 0},
        {"multiprocessing_context": "fork"},
        {"num_workers": 1, "multiprocessing_context": "thread"},
    ]
    for options in wrong:
        found = []
        for make in (torch.utils.data.DataLoader, ours):
            with pytest.raises(ValueError) as caught:  # noqa: PT011  # the text is compared
                make(dataset, **options)
            found.append((type(caught.value), str(caught.value)))
        assert found[0] == found[1]


def test_it_is_a_loader_of_torch_and_has_its_attributes(torch, ours):
    dataset = Samples(list(range(10)))
    options = {
        "batch_size": 4,
        "shuffle": True,
        "num_workers": 2,
        "timeout": 9,
        "prefetch_factor": 3,
        "in_order": False,
    }
    mine, theirs = (make(dataset, **options) for make in (ours, torch.utils.data.DataLoader))
    assert isinstance(mine, torch.utils.data.DataLoader)
    for name in (*options, "drop_last", "collate_fn", "generator", "pin_memory", "persistent_workers"):
        if name != "shuffle":
            assert getattr(mine, name) == getattr(theirs, name)
    assert len(mine) == len(theirs) == 3
    assert len(iter(mine)) == 3
    assert type(mine.sampler) is torch.utils.data.RandomSampler
    with pytest.raises(ValueError, match="should not be set"):
        mine.batch_size = 3
    mine.close()


def test_without_an_accelerator_pinning_is_told(torch, ours, monkeypatch):
    monkeypatch.setattr(torch.accelerator, "is_available", lambda: False)
    loader = ours(Samples([1, 2]), pin_memory=True)
    with pytest.warns(UserWarning, match="pin_memory has no effect: torch finds no accelerator"):
        assert len(list(loader)) == 2


@pytest.mark.gpu
def test_batches_are_pinned(torch, ours):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    for collate_fn in (None, collate_objects):
        dataset = Samples([(torch.full((3, 2), float(number)), number) for number in range(10)])
        for batch in ours(dataset, 4, pin_memory=True, collate_fn=collate_fn):
            images = batch["images"] if isinstance(batch, dict) else batch[0]
            assert images.is_pinned()


def test_counters(ours):
    loader = ours(Numbers(8), 4)
    list(loader)
    assert loader.stats().batches == 2
    assert json.dumps(loader.explain())
