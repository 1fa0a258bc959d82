"""Costs of the images of a dataset, from their headers: tokens, pixels, or any function of the size."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.abc import FetchingByteSource, SizedProcessor
from aioloader.datasets.decoding import ImageDecoder
from aioloader.datasets.resolve import resolve
from aioloader.transforms.formats import image_size

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.foundation.types import IntArray

__all__ = ("image_costs",)

# Items that are read with one call.
_TOGETHER = 64


def image_costs(dataset: Any, cost: SizedProcessor | Callable[[int, int], int] | None = None) -> IntArray:
    """Return the cost of each image of a dataset. Nothing is decoded; the bytes of all images are read once.

    Args:
        dataset: a dataset of encoded images: records, folders, lists, tars, TFRecord, Parquet or MDS.
        cost: a processor with `spec`, such as `Qwen2VLImageProcessor`: its tokens; or a function of (height, width) as
            stored; None: the number of pixels.

    Returns:
        int64 (len(dataset),), for `aioloader.samplers.BudgetBatchSampler`.

    Raises:
        TypeError: the dataset does not consist of encoded images.
        DecodeError: an image has a damaged header.
        Exception: an item cannot be read.
    """
    resolved = resolve(dataset)
    base, remap = resolved.base, resolved.remap
    decoder = getattr(base, "decoder", None) if resolved.base_kind == "bytes" else None
    if not isinstance(decoder, ImageDecoder):
        raise TypeError(f"image_costs() takes datasets of encoded images, not {type(dataset).__name__}")
    source = base.open_source()
    try:
        if not isinstance(source, FetchingByteSource):
            raise TypeError(f"image_costs() cannot read single items of {type(dataset).__name__}")
        count = len(dataset)
        costs = np.zeros(count, np.int64)
        for first in range(0, count, _TOGETHER):
            places = np.arange(first, min(first + _TOGETHER, count))
            indices = places if remap is None else remap[places]
            plan, memory = source.fetch(base.spans(indices))
            extras = base.extras(indices)
            for number, place in enumerate(places.tolist()):
                start, length = int(plan.start[number]), int(plan.length[number])
                extra = None if extras is None else extras[number]
                location = base.location(int(indices[number]))
                body, *_ = decoder.parse(memory[start : start + length], extra, location)
                _, height, width = image_size(body)
                costs[place] = _cost(cost, height, width)
        return costs
    finally:
        source.close()


def _cost(cost: Any, height: int, width: int) -> int:
    if cost is None:
        return height * width
    if isinstance(cost, SizedProcessor):
        return cost.spec(height, width).num_tokens
    return int(cost(height, width))
