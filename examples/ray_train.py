"""Train with Ray Train: each trainer loads its part of every epoch, and idle CPUs of the cluster decode the images.

    python examples/ray_train.py train.rec results

If there is no cluster, Ray starts one on this machine.
"""

from __future__ import annotations

import argparse
from pathlib import Path
from typing import Any

import ray
import ray.train
import torch
from ray.train import RunConfig, ScalingConfig
from ray.train.torch import TorchTrainer, prepare_model

import aioloader
from aioloader.executors import RayExecutor
from aioloader.interop.torch import StatefulLoader
from aioloader.transforms import Compose, RandomHorizontalFlip, RandomResizedCrop, ToTensor


def train(config: dict[str, Any]) -> None:
    """Train the model in one trainer process.

    Args:
        config: path of the .rec file, batch size, classes, epochs, and number of actors per trainer.
    """
    context = ray.train.get_context()
    shard = (context.get_world_rank(), context.get_world_size())
    torch.manual_seed(0)
    model = prepare_model(
        torch.nn.Sequential(torch.nn.Flatten(), torch.nn.Linear(3 * 32 * 32, config["classes"]))
    )
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01)
    loss_of = torch.nn.CrossEntropyLoss()
    chain = Compose([RandomResizedCrop(32), RandomHorizontalFlip(), ToTensor()])
    dataset = aioloader.ImageRecordDataset(config["path"]).transform_first(chain)
    executor = RayExecutor(config["workers"])
    with aioloader.DataLoader(
        dataset, config["batch"], shuffle=True, shard=shard, executor=executor
    ) as loader:
        batches = StatefulLoader(loader)
        for epoch in range(config["epochs"]):
            samples = 0
            for images, labels in batches:
                optimizer.zero_grad()
                loss = loss_of(model(images), labels)
                loss.backward()
                optimizer.step()
                samples += len(labels)
            ray.train.report({"epoch": epoch, "samples": samples, "loss": loss.item()})


def main() -> None:
    """Parse the command line and start Ray Train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("path", type=Path, help="the .rec file, at a path that all trainers can open")
    parser.add_argument("results", type=Path, help="folder for Ray's results")
    parser.add_argument("--trainers", type=int, default=1)
    parser.add_argument("--workers", type=int, default=1, help="number of actors per trainer")
    parser.add_argument("--classes", type=int, default=1000)
    parser.add_argument("--batch", type=int, default=64)
    parser.add_argument("--epochs", type=int, default=2)
    arguments = parser.parse_args()
    config = {
        "path": str(arguments.path.absolute()),
        "workers": arguments.workers,
        "classes": arguments.classes,
        "batch": arguments.batch,
        "epochs": arguments.epochs,
    }
    trainer = TorchTrainer(
        train,
        train_loop_config=config,
        scaling_config=ScalingConfig(num_workers=arguments.trainers, use_gpu=False),
        run_config=RunConfig(name="aioloader", storage_path=str(arguments.results.absolute())),
    )
    result = trainer.fit()
    print(f"last epoch: {result.metrics}")


if __name__ == "__main__":
    main()
