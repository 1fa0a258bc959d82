"""Tests of samplers, datasets and batchify functions of other libraries: whatever their attributes are called."""

from __future__ import annotations

import importlib
import random
from collections.abc import Callable, Iterator
from typing import Any

import numpy as np
import pytest

import aioloader
import aioloader.abc
from aioloader import ArrayDataset, ConcatDataset, DataLoader, Dataset, SimpleDataset, batchify, samplers
from aioloader.datasets import resolve
from tests.cases import with_cases
from tests.torchvision_import import import_torchvision

# All that a loader may ask a part for.
NAMES = sorted(
    {
        name
        for module in (aioloader.abc, resolve)
        for part in vars(module).values()
        if isinstance(part, type) and part.__module__ == module.__name__
        for name in (*vars(part), *vars(part).get("__annotations__", ()))
        if not name.startswith("_")
    }
    | {"by_rows", "batch_size", "sampler", "batch_sampler", "rank", "num_replicas", "shard", "classes"}
    | {"shape", "dtype"}
)


def _nothing(self: object) -> None:
    raise AssertionError("called without need")


class _Inner:
    """Object with everything, to which a wrapper passes on what it does not know."""

    def __getattr__(self, name: str) -> Any:
        if name.startswith("__"):
            raise AttributeError(name)
        return lambda *_, **__: _nothing(self)


def _filled(cls: type, kind: str) -> type:
    """Return a class whose objects have an attribute of every name: of a kind that means something else here."""

    class Filled(cls):  # type: ignore[misc]
        def __init__(self, *args: Any) -> None:
            super().__init__(*args)
            if kind not in ("method", "delegated"):
                value = {"list": [1, 2], "text": "text", "number": 3, "none": None}[kind]
                vars(self).update(dict.fromkeys(NAMES, value))

    if kind == "method":
        for name in NAMES:
            setattr(Filled, name, _nothing)
    if kind == "delegated":
        inner = _Inner()
        Filled.__getattr__ = lambda self, name: getattr(inner, name)
    return Filled


class Backwards:
    """Sampler, as other libraries write them."""

    def __init__(self, length: int) -> None:
        self._length = length

    def __iter__(self) -> Iterator[int]:
        return iter(range(self._length - 1, -1, -1))

    def __len__(self) -> int:
        return self._length


class Pairs(Backwards):
    def __iter__(self) -> Iterator[Any]:
        return iter([[last, last - 1] for last in range(2 * self._length - 1, 0, -2)])


class Tens:
    def __init__(self, length: int) -> None:
        self._length = length

    def __len__(self) -> int:
        return self._length

    def __getitem__(self, index: int) -> int:
        if index == 5:
            raise ValueError("damaged")
        return 10 * index


class Collator:
    def __call__(self, samples: list[Any]) -> Any:
        return np.array(samples) + 1


@with_cases("kind", ["list", "text", "number", "none", "method", "delegated"])
@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_attributes_of_any_name(kind: str, workers: int) -> None:
    dataset, collate = _filled(Tens, kind)(6), _filled(Collator, kind)()
    for options in (
        {"batch_size": 2, "sampler": _filled(Backwards, kind)(6)},
        {"batch_sampler": _filled(Pairs, kind)(3)},
    ):
        with DataLoader(
            dataset, **options, num_workers=workers, on_error="skip", batchify_fn=collate
        ) as loader:
            assert len(loader) == 3
            assert [batch.tolist() for batch in loader] == [[41], [31, 21], [11, 1]]
            (error,) = loader.errors
            assert (error.index, str(error.__cause__)) == (5, "damaged")
            assert loader.state_dict()["epoch"] == 1
    both = ConcatDataset([SimpleDataset([1, 2]), dataset])
    with (
        DataLoader(both, 3, num_workers=workers, shuffle=True) as loader,
        pytest.raises(aioloader.SampleError),
    ):
        list(loader)
    assert SimpleDataset(range(6)).sample(_filled(Backwards, kind)(6))[0] == 5
    assert samplers.BatchSampler(_filled(Backwards, kind)(4), 2)
    with DataLoader(
        SimpleDataset(list(range(4))),
        batch_sampler=samplers.BatchSampler(_filled(Backwards, kind)(4), 2),
        num_workers=0,
    ) as loader:
        assert [batch.tolist() for batch in loader] == [[3, 2], [1, 0]]


