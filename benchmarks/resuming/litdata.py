"""LitData: StreamingDataset in a StreamingDataLoader, whose state other numbers of ranks and workers load.

As "Pause, resume data streaming" of its README says (https://github.com/Lightning-AI/litData#pause-resume), with
``drop_last``, which "Multi-GPU, Multi-Node" asks for (https://lightning.ai/docs/litdata/features/mulit-gpu-multi-node).
"""

from __future__ import annotations

import os
from typing import Any

import torch
from litdata import StreamingDataLoader, StreamingDataset
from litdata.streaming.cache import Cache

from benchmarks import resuming

VARIANTS = ("",)


def prepare(folder: str) -> None:
    """Write chunks in order, in this process."""
    cache = Cache(f"{folder}/chunks", chunk_size=-(-resuming.SAMPLES // resuming.SHARDS))
    for number in range(resuming.SAMPLES):
        cache[number] = number
    cache.done()
    cache.merge()


def with_draw(number: int) -> tuple[int, Any]:
    """Return a sample and a random number."""
    return number, torch.rand((), dtype=torch.float64)


class Rank(resuming.Rank):
    """Rank with a loader for all epochs."""

    shared = True

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        torch.manual_seed(7)
        os.environ["GLOBAL_RANK"] = str(self.rank)
        dataset = StreamingDataset(
            f"{self.folder}/chunks",
            shuffle=True,
            drop_last=True,
            seed=7,
            transform=with_draw,
        )
        self.loader = StreamingDataLoader(dataset, batch_size=self.batch, num_workers=1)
