"""Tests of samplers that return other indices than whole numbers from 0, compared with torch's DataLoader."""

import enum

import numpy as np
import pytest

from tests.aioloader.interop.torch_samples import MARKS, Samples, check, same

pytestmark = MARKS


class Echo:
    """Dataset that returns the type and the text of what it is asked for."""

    def __len__(self):
        return 12

    def __getitem__(self, index):
        return type(index).__name__, str(index)


class EchoMany(Echo):
    def __getitems__(self, indices):
        return [self[index] for index in indices]


@pytest.mark.parametrize("workers", [0, 1])
def test_the_error_of_a_sample_names_the_index(ours, workers):
    loader = ours(Samples([1, 2]), sampler=Given([("a", 7)]), num_workers=workers)
    with pytest.raises(TypeError, match="must be integers or slices, not tuple") as caught:
        list(loader)
    assert "the sampler returned the index ('a', 7)" in caught.value.__notes__
    loader.close()


class Split(enum.Enum):
    LEFT = 1


INDICES = {
    "flag and number": [(True, 3), (False, 5), (True, 5)],
    "texts": ["a", "b", "c"],
    "lists": [[1, 2], [3], []],
    "nested": [(1, (2, "x")), {"k": [1.5]}, frozenset([7])],
    "none": [None, 1, None],
    "mixed": [1, "b", 3],
    "slices": [slice(0, 2), slice(3), ...],
    "enums": [Split.LEFT] * 3,
    "negative": [-1, -12, 3],
    "outside": [5, 12, 10**30],
}


class Given:
    """Sampler of given indices."""

    def __init__(self, indices):
        self.indices = indices

    def __len__(self):
        return len(self.indices)

    def __iter__(self):
        return iter(self.indices)


@pytest.mark.parametrize("name", INDICES)
def test_a_dataset_receives_any_object_as_index(torch, ours, name):
    for dataset in (Echo(), EchoMany()):
        check(torch, ours, dataset, batch_size=2, sampler=Given(INDICES[name]))
        check(torch, ours, dataset, batch_size=None, sampler=Given(INDICES[name]))
        check(torch, ours, dataset, batch_sampler=Given([INDICES[name], INDICES[name][:1]]), collate_fn=list)


@pytest.mark.parametrize("many", [False, True])
def test_worker_processes_receive_any_object_as_index(torch, ours, many):
    batches = list(INDICES.values())
    found = check(
        torch,
        ours,
        EchoMany() if many else Echo(),
        batch_sampler=Given(batches),
        num_workers=2,
        collate_fn=list,
    )
    assert found[0] == found[1] == [[Echo()[index] for index in indices] for indices in batches]


class Mosaic:
    """Sampler of (flag, index), whose flag the training loop switches off."""

    def __init__(self):
        self.on = True

    def __len__(self):
        return 3

    def __iter__(self):
        for number in range(3):
            yield [(self.on, 4 * number + place) for place in range(4)]


class Flagged:
    def __len__(self):
        return 12

    def __getitem__(self, index):
        import torch

        flag, number = index
        return torch.tensor([float(number)]), flag


@pytest.mark.parametrize("workers", [0, 1])
def test_a_flag_in_the_index_can_be_switched_off(torch, ours, workers):
    runs = []
    for make in (torch.utils.data.DataLoader, ours):
        sampler = Mosaic()
        loader = make(Flagged(), batch_sampler=sampler, num_workers=workers)
        run = list(loader)
        sampler.on = False
        runs.append(run + list(loader))
    loader.close()
    assert same(torch, *runs)
    assert [flags.tolist() for _, flags in runs[1]] == [[True] * 4] * 3 + [[False] * 4] * 3


class Draws:
    def __len__(self):
        return 4

    def __getitem__(self, index):
        return np.random.random()


def test_copies_of_a_key_draw_differently(torch, ours):
    runs = []
    for workers in (1, 2):
        torch.manual_seed(5)
        loader = ours(Draws(), 3, sampler=Given(["a"] * 6 + [(1, "b")] * 6), num_workers=workers)
        runs.append(torch.cat(list(loader)).tolist())
        loader.close()
    assert runs[0] == runs[1]
    assert len(set(runs[0])) == 12


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sampler_of_lists_reads_a_tensor_dataset_in_bulk(torch, ours, workers):
    data = torch.utils.data
    dataset = data.TensorDataset(torch.arange(20), torch.arange(40).reshape(20, 2))
    batches = data.BatchSampler(data.SequentialSampler(dataset), 8, drop_last=False)
    check(torch, ours, dataset, sampler=batches, batch_size=None, num_workers=workers)


def test_a_dataset_that_is_read_in_batches_needs_numbers(torch, ours):
    dataset = torch.utils.data.TensorDataset(torch.arange(20))
    loader = ours(dataset, 2, sampler=Given(["a", "b"]))
    with pytest.raises(TypeError, match="whole numbers"):
        list(loader)


def test_batches_can_be_skipped_by_accelerate(torch, ours):
    accelerate = pytest.importorskip("accelerate", reason="needs accelerate")
    numbers = torch.utils.data.TensorDataset(torch.arange(12))
    for workers in (0, 1):
        loader = ours(numbers, 4, num_workers=workers)
        skipped = accelerate.skip_first_batches(loader, 1)
        assert [batch.tolist() for (batch,) in skipped] == [[4, 5, 6, 7], [8, 9, 10, 11]]
        sampler = accelerate.data_loader.SkipBatchSampler(loader.batch_sampler, 2)
        again = ours(numbers, batch_sampler=sampler, num_workers=workers)
        assert [batch.tolist() for (batch,) in again] == [[8, 9, 10, 11]]
        assert len(again) == 1
        again.close()
