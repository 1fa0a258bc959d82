"""Train an image classifier on one or several ranks: mixed precision, exact validation, exact resume.

    python -m aioloader.tools.draw photos/train --count 100
    python -m aioloader.tools.draw photos/val --count 31
    torchrun --nproc-per-node 2 examples/torch_end_to_end.py photos checkpoint.pt

``--stop-at 7`` saves a checkpoint after the seventh step and stops there. The same command without it goes on, with any
number of ranks that divides the batch size. At the end of each epoch the program checks that all ranks together, before
and after the stop, received every sample of the epoch exactly once. docs/end-to-end.md explains the parts.
"""

from __future__ import annotations

import argparse
import hashlib
import os
from dataclasses import asdict
from pathlib import Path
from typing import Any

import torch
import torch.distributed as dist
from torch.nn.parallel import DistributedDataParallel

import aioloader
from aioloader.transforms import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    CenterCrop,
    Compose,
    Normalize,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ToTensor,
)


def make_loaders(folder: Path, batch: int, device: torch.device, workers: int) -> tuple[Any, Any]:
    """Return the loaders of this rank for training and for validation.

    Args:
        folder: has the sub-folders train and val, with one sub-folder for each class.
        batch: samples of a step on all ranks together.
        device: where the tensors are delivered.
        workers: worker processes of each loader.
    """
    rank, world = dist.get_rank(), dist.get_world_size()
    normalized = [ToTensor(), Normalize(IMAGENET_MEAN, IMAGENET_STD)]
    augment = Compose([RandomResizedCrop(64), RandomHorizontalFlip(), *normalized])
    plain = Compose([Resize(72), CenterCrop(64), *normalized])
    train = aioloader.ImageFolderDataset(folder / "train").transform_first(augment)
    val = aioloader.ImageFolderDataset(folder / "val").transform_first(plain).shard(world, rank)
    options = {"num_workers": workers, "output": "torch", "device": device}
    return (
        aioloader.DataLoader(train, batch // world, shuffle=True, shard=(rank, world), **options),
        aioloader.DataLoader(val, batch // world, **options),
    )


def train_epoch(
    model: Any, loader: Any, optimizer: Any, scheduler: Any, until: int | None
) -> tuple[int, float]:
    """Train until the epoch ends, or until the schedule has done `until` steps.

    Returns:
        the steps done, and the loss of the last one on this rank.
    """
    loss, steps = torch.zeros(()), 0
    model.train()
    for images, labels in loader:
        with torch.autocast(images.device.type, dtype=torch.bfloat16):
            loss = torch.nn.functional.cross_entropy(model(images), labels)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()
        scheduler.step()
        steps += 1
        if scheduler.last_epoch == until:
            break
    return steps, loss.item()


def evaluate(model: Any, loader: Any, device: torch.device) -> tuple[int, float, float]:
    """Return the number of samples of all ranks, each counted once, their accuracy and their mean loss."""
    sums = torch.zeros(3, dtype=torch.float64, device=device)
    model.eval()
    with torch.no_grad():
        for images, labels in loader:
            with torch.autocast(device.type, dtype=torch.bfloat16):
                scores = model.module(images)  # not the wrapper: ranks may have different numbers of batches
            losses = torch.nn.functional.cross_entropy(scores.float(), labels, reduction="sum")
            right = (scores.argmax(dim=1) == labels).sum()
            sums += torch.stack([torch.tensor(len(labels), device=device), right, losses])
    dist.all_reduce(sums)
    count, correct, loss = sums.tolist()
    return int(count), correct / count, loss / count


def add_receipts(loader: Any, earlier: list[dict[str, Any]]) -> list[dict[str, Any]]:
    """Return the receipts of this epoch: of all ranks, and those of the runs before a stop."""
    parts: list[Any] = [None] * dist.get_world_size()
    dist.all_gather_object(parts, asdict(loader.receipt()))
    return [*earlier, *parts]


def save(path: Path, epoch: int, receipts: list[dict[str, Any]], parts: dict[str, Any]) -> None:
    """Write a checkpoint from rank 0; a file of that name is always complete."""
    if dist.get_rank() == 0:
        states = {name: part.state_dict() for name, part in parts.items()}
        partial = path.with_name(path.name + ".part")
        torch.save({"epoch": epoch, "receipts": receipts, **states}, partial)
        os.replace(partial, path)
    dist.barrier()


def resume(path: Path, device: torch.device, parts: dict[str, Any]) -> tuple[int, list[dict[str, Any]]]:
    """Load the checkpoint, if there is one; return the epoch's number and its receipts so far."""
    if not path.exists():
        return 0, []
    saved = torch.load(path, map_location=device, weights_only=True)
    for name, part in parts.items():
        part.load_state_dict(saved[name])
    return saved["epoch"], saved["receipts"]


def run(options: argparse.Namespace, device: torch.device) -> None:
    """Train this rank, from the checkpoint if there is one."""
    torch.manual_seed(0)  # the same first weights on every rank
    first = dist.get_rank() == 0
    training, validation = make_loaders(options.folder, options.batch, device, options.workers)
    classes = len(aioloader.ImageFolderDataset(options.folder / "train").classes)
    model = torch.nn.Sequential(
        torch.nn.Conv2d(3, 32, 5, stride=4), torch.nn.ReLU(), torch.nn.Conv2d(32, 64, 3, stride=2), torch.nn.ReLU(),
        torch.nn.AdaptiveAvgPool2d(2), torch.nn.Flatten(), torch.nn.Linear(256, classes),
    )  # fmt: skip
    model = DistributedDataParallel(model.to(device), [device] if device.type == "cuda" else None)
    optimizer = torch.optim.AdamW(model.parameters(), lr=0.003)
    scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(optimizer, options.epochs * len(training))
    parts = {"model": model.module, "optimizer": optimizer, "scheduler": scheduler, "data": training}
    epoch, receipts = resume(options.checkpoint, device, parts)
    with training, validation:
        while epoch < options.epochs:
            steps, loss = train_epoch(model, training, optimizer, scheduler, options.stop_at)
            receipts = add_receipts(training, receipts)
            total: Any = sum(aioloader.Receipt(**each) for each in receipts)
            stopped = scheduler.last_epoch == options.stop_at
            if not stopped:
                training.check_receipt(total)  # raises ReceiptError
                count, accuracy, val_loss = evaluate(model, validation, device)
                epoch, receipts = epoch + 1, []
            save(options.checkpoint, epoch, receipts, parts)
            if first and stopped:
                print(
                    f"stopped after step {options.stop_at}: {total.seen} samples of epoch {epoch}", flush=True
                )
            elif first:
                print(
                    f"epoch {epoch - 1}: {steps} steps, loss {loss:.3f}; receipts: {total.seen} samples, "
                    f"each once, and {total.padded} to fill up; validation: {count} images, "
                    f"accuracy {accuracy:.3f}, loss {val_loss:.3f}",
                    flush=True,
                )
            if stopped:
                return
    if first:
        print(f"weights {digest(model)}")


def digest(model: Any) -> str:
    """Return a checksum of the weights."""
    total = hashlib.sha256()
    for weights in model.module.state_dict().values():
        total.update(weights.cpu().numpy().tobytes())
    return total.hexdigest()[:16]


def main() -> None:
    """Parse the command line and train; torchrun passes rank, world size and address in the environment."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path, help="folder with train/ and val/")
    parser.add_argument("checkpoint", type=Path, help="file to write, and to resume from if it exists")
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--batch", type=int, default=24, help="samples of a step on all ranks together")
    parser.add_argument("--workers", type=int, default=1, help="worker processes of each loader")
    parser.add_argument("--stop-at", type=int, help="save and stop after this many steps in total")
    options = parser.parse_args()
    if not {"RANK", "WORLD_SIZE"} <= os.environ.keys():
        parser.error(
            "start it with torchrun: torchrun --nproc-per-node 2 examples/torch_end_to_end.py FOLDER CHECKPOINT"
        )
    for part in ("train", "val"):
        if not (options.folder / part).is_dir():
            parser.error(
                f"{options.folder / part} is not a folder; {options.folder} must have train/ and val/"
            )
    if not options.checkpoint.absolute().parent.is_dir():
        parser.error(f"{options.checkpoint.parent} is not a folder")

    cuda = torch.cuda.is_available()
    device = torch.device("cuda", int(os.environ["LOCAL_RANK"])) if cuda else torch.device("cpu")
    if cuda:
        torch.cuda.set_device(device)
    dist.init_process_group("nccl" if cuda else "gloo")
    try:
        run(options, device)
    finally:
        dist.destroy_process_group()


if __name__ == "__main__":
    main()
