"""`mx.gluon.data.vision.transforms`: the transforms of `aioloader.transforms`, with MXNet's arguments, on NDArrays.

A dataset passes the native transform to the loader (`native_transform`), so that decoding and transforming stay one
step; called on an image, a transform takes and returns an NDArray. Its draws then follow `mx.random.seed`. Images are
uint8 or float32, (height, width, channels), RGB; float32 (channels, height, width) after `ToTensor`.
"""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any, ClassVar

from aioloader import transforms as native
from aioloader.mxnet import gluon_geometry, ndarray
from aioloader.mxnet.base import exported, methods_of, numeric_types, overrides
from aioloader.mxnet.gluon.block import Block, HybridBlock
from aioloader.mxnet.gluon.data._ndarray_stage import (
    NativeBacked,
    NDArrayFunction,
    TransformValueError,
    applied,
    native_of,
)
from aioloader.mxnet.gluon.data._ndarray_stage import TransformTypeError as TransformTypeError
from aioloader.transforms.color import FreeColorJitter

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    Size = int | Sequence[int]


class Transform(NativeBacked, Block):
    """Transform that wraps one of `aioloader.transforms`, which is made from its attributes, MXNet's.

    A subclass defines `_native`. Attributes may be assigned: the next call and the next pass of a loader follow them.

    Args:
        **attributes: the attributes.
    """

    # MXNet refuses bad sizes of some transforms when they are first applied.
    _refuses_later = False
    _made: Callable[..., Any] | None = None

    def __init__(self, **attributes: Any) -> None:
        super().__init__()
        vars(self).update(attributes)
        if not self._refuses_later:
            self._ready()

    def __setattr__(self, name: str, value: Any) -> None:
        super().__setattr__(name, value)
        vars(self).pop("_made", None)

    def native_transform(self) -> Callable[..., Any] | None:
        """Return the transform that a loader runs instead of this one; None if a derived class overrides the call."""
        return None if overrides(self, _CALLS) else self._ready()

    def _native(self) -> Callable[..., Any]:
        raise NotImplementedError

    def _ready(self) -> Callable[..., Any]:
        if self._made is None:
            try:
                vars(self)["_made"] = self._native()
            except ValueError as error:
                if self._refuses_later:
                    raise TransformValueError(str(error)) from error
                raise
            assert self._made is not None
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
        return applied(self._ready(), x)

    def __repr__(self) -> str:
        try:
            return repr(self._ready())
        except ValueError as error:
            return f"<{error}>"


class HybridTransform(Transform, HybridBlock):
    """Transform that is a HybridBlock in MXNet."""

    def native_transform(self) -> Callable[..., Any] | None:
        return None if overrides(self, _HYBRID_CALLS) else self._ready()

    def forward(self, *args: Any) -> Any:
        """Return the transformed image: the result of `hybrid_forward`."""
        return self.hybrid_forward(ndarray, *args)

    def hybrid_forward(self, F: Any, *args: Any) -> Any:
        """Return the transformed image; `F` is `mx.nd`."""
        return Transform.forward(self, *args)


_CALLS = methods_of(Transform, "__call__", "forward")
_HYBRID_CALLS = methods_of(HybridTransform, "__call__", "forward", "hybrid_forward")


class _Chain(Transform):
    """Transform made from others, each a callable of one argument."""

    _seen: Sequence[Any] | None = None

    def _parts(self) -> Sequence[Callable[..., Any]]:
        raise NotImplementedError

    def _joined(self, parts: list[Callable[..., Any]]) -> Callable[..., Any]:
        """Return the native transform, made from those of the parts."""
        raise NotImplementedError

    def _ready(self) -> Callable[..., Any]:
        parts = self._parts()
        natives = [native_of(fn) for fn in parts]
        seen = [*parts, *natives]
        if self._seen is None or len(seen) != len(self._seen) or not all(map(operator.is_, seen, self._seen)):
            self._seen = seen  # which drops the one made before
        return super()._ready()

    def _native(self) -> Callable[..., Any]:
        natives = ((fn, native_of(fn)) for fn in self._parts())
        return self._joined([NDArrayFunction(fn) if made is None else made for fn, made in natives])


