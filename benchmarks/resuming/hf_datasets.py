"""Hugging Face datasets: a stream of shards, which are divided among the ranks; every rank has its own state.

"Stream" of its documentation has the state of a stream and says that the samples of a shuffle buffer are lost
(https://huggingface.co/docs/datasets/stream#save-a-dataset-checkpoint-and-resume-iteration); without a buffer only the
shards are shuffled. "Use with PyTorch" divides the shards (https://huggingface.co/docs/datasets/use_with_pytorch).
"""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

import datasets
import torch
from datasets.distributed import split_dataset_by_node

from benchmarks import resuming

if TYPE_CHECKING:
    from collections.abc import Iterable

VARIANTS = ("shards", "buffer")


class Rank(resuming.Rank):
    """Rank with a stream for each epoch: one that has loaded a state begins later epochs there, too."""

    def batches(self, saved: Any) -> Iterable[tuple[Any, Any]]:
        torch.manual_seed(7)
        numbers = datasets.Dataset.from_dict({"id": range(resuming.SAMPLES)})
        stream = numbers.to_iterable_dataset(num_shards=resuming.SHARDS)
        stream = stream.shuffle(seed=7, buffer_size=1 if self.variant == "shards" else 100)
        self._stream = split_dataset_by_node(stream, self.rank, self.world)
        self._stream.set_epoch(self.epoch)
        if saved is not None:
            self._stream.load_state_dict(saved)
        rows = iter(self._stream)
        while ids := [row["id"] for row in islice(rows, self.batch)]:
            yield ids, torch.rand(len(ids), dtype=torch.float64)

    def position(self) -> Any:
        return self._stream.state_dict()