class Wrapper:
    """Wrapper of a part of aioloader that changes what it returns, and passes on all other names."""

    def __init__(self, part: Any, change: Callable[[Any], Any]) -> None:
        self._part, self._change = part, change

    def __getattr__(self, name: str) -> Any:
        if name.startswith("_"):
            raise AttributeError(name)
        return getattr(self._part, name)

    def __len__(self) -> int:
        return len(self._part)

    def __getitem__(self, index: int) -> Any:
        return self._change(self._part[index])

    def __iter__(self) -> Iterator[Any]:
        return iter(self._change(list(self._part)))

    def __call__(self, samples: Any) -> Any:
        return self._change(self._part(samples))


@pytest.mark.parametrize("workers", [0, pytest.param(2, marks=pytest.mark.slow)])
def test_a_wrapper_is_asked_and_not_the_part_in_it(workers: int) -> None:
    numbers = SimpleDataset(list(range(6)))

    def batches(dataset: Any, size: int | None = 3, **options: Any) -> Any:
        with DataLoader(dataset, size, num_workers=workers, **options) as loader:
            return [np.asarray(batch).tolist() for batch in loader]

    for part in (numbers, numbers.take(6), numbers.transform(int), ArrayDataset(np.arange(6))):
        assert batches(Wrapper(part, lambda value: 2 * value)) == [[0, 2, 4], [6, 8, 10]]
    backwards: Any = Wrapper(samplers.SequentialSampler(6), lambda order: order[::-1])
    assert batches(numbers, sampler=backwards) == [[5, 4, 3], [2, 1, 0]]
    budget = samplers.BucketBatchSampler([1] * 6, 3)
    straight = batches(numbers, None, batch_sampler=Wrapper(budget, lambda order: [[0, 1], [2]]))
    assert straight == [[0, 1], [2]]
    rows = SimpleDataset([np.arange(2), np.arange(3)])
    double = Wrapper(batchify.Pad(), lambda batch: 2 * batch)
    assert batches(rows, 2, batchify_fn=double) == [[[0, 2, 0], [0, 2, 4]]]


class Reversed(samplers.SequentialSampler):
    def __iter__(self) -> Iterator[int]:
        return iter(range(len(self) - 1, -1, -1))


class Fewer(samplers.BucketBatchSampler):
    def __iter__(self) -> Iterator[list[int]]:
        return iter([[4], [0, 1]])


def test_the_iteration_that_a_subclass_defines_is_used() -> None:
    numbers = SimpleDataset(list(range(6)))
    for options, expected in (
        ({"batch_size": 3, "sampler": Reversed(6)}, [[5, 4, 3], [2, 1, 0]]),
        ({"batch_sampler": samplers.BatchSampler(Reversed(6), 3)}, [[5, 4, 3], [2, 1, 0]]),
        ({"batch_sampler": Fewer([1] * 6, 3)}, [[4], [0, 1]]),
    ):
        with DataLoader(numbers, **options, num_workers=0) as loader:
            assert [batch.tolist() for batch in loader] == expected


class Scaled:
    """Dataset with arrays that are not its items."""

    @property
    def arrays(self) -> Any:
        return (np.arange(6),)

    def __len__(self) -> int:
        return 6

    def __getitem__(self, index: int) -> Any:
        return self.arrays[0][index] * 3


class Plain(Scaled):
    def __getitem__(self, index: int) -> Any:
        return self.arrays[0][index]

    arrays = Scaled.arrays


class OldStyle(Tens):
    """Dataset with items that can be iterated, too."""

    def __iter__(self) -> Any:
        return self

    def __next__(self) -> Any:
        raise StopIteration


def test_arrays_and_iteration_of_a_foreign_dataset() -> None:
    for dataset, expected in ((Scaled(), [0, 3, 6]), (Plain(), [0, 1, 2]), (OldStyle(3), [0, 10, 20])):
        with DataLoader(dataset, 3, num_workers=0) as loader:
            assert next(iter(loader)).tolist() == expected


class Numbers(Dataset):
    def __len__(self) -> int:
        return 300

    def __getitem__(self, index: int) -> int:
        return index


@with_cases("sampler", [[3, 1, 2], np.array([3, 1, 2]), range(5, 0, -1), {3: "a", 1: "b"}])
def test_samplers_that_are_written_anywhere(sampler: Any) -> None:
    _compare({"sampler": sampler}, {"sampler": sampler})


LENGTHS = [number % 3 for number in range(300)]


