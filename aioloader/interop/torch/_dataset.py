"""Batches as a dataset for torch's DataLoader."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

import torch
import torch.distributed
import torch.utils.data

from aioloader.loader.outputs import as_tensors
from aioloader.loader.sync_loader import DataLoader

if TYPE_CHECKING:
    from collections.abc import Iterator


def _rank_and_world() -> tuple[int, int] | None:
    """Return the rank and world size of torch.distributed; None if it is not initialised."""
    distributed = torch.distributed
    if not distributed.is_available() or not distributed.is_initialized():
        return None
    return distributed.get_rank(), distributed.get_world_size()


class LoaderDataset(torch.utils.data.IterableDataset):  # type: ignore[misc]  # torch is not installed where types are checked
    """Dataset of the batches of an `aioloader.DataLoader`, for ``torch.utils.data.DataLoader(..., batch_size=None)``.

    ::

        batches = LoaderDataset(dataset, 64, shuffle=True)
        for epoch in range(10):
            batches.set_epoch(epoch)
            for images, labels in torch.utils.data.DataLoader(batches, batch_size=None, num_workers=4):
                ...

    Every process that iterates it has a separate loader, and an epoch is divided among them: between the ranks of
    torch.distributed, if that is initialised, and then between the worker processes of torch's loader. Each part has
    the same number of batches (option `even`).

    In a worker process of torch the loader works inline, because there is one such process per core; elsewhere it
    starts its own workers. The option `num_workers` overrides both.

    It has `state_dict` and `load_state_dict`, which torchdata's StatefulDataLoader requires of a dataset; the state
    counts the batches taken by the process that iterates it.

    Args:
        dataset: as for `aioloader.DataLoader`; worker processes that are not forked receive it by pickle.
        batch_size: number of samples of a batch.
        options: further options of `aioloader.DataLoader`, except `shard`, which is determined here.

    Raises:
        TypeError: `shard` is among the options.
    """

    def __init__(self, dataset: Any, batch_size: int, **options: Any) -> None:  # the caller's, of any class
        super().__init__()
        if "shard" in options:
            raise TypeError(
                "LoaderDataset determines its shard from torch.distributed and torch's worker processes; "
                "to choose a shard use aioloader.DataLoader(shard=...) and StatefulLoader"
            )
        self._dataset = dataset
        self._options: dict[str, Any] = {"batch_size": batch_size, **options}
        # Shared with persistent worker processes: the number of calls of set_epoch, and the epoch.
        self._epoch = torch.zeros(2, dtype=torch.int64).share_memory_()
        self._epoch_seen = 0
        self._ranks = _rank_and_world()
        self._drawn_seed = int.from_bytes(os.urandom(8), "little")  # the same in all worker processes
        self._state: dict[str, Any] | None = None
        self._loader: DataLoader[Any] | None = None
        self._owner: tuple[int, tuple[int, int]] | None = None

    def __getstate__(self) -> dict[str, Any]:
        # In a worker process that is not forked torch.distributed is not initialised.
        return {**self.__dict__, "_ranks": self.ranks, "_loader": None, "_owner": None}

    @property
    def ranks(self) -> tuple[int, int]:
        """Return this process's rank and the world size."""
        return _rank_and_world() or self._ranks or (0, 1)

    @property
    def shard(self) -> tuple[int, int]:
        """Return the shard of the calling process: (index, number of shards)."""
        rank, world = self.ranks
        info = torch.utils.data.get_worker_info()
        worker, workers = (0, 1) if info is None else (info.id, info.num_workers)
        return rank * workers + worker, world * workers

    def set_epoch(self, epoch: int) -> None:
        """Set the number of the next epoch, in this process and in all existing and future worker processes.

        Without it every iteration is the next epoch. Worker processes that torch starts again for each epoch then
        begin with epoch 0 each time.

        Raises:
            ValueError: `epoch` is negative.
        """
        if epoch < 0:
            raise ValueError(f"epoch must not be negative, got {epoch}")
        self._epoch[1] = epoch
        self._epoch[0] += 1
        if self._state is not None and self._state.get("epoch") != epoch:
            self._state = None  # worker processes have loaded it already, or never will

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the batches of this process for one epoch, as tensors."""
        loader = self._own_loader()
        return map(as_tensors, iter(loader))

    def _own_loader(self) -> DataLoader[Any]:
        owner = (os.getpid(), self.shard)
        if self._loader is None or self._owner != owner:
            options = dict(self._options)
            if torch.utils.data.get_worker_info() is not None:
                options.setdefault("num_workers", 0)
            if options.get("seed", 0) is None and self.ranks[1] == 1:
                options["seed"] = self._drawn_seed
            self._loader = DataLoader(self._dataset, shard=owner[1], **options)
            self._owner = owner
            self._epoch_seen = 0
        times, epoch = (int(number) for number in self._epoch)
        if times != self._epoch_seen:
            self._epoch_seen = times
            self._loader.set_epoch(epoch)
        if self._state is not None:
            self._loader.load_state_dict(self._state)
            self._state = None
        return self._loader

    def state_dict(self) -> dict[str, Any]:
        """Return the position of the calling process, as a JSON object."""
        if self._state is not None:
            return self._state
        return self._own_loader().state_dict()

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume the next epoch at the position of `state`; see `aioloader.DataLoader.load_state_dict`.

        The states of all processes must be saved after the same number of batches. The number of processes may differ
        between saving and loading.
        """
        self._state = dict(state)