class Compose(_Chain):
    """Sequence of transforms; any callable of one argument is accepted.

    Args:
        transforms: callables; the list itself is not altered.
    """

    def __init__(self, transforms: Sequence[Callable[..., Any]]) -> None:
        super().__init__(_children={})
        self.add(*transforms)

    _children: dict[str, Callable[..., Any]]

    def add(self, *transforms: Callable[..., Any]) -> None:
        """Add transforms at the end."""
        for fn in transforms:
            self.register_child(fn)
        self._ready()

    def register_child(self, block: Any, name: str | None = None) -> None:
        """Add one transform at the end, under a name or its number."""
        self._children[name or str(len(self._children))] = block

    def _parts(self) -> list[Callable[..., Any]]:
        return list(self._children.values())

    def _joined(self, parts: list[Callable[..., Any]]) -> Callable[..., Any]:
        return native.Compose(parts)

    def __len__(self) -> int:
        return len(self._children)

    def __getitem__(self, place: int) -> Callable[..., Any]:
        return self._parts()[place]

    def __iter__(self) -> Iterator[Callable[..., Any]]:
        return iter(self._parts())


class HybridCompose(Compose, HybridTransform):
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


class RandomApply(_Chain):
    """Transform applied with probability `p`.

    Args:
        transforms: a callable, or a list of them, applied together.
        p: probability, 0 to 1.
    """

    def __init__(self, transforms: Any, p: float = 0.5) -> None:
        super().__init__(transforms=transforms, p=p)

    def _parts(self) -> Sequence[Callable[..., Any]]:
        return self.transforms if isinstance(self.transforms, list | tuple) else [self.transforms]

    def _joined(self, parts: list[Callable[..., Any]]) -> Callable[..., Any]:
        inner = parts[0] if parts and not isinstance(self.transforms, list | tuple) else native.Compose(parts)
        return native.RandomApply(inner, self.p)


class HybridRandomApply(RandomApply, HybridTransform):
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


def _both(size: Size) -> Sequence[int]:
    return (size, size) if isinstance(size, numeric_types) else size


class Cast(HybridTransform):
    """Conversion to another dtype, by numpy's ``astype``.

    Args:
        dtype: anything that `numpy.dtype` takes.
    """

    def __init__(self, dtype: Any = "float32") -> None:
        super().__init__(_dtype=dtype)

    def _native(self) -> Callable[..., Any]:
        return native.Cast(self._dtype)


class ToTensor(HybridTransform):
    """float32 with channels first, divided by 255; also for (n, height, width, channels)."""

    def _native(self) -> Callable[..., Any]:
        return native.ToTensor()


class Normalize(HybridTransform):
    """``(x - mean) / std`` per channel, channels first. Integers become float32.

    Args:
        mean, std: one number, or one per channel.
    """

    def __init__(self, mean: float | Sequence[float] = 0.0, std: float | Sequence[float] = 1.0) -> None:
        super().__init__(_mean=mean, _std=std)

    def _native(self) -> Callable[..., Any]:
        return native.Normalize(self._mean, self._std)


class Resize(HybridTransform):
    """The whole image at another size; also for (n, height, width, channels).

    Args:
        size: side of a square, or (width, height); with `keep_ratio` an int is the shorter side. An impossible size is
            refused when the transform is applied, as in MXNet.
        keep_ratio: keep height/width.
        interpolation: MXNet's number or a name.
    """

    _refuses_later = True

    def __init__(self, size: Size, keep_ratio: bool = False, interpolation: int | str = 1) -> None:
        super().__init__(_size=size, _keep=keep_ratio, _interpolation=interpolation)

    def _native(self) -> Callable[..., Any]:
        return gluon_geometry.Resize(self._size, self._keep, self._interpolation)


class CenterCrop(HybridTransform):
    """The middle of the image, resized to `size`.

    Args:
        size: side of a square, or (width, height); larger than the image, it is enlarged.
        interpolation: MXNet's number or a name.
    """

    def __init__(self, size: Size, interpolation: int | str = 1) -> None:
        super().__init__(_args=(_both(size), interpolation))

    def _native(self) -> Callable[..., Any]:
        return gluon_geometry.CenterCrop(*self._args)


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
        super().__init__(_args=(_both(size), pad, pad_value, interpolation))

    def _native(self) -> Callable[..., Any]:
        return gluon_geometry.RandomCrop(*self._args)


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
        super().__init__(_args=(_both(size), scale, ratio, interpolation))

    def _native(self) -> Callable[..., Any]:
        return gluon_geometry.RandomResizedCrop(*self._args)


class CropResize(HybridTransform):
    """A fixed rectangle, resized if `size` is given; also for (n, height, width, channels).

    Args:
        x, y: left and top edge in pixels.
        width, height: extents. Impossible ones are refused when the transform is applied, as in MXNet.
        size: side of a square, or (width, height); None: no resizing.
        interpolation: MXNet's number or a name; None for bilinear.
    """

    _refuses_later = True

    def __init__(
        self,
        x: int,
        y: int,
        width: int,
        height: int,
        size: Size | None = None,
        interpolation: int | str | None = None,
    ) -> None:
        super().__init__(_x=x, _y=y, _width=width, _height=height, _size=size, _interpolation=interpolation)

    def _native(self) -> Callable[..., Any]:
        return gluon_geometry.CropResize(
            *(self._x, self._y, self._width, self._height), size=self._size, interpolation=self._interpolation
        )


