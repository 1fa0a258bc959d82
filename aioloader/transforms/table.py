"""uint8 pixels to float32 planes in one pass, by looking every value up.

Rule: what `ToTensor`, `Normalize`, `Cast` and a `ToPlanes` that draws nothing do to a pixel depends on its value and
channel alone, so the 256 results of each channel are made once, by these transforms themselves. The result is theirs
bit for bit, without temporaries.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.rng import Rng
from aioloader.transforms.compose import Compose
from aioloader.transforms.planes import ToPlanes
from aioloader.transforms.tensor import Cast, Normalize, ToTensor

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.foundation.types import Array

__all__ = ("PixelTable", "table_length")

_UINT8 = np.dtype(np.uint8)
_FLOAT32 = np.dtype(np.float32)


def table_length(transforms: Sequence[Callable[..., Any]]) -> int:
    """How many transforms from the first on a `PixelTable` can stand for; 0 if none."""
    length = 0
    tensor = False
    for place, transform in enumerate(transforms):
        kind = type(transform)
        if not tensor and (kind is ToTensor or _is_table(transform)):
            tensor = True
        elif isinstance(transform, Cast) and kind is Cast and transform.dtype == _FLOAT32:
            pass
        elif kind is not Normalize or not tensor:
            break
        if tensor:
            length = place + 1
    return length


def _is_table(transform: Any) -> bool:
    return type(transform) is ToPlanes and transform.fixed and transform.dtype == _FLOAT32


class PixelTable:
    """Some casts, `ToTensor` or `ToPlanes`, and casts and normalisations after it, in one.

    Args:
        transforms: of which `table_length` is the length.
    """

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        self._chain = Compose(transforms)
        self._tables: dict[int, list[Array] | None] = {}
        self._planes: list[Array] = []

    def __call__(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        """What the transforms make of `x`; see `Transform.apply`."""
        if type(x) is not np.ndarray or x.dtype != _UINT8 or x.ndim != 3 or not x.size:
            return self._chain.apply(x, rng, out)
        height, width, channels = x.shape
        tables = self._tables[channels] if channels in self._tables else self._prepare(channels)
        if tables is None:
            return self._chain.apply(x, rng, out)
        if (
            out is None
            or out.dtype != _FLOAT32
            or out.shape != (channels, height, width)
            or not out.flags.c_contiguous
        ):
            out = np.empty((channels, height, width), _FLOAT32)
        import cv2

        if channels == 1:
            cv2.LUT(x[:, :, 0], tables[0], dst=out[0])
            return out
        planes = self._planes
        if len(planes) != channels or planes[0].shape != (height, width):
            planes = self._planes = [np.empty((height, width), _UINT8) for _ in range(channels)]
        # Splitting first: looking up interleaved pixels takes twice as long.
        cv2.split(x, planes)
        for place, plane in enumerate(planes):
            cv2.LUT(plane, tables[place], dst=out[place])
        return out

    def _prepare(self, channels: int) -> list[Array] | None:
        """The tables for images of so many channels; None if the transforms refuse them."""
        tables = None
        if 1 <= channels <= 4:
            values = np.repeat(np.arange(256, dtype=np.uint8)[:, None, None], channels, axis=2)
            try:
                made = self._chain.apply(values, Rng(0))
            except (TypeError, ValueError):
                made = None  # the transforms will say so themselves
            if made is not None and made.shape == (channels, 256, 1) and made.dtype == _FLOAT32:
                tables = [np.ascontiguousarray(plane[:, 0]) for plane in made]
        self._tables[channels] = tables
        return tables
