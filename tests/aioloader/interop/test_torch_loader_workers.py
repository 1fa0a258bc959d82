"""Tests of the torch-like DataLoader's worker processes: worker info, draws, and exit."""

import gc
import os
import random
import weakref

import numpy as np
import psutil
import pytest

import aioloader
from tests.aioloader.interop.torch_samples import Samples, same
from tests.aioloader.loader.samples import Numbers

pytestmark = [
    pytest.mark.own_workers,
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # on a machine with few cores
    pytest.mark.filterwarnings("ignore:.*multi-threaded, use of fork"),
]


class Seen(Samples):
    """Dataset that returns facts of its worker process."""

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
    plain, with_init = (
        [*ours(crop, 4, num_workers=n, worker_init_fn=fn)] for n, fn in ((0, None), (1, tell))
    )
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
    assert len(set(drawn)) == len(drawn)  # no repeated value, in any epoch


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


def test_closing_and_dropping_end_the_workers(torch, ours):
    me = psutil.Process()
    before = set(me.children())  # torch's server of shared memory stays

    def workers():
        return set(me.children()) - before

    for how in ("close", "drop"):
        loader = ours(Numbers(40), 4, num_workers=2)
        next(iter(loader))
        assert len(workers()) == 2
        if how == "close":
            loader.close()
            assert len(list(loader)) == 10  # and can be used again
            loader.close()
        del loader
        gc.collect()
        assert not workers()


class FailingSampler:
    def __len__(self):
        return 4

    def __iter__(self):
        yield from (0, 1, 2)
        raise ValueError("no more")


@pytest.mark.parametrize("fails", [False, True])
def test_a_loader_that_is_dropped_after_a_pass_is_collected(torch, ours, fails):
    loader = ours(Samples([1, 2, 3, 4]), num_workers=1, sampler=FailingSampler() if fails else None)
    found = 0
    try:
        for _ in loader:
            found += 1
    except ValueError as error:
        assert str(error) == "no more"
    assert found == 4 - fails
    reference = weakref.ref(loader)
    del loader, _
    gc.collect()
    assert reference() is None
