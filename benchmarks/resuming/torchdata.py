"""torchdata: StatefulDataLoader with its StatefulDistributedSampler; every rank saves and loads its own state.

Its tutorial says that a state is for the same number of ranks; a rank without one takes that of another.
"""

from __future__ import annotations

import base64
import pickle
from typing import TYPE_CHECKING, Any

import torch
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

from benchmarks.resuming import EPOCHS, SAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator

VARIANTS = ("",)


class Numbers(torch.utils.data.Dataset[Any]):
    """Numbers, each with a draw of torch's generator, which the loader seeds."""

    def __len__(self) -> int:
        return SAMPLES

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, torch.rand((), dtype=torch.float64).item()


class Rank:
    """One rank; see `benchmarks.resuming`."""

    def __init__(self, variant: str, rank: int, world: int, batch: int, states: list[Any] | None) -> None:
        torch.manual_seed(7)
        dataset = Numbers()
        self._sampler = StatefulDistributedSampler(
            dataset, num_replicas=world, rank=rank, shuffle=True, seed=7
        )
        self._loader = StatefulDataLoader(dataset, batch, sampler=self._sampler, num_workers=1)
        self._epoch = 0
        if states is not None:
            self._epoch, state = pickle.loads(base64.b64decode(states[rank % len(states)]))
            self._sampler.set_epoch(self._epoch)
            self._loader.load_state_dict(state)

    def __iter__(self) -> Iterator[tuple[int, list[int], list[float]]]:
        for epoch in range(self._epoch, EPOCHS):
            self._epoch = epoch
            self._sampler.set_epoch(epoch)
            for ids, draws in self._loader:
                yield epoch, ids.tolist(), draws.tolist()

    def state(self) -> Any:
        """Return the state."""
        return base64.b64encode(pickle.dumps((self._epoch, self._loader.state_dict()))).decode()
