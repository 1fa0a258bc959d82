"""Shapes of about one area with different aspect ratios, and the nearest of them for each image (pure)."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aioloader.foundation.validation import require
from aioloader.samplers.basic import check_count

if TYPE_CHECKING:
    from collections.abc import Sequence

    import numpy.typing as npt

    from aioloader.foundation.types import IntArray


def aspect_shapes(area: int, *, multiple_of: int = 32, max_ratio: float = 2.0) -> list[tuple[int, int]]:
    """Return shapes (height, width) of about one area, from the widest to the tallest.

    Each side is a multiple of `multiple_of`. For each width there is the height that comes nearest to the area, and for
    each height the width; and the square that comes nearest.

    Args:
        area: height times width, in pixels.
        multiple_of: divisor of both sides, in pixels.
        max_ratio: largest ratio of the longer to the shorter side, at least 1.

    Raises:
        ValueError: an argument is out of its range.
    """
    unit = check_count("multiple_of", multiple_of, 1)
    require(max_ratio >= 1, f"max_ratio must be at least 1, got {max_ratio}")
    side = check_count("area", area, 1) ** 0.5
    square = max(1, round(side / unit)) * unit
    found = {(square, square)}
    for units in range(1, int(side * max_ratio**0.5 // unit) + 2):
        one = units * unit
        other = max(1, round(area / one / unit)) * unit
        if max(one, other) <= max_ratio * min(one, other):
            found |= {(one, other), (other, one)}
    return sorted(found, key=lambda shape: (shape[0] / shape[1], shape[0]))


def nearest_shape(sizes: npt.ArrayLike, shapes: Sequence[tuple[int, int]]) -> IntArray:
    """Return for each image the number of the shape whose aspect ratio is nearest to its own, int64 (n,).

    The distance is that of the logarithms of the ratios: as far to twice the width as to half of it. Of equal distances
    the first shape is taken.

    Args:
        sizes: (n, 2), (height, width) of each image in pixels, at least 1 each; see `aioloader.image_sizes`.
        shapes: (height, width), at least one.

    Raises:
        ValueError: a size or shape is not positive, or there are no shapes.
    """
    table = np.asarray(sizes, np.float64).reshape(-1, 2)
    offered = np.asarray(shapes, np.float64).reshape(-1, 2)
    require(len(offered), "there must be at least one shape")
    require((table > 0).all() and (offered > 0).all(), "heights and widths must be at least 1")
    ratios = np.log(offered[:, 0] / offered[:, 1])
    order = np.argsort(ratios, kind="stable")
    wanted = np.log(table[:, 0] / table[:, 1])
    middles = (ratios[order][1:] + ratios[order][:-1]) / 2
    return order[np.searchsorted(middles, wanted, side="left")].astype(np.int64)
