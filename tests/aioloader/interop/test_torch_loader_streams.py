"""Tests of IterableDatasets in the torch loader: their epochs can be resumed, with and without a state of their own."""

import copy
import gc
import json
import random
import warnings
from contextlib import closing

import pytest

from aioloader.errors import NotResumableError, ResumeError

pytestmark = [
    pytest.mark.own_workers,
    pytest.mark.torch,
    pytest.mark.filterwarnings("ignore:This DataLoader will create"),  # on a machine with few cores
]

SIZES = {0: [21], 2: [13, 8], 3: [2, 0, 19]}


class Part:
    """Base of the streams: the samples of one worker, whose number differs from that of others."""

    def __init__(self, sizes):
        self.sizes = sizes

    def bounds(self):
        import torch

        info = torch.utils.data.get_worker_info()
        worker = 0 if info is None else info.id
        first = sum(self.sizes[:worker])
        return first, first + self.sizes[worker]


class Plain(Part):
    """Stream without a state."""

    def __iter__(self):
        return iter(range(*self.bounds()))


class Drawn(Part):
    """Stream without a state, whose samples hold random numbers of the worker."""

    def __iter__(self):
        import numpy as np
        import torch

        for number in range(*self.bounds()):
            yield number, random.random(), np.random.random(), torch.rand(()).item()


class OfDataset(Part):
    """Stream whose dataset has the state, and counts its epochs."""

    place = 0
    epoch = 0
    goes_on = False

    def __iter__(self):
        first, last = self.bounds()
        self.place = self.place if self.goes_on else 0
        self.goes_on = False
        for number in range(first + self.place, last):
            self.place += 1
            yield number, self.epoch
        self.place = 0
        self.epoch += 1

    def state_dict(self):
        return {"place": self.place, "epoch": self.epoch}

    def load_state_dict(self, state):
        self.place, self.epoch, self.goes_on = state["place"], state["epoch"], True


class Numbers:
    """Iterator with a state."""

    def __init__(self, first, last, rng):
        self.next, self.last, self.rng = first, last, rng

    def __iter__(self):
        return self

    def __next__(self):
        if self.next >= self.last:
            raise StopIteration
        self.next += 1
        return self.next, self.rng.random()

    def state_dict(self):
        return {"next": self.next, "rng": self.rng.getstate()}

    def load_state_dict(self, state):
        self.next = state["next"]
        version, words, spare = state["rng"]
        self.rng.setstate((version, tuple(words), spare))


class OfIterator(Part):
    """Stream whose iterator has the state."""

    def __init__(self, sizes):
        super().__init__(sizes)
        self.rng = random.Random(5)

    def __iter__(self):
        return Numbers(*self.bounds(), self.rng)


class OwnIterator(Part):
    """Stream that is its own iterator."""

    next = None

    def __iter__(self):
        if self.next is None or self.next >= self.last:
            self.next, self.last = self.bounds()
        return self

    def __next__(self):
        if self.next >= self.last:
            raise StopIteration
        self.next += 1
        return self.next

    def state_dict(self):
        return {"next": self.next, "last": self.last}

    def load_state_dict(self, state):
        self.next, self.last = state["next"], state["last"]


def stream(torch, kind, *args):
    """Return a dataset of a class of this module as torch's IterableDataset."""
    made = type(kind.__name__, (kind, torch.utils.data.IterableDataset), {"__module__": None})
    return made(*args)


def checkpoint(loader):
    return json.loads(json.dumps(loader.state_dict()))


def run(loader, epochs):
    """Return the batches of some epochs, and the states: (epoch, number of batches, state), with None at the end."""
    batches, states = [], []
    for epoch in range(epochs):
        found = []
        each = iter(loader)
        states.append((epoch, 0, checkpoint(loader)))
        for batch in each:
            found.append(batch)
            states.append((epoch, len(found), checkpoint(loader)))
        states.append((epoch, None, checkpoint(loader)))
        batches.append(found)
    return batches, states


KINDS = [Plain, OfDataset, OfIterator, OwnIterator]
OWN = {"batch_size": 5, "drop_last": True, "snapshot_every_n_steps": 2}
WITH_WORKERS = [
    (2, {}),
    (2, {"persistent_workers": True}),
    (3, {"snapshot_every_n_steps": 3}),
    (3, {"persistent_workers": True, "snapshot_every_n_steps": 0, "drop_last": True}),
    (2, {"batch_size": None, "persistent_workers": True, "snapshot_every_n_steps": 2}),
]
CASES = [(kind, 0, options) for kind in KINDS for options in ({}, OWN)]
CASES += [(kind, *each) for kind, each in zip([*KINDS, OfDataset], WITH_WORKERS, strict=True)]


