"""Tests of torch's samplers: the order is that of torch's DataLoader."""

import gc
import itertools
import json
import random
import time

import numpy as np
import pytest

from tests.aioloader.interop.torch_samples import MARKS, Samples, outcome, same

pytestmark = MARKS


@pytest.mark.parametrize(("workers", "persistent"), [(0, False), (2, False), (2, True)])
def test_the_order_is_torchs_and_so_are_its_draws(torch, ours, workers, persistent):
    dataset = Samples(list(range(101)))
    runs = []
    for make in (torch.utils.data.DataLoader, ours):
        torch.manual_seed(5)
        loader = make(dataset, 8, shuffle=True, num_workers=workers, persistent_workers=persistent)
        run = []
        for _ in range(3):
            for batch in loader:
                run.append(batch.tolist())
            run.append(torch.rand(2).tolist())  # the script's next draw
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


class Endless:
    def __iter__(self):
        return itertools.cycle(range(10))


class EndlessWithLength(Endless):
    def __len__(self):
        return 10


@pytest.mark.parametrize("workers", [0, 1])
def test_a_sampler_without_an_end(ours, workers):
    for sampler in (Endless(), EndlessWithLength()):
        loader = ours(Samples(list(range(10))), 4, sampler=sampler, num_workers=workers)
        found = [batch.tolist() for batch in itertools.islice(loader, 5)]
        assert sum(found, []) == list(itertools.islice(itertools.cycle(range(10)), 20))
        loader.close()


def test_a_batch_without_indices_is_refused(ours):
    with pytest.raises(ValueError, match="returned an empty batch"):
        list(ours(Samples([1, 2]), batch_sampler=[[1], []]))


# --- datasets ---


class Drawn:
    """Samples that draw from all global generators."""

    def __init__(self, torch):
        self.torch = torch

    def __len__(self):
        return 4

    def __getitem__(self, index):
        return index, float(self.torch.rand(())), np.random.random(), random.random()


@pytest.mark.parametrize("known", [False, True], ids=["a dataset of torch's", "a dataset of this project"])
@pytest.mark.parametrize("workers", [1, 2])
def test_copies_of_a_sample_draw_differently(torch, ours, workers, known):
    from aioloader import SimpleDataset

    def sample(index, rng):
        return index, rng.random()

    dataset = SimpleDataset(list(range(4))).transform(sample) if known else Drawn(torch)
    weights = torch.utils.data.WeightedRandomSampler([1, 0, 0, 0], 12)
    runs = []
    for batches in ({"sampler": weights, "batch_size": 5}, {"batch_sampler": [[0, 0, 0], [0, 0], [0] * 7]}):
        for _ in range(2):
            torch.manual_seed(3)
            loader = ours(dataset, num_workers=workers, **batches)
            runs.append([column.tolist() for column in map(torch.cat, zip(*loader, strict=True))])
            loader.close()
        assert runs[-1] == runs[-2]
        indices, *columns = runs[-1]
        assert indices == [0] * 12
        assert all(len(set(column)) == 12 for column in columns)


class Held:
    """Dataset one of whose samples waits for a file."""

    def __init__(self, path):
        self.path = path

    def __len__(self):
        return 8

    def __getitem__(self, index):
        end = time.monotonic() + 60
        while index == 2 and not self.path.exists():
            if time.monotonic() > end:
                raise TimeoutError("no other batch was delivered before this one")
            time.sleep(0.01)
        return index


def test_batches_out_of_order_wait_for_no_other_and_resume(torch, ours, tmp_path):
    """A sample of the second batch is made after the caller has received two others."""
    data = Held(tmp_path / "go on")
    loader = ours(data, 2, num_workers=2, in_order=False)
    batches = iter(loader)
    found = [next(batches).tolist(), next(batches).tolist()]
    state = json.loads(json.dumps(loader.state_dict()))
    data.path.touch()
    rest = [batch.tolist() for batch in batches]
    loader.close()
    assert [2, 3] not in found
    assert sorted(found + rest) == [[0, 1], [2, 3], [4, 5], [6, 7]]

    resumed = ours(data, 2, num_workers=2, in_order=False)
    resumed.load_state_dict(state)
    assert sorted(batch.tolist() for batch in resumed) == sorted(rest)
    resumed.close()
    assert [batch.tolist() for batch in ours(data, 2, in_order=False)] == [[0, 1], [2, 3], [4, 5], [6, 7]]
