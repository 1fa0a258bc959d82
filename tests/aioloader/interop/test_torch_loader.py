"""Tests that compare torch's DataLoader with ours: the same arguments, attributes and errors."""

import json

import pytest

import aioloader
from tests.aioloader.interop.torch_samples import MARKS, Samples, collate_objects
from tests.aioloader.loader.samples import Numbers

pytestmark = MARKS


class Own(Exception):
    """Exception whose constructor takes other arguments than a text."""

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
    assert ours[torch.Tensor] is not None  # it can be annotated
    for name in (*options, "drop_last", "collate_fn", "generator", "pin_memory", "persistent_workers"):
        if name != "shuffle":
            assert getattr(mine, name) == getattr(theirs, name)
    assert len(mine) == len(theirs) == 3
    assert len(iter(mine)) == 3
    assert type(mine.sampler) is torch.utils.data.RandomSampler
    with pytest.raises(ValueError, match="should not be set"):
        mine.batch_size = 3
    mine.close()


def test_without_an_accelerator_pinning_is_reported(torch, ours, monkeypatch):
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


def test_the_profiler_of_torch_reports_the_time_of_loading(torch, ours):
    activities = [torch.profiler.ProfilerActivity.CPU]
    with torch.profiler.profile(activities=activities) as profile:
        list(ours(Samples([1, 2]), 1))
    names = [event.key for event in profile.key_averages()]
    assert "enumerate(DataLoader)#aioloader.__next__" in names
