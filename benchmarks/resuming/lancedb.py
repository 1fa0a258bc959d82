"""LanceDB: its StreamingDataset; the states of all ranks are merged, and each new rank loads the result.

As "Checkpointing" and "Resuming" of its documentation say (https://docs.lancedb.com/training/resuming). A set has a
fixed number of splits, which each number of ranks has to divide, and which should divide the batch of all ranks.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import lancedb
import torch
from lancedb.streaming import StreamingDataset

from benchmarks import resuming

if TYPE_CHECKING:
    from collections.abc import Iterable

VARIANTS = ("",)


def prepare(folder: str) -> None:
    """Write a table."""
    lancedb.connect(folder).create_table("numbers", [{"id": number} for number in range(resuming.SAMPLES)])


class Rank(resuming.Rank):
    """Rank with a dataset for each epoch."""

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        # The fewest that divide the batch and are divided by all worlds: the last samples of a split are left out.
        self._splits = self.saved["num_splits"] if self.saved else 30 if self.world == 3 else 12

    def chosen(self, states: list[Any]) -> Any:
        return states[0][0], StreamingDataset.merge_state_dicts([state for _, state in states])

    def batches(self, saved: Any) -> Iterable[tuple[Any, Any]]:
        torch.manual_seed(7)
        self._dataset = StreamingDataset(
            lancedb.connect(self.folder).open_table("numbers"),
            num_splits=self._splits,
            shuffle=True,
            shuffle_seed=7,
            epoch=self.epoch,
            rank=self.rank,
            world_size=self.world,
        )
        if saved is not None:
            self._dataset.load_state_dict(saved)
        for batch in torch.utils.data.DataLoader(self._dataset, batch_size=self.batch):
            yield batch["id"], torch.rand(len(batch["id"]), dtype=torch.float64)

    def position(self) -> Any:
        return self._dataset.state_dict()
