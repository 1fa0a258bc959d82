"""`mx.gluon.data.vision.transforms`: the transforms of `aioloader.transforms`, with MXNet's arguments, on NDArrays.

A dataset passes the native transform to the loader (`native_transform`), so that decoding and transforming stay one
step; called on an image, a transform takes and returns an NDArray. Its draws then follow `mx.random.seed`. Images are
uint8 or float32, (height, width, channels), RGB; float32 (channels, height, width) after `ToTensor`.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader import transforms as native
from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.gluon.block import Block, HybridBlock
from aioloader.mxnet.gluon.data._ndarray_stage import NDArrayFunction, as_nd, native_of, plain
from aioloader.transforms import gluon_geometry, gluon_rotation
from aioloader.transforms.color import FreeColorJitter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Size = int | Sequence[int]

__all__ = (
    "Cast",
    "CenterCrop",
    "Compose",
    "CropResize",
    "HybridCompose",
    "HybridRandomApply",
    "HybridTransform",
    "Normalize",
    "RandomApply",
    "RandomBrightness",
    "RandomColorJitter",
    "RandomContrast",
    "RandomCrop",
    "RandomFlipLeftRight",
    "RandomFlipTopBottom",
    "RandomGray",
    "RandomHue",
    "RandomLighting",
    "RandomResizedCrop",
    "RandomRotation",
    "RandomSaturation",
    "Resize",
    "Rotate",
    "ToTensor",
    "Transform",
    "TransformTypeError",
    "TransformValueError",
)


class TransformValueError(MXNetError, ValueError):
    """Error raised when a transform cannot be applied with its arguments, or to this image."""


class TransformTypeError(MXNetError, TypeError):
    """Error raised when a transform cannot be applied to this kind of array."""


class Transform(Block):
    """Transform that wraps one of `aioloader.transforms`."""

    # Set instead of the transform: MXNet refuses bad sizes of some transforms when they are first applied.
    _refused: ValueError | None = None

    def __init__(
        self, made: Callable[..., Any] | None = None, later: Callable[[], Callable[..., Any]] | None = None
    ) -> None:
        super().__init__()
        self._made = made
        if later is not None:
            try:
                self._made = later()
            except ValueError as error:
                self._refused = error

    def native_transform(self) -> Callable[..., Any] | None:
        """Return the transform that a loader runs instead of this one; None if a derived class overrides the call."""
        if type(self).forward is not Transform.forward or type(self).__call__ is not Transform.__call__:
            return None
        return self._ready()

    def _ready(self) -> Callable[..., Any]:
        if self._made is None:
            raise TransformValueError(str(self._refused)) from self._refused
        return self._made

    def __call__(self, x: Any, *args: Any) -> Any:
        """Return the transformed image; with further arguments (labels) a tuple of it and them, unchanged.

        Args:
            x: the image; not altered.
            *args: passed on.

        Raises:
            TransformValueError: the arguments or the image's shape do not allow it.
            TransformTypeError: the image's dtype does not.
        """
        out = self.forward(x)
        return (out, *args) if args else out

    def forward(self, *args: Any) -> Any:
        """Return the transformed image."""
        (x,) = args
        made = self._ready()
        source = plain(x)
        try:
            result = made(source)
        except (ValueError, TypeError) as error:
            # Errors of the caller's own functions have their own classes, or derive from these.
            kind = {ValueError: TransformValueError, TypeError: TransformTypeError}.get(type(error))
            if kind is None:
                raise
            raise kind(str(error)) from error
        if isinstance(result, np.ndarray) and isinstance(source, np.ndarray):
            # If the result were a view, its owner could alter the image.
            result = result.copy() if np.may_share_memory(result, source) else result
        return as_nd(result)

    def __repr__(self) -> str:
        return f"<{self._refused}>" if self._made is None else repr(self._made)


class HybridTransform(Transform, HybridBlock):
    """Transform that is a HybridBlock in MXNet."""


def _part(fn: Any) -> Callable[..., Any]:
    """Return the native transform of a part of a chain."""
    found = native_of(fn)
    return NDArrayFunction(fn) if found is None else found


class Compose(Transform):
    """Sequence of transforms; any callable of one argument is accepted.

    Args:
        transforms: callables; the list itself is not altered.
    """

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        super().__init__()
        self._parts: list[Callable[..., Any]] = []
        self.add(*transforms)

    def add(self, *transforms: Callable[..., Any]) -> None:
        """Add transforms at the end."""
        self._parts += transforms
        self._made = native.Compose([_part(fn) for fn in self._parts])

    def __len__(self) -> int:
        return len(self._parts)

    def __getitem__(self, place: int) -> Callable[..., Any]:
        return self._parts[place]

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return iter(self._parts)


class HybridCompose(Compose, HybridBlock):
    """`Compose` of HybridBlocks only.

    Args:
        transforms: HybridBlocks.

    Raises:
        ValueError: one of them is not a HybridBlock.
    """

    def add(self, *transforms: Callable[..., Any]) -> None:
        """Add transforms at the end."""
        for fn in transforms:
            if not isinstance(fn, HybridBlock):
                raise ValueError(f"{fn!r} is not a HybridBlock, try use `Compose` instead")
        super().add(*transforms)


class RandomApply(Transform):
    """Transform applied with probability `p`.

    Args:
        transforms: a callable, or a list of them, applied together.
        p: probability, 0 to 1.
    """

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        is_list = isinstance(transforms, (list, tuple))
        inner = native.Compose([_part(fn) for fn in transforms]) if is_list else _part(transforms)
        super().__init__(native.RandomApply(inner, p))


class HybridRandomApply(RandomApply, HybridBlock):
    """`RandomApply` of a HybridBlock.

    Args:
        transforms, p: see `RandomApply`.

    Raises:
        ValueError: it is not a HybridBlock.
    """

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        if not isinstance(transforms, HybridBlock):
            raise ValueError(f"{transforms!r} is not a HybridBlock, try use `RandomApply` instead")
        super().__init__(transforms, p)


class Cast(HybridTransform):
    """Conversion to another dtype, by numpy's ``astype``.

    Args:
        dtype: anything that `numpy.dtype` takes.
    """

    def __init__(self, dtype: Any = "float32") -> None:
        super().__init__(native.Cast(dtype))


class ToTensor(HybridTransform):
    """float32 with channels first, divided by 255; also for (n, height, width, channels)."""

    def __init__(self) -> None:
        super().__init__(native.ToTensor())


class Normalize(HybridTransform):
    """``(x - mean) / std`` per channel, channels first. Integers become float32.

    Args:
        mean, std: one number, or one per channel.
    """

    def __init__(self, mean: float | Sequence[float] = 0.0, std: float | Sequence[float] = 1.0) -> None:
        super().__init__(native.Normalize(mean, std))


class Resize(HybridTransform):
    """The whole image at another size; also for (n, height, width, channels).

    Args:
        size: side of a square, or (width, height); with `keep_ratio` an int is the shorter side. An impossible size is
            refused when the transform is applied, as in MXNet.
        keep_ratio: keep height/width.
        interpolation: MXNet's number or a name.
    """

    def __init__(self, size: Size, keep_ratio: bool = False, interpolation: int | str = 1) -> None:
        super().__init__(later=lambda: gluon_geometry.Resize(size, keep_ratio, interpolation))


class CenterCrop(HybridTransform):
    """The middle of the image, resized to `size`.

    Args:
        size: side of a square, or (width, height); larger than the image, it is enlarged.
        interpolation: MXNet's number or a name.
    """

    def __init__(self, size: Size, interpolation: int | str = 1) -> None:
        super().__init__(gluon_geometry.CenterCrop(size, interpolation))


class RandomCrop(HybridTransform):
    """Rectangle at a random place.

    Args:
        size: side of a square, or (width, height).
        pad: pixels added around the image first: one number, or (top, bottom, left, right).
        pad_value: value of added pixels.
        interpolation: MXNet's number or a name.
    """

    def __init__(
        self,
        size: Size,
        pad: Size | None = None,
        pad_value: float | Sequence[float] = 0,
        interpolation: int | str = 1,
    ) -> None:
        super().__init__(gluon_geometry.RandomCrop(size, pad, pad_value, interpolation))


class RandomResizedCrop(HybridTransform):
    """Rectangle of random area, shape and place, resized to `size`.

    Args:
        size: side of a square, or (width, height).
        scale: (least, greatest) share of the image's area.
        ratio: (least, greatest) width/height.
        interpolation: MXNet's number or a name.
    """

    def __init__(
        self,
        size: Size,
        scale: float | Sequence[float] = (0.08, 1.0),
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interpolation: int | str = 1,
    ) -> None:
        super().__init__(gluon_geometry.RandomResizedCrop(size, scale, ratio, interpolation))


class CropResize(HybridTransform):
    """A fixed rectangle, resized if `size` is given; also for (n, height, width, channels).

    Args:
        x, y: left and top edge in pixels.
        width, height: extents. Impossible ones are refused when the transform is applied, as in MXNet.
        size: side of a square, or (width, height); None: no resizing.
        interpolation: MXNet's number or a name; None for bilinear.
    """

    def __init__(
        self,
        x: int,
        y: int,
        width: int,
        height: int,
        size: Size | None = None,
        interpolation: int | str | None = None,
    ) -> None:
        super().__init__(
            later=lambda: gluon_geometry.CropResize(
                x, y, width, height, size=size, interpolation=interpolation
            )
        )


class RandomFlipLeftRight(HybridTransform):
    """Random exchange of left and right with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(native.RandomHorizontalFlip(p))


