"""Train on several processes with torch.distributed, each with its part of every epoch.

    torchrun --nproc-per-node 2 examples/torch_distributed.py

All ranks get the same number of batches, and together they get every sample once per epoch. If the number of samples is
not divisible, they get some of the first samples twice.
"""

from __future__ import annotations

import argparse
import os
from typing import Any

import numpy as np
import torch
import torch.distributed as dist

import aioloader
from aioloader.interop.torch import StatefulLoader

BATCH = 8


def dataset(samples: int) -> Any:
    """Return a dataset whose item i is a point on a line, and i."""
    index = np.arange(samples)
    return aioloader.ArrayDataset((index / samples).astype(np.float32)[:, None], index)


def train(samples: int, epochs: int) -> tuple[list[list[int]], list[float]]:
    """Train on this rank.

    Returns:
        for every epoch the sorted indices that all ranks together received; and the weights.
    """
    torch.manual_seed(0)
    model = torch.nn.parallel.DistributedDataParallel(torch.nn.Linear(1, 1))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.1)
    seen = []
    shard = (dist.get_rank(), dist.get_world_size())
    with aioloader.DataLoader(dataset(samples), BATCH, shuffle=True, shard=shard, num_workers=0) as loader:
        batches = StatefulLoader(loader)
        for _ in range(epochs):
            own: list[int] = []
            for points, indices in batches:
                optimizer.zero_grad()
                (model(points) - 2 * points - 1).square().mean().backward()
                optimizer.step()
                own += indices.tolist()
            parts: list[Any] = [None] * dist.get_world_size()
            dist.all_gather_object(parts, own)
            seen.append(sorted(index for part in parts for index in part))
    return seen, [weight.item() for weight in model.parameters()]


def main() -> None:
    """Parse the command line and train; torchrun passes rank, world size and address in the environment."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--samples", type=int, default=100)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--init", default="env://", help="rendezvous address, see torch.distributed")
    arguments = parser.parse_args()

    if not {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        parser.error("start it with torchrun: torchrun --nproc-per-node 2 examples/torch_distributed.py")
    rank, world = int(os.environ["RANK"]), int(os.environ["WORLD_SIZE"])
    dist.init_process_group("gloo", init_method=arguments.init, rank=rank, world_size=world)
    try:
        seen, weights = train(arguments.samples, arguments.epochs)
        whole = all(sorted(set(epoch)) == list(range(arguments.samples)) for epoch in seen)
        print(f"rank {rank}: {len(seen[0])} samples an epoch, all seen: {whole}, weights {weights}")
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