@pytest.mark.parametrize(("kind", "workers", "options"), CASES)
def test_the_rest_is_that_of_an_uninterrupted_run(torch, ours, kind, workers, options):
    options = {"batch_size": 4, "num_workers": workers, "collate_fn": repr, **options}
    with closing(ours(stream(torch, kind, SIZES[workers]), **options)) as loader:
        batches, states = run(loader, 4)
    count = len(batches[0])
    for epoch, taken, state in states:
        if epoch not in (0, 1) or taken not in (0, 1, count // 2 + 1, count, None):
            continue
        with closing(ours(stream(torch, kind, SIZES[workers]), **options)) as resumed:
            resumed.load_state_dict(state)
            assert checkpoint(resumed) == state
            found = [list(resumed), list(resumed)]
        if taken is None:
            assert found == batches[epoch + 1 : epoch + 3]
        else:
            assert found == [batches[epoch][taken:], batches[epoch + 1]]


def test_workers_draw_what_they_would_have_drawn(torch, ours):
    dataset = stream(torch, Drawn, SIZES[2])
    options = {"batch_size": 4, "num_workers": 2, "collate_fn": repr}
    torch.manual_seed(7)
    expected = list(torch.utils.data.DataLoader(dataset, **options))
    torch.manual_seed(7)
    with closing(ours(dataset, **options)) as loader:
        batches, states = run(loader, 3)
    assert batches[0] == expected
    for epoch, taken, state in states[2:12:3]:
        torch.manual_seed(99)
        with closing(ours(dataset, **options)) as resumed:
            resumed.load_state_dict(state)
            found = [list(resumed), list(resumed)]
        assert found == [batches[epoch][taken:], batches[epoch + 1]]


def test_without_workers_batches_that_are_made_again_draw_the_same(torch, ours):
    """A buffer of shuffled samples is filled as before, and what follows draws what it would have drawn."""

    class Shuffled(torch.utils.data.IterableDataset):
        def __iter__(self):
            for start in (0, 10):
                yield from (torch.randperm(10) + start).tolist()

    torch.manual_seed(3)
    with closing(ours(Shuffled(), batch_size=4)) as loader:
        batches = iter(loader)
        for _ in range(2):
            next(batches)
        state = checkpoint(loader)
        rest = [batch.tolist() for batch in batches]
        more = torch.rand(3).tolist()
    torch.manual_seed(4)
    with closing(ours(Shuffled(), batch_size=4)) as resumed:
        resumed.load_state_dict(state)
        assert [batch.tolist() for batch in resumed] == rest
        assert torch.rand(3).tolist() == more


def test_a_dataset_with_a_state_is_not_read_again(torch, ours):
    made = []

    class Counted(OfDataset):
        def __iter__(self):
            for sample in super().__iter__():
                made.append(sample)
                yield sample

    with closing(ours(stream(torch, Counted, [40]), batch_size=4)) as loader:
        batches = iter(loader)
        for _ in range(6):
            next(batches)
        state = loader.state_dict()
    made.clear()
    with closing(ours(stream(torch, Counted, [40]), batch_size=4)) as resumed:
        resumed.load_state_dict(state)
        next(iter(resumed))
    assert len(made) == 4


def test_a_state_does_not_change_when_the_loader_goes_on(torch, ours):
    class Kept(OfDataset):
        def __init__(self, sizes):
            super().__init__(sizes)
            self.kept = []

        def state_dict(self):
            self.kept.append(len(self.kept))
            return {**super().state_dict(), "kept": self.kept}

        def load_state_dict(self, state):
            super().load_state_dict(state)
            self.kept = state["kept"]

    with closing(ours(stream(torch, Kept, [40]), batch_size=4)) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        before = copy.deepcopy(state)
        next(batches)
        assert state == before
        loader.load_state_dict(state)
        list(loader)
        assert state == before


@pytest.mark.parametrize("workers", [0, 2])
def test_a_state_that_cannot_be_taken_is_reported_when_it_is_asked_for(torch, ours, workers):
    """Streams of other projects may have a state_dict with arguments; scripts that ask for no state run as before."""

    class Foreign(Plain):
        def state_dict(self, count):
            raise AssertionError

        def load_state_dict(self, state):
            raise AssertionError

    with closing(ours(stream(torch, Foreign, SIZES[workers]), batch_size=4, num_workers=workers)) as loader:
        batches = iter(loader)
        for _ in range(3):
            next(batches)
        with pytest.raises(NotResumableError, match=r"state_dict\(\) must take no arguments"):
            loader.state_dict()
        assert len(list(batches)) == 3


def test_a_state_of_other_data_is_refused(torch, ours):
    dataset = stream(torch, OfDataset, SIZES[2])
    with closing(ours(dataset, 4, num_workers=2)) as loader:
        next(iter(loader))
        state = checkpoint(loader)
        with pytest.raises(ResumeError, match="use the same number") as caught:
            ours(stream(torch, OfDataset, SIZES[3]), 4, num_workers=3).load_state_dict(state)
        assert (caught.value.field, caught.value.expected, caught.value.found) == ("num_workers", 3, 2)
        with pytest.raises(ResumeError, match="use the same size"):
            ours(dataset, 5, num_workers=2).load_state_dict(state)
        with pytest.raises(ResumeError):
            ours([1, 2, 3], 4).load_state_dict(state)  # of a dataset with indices
        workers = state["stream"]["workers"]
        for wrong in ([], [{}, {}], workers[:1], None):
            with pytest.raises(ResumeError, match="corrupt"):
                loader.load_state_dict({**state, "stream": {**state["stream"], "workers": wrong}})
        with pytest.raises(ResumeError, match="corrupt"):
            loader.load_state_dict({**state, "stream": 3})
        assert checkpoint(loader) == state


def test_a_stream_that_became_shorter_is_not_resumed(torch, ours):
    with closing(ours(stream(torch, Plain, [21]), 4)) as loader:
        batches = iter(loader)
        for _ in range(4):
            next(batches)
        shorter = ours(stream(torch, Plain, [9]), 4)
        shorter.load_state_dict(loader.state_dict())
    with pytest.raises(ResumeError, match="fewer"):
        iter(shorter)


def test_a_closed_loader_keeps_its_position(torch, ours):
    loader = ours(stream(torch, OfDataset, SIZES[2]), 4, num_workers=2)
    batches = iter(loader)
    next(batches)
    state = loader.state_dict()
    loader.close()
    assert list(batches) == []
    assert loader.state_dict() == state
    made = copy.deepcopy(loader)
    assert len(list(made)) == 6
    loader.load_state_dict(state)
    assert len(list(loader)) == 5


def test_the_workers_of_an_abandoned_epoch_end(torch, ours):
    import multiprocessing

    loader = ours(stream(torch, Plain, SIZES[2]), 4, num_workers=2)
    for _ in loader:
        break
    gc.collect()
    assert multiprocessing.active_children() == []


def test_worker_init_fn_finds_the_dataset(torch, ours):
    def set_sizes(worker):
        torch.utils.data.get_worker_info().dataset.sizes = [2, 1]

    with closing(ours(stream(torch, Plain, [5, 5]), None, num_workers=2, worker_init_fn=set_sizes)) as loader:
        assert list(loader) == [0, 2, 1]


def test_an_error_of_a_stream_leaves_it_usable(torch, ours):
    class Failing(torch.utils.data.IterableDataset):
        next = 0

        def __iter__(self):
            return self

        def __next__(self):
            self.next += 1
            if self.next == 3:
                raise KeyError("third")
            if self.next > 5:
                raise StopIteration
            return self.next

    for workers in (0, 1):
        with closing(ours(Failing(), None, num_workers=workers)) as loader:
            batches = iter(loader)
            assert [next(batches), next(batches)] == [1, 2]
            with pytest.raises(KeyError, match="third"):
                next(batches)
            assert list(batches) == [4, 5]


@pytest.mark.parametrize("workers", [0, 2])
def test_more_samples_than_announced_are_torchs_warning(torch, ours, workers):
    class Announced(torch.utils.data.IterableDataset):
        def __iter__(self):
            return iter(range(3))

        def __len__(self):
            return 2

        def __repr__(self):
            return "Announced"

    found = []
    for make in (torch.utils.data.DataLoader, ours):
        loader = make(Announced(), None, num_workers=workers)
        with warnings.catch_warnings(record=True) as caught:
            warnings.simplefilter("always")
            assert len(list(loader)) == 3 * max(1, workers)
            assert not [each for each in caught if "reported" in str(each.message)]
            assert len(loader) == 2
            assert len(list(loader)) == 3 * max(1, workers)
        mine = [each for each in caught if "reported" in str(each.message)]
        assert {each.filename for each in mine} == {__file__}
        found.append([(each.category, str(each.message).split(", this")[0]) for each in mine])
    assert found[0] == found[1]
    assert len(found[0]) == (1 if workers == 0 else 4)


def test_data_pipes_have_no_state(torch, ours):
    pipe = torch.utils.data.datapipes.iter.IterableWrapper(range(6))
    with closing(ours(pipe, batch_size=2)) as loader:
        assert len(list(loader)) == 3
        for ask in (loader.state_dict, lambda: loader.load_state_dict({})):
            with pytest.raises(NotResumableError, match="IterDataPipe"):
                ask()
