"""`copyMakeBorder`: an image with a border around it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.image._arrays import as_image, given
from aioloader.transforms.border import place_on_canvas

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.mxnet.ndarray import NDArray

__all__ = ("copyMakeBorder",)

# OpenCV's numbers of borders, and numpy's names for them. 0 is a constant.
_MODES: dict[int, Any] = {1: "edge", 2: "symmetric", 3: "wrap", 4: "reflect"}
_ISOLATED = 16  # OpenCV's "do not look outside of a part of an image", which an array never does


def copyMakeBorder(
    src: Any,
    top: int,
    bot: int,
    left: int,
    right: int,
    type: int = 0,
    value: float = 0.0,
    values: Sequence[float] = (),
    out: NDArray | None = None,
) -> NDArray:
    """Return the image with a border around it.

    Args:
        src: (height, width, channels).
        top, bot, left, right: pixels to add.
        type: 0: constant; 1: the edge repeated; 2: mirrored, the edge included (ba|abc|cb); 3: the opposite side;
            4: mirrored at the edge (cb|abc|ba).
        value: of a constant border, for all channels.
        values: of a constant border, one per channel or one for all; before `value`.
        out: an array of the result's shape to write it to.

    Returns:
        A new array of the same dtype.

    Raises:
        MXNetError: the type is unknown.
        ValueError: a border is negative, or the values do not fit the channels.
    """
    image = as_image(src, "copyMakeBorder")
    if min(top, bot, left, right) < 0:
        raise ValueError(f"copyMakeBorder: borders must be >= 0, got {(top, bot, left, right)}")
    kind = int(type) & ~_ISOLATED
    height, width, channels = image.shape
    if kind == 0:
        # OpenCV always has four values, regardless of the number of channels.
        fill = np.ravel(values if np.size(values) else value)[:channels]
        rows, columns = top + height + bot, left + width + right
        result = place_on_canvas(image, height=rows, width=columns, left=left, top=top, value=fill)
    elif kind in _MODES:
        result = np.pad(image, ((top, bot), (left, right), (0, 0)), _MODES[kind])
    else:
        raise MXNetError(f"copyMakeBorder: unknown border type {type}; it must be 0, 1, 2, 3 or 4")
    return given(result, out)
