"""Tests of what is sent to workers with a function of the script, and of the errors where something cannot be sent."""

import functools
import multiprocessing
import pickle
import re
import threading
import weakref

import cloudpickle
import pytest

from aioloader import WorkerError
from tests.aioloader.interop.torch_samples import MARKS, Samples

pytestmark = MARKS


@pytest.fixture(scope="module")
def ours(spawned):
    """Return our loader with workers that receive all they need; forks have it."""
    return spawned


class Module:
    """Owner of a collate function that refers to things that cannot be pickled, as a LightningDataModule does."""

    def __init__(self):
        self.scale = 2
        self.lock = threading.Lock()
        self.me = weakref.ref(self)

    def collate(self, samples):
        return [self.scale * sample for sample in samples]

    def __call__(self, samples):
        return self.collate(samples)

    def locked(self, samples):
        with self.lock:
            return samples


def sent(function):
    from aioloader.interop.torch._sending import detached

    return pickle.loads(cloudpickle.dumps(detached(function)))


def test_a_method_is_sent_without_what_cannot_be_pickled(torch):
    owner = Module()
    assert sent(owner.collate)([1, 2]) == [2, 4]
    assert sent(owner)([1, 2]) == [2, 4]
    assert sent(functools.partial(owner.collate))([1, 2]) == [2, 4]
    with pytest.raises(
        WorkerError, match=r"Module\.lock was not sent .* cannot be pickled .*move what it needs"
    ):
        sent(owner.locked)([1])


def test_what_can_be_pickled_is_sent_as_it_is(torch):
    from aioloader.interop.torch._sending import detached

    module = torch.nn.Linear(2, 1)
    for function in (sent, len, module, module.forward, Samples([1]).__getitem__, None):
        assert detached(function) is function


@pytest.mark.parametrize("persistent", [False, True])
def test_a_method_of_a_data_module_collates_in_workers(torch, ours, persistent):
    owner = Module()
    loader = ours(
        Samples([1, 2, 3]), 2, num_workers=1, collate_fn=owner.collate, persistent_workers=persistent
    )
    assert list(loader) == [[2, 4], [6]]
    owner.scale = 3  # torch's persistent workers do not see it either
    assert list(loader) == ([[2, 4], [6]] if persistent else [[3, 6], [9]])
    loader.close()


class Open(Samples):
    def __init__(self):
        super().__init__([1, 2])
        self.inner = {"lock": [threading.Lock()]}


def run_with(lock):
    return lambda _: lock


CULPRITS = {
    "dataset": (
        lambda: {"dataset": Open()},
        r"the dataset cannot be sent .*: Open\.inner\['lock'\]\[0\] is a lock.* make it in __getitem__",
    ),
    "closure": (
        lambda: {"collate_fn": run_with(threading.Lock())},
        r"the collate_fn cannot be sent .*: run_with\.<locals>\.<lambda>'s variable lock is a lock.* move what",
    ),
    "worker_init_fn": (
        lambda: {"worker_init_fn": run_with(threading.Lock())},
        r"the worker_init_fn cannot be sent .*'s variable lock is a lock",
    ),
    "argument": (
        lambda: {"collate_fn": functools.partial(max, key=threading.Lock())},
        r"the collate_fn cannot be sent .*keywords\['key'\] is a lock",
    ),
}


@pytest.mark.parametrize("persistent", [False, True])
@pytest.mark.parametrize("name", CULPRITS)
def test_the_error_names_what_cannot_be_sent(torch, ours, name, persistent):
    make, text = CULPRITS[name]
    options = {"dataset": Samples([1, 2]), **make()}
    loader = ours(**options, num_workers=1, persistent_workers=persistent)
    with pytest.raises(WorkerError, match=text) as caught:
        list(loader)
    assert "set num_workers=0" in str(caught.value)
    assert "executor" not in str(caught.value)
    loader.close()


@pytest.mark.parametrize("make", ["Value", "Lock", "Queue", "Event"])
def test_what_only_forks_can_share_is_named_with_what_can_be_sent(torch, make):
    from aioloader.interop.torch._sending import unsendable

    samples = Samples([1])
    context = multiprocessing.get_context("fork")
    samples.shared = context.Value("i", 0) if make == "Value" else getattr(context, make)()
    found = unsendable({"dataset": samples})
    assert re.search(
        r"Samples\.shared is a \w+, which cannot be pickled .*share a tensor \(share_memory_\(\)\)", found
    )
