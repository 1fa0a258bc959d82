"""Fill of the batches of `BudgetBatchSampler` on the sizes of a folder of images.

    python -m benchmarks.fill --data FOLDER --budgets 4096 16384 --lookahead 16 64 256

The headers of the images are read, and nothing is decoded. The cost of an image is its number of tokens for Qwen2-VL.
The images are repeated to make an epoch of at least --samples. For each budget and look-ahead, the mean share of the
budget that a batch uses, and that of the 1 % of batches that use least; and the same for batches in the order of
arrival, without a look-ahead. A budget below the tokens of an image is left out.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aioloader.samplers import BudgetBatchSampler
from aioloader.samplers.epoch_order import permute
from aioloader.transforms import Qwen2VLImageProcessor
from aioloader.transforms.formats import read_header
from benchmarks.data import load_jpegs
from benchmarks.measurement import run

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.foundation.types import IntArray
    from benchmarks.figures import Row


def sums_in_order(costs: IntArray, budget: int) -> list[int]:
    """Return the cost of each batch if a batch ends where the next image does not fit."""
    sums = [0]
    for cost in costs.tolist():
        if sums[-1] + cost > budget:
            sums.append(0)
        sums[-1] += cost
    return sums


def measure(
    data: str | None = None,
    samples: int = 100_000,
    budgets: Sequence[int] = (4096, 8192, 16384, 65536),
    lookahead: Sequence[int] = (16, 64),
) -> Iterator[Row]:
    """Compute the figures of each budget and look-ahead.

    Args:
        data: folder.
        samples: images of the epoch, at least.
        budgets: tokens of a batch.
        lookahead: images among which the next one is chosen.
    """
    processor = Qwen2VLImageProcessor()
    headers = [read_header(data) for data in load_jpegs(data)]
    tokens = [processor.spec(header.height, header.width).num_tokens for header in headers]
    costs = np.tile(np.array(tokens, np.int64), -(-samples // len(tokens)))
    in_order = costs[permute(0, 0, len(costs), 0, len(costs))]
    for budget in budgets:
        if budget < costs.max():
            continue
        for ahead in lookahead:
            batches = BudgetBatchSampler(costs, budget, lookahead=ahead).batches(0, 0)
            fill = np.array([costs[batch.indices].sum() for batch in batches]) / budget
            yield {
                "budget, tokens": budget,
                "look-ahead": ahead,
                "images of a batch": len(costs) / len(fill),
                "mean fill, %": 100 * fill.mean(),
                "fill of the least full 1 %, %": 100 * np.percentile(fill, 1),
                "mean fill in order, %": 100 * np.mean(sums_in_order(in_order, budget)) / budget,
            }


if __name__ == "__main__":
    run(measure, samples=2000)
