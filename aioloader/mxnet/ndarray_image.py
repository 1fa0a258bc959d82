"""`mx.nd.image`: the operators on images that scripts and `hybrid_forward` call by name."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.gluon.data.vision import transforms

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.mxnet.gluon.data.vision.transforms import Transform
    from aioloader.mxnet.ndarray import NDArray


def to_tensor(data: Any) -> NDArray:
    """Return float32 with channels first, divided by 255; see `transforms.ToTensor`."""
    return _made(transforms.ToTensor(), data)


def normalize(data: Any, mean: float | Sequence[float] = 0.0, std: float | Sequence[float] = 1.0) -> NDArray:
    """Return ``(data - mean) / std`` per channel, channels first; see `transforms.Normalize`."""
    return _made(transforms.Normalize(mean, std), data)


def resize(data: Any, size: int | Sequence[int], keep_ratio: bool = False, interp: int = 1) -> NDArray:
    """Return the image at another size; see `transforms.Resize`."""
    return _made(transforms.Resize(size, keep_ratio, interp), data)


def crop(data: Any, x: int, y: int, width: int, height: int) -> NDArray:
    """Return a rectangle of the image; see `transforms.CropResize`."""
    return _made(transforms.CropResize(x, y, width, height), data)


def flip_left_right(data: Any) -> NDArray:
    """Exchange left and right."""
    return _made(transforms.RandomFlipLeftRight(1.0), data)


def flip_top_bottom(data: Any) -> NDArray:
    """Exchange top and bottom."""
    return _made(transforms.RandomFlipTopBottom(1.0), data)


def random_flip_left_right(data: Any, p: float = 0.5) -> NDArray:
    """Exchange left and right with probability `p`."""
    return _made(transforms.RandomFlipLeftRight(p), data)


def random_flip_top_bottom(data: Any, p: float = 0.5) -> NDArray:
    """Exchange top and bottom with probability `p`."""
    return _made(transforms.RandomFlipTopBottom(p), data)


def imdecode(*_: Any, **__: Any) -> NDArray:
    """Refuse, as MXNet 1.9 under Python 3, where the old ``mx.nd.imdecode`` decodes nothing.

    Raises:
        MXNetError: always.
    """
    raise MXNetError("mx.nd.imdecode decodes nothing, in MXNet 1.9 either: use mx.image.imdecode")


def _made(transform: Transform, data: Any) -> NDArray:
    made: NDArray = transform(data)
    return made
