"""Check of windows: each is searched in its image, upright and mirrored. Standard library and numpy only.

Images and windows are compared at an eighth of their size, by their normalised correlation at every place, which a
Fourier transform computes for all places at once. So the check finds the place of each window: one of another image, of
another scale or at another orientation is nowhere, and the places show whether they were drawn uniformly.
"""

from __future__ import annotations

import math
from typing import Any, NamedTuple

import numpy as np

SHRINK = 8
"""Extents of images and windows are divided by this number before they are compared."""

_GREY = np.array((0.299, 0.587, 0.114), np.float32)
_LEAST_VARIANCE = 4.0  # grey levels squared: what is flatter correlates with everything


class Place(NamedTuple):
    """Place of a window in its image.

    Attributes:
        score: normalised correlation at this place, at most 1.
        x, y: the left and upper border, as shares 0 to 1 of what is possible.
        mirrored: whether the window is mirrored left to right.
        colour: mean red, green, blue of the image at this place.
    """

    score: float
    x: float
    y: float
    mirrored: bool
    colour: Any


def shrink(images: Any) -> Any:
    """Return the means of all squares of `SHRINK` x `SHRINK` pixels.

    Args:
        images: uint8 (..., height, width, 3); extents are multiples of `SHRINK`.

    Returns:
        float32 (..., height / 8, width / 8, 3).
    """
    *lead, height, width, channels = images.shape
    rows = images.reshape(*lead, height // SHRINK, SHRINK, width, channels).sum(axis=-3, dtype=np.uint16)
    squares = rows.reshape(*lead, height // SHRINK, width // SHRINK, SHRINK, channels)
    means: Any = squares.sum(axis=-2, dtype=np.float32) / np.float32(SHRINK * SHRINK)
    return means


class WindowFinder:
    """Finder of windows in one image.

    Args:
        image: shrunken image, (height, width, 3).
        shape: height and width of the shrunken windows.
    """

    def __init__(self, image: Any, shape: tuple[int, int]) -> None:
        self._shape = shape
        self._count = float(shape[0] * shape[1])
        self._extents = tuple(1 << (extent - 1).bit_length() for extent in image.shape[:2])
        self._places = (image.shape[0] - shape[0] + 1, image.shape[1] - shape[1] + 1)
        grey = image @ _GREY
        self._level = float(grey.mean())
        self._spectrum = np.fft.rfft2(grey - self._level, self._extents)
        self._colours = np.stack([self._sums(image[..., channel]) / self._count for channel in range(3)], -1)
        sums, squares = self._sums(grey - self._level), self._sums((grey - self._level) ** 2)
        self._energy = np.maximum(squares - sums * sums / self._count, _LEAST_VARIANCE * self._count)

    def find(self, window: Any) -> Place:
        """Return the place where a shrunken window, or its mirror image, correlates most."""
        grey = window @ _GREY
        grey = grey - grey.mean()
        length = math.sqrt(max(float((grey * grey).sum()), _LEAST_VARIANCE * self._count))
        best: Place | None = None
        for mirrored in (False, True):
            turned = grey[:, ::-1] if mirrored else grey
            product = self._spectrum * np.conj(np.fft.rfft2(turned, self._extents))
            rows, columns = self._places
            scores = np.fft.irfft2(product, self._extents)[:rows, :columns] / np.sqrt(self._energy) / length
            y, x = divmod(int(scores.argmax()), columns)
            if best is None or scores[y, x] > best.score:
                best = Place(
                    float(scores[y, x]),
                    x=x / max(1, columns - 1),
                    y=y / max(1, rows - 1),
                    mirrored=mirrored,
                    colour=self._colours[y, x],
                )
        assert best is not None
        return best

    def _sums(self, values: Any) -> Any:
        """Return the sum of the values in the window at each place."""
        height, width = self._shape
        total = np.zeros((values.shape[0] + 1, values.shape[1] + 1))
        np.cumsum(np.cumsum(values, 0, dtype=np.float64), 1, out=total[1:, 1:])
        return (
            total[height:, width:]
            - total[:-height, width:]
            - total[height:, :-width]
            + total[:-height, :-width]
        )
