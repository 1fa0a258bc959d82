"""WebDataset: tar shards, which are divided among the ranks. It has no state: the epoch of a stop begins again.

As "Multi-Node Training" of its FAQ says (https://webdataset.github.io/webdataset/FAQ).
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import torch
import webdataset

from benchmarks import resuming

if TYPE_CHECKING:
    from collections.abc import Iterable

VARIANTS = ("",)


def prepare(folder: str) -> None:
    """Write shards."""
    for shard in range(resuming.SHARDS):
        with webdataset.TarWriter(f"{folder}/{shard:06d}.tar") as writer:
            for number in range(shard, resuming.SAMPLES, resuming.SHARDS):
                writer.write({"__key__": f"{number:06d}", "id": str(number)})


class Rank(resuming.Rank):
    """Rank with a stream for each epoch."""

    def batches(self, saved: Any) -> Iterable[tuple[Any, Any]]:
        torch.manual_seed(7)
        stream = webdataset.WebDataset(
            f"{self.folder}/{{000000..{resuming.SHARDS - 1:06d}}}.tar",
            nodesplitter=webdataset.split_by_node,
            shardshuffle=resuming.SHARDS,
            seed=7 + self.epoch,
        )
        samples = stream.shuffle(100, seed=7 + self.epoch).map(with_draw).batched(self.batch)
        return webdataset.WebLoader(samples, batch_size=None, num_workers=1)

    def position(self) -> Any:
        return None


def with_draw(sample: dict[str, Any]) -> tuple[int, float]:
    """Return a sample and a random number."""
    return int(sample["id"]), torch.rand((), dtype=torch.float64).item()