def _of(module: str, name: str) -> Any:
    if module.startswith(("timm", "torchvision")):
        import_torchvision()  # timm imports it
    pytest.importorskip(module.partition(".")[0])
    try:
        return getattr(importlib.import_module(module), name)
    except ImportError as error:
        pytest.skip(f"needs {error.name or error}")


TORCH = "torch.utils.data"
DISTRIBUTED = {"num_replicas": 2, "rank": 1}
CLIPS = "torchvision.datasets.samplers"


def _video_clips() -> Any:
    """Return an object with what the samplers of torchvision take from its `VideoClips`."""
    clips = _of("torchvision.datasets.video_utils", "VideoClips")
    made = clips.__new__(clips)
    made.clips = [importlib.import_module("torch").zeros(length) for length in (4, 7)]
    return made


LIGHTNING = "lightning.pytorch.overrides.distributed"
SAMPLERS: dict[str, Callable[[], Any]] = {
    "with replacement": lambda: _of(TORCH, "RandomSampler")(Numbers(), True, 50),
    "SubsetRandomSampler": lambda: _of(TORCH, "SubsetRandomSampler")(list(range(40))),
    "DistributedSampler": lambda: _of(TORCH, "DistributedSampler")(Numbers(), **DISTRIBUTED),
    "torchdata's": lambda: _of("torchdata.stateful_dataloader.sampler", "StatefulDistributedSampler")(
        Numbers(), **DISTRIBUTED
    ),
    "torchvision's": lambda: _of(CLIPS, "DistributedSampler")(
        _of(CLIPS, "UniformClipSampler")(_video_clips(), 3), 2, 1
    ),
    "timm's": lambda: _of("timm.data.distributed_sampler", "RepeatAugSampler")(Numbers(), **DISTRIBUTED),
    "lightning's": lambda: _of(LIGHTNING, "UnrepeatedDistributedSamplerWrapper")(
        _of(TORCH, "SubsetRandomSampler")(range(40)), **DISTRIBUTED
    ),
    "accelerate's": lambda: _of("accelerate.data_loader", "SeedableRandomSampler")(Numbers(), data_seed=3),
    "transformers'": lambda: _of("transformers.trainer_pt_utils", "DistributedLengthGroupedSampler")(
        4, lengths=LENGTHS, **DISTRIBUTED
    ),
}
BATCH_SAMPLERS: dict[str, Callable[[], Any]] = {
    "BatchSampler": lambda: _of(TORCH, "BatchSampler")(
        _of(TORCH, "SubsetRandomSampler")(list(range(40))), 8, True
    ),
    "_IndexBatchSamplerWrapper": lambda: _of(LIGHTNING, "_IndexBatchSamplerWrapper")(
        _of(TORCH, "BatchSampler")(_of(TORCH, "SubsetRandomSampler")(range(40)), 8, True)
    ),
    "BatchSamplerShard": lambda: _of("accelerate.data_loader", "BatchSamplerShard")(
        _of(TORCH, "BatchSampler")(range(40), 8, True), 2, 1
    ),
}


def _compare(given: dict[str, Any], again: dict[str, Any], seed: Callable[[], None] = lambda: None) -> None:
    """Compare two epochs of a loader with a sampler with those of the sampler itself."""
    seed()
    with DataLoader(Numbers(), None if "batch_sampler" in given else 4, **given, num_workers=0) as loader:
        found = [[np.asarray(batch).tolist() for batch in loader] for _ in range(2)]
        assert loader.state_dict()["epoch"] == 2
    seed()
    for epoch in found:
        order = [np.asarray(each).tolist() for each in next(iter(again.values()))]
        assert len(order) > 1
        if "sampler" in again:
            order = [order[low : low + 4] for low in range(0, len(order), 4)]
        assert epoch == order


@pytest.mark.torch
@pytest.mark.filterwarnings("ignore")
@pytest.mark.parametrize(("kind", "make"), [
    *(pytest.param("sampler", make, id=name) for name, make in SAMPLERS.items()),
    *(pytest.param("batch_sampler", make, id=name) for name, make in BATCH_SAMPLERS.items()),
])  # fmt: skip
def test_samplers_of_libraries(kind: str, make: Callable[[], Any]) -> None:
    torch = pytest.importorskip("torch")

    def seed() -> None:
        torch.manual_seed(5)
        np.random.seed(5)
        random.seed(5)

    _compare({kind: make()}, {kind: make()}, seed)