class RandomFlipLeftRight(HybridTransform):
    """Random exchange of left and right with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p=p)

    def _native(self) -> Callable[..., Any]:
        return native.RandomHorizontalFlip(self.p)


class RandomFlipTopBottom(HybridTransform):
    """Random exchange of top and bottom with probability `p`."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p=p)

    def _native(self) -> Callable[..., Any]:
        return native.RandomVerticalFlip(self.p)


class _RandomAdjust(HybridTransform):
    """Change of one property by a random factor, from the first to the second of `_args`; a hue turns by it, less 1."""

    _what: ClassVar[str]
    _usual: ClassVar[Callable[..., Any]]

    def __init__(self, amount: float) -> None:
        super().__init__(_amount=amount, _args=(max(0, 1 - amount), 1 + amount))

    def _native(self) -> Callable[..., Any]:
        low, high = self._args
        if (low, high) == (max(0, 1 - self._amount), 1 + self._amount):
            made: Callable[..., Any] = type(self)._usual(self._amount)
            return made
        turn = self._what == "hue"
        return native.ColorJitter(**{self._what: (low - turn, high - turn)})


class RandomBrightness(_RandomAdjust):
    """Multiplication by a factor uniform in [max(0, 1 - brightness), 1 + brightness)."""

    _what = "brightness"
    _usual = native.RandomBrightness

    def __init__(self, brightness: float) -> None:
        super().__init__(brightness)


class RandomContrast(_RandomAdjust):
    """Stretch by a factor uniform in [max(0, 1 - contrast), 1 + contrast) around the image's mean luma."""

    _what = "contrast"
    _usual = native.RandomContrast

    def __init__(self, contrast: float) -> None:
        super().__init__(contrast)


class RandomSaturation(_RandomAdjust):
    """Stretch of every pixel by a factor uniform in [max(0, 1 - saturation), 1 + saturation) around its own luma."""

    _what = "saturation"
    _usual = native.RandomSaturation

    def __init__(self, saturation: float) -> None:
        super().__init__(saturation)


class RandomHue(_RandomAdjust):
    """Turn of the hue by up to `hue` of the colour circle, either way."""

    _what = "hue"
    _usual = native.RandomHue

    def __init__(self, hue: float) -> None:
        super().__init__(hue)


class RandomColorJitter(HybridTransform):
    """Brightness, contrast, saturation and hue by random amounts, in a random order. All 0: nothing changes."""

    def __init__(
        self, brightness: float = 0.0, contrast: float = 0.0, saturation: float = 0.0, hue: float = 0.0
    ) -> None:
        super().__init__(_args=(brightness, contrast, saturation, hue))

    def _native(self) -> Callable[..., Any]:
        return FreeColorJitter(*self._args)


class RandomLighting(HybridTransform):
    """Addition of ImageNet's principal colours with weights of standard deviation `alpha`."""

    def __init__(self, alpha: float) -> None:
        super().__init__(_alpha=alpha)

    def _native(self) -> Callable[..., Any]:
        return native.RandomLighting(self._alpha)


class RandomGray(HybridTransform):
    """Random replacement of the colours by their luma with probability `p`; 3 channels and the dtype stay."""

    def __init__(self, p: float = 0.5) -> None:
        super().__init__(p=p)

    def _native(self) -> Callable[..., Any]:
        return native.RandomGrayscale(self.p)


class Rotate(Transform):
    """Rotation by a given angle, counter-clockwise; float32, channels first.."""

    def __init__(self, rotation_degrees: float, zoom_in: bool = False, zoom_out: bool = False) -> None:
        super().__init__(_args=(rotation_degrees, zoom_in, zoom_out))

    def _native(self) -> Callable[..., Any]:
        return gluon_geometry.Rotate(*self._args)


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
        super().__init__(_args=(angle_limits, zoom_in, zoom_out), _rotate_with_proba=rotate_with_proba)

    def _native(self) -> Callable[..., Any]:
        limits, zoom_in, zoom_out = self._args
        return gluon_geometry.RandomRotation(limits, zoom_in, zoom_out, self._rotate_with_proba)


__all__ = exported(globals(), "TransformTypeError", "TransformValueError", module=__name__)
