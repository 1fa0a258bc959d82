"""The rectangle of an image that a chain of transforms needs, found from the image's extents and draws alone.

Rule: the chain's own decode operation is run with an image that has extents and no pixels. So the draws are those of a
`aioloader.transforms.fused.ImagePlan` with the same random generator.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, Final, cast

import numpy as np

from aioloader.transforms.fused import choose_decode_op, flat_chain
from aioloader.transforms.lazy_image import Scratch

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array
    from aioloader.rng import Rng
    from aioloader.transforms.geometry import Box
    from aioloader.transforms.lazy_image import LazyImage

_NO_PIXELS: Final = np.empty((0, 0, 3), np.uint8)


class NeededRegion:
    """Finder of the rectangle that a chain needs; used by one thread.

    Args:
        chains: callables that take the image, as the stages of an `ImagePlan`.
        shrinks: JPEGs may be shrunk while they are decoded.

    Attributes:
        crops: the chain needs only a part of most images.
    """

    def __init__(self, chains: Sequence[Callable[..., Any]], *, shrinks: bool) -> None:
        transforms = [fn for chain in chains for fn in flat_chain(chain)]
        self._decode_op, _ = choose_decode_op(transforms, Scratch())
        self._shrinks = shrinks
        self.crops = self._decode_op.crops

    def find(self, height: int, width: int, rng: Rng) -> tuple[Box, int] | None:
        """Return the rectangle, and the part of its size at which it is decoded.

        Args:
            height, width: extents of the upright image in pixels.
            rng: the sample's draws.

        Returns:
            ((x, y, width, height), 1, 2, 4 or 8); None for all of the image, and if the chain raises an error for it.
        """
        outline = _Outline(height, width, self._shrinks)
        try:
            self._decode_op.decode(cast("LazyImage", outline), rng, None)
        except Exception:  # a worker will raise the same error
            return None
        return outline.requested


class _Outline:
    """Image without pixels, which notes the rectangle that is requested."""

    borrowed = False
    channels = 3

    def __init__(self, height: int, width: int, shrinks: bool) -> None:
        self.height = height
        self.width = width
        self.shrinks = shrinks
        self.requested: tuple[Box, int] | None = None

    def pixels(self, out: Array | None = None) -> Array:
        return _NO_PIXELS

    def region(self, box: Box, shrink: int = 1) -> Array:
        self.requested = box, shrink
        return _NO_PIXELS

    def frame(self, box: Box, shrink: int = 1) -> Array:
        self.requested = box, shrink
        return _NO_PIXELS
