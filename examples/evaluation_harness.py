"""Evaluate a model on questions about images, in their order, with the errors of single images in the report.

    python examples/evaluation_harness.py QUESTIONS.jsonl --root FOLDER

Each line of the file is a question: ``{"id": 7, "images": ["cats/1.jpg", ...], "answer": 2}``. Images are made ahead
of the model, which is called over the network and awaited. The program ends with exit code 1 if a question failed, and
2 if the file is not one of questions. The blocking twin of the service,
`aioloader.ImageService`, would do the same in a program without an event loop.
"""

from __future__ import annotations

import argparse
import asyncio
import json
import sys
import time
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import aioloader
from aioloader.transforms import Compose, CropResize, Resize

if TYPE_CHECKING:
    from collections.abc import Iterator


def questions(path: Path) -> Iterator[dict[str, Any]]:
    """Yield the questions of a file, one at a time.

    Raises:
        ValueError: a line is not a question; it names the line.
    """
    with path.open(encoding="utf-8") as lines:
        for number, line in enumerate(lines, 1):
            if not line.strip():
                continue
            try:
                question = json.loads(line)
            except ValueError as error:
                raise ValueError(f"{path}, line {number}: {error}") from None
            if not isinstance(question, dict) or not {"id", "images", "answer"} <= question.keys():
                raise ValueError(f'{path}, line {number}: a question has "id", "images" and "answer"')
            yield question


async def ask(images: list[np.ndarray]) -> int:
    """Return a model's answer: here the number of the brightest image."""
    await asyncio.sleep(0)  # a request to a model
    return int(np.argmax([image.mean() for image in images]))


async def evaluate(path: Path, root: Path, ahead: int = 32) -> dict[str, Any]:
    """Return the report of all questions.

    Args:
        path: the questions.
        root: folder that contains the images; files outside of it are refused.
        ahead: questions whose images are made ahead.
    """
    right, answered, failed = 0, 0, []
    begin = time.perf_counter()
    smaller = Compose([Resize((64, 64)), CropResize(0, 0, 64, 64)])
    async with aioloader.AsyncImageService(smaller, allow=("path",), root=root) as service:
        pairs = service.map(
            questions(path), refs=lambda each: each["images"], ordered=True, ahead=ahead, on_error="return"
        )
        async for question, images in pairs:
            errors = [str(image) for image in images if isinstance(image, Exception)]
            if not images:
                errors = ["the question has no images"]
            if errors:
                failed.append({"id": question["id"], "errors": errors})
                continue
            answered += 1
            right += await ask(images) == question["answer"]
    return {
        "answered": answered,
        "right": right,
        "failed": failed,
        "seconds": round(time.perf_counter() - begin, 2),
    }


def main() -> None:
    """Run the harness from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("questions", type=Path, help="file of questions, one JSON object a line")
    parser.add_argument("--root", type=Path, required=True, help="folder that contains the images")
    options = parser.parse_args()
    try:
        report = asyncio.run(evaluate(options.questions, options.root))
    except (OSError, ValueError) as error:
        parser.exit(2, f"{parser.prog}: {error}\n")
    print(json.dumps(report, indent=2))
    sys.exit(1 if report["failed"] else 0)


if __name__ == "__main__":
    main()
