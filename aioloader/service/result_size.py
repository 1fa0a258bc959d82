"""Estimate of the bytes that a function's result will take, from the results before it."""

from __future__ import annotations

# As for an image of float32 in RGB.
_PER_PIXEL = 12


class ResultSizes:
    """Sizes of the results so far, of a processor that does not announce them.

    The result may grow with the image (decoded, normalised) or not (resized, cropped), and a tiny image that is
    enlarged has very many bytes for each of its pixels. So two figures are kept, the largest ratio to the pixels and
    the largest size, and the smaller estimate is taken. It is too small only for a result that is larger than all
    before it.
    """

    def __init__(self) -> None:
        self._per_pixel = float(_PER_PIXEL)
        self._largest = 0

    def expect(self, pixels: int) -> int:
        """Return the bytes to reserve for the result of an image.

        Args:
            pixels: height times width of the image.
        """
        return int(min(pixels * self._per_pixel, max(self._largest, pixels * _PER_PIXEL)))

    def learn(self, pixels: int, nbytes: int) -> None:
        """Take note of a result.

        Args:
            pixels: height times width of its image; at least 1.
            nbytes: bytes of its arrays.
        """
        self._per_pixel = max(self._per_pixel, nbytes / pixels)
        self._largest = max(self._largest, nbytes)
