"""Tests of what changes while our DataLoader is used, compared with torch's: functions, samplers, failing samples."""

import functools
import random

import numpy as np
import pytest

from tests.aioloader.interop.torch_samples import MARKS, Samples

pytestmark = [
    *MARKS,
    pytest.mark.own_workers,  # a generator of this module, which is imported in a worker, goes on from test to test
]


class Mixing:
    """Collate function that a training loop switches off, as timm's mixup."""

    def __init__(self):
        self.enabled = True

    def __call__(self, samples):
        return [self.enabled, *samples]


def test_a_changed_collate_function_is_seen(both):
    runs = []
    for make in both:
        mixing = Mixing()
        loader = make(Samples(list(range(4))), 2, collate_fn=mixing)
        run = [list(loader)]
        mixing.enabled = False
        run.append(list(loader))
        runs.append(run)
    loader.close()
    assert runs[0] == runs[1]
    assert runs[1] == [[[True, 0, 1], [True, 2, 3]], [[False, 0, 1], [False, 2, 3]]]


class Hard:
    """Sampler that a training loop steers: it yields the item that was chosen last."""

    def __init__(self):
        self.chosen = 0

    def __len__(self):
        return 24

    def __iter__(self):
        for _ in range(24):
            yield self.chosen


@pytest.mark.parametrize(("workers", "factor"), [(0, None), (1, 1), (2, 1), (2, 3)])
def test_a_sampler_sees_what_the_training_loop_does(torch, ours, spawned, workers, factor):
    runs = []
    for make in (torch.utils.data.DataLoader, ours, ours, *[spawned][: factor == 3]):
        sampler = Hard()
        loader = make(
            Samples(list(range(30))), 2, sampler=sampler, num_workers=workers, prefetch_factor=factor
        )
        run = []
        for number, batch in enumerate(loader):
            run.append(batch.tolist())
            sampler.chosen = number + 1
        runs.append(run)
    torchs, *others = runs
    assert all(run == others[0] for run in others)
    # Two batches may be finished before they are requested.
    ahead = 2 if workers else 0
    assert others[0] == [torchs[0]] * ahead + torchs[: len(torchs) - ahead]


def begin_worker(slot):
    from pathlib import Path

    import torch

    folder = torch.utils.data.get_worker_info().dataset.tensors[1]
    Path(bytes(folder[0].tolist()).decode(), f"worker-{slot}").touch()


def test_workers_are_begun_for_tensors_too(torch, ours, spawned, tmp_path):
    folder = torch.tensor([list(str(tmp_path).encode())] * 8)
    dataset = torch.utils.data.TensorDataset(torch.arange(8), folder)
    for make in (ours, spawned):
        loader = make(dataset, 2, num_workers=1, worker_init_fn=begin_worker)
        assert [numbers.tolist() for numbers, _ in loader] == [[0, 1], [2, 3], [4, 5], [6, 7]]
        (path,) = tmp_path.iterdir()
        assert path.name == "worker-0"
        path.unlink()
        loader.close()


class Failing:
    def __len__(self):
        return 8

    def __getitem__(self, index):
        if index in (2, 5):
            raise ValueError(f"item {index}")
        return index


@pytest.mark.parametrize(
    ("both", "options"),
    [("inline", {}), ("inline", {"collate_fn": list}), ("fork", {"collate_fn": list}), ("spawn", {})],
    indirect=["both"],
)
def test_a_pass_goes_on_after_a_failing_sample(both, options):
    runs = []
    for make in both:
        loader = make(Failing(), 2, **options)
        batches, run = iter(loader), []
        while True:
            try:
                run.append(np.asarray(next(batches)).tolist())
            except ValueError as error:
                run.append(type(error))
            except StopIteration:
                break
        runs.append(run)
    loader.close()
    assert runs[1] == [[0, 1], ValueError, ValueError, [6, 7]]
    # Without workers torch's pass goes on, too.
    assert runs[0] == runs[1]


