"""`mx.nd.image`: the operators on images that scripts and `hybrid_forward` call by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader import transforms
from aioloader.mxnet import gluon_geometry
from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.gluon.data._ndarray_stage import TransformValueError, applied

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.mxnet.ndarray.ndarray import NDArray


def to_tensor(data: Any) -> NDArray:
    """Return float32 with channels first, divided by 255; see `vision.transforms.ToTensor`."""
    return _made(data, transforms.ToTensor)


def normalize(data: Any, mean: float | Sequence[float] = 0.0, std: float | Sequence[float] = 1.0) -> NDArray:
    """Return ``(data - mean) / std`` per channel, channels first; see `vision.transforms.Normalize`."""
    return _made(data, transforms.Normalize, mean, std)


def resize(data: Any, size: int | Sequence[int], keep_ratio: bool = False, interp: int = 1) -> NDArray:
    """Return the image at another size; see `vision.transforms.Resize`."""
    return _made(data, gluon_geometry.Resize, size, keep_ratio, interp)


def crop(data: Any, x: int, y: int, width: int, height: int) -> NDArray:
    """Return a rectangle of the image; see `vision.transforms.CropResize`."""
    return _made(data, gluon_geometry.CropResize, x, y, width, height)


def flip_left_right(data: Any) -> NDArray:
    """Exchange left and right."""
    return random_flip_left_right(data, 1.0)


def flip_top_bottom(data: Any) -> NDArray:
    """Exchange top and bottom."""
    return random_flip_top_bottom(data, 1.0)


def random_flip_left_right(data: Any, p: float = 0.5) -> NDArray:
    """Exchange left and right with probability `p`."""
    return _made(data, transforms.RandomHorizontalFlip, p)


def random_flip_top_bottom(data: Any, p: float = 0.5) -> NDArray:
    """Exchange top and bottom with probability `p`."""
    return _made(data, transforms.RandomVerticalFlip, p)


def imdecode(*_: Any, **__: Any) -> NDArray:
    """Refuse, as MXNet 1.9 under Python 3, where the old ``mx.nd.imdecode`` decodes nothing.

    Raises:
        MXNetError: always.
    """
    raise MXNetError("mx.nd.imdecode decodes nothing, in MXNet 1.9 either: use mx.image.imdecode")


def _made(data: Any, make: Callable[..., Any], *arguments: Any) -> NDArray:
    try:
        transform = make(*arguments)
    except ValueError as error:
        raise TransformValueError(str(error)) from error
    made: NDArray = applied(transform, data)
    return made
