"""MosaicML Streaming: StreamingDataset in a StreamingDataLoader, whose state any number of ranks loads.

The state is saved and loaded as "Fast Resumption" shows, with the defaults that "Elastic Determinism" names
(https://docs.mosaicml.com/projects/streaming/en/stable/distributed_training/fast_resumption.html and
elastic_determinism.html there).
"""

from __future__ import annotations

from typing import Any

import torch

from benchmarks import resuming
from benchmarks.contenders.torchvision_v2 import import_v2

# Streaming imports torchvision, whose operators must be declared before; so its imports are not at the top.
import_v2()
from streaming import MDSWriter, StreamingDataLoader, StreamingDataset  # noqa: E402  # see above
from streaming.base.util import clean_stale_shared_memory  # noqa: E402  # see above

VARIANTS = ("",)


def prepare(folder: str) -> None:
    """Write shards."""
    with MDSWriter(out=f"{folder}/mds", columns={"id": "int"}) as writer:
        for number in range(resuming.SAMPLES):
            writer.write({"id": number})


class Numbers(StreamingDataset):  # type: ignore[misc]  # streaming is not installed where types are checked
    """Numbers, each with a draw."""

    def __getitem__(self, at: Any) -> Any:
        return super().__getitem__(at)["id"], torch.rand((), dtype=torch.float64)


class Rank(resuming.Rank):
    """Rank with a loader for all epochs."""

    shared = True

    def __init__(self, **arguments: Any) -> None:
        super().__init__(**arguments)
        torch.manual_seed(7)
        meeting = f"file://{self.folder}/meeting-{self.number}"
        torch.distributed.init_process_group("gloo", meeting, rank=self.rank, world_size=self.world)
        clean_stale_shared_memory()
        dataset = Numbers(local=f"{self.folder}/mds", shuffle=True, shuffle_seed=7, batch_size=self.batch)
        self.loader = StreamingDataLoader(dataset, batch_size=self.batch, num_workers=1)
