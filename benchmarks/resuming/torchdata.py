"""torchdata: StatefulDataLoader with its StatefulDistributedSampler; every rank saves and loads its own state.

Its README says that it does not combine states across ranks
(https://github.com/meta-pytorch/data/blob/v0.11.0/torchdata/stateful_dataloader/README.md).
"""

from __future__ import annotations

import base64
import pickle
from typing import TYPE_CHECKING, Any

import torch
from torchdata.stateful_dataloader import StatefulDataLoader
from torchdata.stateful_dataloader.sampler import StatefulDistributedSampler

from benchmarks import resuming

if TYPE_CHECKING:
    from collections.abc import Iterable

VARIANTS = ("",)


class Numbers(torch.utils.data.Dataset[Any]):
    """Numbers, each with a draw of torch's generator, which the loader seeds."""

    def __len__(self) -> int:
        return resuming.SAMPLES

    def __getitem__(self, index: int) -> tuple[int, float]:
        return index, torch.rand((), dtype=torch.float64).item()


class Rank(resuming.Rank):
    """Rank with a loader for all epochs."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        torch.manual_seed(7)
        numbers = Numbers()
        self._sampler = StatefulDistributedSampler(numbers, self.world, self.rank, shuffle=True, seed=7)
        self.loader = StatefulDataLoader(numbers, self.batch, sampler=self._sampler, num_workers=1)

    def batches(self, saved: Any) -> Iterable[tuple[Any, Any]]:
        self._sampler.set_epoch(self.epoch)
        return super().batches(None if saved is None else pickle.loads(base64.b64decode(saved)))

    def position(self) -> Any:
        return base64.b64encode(pickle.dumps(super().position())).decode()
