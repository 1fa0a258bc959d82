"""Tests of datasets: our torch-like loader takes every dataset that torch's takes."""

import copy
import pickle
import threading

import numpy as np
import pytest

import aioloader
from tests.aioloader.interop.test_torch_loader import Own
from tests.aioloader.interop.torch_samples import MARKS, Samples, check

pytestmark = MARKS


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
    x += 100  # still the dataset's own memory
    check(torch, ours, sets[0], batch_size=4)


@pytest.mark.parametrize("workers", [0, 1])  # new interpreters in any case, because the dataset can be sent
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
    """Dataset that returns the samples of a batch together."""

    def __getitem__(self, index):
        raise AssertionError("asked for one alone")

    def __getitems__(self, indices):
        if 11 in indices:
            raise Own(11, more="m")
        return [{"x": self.samples[index], "of": len(indices)} for index in indices]


@pytest.mark.parametrize("kind", ["inline", "fork", "spawn"])
def test_datasets_that_read_a_batch_together(torch, ours, spawned, kind):
    ours, workers = spawned if kind == "spawn" else ours, int(kind != "inline")
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
    """IterableDataset of torch: each worker yields its part."""

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
    assert loader._iterator is None  # the one that had the workers
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


def test_what_cannot_be_sent_is_said(spawned):
    dataset = Samples([1, 2])
    dataset.lock = threading.Lock()
    with pytest.raises(aioloader.LoaderError, match="cannot be sent to worker processes") as caught:
        list(spawned(dataset, num_workers=1))
    assert "set num_workers=0" in str(caught.value)


def test_a_dataset_that_was_changed_is_sent_again(ours, spawned):
    dataset = Samples([0, 1, 2, 3])
    for make, persistent in ((ours, False), (spawned, False), (spawned, True)):
        dataset.samples[0] = 0
        loader = make(dataset, 4, num_workers=1, persistent_workers=persistent)
        assert next(iter(loader)).tolist() == [0, 1, 2, 3]
        engine = loader._engine
        assert next(iter(loader)).tolist() == [0, 1, 2, 3]
        assert loader._engine is engine
        dataset.samples[0] = 9
        assert next(iter(loader)).tolist() == [0 if persistent else 9, 1, 2, 3]
        loader.close()