class Slow:
    def __len__(self):
        return 2

    def __getitem__(self, index):
        import time

        time.sleep(60 if index else 0)
        return index


def test_a_timeout_is_a_runtime_error_in_torchs_words_which_torch_can_wrap(torch, ours):
    loader = ours(Slow(), 1, num_workers=1, timeout=1)
    with pytest.raises(RuntimeError, match="timeout") as caught:
        list(loader)
    loader.close()
    wrapped = torch._utils.ExceptionWrapper((caught.type, caught.value, caught.tb))
    with pytest.raises(caught.type, match="DataLoader timed out after 1 seconds"):
        wrapped.reraise()


class Seeds:
    def __len__(self):
        return 20

    def __getitem__(self, index):
        import torch

        return torch.tensor(torch.initial_seed())


def test_seeds_in_workers_fit_int64(torch, ours):
    loader = ours(Seeds(), 5, num_workers=1)
    seeds = torch.cat(list(loader))
    assert seeds.min() >= 0
    assert len(seeds.unique()) == 20
    loader.close()


class OwnDraws:
    """Dataset with generators of its own, of every class; some are drawn in an order that depends on the sample."""

    def __init__(self, torch, seed=3):
        self.numpy = {
            "generators": [np.random.default_rng(seed), np.random.Generator(np.random.MT19937(seed))]
        }
        self.legacy = np.random.RandomState(seed)
        self.python = functools.partial(random.Random(seed).choice, range(1 << 30))
        self.torch = torch.Generator().manual_seed(seed)

    def __len__(self):
        return 24

    def __getitem__(self, index):
        import torch

        first, second = self.numpy["generators"]
        drawn = [
            first.random(),
            second.random(),
            self.legacy.random_sample(),
            float(self.python.func(self.python.args[0])),
        ]
        return [*drawn, torch.rand(1, generator=self.torch).item(), MODULE_GENERATOR.random()]


MODULE_GENERATOR = np.random.default_rng(11)


def test_generators_of_a_dataset_draw_the_same_from_run_to_run(torch, ours, spawned):
    runs = []
    for make, workers, seed in ((spawned, 1, 3), (ours, 2, 3), (ours, 2, 4)):
        loader = make(OwnDraws(torch, seed), 3, num_workers=workers, collate_fn=list)
        runs.append([sample for _ in range(2) for batch in loader for sample in batch])
        loader.close()
    assert runs[0] == runs[1]
    for kind, columns in enumerate(zip(*map(np.transpose, runs), strict=True)):
        assert len(set(columns[0])) == 48  # no repeated value, in any epoch
        assert (columns[0] == columns[2]).all() == (kind == 5)


def test_without_workers_generators_of_a_dataset_go_on_as_with_torch(torch, ours):
    runs = []
    for make in (torch.utils.data.DataLoader, ours):
        MODULE_GENERATOR.bit_generator.state = np.random.PCG64(1).state
        dataset = OwnDraws(torch)
        runs.append([list(make(dataset, 3, collate_fn=list)) for _ in range(2)])
    assert runs[0] == runs[1]


class Augmented:
    def __init__(self, seed):
        import albumentations

        self.transform = albumentations.Compose([albumentations.RandomBrightnessContrast(p=1)], seed=seed)

    def __len__(self):
        return 24

    def __getitem__(self, index):
        return self.transform(image=np.full((8, 8, 3), 100, np.uint8))["image"].astype(np.int64).sum()


def test_albumentations_with_a_seed_draws_the_same_from_run_to_run(torch, ours, spawned):
    pytest.importorskip("albumentations", reason="needs albumentations")
    runs = []
    for make, workers, seed in ((spawned, 1, 5), (ours, 2, 5), (ours, 2, 6)):
        loader = make(Augmented(seed), 3, num_workers=workers)
        runs.append(torch.cat(list(loader)).tolist())
        loader.close()
    assert runs[0] == runs[1] != runs[2]
    assert len(set(runs[0])) > 12
