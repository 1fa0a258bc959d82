"""Tests of shards whose samples are still being found while a loader reads the first ones in order."""

from __future__ import annotations

import threading
from pathlib import Path
from typing import Any

import pytest

import aioloader
from aioloader import TarDataset
from aioloader.errors import SampleFormatError
from aioloader.samplers import BlockShuffleSampler
from tests.aioloader.datasets.tars import members_of, photo, write_tar

WAIT_S = 120.0
SAMPLES, SHARDS = 6, 3


class SlowTars(TarDataset):
    """Tars whose samples, except those of one, are found once the test says so, as if they were far away."""

    reads_ahead = True

    fails = False
    first = 0

    def __init__(self, paths: list[Path], **options: Any) -> None:
        self.let_go = threading.Event()
        self.begun: list[str] = []
        super().__init__(paths, **options)

    def _open_table(self, path: str, version: Any) -> Any:
        self.begun.append(path)
        if path != self.paths[self.first]:
            while not self.let_go.wait(0.01):
                assert self._growing is not None
                if self._growing.closed:
                    raise OSError("nobody waits any more")
            if self.fails:
                raise OSError("the server is gone")
        return super()._open_table(path, version)

    def open_source(self) -> Any:
        self.reads_ahead = False  # they are not
        return super().open_source()


SlowTars.__qualname__ = TarDataset.__qualname__  # a state names the class of its data


@pytest.fixture
def paths(tmp_path: Path) -> list[Path]:
    parts = [range(SAMPLES * shard, SAMPLES * (shard + 1)) for shard in range(SHARDS)]
    return [
        write_tar(tmp_path / f"{shard}.tar", members_of([photo(number) for number in part]))
        for shard, part in enumerate(parts)
    ]


SHUFFLED = {"shuffle_shards": 2}
OPTIONS: dict[str, Any] = {"executor": "thread", "num_workers": 1, "prefetch": 1, "seed": 5}


def seen(batches: Any) -> list[tuple[bytes, list[int]]]:
    return [(images.tobytes(), labels.tolist()) for images, labels in batches]


def chain(dataset: Any) -> Any:
    return dataset.transform_first(aioloader.transforms.RandomResizedCrop(16))


def slow_tars(paths: list[Path], given: dict[str, Any], epoch: int = 0) -> SlowTars:
    """Return tars of which the first one that the epoch needs can be opened at once."""
    slow = SlowTars(paths, **given)
    if given:
        slow.first = int(BlockShuffleSampler([1] * SHARDS, 2).block_order(OPTIONS["seed"], epoch)[0])
    return slow


@pytest.mark.parametrize("given", [{}, SHUFFLED], ids=["in-order", "shuffled"])
@pytest.mark.parametrize("last_batch", ["keep", "discard", "rollover"])
@pytest.mark.parametrize("rank", [None, 0, 1])
def test_first_samples_are_read_while_others_are_found(
    paths: list[Path], last_batch: str, rank: int | None, given: dict[str, Any], leftovers: Any
) -> None:
    options = {**OPTIONS, "last_batch": last_batch, "shard": None if rank is None else (rank, 2)}
    options["shuffle"] = bool(given)
    with aioloader.DataLoader(chain(TarDataset(paths, **given)), 4, **options) as loader:
        wanted = [seen(loader) for _ in range(2)]
        state, receipt = loader.state_dict(), loader.receipt()
        loader.check_receipt(receipt) if rank is None else None
    slow = slow_tars(paths, given)
    with aioloader.DataLoader(chain(slow), 4, **options) as loader:
        batches = iter(loader)
        first = seen([next(batches)]) if rank is None else []
        assert not slow.let_go.is_set()
        assert len(slow.begun) <= 2  # not all at a time
        slow.let_go.set()
        assert [first + seen(batches), seen(loader)] == wanted
        assert (loader.state_dict(), loader.receipt()) == (state, receipt)
        assert len(slow) == SAMPLES * SHARDS


@pytest.mark.parametrize("given", [{}, SHUFFLED], ids=["in-order", "shuffled"])
def test_an_epoch_is_resumed_while_samples_are_found(
    paths: list[Path], given: dict[str, Any], leftovers: Any
) -> None:
    options = {**OPTIONS, "shuffle": bool(given)}
    with aioloader.DataLoader(chain(TarDataset(paths, **given)), 4, **options) as loader:
        batches = iter(loader)
        next(batches)
        state = loader.state_dict()
        rest = seen(batches)
    slow = slow_tars(paths, given)
    slow.let_go.set()
    with aioloader.DataLoader(chain(slow), 4, **options) as loader:
        loader.load_state_dict(state)
        assert seen(loader) == rest


