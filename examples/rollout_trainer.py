"""Train on prompts with images that arrive while the program runs, as in reinforcement learning.

    pip install "aioloader[service]"
    python examples/rollout_trainer.py FOLDER --prompts 24 --rollouts 8

Prompts come from an async generator (a queue, a database, other processes). Each prompt has one to three images and
gets several rollouts, each of which wants the images: they are decoded and processed once. Prompts are packed into
batches of a token budget before anything is decoded. The event loop stays free for the rollouts.
"""

from __future__ import annotations

import argparse
import asyncio
import random
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import aioloader
from aioloader.transforms import Qwen2VLImageProcessor

if TYPE_CHECKING:
    from collections.abc import AsyncIterator

MAX_TOKENS = 4096


class Prompt(NamedTuple):
    """A question about some images."""

    number: int
    images: tuple[str, ...]


def photographs(folder: Path) -> list[str]:
    """Return the paths of the JPEGs in a folder, relative to it, as the service takes them."""
    if not folder.is_dir():
        raise NotADirectoryError(f"{folder} is not a folder, or does not exist")
    names = (path for path in folder.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
    return sorted(str(path.relative_to(folder)) for path in names)


async def prompts(folder: Path, count: int) -> AsyncIterator[Prompt]:
    """Yield prompts as they arrive."""
    draw = random.Random(0)
    paths = await asyncio.to_thread(photographs, folder)
    if not paths:
        raise FileNotFoundError(f"{folder} contains no files whose names end in .jpg or .jpeg")
    for number in range(count):
        await asyncio.sleep(draw.random() * 0.002)
        yield Prompt(number, tuple(draw.sample(paths, min(len(paths), draw.randint(1, 3)))))


async def rollout(service: aioloader.AsyncImageService, prompt: Prompt) -> float:
    """Generate one answer to a prompt, and return its reward."""
    images = await service.gather(list(prompt.images))
    await asyncio.sleep(0.001)  # a policy would generate here
    return float(sum(image["pixel_values"].mean() for image in images))


async def train(folder: Path, count: int, rollouts: int) -> dict[str, Any]:
    """Run all prompts, and return what was done."""
    done: dict[str, Any] = {"batches": 0, "prompts": 0, "tokens": 0, "rollouts": 0}
    async with aioloader.AsyncImageService(
        Qwen2VLImageProcessor(max_pixels=28 * 28 * 256),
        allow=("path",),
        root=folder,
        cache_limit=256 << 20,
    ) as service:
        batches = service.pack(
            prompts(folder, count),
            refs=lambda prompt: prompt.images,
            max_tokens=MAX_TOKENS,
            lookahead=16,
            on_error="skip",
        )
        async for batch in batches:
            async with asyncio.TaskGroup() as tasks:
                answers = [
                    tasks.create_task(rollout(service, prompt))
                    for prompt in batch.prompts
                    for _ in range(rollouts)
                ]
            rewards = [answer.result() for answer in answers]
            # A training step would take batch.pixel_values, batch.image_grid_thw and batch.cu_seqlens here.
            done["batches"] += 1
            done["prompts"] += len(batch.prompts)
            done["tokens"] += batch.num_tokens
            done["rollouts"] += len(rewards)
        for error in batches.errors:  # a damaged image costs its prompt, and not the training
            print(f"prompt {error.prompt.number} was left out: {error}")
        done["left_out"] = len(batches.errors)
        stats = service.stats()
        done |= {"made": stats.made, "shared": stats.cache_hits + stats.joined}
        print(service.explain())
    return done


def main() -> None:
    """Run the trainer from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("folder", type=Path, help="folder of JPEGs")
    parser.add_argument("--prompts", type=int, default=24)
    parser.add_argument("--rollouts", type=int, default=8)
    options = parser.parse_args()
    try:
        print(asyncio.run(train(options.folder, options.prompts, options.rollouts)))
    except (FileNotFoundError, NotADirectoryError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")


if __name__ == "__main__":
    main()
