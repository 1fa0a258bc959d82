"""Train a small model, stop at any step, and resume in another process: the final weights are bit-identical.

    python examples/torch_resume.py FOLDER --until 4000
    python examples/torch_resume.py FOLDER --until 10000

The second command resumes where the first one stopped. Worker processes draw new noise for every sample, and the loader
prefetches batches; the checkpoint counts only the batches that were used for a step.
"""

from __future__ import annotations

import argparse
import hashlib
from pathlib import Path
from typing import Any

import numpy as np
import torch

import aioloader
from aioloader.interop.torch import StatefulLoader

FEATURES, CLASSES, BATCH = 16, 4, 8


def add_noise(features: Any, *, rng: aioloader.Rng) -> Any:
    """Add noise to the features that depends only on the seed, the epoch and the sample."""
    return features + np.float32(rng.normal(0.0, 0.1))


def dataset(samples: int = 1003) -> Any:
    """Return points around four class centres; the number of samples is not a multiple of the batch size."""
    draw = np.random.default_rng(1)
    labels = np.arange(samples) % CLASSES
    centres = draw.normal(size=(CLASSES, FEATURES))
    features = (centres[labels] + draw.normal(size=(samples, FEATURES))).astype(np.float32)
    return aioloader.ArrayDataset(features, labels).transform_first(add_noise)


def digest(model: torch.nn.Module) -> str:
    """Return a checksum of the weights."""
    total = hashlib.sha256()
    for weights in model.state_dict().values():
        total.update(weights.numpy().tobytes())
    return total.hexdigest()


def train(checkpoint: Path, until: int, workers: int) -> tuple[str, float]:
    """Resume from the checkpoint, if there is one, train to step `until`, and write a new checkpoint.

    Args:
        checkpoint: path of the file.
        until: total number of steps, including earlier runs.
        workers: number of worker processes of the loader.

    Returns:
        the checksum of the weights, and the last loss.
    """
    torch.set_num_threads(1)
    torch.manual_seed(0)
    torch.use_deterministic_algorithms(True)
    model = torch.nn.Sequential(torch.nn.Linear(FEATURES, 32), torch.nn.ReLU(), torch.nn.Linear(32, CLASSES))
    optimizer = torch.optim.SGD(model.parameters(), lr=0.01, momentum=0.9)
    loss_of = torch.nn.CrossEntropyLoss()
    step, last = 0, float("nan")
    with aioloader.DataLoader(dataset(), BATCH, shuffle=True, seed=5, num_workers=workers) as loader:
        batches = StatefulLoader(loader, ahead=2)
        if checkpoint.exists():
            saved = torch.load(checkpoint, weights_only=True)
            step = saved["step"]
            model.load_state_dict(saved["model"])
            optimizer.load_state_dict(saved["optimizer"])
            batches.load_state_dict(saved["data"])
        while step < until:
            for features, labels in batches:
                optimizer.zero_grad()
                loss = loss_of(model(features), labels)
                loss.backward()
                optimizer.step()
                last = loss.item()
                step += 1
                if step == until:
                    break
        state = {
            "step": step,
            "model": model.state_dict(),
            "optimizer": optimizer.state_dict(),
            "data": batches.state_dict(),
        }
    torch.save(state, checkpoint)
    return digest(model), last


def main() -> None:
    """Parse the command line and train."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder of the checkpoint; it is made if it is missing")
    parser.add_argument("--until", type=int, default=10_000, help="stop after this many steps in total")
    parser.add_argument("--workers", type=int, default=2, help="number of worker processes")
    arguments = parser.parse_args()
    arguments.folder.mkdir(parents=True, exist_ok=True)
    weights, loss = train(arguments.folder / "checkpoint.pt", arguments.until, arguments.workers)
    print(f"step {arguments.until}, loss {loss:.4f}, weights {weights}")


if __name__ == "__main__":
    main()