@pytest.mark.parametrize("epoch", [0, 2])
async def test_shards_are_searched_in_the_order_of_the_epoch_that_opens_the_loader(
    paths: list[Path], epoch: int, leftovers: Any
) -> None:
    slow = slow_tars(paths, SHUFFLED, epoch)
    async with aioloader.AsyncDataLoader(chain(slow), 4, shuffle=True, **OPTIONS) as loader:
        loader.set_epoch(epoch)
        async for _, labels in loader:
            assert {*(labels // SAMPLES).tolist()} == {slow.first}
            break
        assert not slow.let_go.is_set()


def test_an_epoch_that_was_not_expected_waits_for_its_own_shards(paths: list[Path], leftovers: Any) -> None:
    options = {**OPTIONS, "shuffle": True}
    with aioloader.DataLoader(chain(TarDataset(paths, **SHUFFLED)), 4, **options) as loader:
        loader.set_epoch(3)
        wanted = seen(loader)
    slow = slow_tars(paths, SHUFFLED)
    with aioloader.DataLoader(chain(slow), 4, **options) as loader:
        next(iter(loader))
        loader.set_epoch(3)
        slow.let_go.set()
        assert seen(loader) == wanted


def test_samples_of_named_shards_are_those_of_the_dataset(paths: list[Path], leftovers: Any) -> None:
    dataset = TarDataset(paths, **SHUFFLED)
    sampler = dataset.shuffle_sampler(None)
    assert sampler is not None
    named = sampler.indices(5, 0, 0, len(dataset))
    assert [dataset[index][1] for index in named.tolist()] == dataset.tables.counted(named).tolist()
    with aioloader.DataLoader(
        chain(dataset), 4, shuffle=True, num_workers=0, seed=5, on_error="replace", progress=True
    ) as loader:
        assert [label for _, labels in loader for label in labels] == dataset.tables.counted(named).tolist()


@pytest.mark.parametrize(
    "view", [lambda data: data.take(11), lambda data: aioloader.ConcatDataset([data, data]).take(30)]
)
def test_views_are_mixed_by_shards(paths: list[Path], view: Any, leftovers: Any) -> None:
    chosen = view(TarDataset(paths, shuffle_shards=1))
    with aioloader.DataLoader(chain(chosen), 4, shuffle=True, num_workers=0, seed=5) as loader:
        labels = [int(label) for _, labels in loader for label in labels]
    assert sorted(labels) == sorted(chosen.labels().tolist())
    shards = [label // SAMPLES for label in labels]
    assert len({*shards[: min(SAMPLES, len(chosen) - SAMPLES)]}) == 1


def test_damage_is_reported_behind_the_samples_before_it(paths: list[Path], leftovers: Any) -> None:
    paths[1].write_bytes(paths[1].read_bytes()[: paths[1].stat().st_size // 2])
    slow = SlowTars(paths)
    slow.let_go.set()
    with aioloader.DataLoader(
        slow.transform_first(aioloader.transforms.CenterCrop(8)), 3, **OPTIONS
    ) as loader:
        batches = iter(loader)
        assert len(seen([next(batches), next(batches)])) == 2
        with pytest.raises(SampleFormatError, match=r"1\.tar"):
            next(batches)
        with pytest.raises(SampleFormatError, match=r"1\.tar"):
            len(loader)


def test_a_state_can_be_saved_once_a_failure_is_over(paths: list[Path], leftovers: Any) -> None:
    slow = SlowTars(paths)
    slow.fails = True
    slow.let_go.set()
    with aioloader.DataLoader(chain(slow), 4, **OPTIONS) as loader:
        batches = iter(loader)
        next(batches)
        with pytest.raises(OSError, match="the server is gone"):
            next(batches)
        slow.fails = False
        assert loader.state_dict()["consumed"] == 4
    with aioloader.DataLoader(chain(slow), 4, **OPTIONS) as loader:
        assert len(seen(loader)) == 5


def test_leaving_ends_the_search(paths: list[Path], leftovers: Any) -> None:
    slow = SlowTars(paths)
    with aioloader.DataLoader(chain(slow), 4, **OPTIONS) as loader:
        assert len(next(iter(loader))[1]) == 4
    slow.let_go.set()
    assert slow[SAMPLES][1] == SAMPLES
    assert len(slow) == SAMPLES * SHARDS


@pytest.mark.parametrize("options", [{"shuffle": True}, {"on_error": "replace"}, {"sampler": range(4)}])
def test_other_orders_wait_for_all_samples(
    paths: list[Path], options: dict[str, Any], leftovers: Any
) -> None:
    slow = SlowTars(paths)
    slow.let_go.set()
    with aioloader.DataLoader(chain(slow), 4, **OPTIONS, **options) as loader:
        next(iter(loader))
        assert slow._growing is None


def test_a_shard_is_opened_ahead_and_others_when_they_are_needed(paths: list[Path], leftovers: Any) -> None:
    slow = SlowTars([*paths, *paths])
    slow.let_go.set()
    with aioloader.DataLoader(chain(slow), SAMPLES, **OPTIONS) as loader:
        batches = iter(loader)
        next(batches)
        assert slow._growing is not None
        assert slow._growing.wait_for(2 * SAMPLES) < len(paths) * 2 * SAMPLES
        assert len(seen(batches)) == 2 * len(paths) - 1
        assert slow._growing.complete
