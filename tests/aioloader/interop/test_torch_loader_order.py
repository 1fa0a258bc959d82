"""Samplers and datasets of torch and of this project: the order and the batches are those of torch's DataLoader."""

import gc
import threading

import numpy as np
import pytest

import aioloader
from tests.aioloader.interop.torch_samples import Samples, check, outcome, same

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # on a machine with few cores
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork"),
]


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


def test_an_iterable_dataset_is_refused(torch, ours):
    class Stream(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

    with pytest.raises(TypeError, match="Stream is an IterableDataset"):
        ours(Stream())


def test_what_cannot_be_sent_is_said(torch, ours):
    dataset = Samples([1, 2])
    dataset.lock = threading.Lock()
    with pytest.raises(aioloader.LoaderError, match="cannot be sent to worker processes"):
        list(ours(dataset, num_workers=1))


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
