"""Fill of batches of a token budget: photographs of a folder, in the order of arrival within a look-ahead.

    python -m benchmarks.fill --data FOLDER
    python -m benchmarks.fill --items 1000000

Costs are the tokens of `Qwen2VLImageProcessor` for each photograph, drawn with replacement; with --items 1000000 the
time to plan an epoch counts.
"""

from __future__ import annotations

import argparse
import time
from pathlib import Path

import numpy as np

from aioloader.samplers import BudgetBatchSampler
from aioloader.transforms import Qwen2VLImageProcessor, image_size


def main() -> None:
    """Run the benchmark from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument(
        "--data", type=Path, help="folder of photographs; default: sizes from 200 to 1,200 pixels"
    )
    parser.add_argument("--items", type=int, default=100_000)
    parser.add_argument("--budgets", type=int, nargs="+", default=[2048, 4096, 16_384])
    parser.add_argument("--lookahead", type=int, nargs="+", default=[1, 16, 64])
    options = parser.parse_args()
    draw = np.random.default_rng(0)
    if options.data is None:
        sizes = [tuple(size) for size in draw.integers(200, 1200, (1000, 2)).tolist()]
    else:
        paths = sorted(path for path in options.data.rglob("*") if path.suffix.lower() in (".jpg", ".jpeg"))
        sizes = [image_size(path.read_bytes())[1:] for path in paths]
    processor = Qwen2VLImageProcessor()
    tokens = np.array([processor.spec(*size).num_tokens for size in sizes])
    costs = tokens[draw.integers(0, len(tokens), options.items)]
    tokens_of = f"{tokens.min()} to {tokens.max()} tokens, mean {tokens.mean():.0f}"
    print(f"{len(sizes):,} sizes, {tokens_of}; {options.items:,} items")
    for budget in options.budgets:
        for lookahead in options.lookahead:
            sampler = BudgetBatchSampler(costs, budget, lookahead=lookahead)
            begin = time.perf_counter()
            batches = [batch.indices for batch in sampler.batches(0, 0)]
            took = time.perf_counter() - begin
            fill = sum(int(costs[batch].sum()) for batch in batches) / (budget * len(batches))
            print(
                f"budget {budget:6,}, look-ahead {lookahead:3}: {fill:.1%} full, {len(batches):,} batches, "
                f"planned in {took:.2f} s"
            )


if __name__ == "__main__":
    main()
