"""Train in an event loop that also fetches captions from a service while workers decode images.

    python examples/async_trainer.py FOLDER --epochs 3 --captions HOST:PORT

The service answers each line with the number of a class by a line with a caption; without ``--captions`` this program
starts one. Stop the program with Ctrl-C, or with ``--seconds``: the next start resumes after the last step, with the
same batches as an uninterrupted run.
"""

from __future__ import annotations

import argparse
import asyncio
import contextlib
import json
from pathlib import Path
from typing import Any, Self

import numpy as np

import aioloader
from aioloader.transforms import (
    CenterCrop,
    Compose,
    RandomHorizontalFlip,
    RandomResizedCrop,
    Resize,
    ToTensor,
)

WORDS = ("cat", "house", "tree", "boat", "mirrored", "old")


class Captions:
    """Client that requests the caption of a class; it keeps idle connections and reuses them."""

    def __init__(self, host: str, port: int) -> None:
        self.address = host, port
        self.free: list[tuple[asyncio.StreamReader, asyncio.StreamWriter]] = []

    async def __call__(self, image: Any, label: Any) -> tuple[Any, Any, str]:
        """Return the sample with its caption."""
        reader, writer = self.free.pop() if self.free else await asyncio.open_connection(*self.address)
        try:
            writer.write(f"{int(label)}\n".encode())
            caption = (await reader.readline()).decode().strip()
        except BaseException:
            writer.close()  # a late answer must not be read as the answer to the next request
            raise
        self.free.append((reader, writer))
        return image, label, caption

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *error: object) -> None:
        """Close the connections. Close the loaders first: a running call would return an open connection."""
        for _, writer in self.free:
            writer.close()


def with_words(image: Any, label: Any, caption: str) -> tuple[Any, Any, Any]:
    """Convert the caption to a vector, float32 (words,). Runs in the workers."""
    return image, label, np.array([word in caption for word in WORDS], np.float32)


class Model:
    """Linear classifier on 8 x 8 colours and the words of the caption."""

    def __init__(self, classes: int) -> None:
        self.weights = np.zeros((3 * 8 * 8 + len(WORDS), classes), np.float32)

    def shares(self, images: Any, words: Any) -> tuple[Any, Any]:
        """Return the features, and the probability of each class."""
        cells = images.reshape(len(images), 3, 8, 8, 8, 8).mean(axis=(3, 5)).reshape(len(images), -1) - 0.5
        seen = np.concatenate([cells, words], axis=1)
        powers = np.exp(seen @ self.weights)
        return seen, powers / powers.sum(axis=1, keepdims=True)

    def step(self, images: Any, labels: Any, words: Any) -> float:
        """Run one step of gradient descent and return the loss."""
        seen, shares = self.shares(images, words)
        of_label = np.arange(len(labels)), labels
        loss = -np.log(shares[of_label]).mean()
        shares[of_label] -= 1
        self.weights -= 0.2 * seen.T @ shares / len(labels)
        return float(loss)


async def validate(loader: Any, model: Model) -> float:
    """Return the accuracy, 0 to 1."""
    right = total = 0
    async for images, labels, words in loader:
        right += int((model.shares(images, words)[1].argmax(axis=1) == labels).sum())
        total += len(labels)
    return right / max(1, total)


async def serve_captions(reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
    """Serve captions, as a mock of the service."""
    # The client may disconnect before the answer, and the program may end before both.
    with contextlib.closing(writer), contextlib.suppress(ConnectionError, asyncio.CancelledError):
        while line := await reader.readline():
            label = int(line)
            await asyncio.sleep(0.005)  # simulate network latency
            writer.write(f"a {WORDS[label % 4]}{', mirrored' * (label % 3 == 0)}\n".encode())
            await writer.drain()


async def train(
    folder: Path, checkpoint: Path, epochs: int, address: tuple[str, int], workers: int | None = None
) -> dict[str, Any]:
    """Resume from the checkpoint, if there is one, and save it when training ends or is stopped.

    Returns:
        ``epoch``, ``steps`` and ``accuracy``.
    """
    photos = aioloader.ImageFolderDataset(folder)
    captions = Captions(*address)

    def chain(*first: Any) -> Any:
        return (
            photos.transform_first(Compose([*first, ToTensor()]))
            .transform(captions, concurrency=8)
            .transform(with_words)
        )

    model = Model(len(photos.classes))
    done: dict[str, Any] = {"epoch": 0, "steps": 0, "accuracy": None, "state": None}

    def learn(batch: Any, state: dict[str, Any]) -> None:
        model.step(*batch)
        done.update(steps=done["steps"] + 1, state=state)

    async with (
        captions,
        aioloader.AsyncDataLoader(
            chain(RandomResizedCrop(64), RandomHorizontalFlip()), 8, shuffle=True, num_workers=workers
        ) as loader,
        aioloader.AsyncDataLoader(chain(Resize(72), CenterCrop(64)), 16, num_workers=workers) as checks,
    ):
        saved = read(checkpoint)
        if saved is not None:
            model.weights[:] = saved["weights"]
            done = saved["done"]
            loader.load_state_dict(done["state"])
        try:
            for epoch in range(done["epoch"], epochs):
                async for batch in loader:
                    await to_its_end(learn, batch, loader.state_dict())
                accuracy = await validate(checks, model)
                done.update(epoch=epoch + 1, accuracy=accuracy, state=loader.state_dict())
                print(f"epoch {epoch}: {done['steps']} steps, {accuracy:.0%} right", flush=True)
        finally:
            if done["state"] is not None:
                write(checkpoint, {"weights": model.weights.tolist(), "done": done})
    return {name: done[name] for name in ("epoch", "steps", "accuracy")}


def read(checkpoint: Path) -> dict[str, Any] | None:
    """Return the content of the checkpoint; None if there is none."""
    return json.loads(checkpoint.read_text()) if checkpoint.exists() else None


def write(checkpoint: Path, content: dict[str, Any]) -> None:
    """Write the checkpoint atomically."""
    draft = checkpoint.with_suffix(".partial")
    draft.write_text(json.dumps(content))
    draft.rename(checkpoint)


async def to_its_end(fn: Any, *args: Any) -> None:
    """Call a function in a thread; delay a cancellation until it returns, so that its changes are complete."""
    work = asyncio.ensure_future(asyncio.to_thread(fn, *args))
    try:
        await asyncio.shield(work)
    except asyncio.CancelledError:
        await work
        raise


async def main(options: argparse.Namespace) -> None:
    """Start the service if needed, and train for at most the given number of seconds."""
    async with contextlib.AsyncExitStack() as stack:
        if options.captions:
            host, _, port = options.captions.rpartition(":")
            address = host, int(port)
        else:
            service = await stack.enter_async_context(
                await asyncio.start_server(serve_captions, "127.0.0.1", 0)
            )
            address = service.sockets[0].getsockname()
        try:
            async with asyncio.timeout(options.seconds):
                found = await train(
                    options.folder, options.checkpoint, options.epochs, address, options.workers
                )
            print(" ".join(f"{name}={value}" for name, value in found.items()))
        except TimeoutError:
            print("stopped; start the program again to resume")


if __name__ == "__main__":
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("folder", type=Path)
    parser.add_argument("--epochs", type=int, default=3)
    parser.add_argument("--seconds", type=float, help="stop after this many seconds")
    parser.add_argument("--captions", metavar="HOST:PORT", help="address of the caption service")
    parser.add_argument("--checkpoint", type=Path, default=Path("checkpoint.json"))
    parser.add_argument("--workers", type=int, help="number of worker processes (default: one per core)")
    asyncio.run(main(parser.parse_args()))
