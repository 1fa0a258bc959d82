"""Tests of the torch loader's state: a resumed run is the rest of an uninterrupted one."""

import json
import random

import pytest

from aioloader.errors import ResumeError

pytestmark = [
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # on a machine with few cores
]

COUNT = 23
NAMES = ["global", "generator", "sampler", "batches", "in order"]


class Drawn:
    """Dataset whose samples hold random numbers of Python."""

    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return index, random.random()


class Plain:
    def __len__(self):
        return COUNT

    def __getitem__(self, index):
        return index


def options(torch, name):
    """Return new arguments of a loader of each kind; generators are made anew, as in a new process."""
    data = torch.utils.data
    generator = torch.Generator().manual_seed(random.randrange(1 << 30))
    if name == "global":
        return {"batch_size": 4, "shuffle": True}
    if name == "generator":
        return {"batch_size": 4, "shuffle": True, "generator": generator}
    if name == "sampler":
        return {"batch_size": 4, "sampler": data.RandomSampler(range(COUNT), generator=generator)}
    if name == "batches":
        sampler = data.RandomSampler(range(COUNT), replacement=True, generator=generator)
        return {"batch_sampler": data.BatchSampler(sampler, 4, drop_last=False)}
    assert name == "in order"
    return {"batch_size": 4}


def values(torch, batch):
    parts = batch if isinstance(batch, list) else [batch]
    return [part.tolist() for part in parts]


KINDS = [
    *[(name, 0, False, 0, stop) for name in NAMES for stop in [(0, 0), (0, 2), (1, 0), (1, 4), (2, 6)]],
    ("global", 2, False, 1, (1, 4)),
    ("batches", 2, True, 1, (0, 2)),
    ("generator", 1, True, 1, (2, 6)),
    ("global", 1, False, 0, (1, 2)),
]


@pytest.mark.parametrize(("name", "workers", "persistent", "later", "stop"), KINDS, ids=str)
def test_the_rest_is_that_of_an_uninterrupted_run(torch, ours, name, workers, persistent, later, stop):
    """`stop`: the epoch and the number of its batches after which the state is taken; 6 are all."""
    # Without workers samples draw from the script's own generators.
    data = Drawn() if workers and later else Plain()

    def loader(number):
        more = {"num_workers": number, "persistent_workers": persistent and number > 0}
        return ours(data, **options(torch, name), **more)

    torch.manual_seed(7)
    whole = loader(workers)
    expected, state = [], None
    for epoch in range(4):
        if (epoch, 0) == stop:
            state = json.loads(json.dumps(whole.state_dict()))
        for place, batch in enumerate(whole, 1):
            if (epoch, place) > stop:
                expected.append(values(torch, batch))
            if (epoch, place) == stop:
                state = json.loads(json.dumps(whole.state_dict()))
    whole.close()

    torch.manual_seed(99)
    resumed = loader(later)
    resumed.load_state_dict(state)
    assert resumed.state_dict() == state
    found = []
    epochs = 4 - stop[0]
    for _ in range(epochs):
        found += [values(torch, batch) for batch in resumed]
    assert found == expected
    resumed.close()


class DrawnByTorch(Plain):
    """Dataset whose samples hold random numbers of torch."""

    def __init__(self, torch):
        self.torch = torch

    def __getitem__(self, index):
        return index, self.torch.rand(())


@pytest.mark.parametrize("name", NAMES)
@pytest.mark.parametrize("taken", [0, 1, 4, 6])
def test_without_workers_samples_draw_what_they_would_have_drawn(torch, ours, name, taken):
    """The dataset draws from the generator that also makes the order; so does the training loop."""
    torch.manual_seed(7)
    loader = ours(DrawnByTorch(torch), **options(torch, name))
    batches = iter(loader)
    for _ in range(taken):
        next(batches)
    torch.rand(2)
    state = json.loads(json.dumps(loader.state_dict()))
    rest = [*batches, *loader]
    after = torch.rand(2)

    torch.manual_seed(99)
    resumed = ours(DrawnByTorch(torch), **options(torch, name))
    resumed.load_state_dict(state)
    found = [*resumed, *resumed]
    assert [values(torch, batch) for batch in found] == [values(torch, batch) for batch in rest]
    assert torch.equal(torch.rand(2), after)


def test_a_used_loader_resumes(torch, ours):
    with_state = ours(Drawn(), 4, shuffle=True, num_workers=1)
    batches = iter(with_state)
    next(batches)
    state = with_state.state_dict()
    rest = [values(torch, batch) for batch in batches]
    for _ in range(2):
        with_state.load_state_dict(state)
        assert [values(torch, batch) for batch in with_state] == rest
    with_state.close()


@pytest.mark.parametrize("persistent", [False, True])
def test_a_used_loader_begins_again(torch, ours, persistent):
    """The state was taken before the first epoch, when the workers had no seed."""
    loader = ours(Drawn(), 4, shuffle=True, num_workers=1, persistent_workers=persistent)
    state = loader.state_dict()
    expected = [values(torch, batch) for batch in [*loader, *loader]]
    next(iter(loader))
    loader.load_state_dict(state)
    assert loader.state_dict() == state
    assert [values(torch, batch) for batch in [*loader, *loader]] == expected
    loader.close()


def test_a_closed_loader_keeps_its_position(torch, ours):
    loader = ours(Plain(), 4, shuffle=True)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    loader.close()
    assert loader.state_dict() == state
    assert len(list(loader)) == len(loader)  # a new epoch
    assert loader.state_dict() != state


def test_a_state_of_another_loader_is_refused(torch, ours):
    loader = ours(Plain(), 4, shuffle=True)
    next(iter(loader))
    state = loader.state_dict()
    with pytest.raises(ResumeError, match="batches are counted") as caught:
        ours(Plain(), 5, shuffle=True).load_state_dict(state)
    assert (caught.value.field, caught.value.expected, caught.value.found) == ("batch_size", 5, 4)
    with pytest.raises(ResumeError, match="length"):
        ours(list(range(9)), 4, shuffle=True).load_state_dict(state)
    own = torch.Generator().manual_seed(1)
    with pytest.raises(ResumeError, match="generator"):
        ours(Plain(), 4, sampler=torch.utils.data.RandomSampler(Plain(), generator=own)).load_state_dict(
            state
        )
    before = torch.get_rng_state()
    for wrong in (
        None,
        {},
        {**state, "generators": {"loader": "AA=="}},
        {**state, "generators": {"loader": 3}},
    ):
        with pytest.raises(ResumeError):
            loader.load_state_dict(wrong)
    assert torch.equal(torch.get_rng_state(), before)
