"""Size and direction of the whole image: resize and flips."""

from __future__ import annotations

from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, ClassVar

from aioloader.foundation.types import ArraySpec
from aioloader.transforms.base import Transform, check_image, check_probability, check_size, result_array
from aioloader.transforms.crop import resize_any
from aioloader.transforms.interpolation import interpolation_code, settle

if TYPE_CHECKING:
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

__all__ = ("RandomFlipLeftRight", "RandomFlipTopBottom", "Resize")


class Resize(Transform):
    """The whole image at another size; dtype kept.

    (height, width, channels) or (n, height, width, channels), in and out. No draws, but one for interpolation
    "random". An image that has the size already is returned as it is.

    Args:
        size: side of a square, or (width, height), in pixels; with `keep_ratio` an int is the shorter side, and the
            longer one is rounded down.
        keep_ratio: keep height/width; acts only where `size` is an int.
        interpolation: MXNet's number or a name (see `interpolation_code`).
    """

    _fields: ClassVar[tuple[str, ...]] = ("size", "keep_ratio", "interpolation")

    def __init__(
        self, size: int | Sequence[int], keep_ratio: bool = False, interpolation: int | str = 1
    ) -> None:
        pair = check_size(size, "Resize")
        self.size: int | tuple[int, int] = pair if isinstance(size, Sequence) else pair[0]
        self.keep_ratio = bool(keep_ratio)
        self.interpolation = interpolation_code(interpolation, "Resize")

    def target(self, height: int, width: int) -> tuple[int, int]:
        """(width, height) of the result for an image of these extents."""
        if not isinstance(self.size, int):
            return self.size
        if not self.keep_ratio:
            return self.size, self.size
        if height > width:
            return self.size, self.size * height // width
        return self.size * width // height, self.size

    def box(self, height: int, width: int, rng: Rng) -> tuple[int, int, int, int]:
        """The rectangle that the result is made from, (x, y, width, height): all of it. No draws."""
        return 0, 0, width, height

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, "Resize", (3, 4))
        code = settle(self.interpolation, rng)
        if 0 in image.shape[-3:-1]:
            raise ValueError(f"Resize: an image of shape {image.shape} has no pixels to resize")
        return resize_any(image, self.target(image.shape[-3], image.shape[-2]), code, out)

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        if spec is None or len(spec.shape) not in (3, 4):
            return None
        rows, columns = spec.shape[-3], spec.shape[-2]
        width: int | None
        height: int | None
        if rows is not None and columns is not None:
            width, height = self.target(rows, columns)
        elif isinstance(self.size, int) and self.keep_ratio:
            width = height = None
        else:
            width, height = self.target(1, 1)
        return ArraySpec((*spec.shape[:-3], height, width, spec.shape[-1]), spec.dtype)


class _RandomFlip(Transform):
    """Flip with probability `p`; one draw, whatever `p` is."""

    in_place = True
    _fields: ClassVar[tuple[str, ...]] = ("p",)
    _axis = 0
    _code = 0

    def __init__(self, p: float = 0.5) -> None:
        self.p = check_probability(p, type(self).__name__)

    def apply(self, x: Any, rng: Rng, out: Array | None = None) -> Any:
        image = check_image(x, type(self).__name__, (3, 4))
        return self.flip(image, out) if rng.random() < self.p else x

    def flip(self, x: Array, out: Array | None = None) -> Array:
        """Flip, without a draw."""
        result = result_array(x, x.shape, x.dtype, out, in_place=True)
        if x.size == 0:
            return result
        if x.ndim == 4:
            for image, place in zip(x, result, strict=True):
                self.flip_into(image, place)
        else:
            self.flip_into(x, result)
        return result

    def flip_into(self, x: Array, result: Array) -> Array:
        """Flip, without a draw, into an array of the same shape and dtype, which may be `x` itself.

        Args:
            x: (height, width, channels), not empty.
            result: where to.
        """
        import cv2

        source, place = (x[:, :, 0], result[:, :, 0]) if x.shape[2] == 1 else (x, result)
        if x.dtype.char in "BbHhifd" and x.shape[2] <= 512:
            cv2.flip(source, self._code, dst=place)
        else:
            turned = x[:, ::-1] if self._axis == 1 else x[::-1]
            # numpy copes with the overlap of flipping in place, at the price of a copy.
            result[...] = turned
        return result

    def out_spec(self, spec: ArraySpec | None) -> ArraySpec | None:
        return spec


class RandomFlipLeftRight(_RandomFlip):
    """Exchange left and right with probability `p`; shape and dtype kept.

    (height, width, channels) or (n, height, width, channels), all n alike. One draw.

    Args:
        p: probability, 0 to 1.
    """

    _axis = 1
    _code = 1


class RandomFlipTopBottom(_RandomFlip):
    """Exchange top and bottom with probability `p`; shape and dtype kept.

    (height, width, channels) or (n, height, width, channels), all n alike. One draw.

    Args:
        p: probability, 0 to 1.
    """

    _axis = 0
    _code = 0
