"""Fill of the batches of `BudgetBatchSampler` on the sizes of a folder of images.

    python -m benchmarks.fill --data FOLDER
    python -m benchmarks.fill --data FOLDER --budgets 4096 16384 --lookahead 16 64 256

The headers of the images are read, and nothing is decoded. The cost of an image is its number of tokens for Qwen2-VL.
The images are repeated to make an epoch of at least --samples. For each budget and look-ahead:

- fill: mean share of the budget that a batch uses, and that of the 1 % of batches that use least
- in order: the same for batches in the order of arrival, without a look-ahead
- moved: how many batches later than in order an image comes, at the 99th percentile, in batches
- plan: microseconds for each image
"""

from __future__ import annotations

import argparse
import tempfile
from pathlib import Path
from time import perf_counter
from typing import TYPE_CHECKING

import numpy as np

from aioloader.samplers import BudgetBatchSampler
from aioloader.samplers.epoch_order import permute
from aioloader.transforms import Qwen2VLImageProcessor
from aioloader.transforms.formats import read_header
from benchmarks.data import add_data_option, load_jpegs
from benchmarks.figures import Row, add_json_option, write_figures

if TYPE_CHECKING:
    from aioloader.foundation.types import IntArray


def costs_of(jpegs: list[bytes], samples: int) -> IntArray:
    """Return the tokens of the images, repeated to `samples` or more; int64."""
    processor = Qwen2VLImageProcessor()
    headers = [read_header(data) for data in jpegs]
    tokens = [processor.spec(header.height, header.width).num_tokens for header in headers]
    return np.tile(np.array(tokens, np.int64), -(-samples // len(tokens)))


def fill_in_order(costs: IntArray, budget: int) -> tuple[list[int], IntArray]:
    """Return the cost of each batch, and the batch of each image, if a batch ends where the next image does not fit."""
    sums, batch_of = [0], np.zeros(len(costs), np.int64)
    for place, cost in enumerate(costs.tolist()):
        if sums[-1] + cost > budget:
            sums.append(0)
        sums[-1] += cost
        batch_of[place] = len(sums) - 1
    return sums, batch_of


def row(costs: IntArray, budget: int, lookahead: int) -> Row:
    """Print one line of the table; return its figures."""
    order = permute(0, 0, len(costs), 0, len(costs))
    sums, in_order = fill_in_order(costs[order], budget)
    begin = perf_counter()
    batches = [
        batch.indices for batch in BudgetBatchSampler(costs, budget, lookahead=lookahead).batches(0, 0)
    ]
    seconds = perf_counter() - begin
    fill = np.array([costs[batch].sum() for batch in batches]) / budget
    place = np.empty(len(costs), np.int64)
    place[order] = np.arange(len(costs))
    made = np.repeat(np.arange(len(batches)), [len(batch) for batch in batches])
    moved = made / len(batches) * len(sums) - in_order[place[np.concatenate(batches)]]
    print(
        f"{budget:>8,} {lookahead:>9} {len(costs) / len(batches):>10.1f} {fill.mean():>8.1%} "
        f"{np.percentile(fill, 1):>8.1%} {np.mean(sums) / budget:>9.1%} {np.percentile(abs(moved), 99):>8.1f} "
        f"{1e6 * seconds / len(costs):>8.2f}"
    )
    return {
        "budget, tokens": budget,
        "look-ahead": lookahead,
        "images of a batch": len(costs) / len(batches),
        "mean fill, %": 100 * fill.mean(),
        "fill of the least full 1 %, %": 100 * np.percentile(fill, 1),
        "mean fill in order, %": 100 * np.mean(sums) / budget,
    }


def main() -> None:
    """Parse the command line and print the table."""
    parser = argparse.ArgumentParser(description="fill of batches within a budget of tokens")
    add_data_option(parser)
    parser.add_argument("--samples", type=int, default=100_000, help="images of the epoch, at least")
    parser.add_argument("--budgets", type=int, nargs="+", default=[4096, 8192, 16384, 65536])
    parser.add_argument("--lookahead", type=int, nargs="+", default=[16, 64])
    parser.add_argument(
        "--smoke", action="store_true", help="few images: a check that it runs, not a measurement"
    )
    add_json_option(parser)
    options = parser.parse_args()
    with tempfile.TemporaryDirectory() as scratch:
        jpegs = load_jpegs(options.data, str(Path(scratch)))
    costs = costs_of(jpegs, 2000 if options.smoke else options.samples)
    print(
        f"{len(jpegs)} images, {costs.min():,} to {costs.max():,} tokens, mean {costs.mean():,.0f}; "
        f"epoch of {len(costs):,}"
    )
    print("  budget look-ahead  a batch     fill  least 1%  in order    moved  µs/image")
    rows = []
    for budget in options.budgets:
        if budget < costs.max():
            print(f"{budget:>8,}: less than the largest image")
            continue
        rows += [row(costs, budget, lookahead) for lookahead in options.lookahead]
    write_figures(options.json, rows)


if __name__ == "__main__":
    main()
