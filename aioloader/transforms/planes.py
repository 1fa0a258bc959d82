"""Last step of MXNet's record iterator: uint8 pixels to normalised planes.

Rule: a value x of a channel becomes ``(x - mean) * (k / std) + b / std`` in float32, with k = contrast * scale and
b = illumination * scale, drawn for each image. uint8 stays as it is; int8 is ``x - mean``, the mean rounded, saturated.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.foundation.types import Array, ArraySpec
from aioloader.rng import Rng
from aioloader.transforms.base import Transform, check_image, check_probability, result_array

if TYPE_CHECKING:
    from collections.abc import Sequence

_UINT8 = np.dtype(np.uint8)
_INT8 = np.dtype(np.int8)
_FLOAT32 = np.dtype(np.float32)


class ToPlanes(Transform):
    """Normalised planes, channels first; uint8 (height, width, channels) to (channels, height, width).

    Draws: one for mirroring if 0 < `mirror` < 1, one for contrast and one for illumination, each only if it is not 0.

    Args:
        mean: value of each channel that becomes 0; at least as many as there are channels. Or a separate value for
            every pixel: float32 (channels, height, width), of the images' extents.
        std: divisor of each channel.
        mirror: probability that left and right are exchanged, after subtracting the mean.
        scale: factor of all channels.
        contrast: the image is multiplied by a number uniform in [1 - contrast, 1 + contrast).
        illumination: a number uniform in [-illumination, illumination) is added, times `scale`.
        dtype: float32; uint8: pixels unchanged; int8: pixels minus the rounded mean, saturated, and nothing else.
    """

    def __init__(
        self,
        mean: Sequence[float] | Array = (0.0, 0.0, 0.0, 0.0),
        *,
        std: Sequence[float] = (1.0, 1.0, 1.0, 1.0),
        mirror: float = 0.0,
        scale: float = 1.0,
        contrast: float = 0.0,
        illumination: float = 0.0,
        dtype: Any = "float32",
    ) -> None:
        self.std = tuple(map(float, std))
        self.mirror = check_probability(mirror, "ToPlanes")
        self.scale = float(scale)
        self.contrast = float(contrast)
        self.illumination = float(illumination)
        self.dtype = np.dtype(dtype)
        if self.dtype not in (_FLOAT32, _UINT8, _INT8):
            raise ValueError(f"ToPlanes: dtype must be float32, uint8 or int8, got {self.dtype}")
        if not all(self.std):
            raise ValueError(f"ToPlanes: std must not be zero, got {std!r}")
        self._mean = np.ascontiguousarray(mean, np.float32)
        self._per_pixel = self._mean.ndim == 3
        if self._per_pixel:
            self._mirrored = np.ascontiguousarray(self._mean[:, :, ::-1]) if self.mirror else self._mean
        else:
            self.mean = tuple(map(float, mean))
            if len(self.mean) != len(self.std):
                raise ValueError(f"ToPlanes: mean and std differ in length, got {mean!r} and {std!r}")
        self._tables = self._make_tables(*self._draw(Rng(0))) if self.fixed else None

    @property
    def fixed(self) -> bool:
        """Return True if nothing is drawn, so that every pixel's result depends on its value and channel alone."""
        return not (self.contrast or self.illumination or self.mirror or self._per_pixel)

    def _draw(self, rng: Rng) -> tuple[Array, Array]:
        """Draw factor and summand of every channel, float32."""
        factor = 1.0 + rng.uniform(-self.contrast, self.contrast) if self.contrast else 1.0
        light = rng.uniform(-self.illumination, self.illumination) if self.illumination else 0.0
        std = np.array(self.std, np.float32)
        return np.float32(factor * self.scale) / std, np.float32(light * self.scale) / std

    def _make_tables(self, factor: Array, summand: Array) -> Array:
        """Compute the results of all values, (channels, 256)."""
        values = np.arange(256, dtype=np.float32)
        mean = self._mean[:, None]
        if self.dtype == _INT8:
            return np.clip(values - _rounded(mean), -128, 127).astype(np.int8)
        tables = (values - mean) * factor[:, None]
        if summand.any():
            tables += summand[:, None]
        return tables

    def _subtract(
        self, planes: Sequence[Any], means: Array, factor: Array, summand: Array, result: Array
    ) -> None:
        """Compute the result with a mean for every pixel."""
        import cv2

        for channel, (plane, mean, place) in enumerate(zip(planes, means, result, strict=True)):
            if self.dtype == _INT8:
                np.copyto(place, np.clip(plane - _rounded(mean), -128, 127), casting="unsafe")
                continue
            cv2.subtract(plane, mean, dst=place, dtype=cv2.CV_32F)
            if factor[channel] != 1:
                np.multiply(place, factor[channel], out=place)
            if summand[channel]:
                np.add(place, summand[channel], out=place)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, "ToPlanes")
        if image.dtype != _UINT8 or not 1 <= image.shape[2] <= len(self.std):
            raise ValueError(
                f"ToPlanes takes uint8 with 1 to {len(self.std)} channels, got {image.dtype} of shape {image.shape}"
            )
        rows, columns, channels = image.shape
        if self._per_pixel and self._mean.shape != (channels, rows, columns):
            raise ValueError(
                f"the mean image is of shape {self._mean.shape}, the image of shape {(channels, rows, columns)}"
            )
        mirrored = self.mirror == 1.0 or (self.mirror > 0.0 and rng.random() < self.mirror)
        if not self.fixed:
            factor, summand = self._draw(rng)
        result = result_array(image, (channels, rows, columns), self.dtype, out)
        if not image.size:
            return result
        import cv2

        # All sources are mirrored beforehand, which costs less than writing the result backwards.
        if mirrored:
            image = cv2.flip(image, 1).reshape(image.shape)
        planes = [image[:, :, 0]] if channels == 1 else cv2.split(image)
        if self.dtype == _UINT8:
            np.stack(planes, out=result)
        elif self._per_pixel:
            means = self._mirrored if mirrored else self._mean
            self._subtract(planes, means, factor, summand, result)
        else:
            tables = self._make_tables(factor, summand) if self._tables is None else self._tables
            for plane, table, place in zip(planes, tables, result, strict=False):
                cv2.LUT(plane, table, dst=place)
        return result

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        if spec is None or len(spec.shape) != 3:
            return None
        return ArraySpec((spec.shape[2], *spec.shape[:2]), self.dtype)


def _rounded(mean: Array) -> Array:
    # Halves away from zero, as in C.
    rounded: Array = np.trunc(mean + np.copysign(np.float32(0.5), mean))
    return rounded
