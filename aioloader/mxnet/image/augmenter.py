"""`Augmenter` and those that change an image's place, size or type; `create` has `CreateAugmenter`, which lists them.

Draws come from Python's `random`, in MXNet's order, so that a call after ``random.seed(0)`` makes MXNet's choices.
"""

from __future__ import annotations

import json
import random
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet.image._arrays import as_image, own
from aioloader.mxnet.image.geometry import center_crop, imresize, random_crop, random_size_crop, resize_short
from aioloader.mxnet.ndarray import NDArray, from_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Described:
    """Base of augmenters of images and of images with labels, which can describe themselves.

    Args:
        **kwargs: the arguments, for `dumps`.
    """

    def __init__(self, **kwargs: Any) -> None:
        self._kwargs = kwargs

    def dumps(self) -> Any:
        """Return name and arguments as JSON text: ``["resizeaug", {"size": 30, "interp": 2}]``.

        Augmenters made from others return a list of their name and the others' results.
        """
        return json.dumps([type(self).__name__.lower(), self._kwargs], default=_plain)

    def __repr__(self) -> str:
        return (
            f"{type(self).__name__}({', '.join(f'{name}={value!r}' for name, value in self._kwargs.items())})"
        )


class Augmenter(Described):
    """Base of augmenters, which take an image (height, width, channels), return one, and never alter their input.

    Args:
        **kwargs: its arguments, for `dumps`.
    """

    def __call__(self, src: Any) -> Any:
        """Return the changed image.

        Args:
            src: (height, width, channels).
        """
        raise NotImplementedError(f"{type(self).__name__} defines no __call__")


def _plain(value: Any) -> Any:
    """Return arrays and scalars of numpy, which JSON lacks, as lists and numbers."""
    if isinstance(value, np.ndarray | np.generic):
        return value.tolist()
    return str(value)


class SequentialAug(Augmenter):
    """Augmenters one after the other.

    Args:
        ts: callables that take an image.
    """

    def __init__(self, ts: Sequence[Callable[[Any], Any]]) -> None:
        super().__init__()
        self.ts = list(ts)

    def dumps(self) -> Any:
        return [
            type(self).__name__.lower(),
            [part.dumps() for part in self.ts if isinstance(part, Augmenter)],
        ]

    def __call__(self, src: Any) -> Any:
        """Apply all of them to the image."""
        for part in self.ts:
            src = part(src)
        return src

    def __repr__(self) -> str:
        return f"{type(self).__name__}({self.ts!r})"


class RandomOrderAug(SequentialAug):
    """Augmenters in an order that is drawn again for every image.

    Args:
        ts: callables that take an image.
    """

    def __call__(self, src: Any) -> Any:
        """Apply all of them to the image."""
        # A copy is shuffled: if each order built on the one before, it would depend on the images that came before.
        order = list(self.ts)
        random.shuffle(order)
        for part in order:
            src = part(src)
        return src


class _OfSize(Augmenter):
    """Base of augmenters with a size of their result."""

    def __init__(self, size: Any, interp: int = 2) -> None:
        super().__init__(size=size, interp=interp)
        self.size = size
        self.interp = interp


class ResizeAug(_OfSize):
    """`resize_short`.

    Args:
        size: pixels of the shorter side.
        interp: as for `imresize`.
    """

    def __call__(self, src: Any) -> NDArray:
        """Return the resized image."""
        return resize_short(src, self.size, self.interp)


class ForceResizeAug(_OfSize):
    """Resizing to a size, regardless of the proportions.

    Args:
        size: (width, height).
        interp: as for `imresize`.
    """

    def __call__(self, src: Any) -> NDArray:
        """Return the resized image."""
        return imresize(src, self.size[0], self.size[1], self.interp)


class RandomCropAug(_OfSize):
    """`random_crop`.

    Args:
        size: (width, height).
        interp: as for `imresize`.
    """

    def __call__(self, src: Any) -> NDArray:
        """Return the crop."""
        return random_crop(src, self.size, self.interp)[0]


class RandomSizedCropAug(Augmenter):
    """`random_size_crop`.

    Args:
        size: (width, height).
        area: (least, greatest) share of the image's area; a single number a means (a, 1).
        ratio: (least, greatest) width/height.
        interp: as for `imresize`.
        min_area: the old name of `area`.

    Raises:
        TypeError: `area` is missing.
    """

    def __init__(
        self,
        size: tuple[int, int],
        area: float | Sequence[float] | None = None,
        ratio: Sequence[float] = (3.0 / 4.0, 4.0 / 3.0),
        interp: int = 2,
        *,
        min_area: float | None = None,
    ) -> None:
        area = area if min_area is None else min_area
        if area is None:
            raise TypeError(
                "RandomSizedCropAug() needs area, the (least, greatest) share of the image's area"
            )
        super().__init__(size=size, area=area, ratio=ratio, interp=interp)
        self.size = size
        self.area = area
        self.ratio = ratio
        self.interp = interp

    def __call__(self, src: Any) -> NDArray:
        """Return the crop."""
        return random_size_crop(src, self.size, self.area, self.ratio, self.interp)[0]


class CenterCropAug(_OfSize):
    """`center_crop`.

    Args:
        size: (width, height).
        interp: as for `imresize`.
    """

    def __call__(self, src: Any) -> NDArray:
        """Return the crop."""
        return center_crop(src, self.size, self.interp)[0]


class HorizontalFlipAug(Augmenter):
    """Random exchange of left and right with probability `p`.

    Args:
        p: probability, 0 to 1.
    """

    def __init__(self, p: float) -> None:
        super().__init__(p=p)
        self.p = p

    def __call__(self, src: Any) -> Any:
        """Return the image, mirrored or unchanged."""
        if random.random() < self.p:
            return own(as_image(src, "HorizontalFlipAug")[:, ::-1], src)
        return src


class CastAug(Augmenter):
    """Another dtype.

    Args:
        typ: anything that `numpy.dtype` takes.
    """

    def __init__(self, typ: Any = "float32") -> None:
        super().__init__(type=typ)
        self.typ = typ

    def __call__(self, src: Any) -> NDArray:
        """Return the image as `typ`."""
        return from_numpy(np.asarray(src).astype(self.typ))