class RandomFlipTopBottom(HybridTransform):
    """Random exchange of top and bottom with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(native.RandomVerticalFlip(p))


class RandomBrightness(HybridTransform):
    """Multiplication by a factor uniform in [max(0, 1 - brightness), 1 + brightness)."""

    def __init__(self, brightness: float) -> None:
        super().__init__(native.RandomBrightness(brightness))


class RandomContrast(HybridTransform):
    """Stretch by a factor uniform in [max(0, 1 - contrast), 1 + contrast) around the image's mean luma."""

    def __init__(self, contrast: float) -> None:
        super().__init__(native.RandomContrast(contrast))


class RandomSaturation(HybridTransform):
    """Stretch of every pixel by a factor uniform in [max(0, 1 - saturation), 1 + saturation) around its own luma."""

    def __init__(self, saturation: float) -> None:
        super().__init__(native.RandomSaturation(saturation))


class RandomHue(HybridTransform):
    """Turn of the hue by up to `hue` of the colour circle, either way."""

    def __init__(self, hue: float) -> None:
        super().__init__(native.RandomHue(hue))


class RandomColorJitter(HybridTransform):
    """Brightness, contrast, saturation and hue by random amounts, in a random order. All 0: nothing changes."""

    def __init__(
        self, brightness: float = 0.0, contrast: float = 0.0, saturation: float = 0.0, hue: float = 0.0
    ) -> None:
        super().__init__(FreeColorJitter(brightness, contrast, saturation, hue))


class RandomLighting(HybridTransform):
    """Addition of ImageNet's principal colours with weights of standard deviation `alpha`."""

    def __init__(self, alpha: float) -> None:
        super().__init__(native.RandomLighting(alpha))


class RandomGray(HybridTransform):
    """Random replacement of the colours by their luma with probability `p`; 3 channels and the dtype stay."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(native.RandomGrayscale(p))


class Rotate(Transform):
    """Rotation by a given angle, counter-clockwise; float32, channels first.."""

    def __init__(self, rotation_degrees: float, zoom_in: bool = False, zoom_out: bool = False) -> None:
        super().__init__(gluon_rotation.Rotate(rotation_degrees, zoom_in, zoom_out))


class RandomRotation(Transform):
    """Rotation by a random angle; float32, channels first..

    Raises:
        ValueError: the limits are not in order, or the probability is not one.
    """

    def __init__(
        self,
        angle_limits: Sequence[float],
        zoom_in: bool = False,
        zoom_out: bool = False,
        rotate_with_proba: float = 1.0,
    ) -> None:
        super().__init__(gluon_rotation.RandomRotation(angle_limits, zoom_in, zoom_out, rotate_with_proba))
