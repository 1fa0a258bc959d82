"""`mx.util`: MXNet's switches between its two kinds of arrays. There is one kind here, so they have no effect."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

from aioloader.mxnet.base import exported

if TYPE_CHECKING:
    from collections.abc import Iterator

T = TypeVar("T")


def get_gpu_count() -> int:
    """Return 0; see `mx.context.num_gpus`."""
    return 0


def use_np(func: T) -> T:
    """Return the function or class itself."""
    return func


use_np_array = use_np_shape = use_np


def set_np(shape: bool = True, array: bool = True, dtype: bool = False) -> None:
    """Do nothing: `mx.np` and `mx.nd` make the same arrays."""


def reset_np() -> None:
    """Do nothing."""


def set_np_shape(active: bool) -> bool:
    """Return the old value, True; there is nothing to switch."""
    return True


def is_np_shape() -> bool:
    """Return True: shapes are numpy's, including () and 0."""
    return True


def is_np_array() -> bool:
    """Return False: arrays have the methods of `mx.nd`, and an element of a vector has shape (1,)."""
    return False


@contextlib.contextmanager
def np_shape(active: bool = True) -> Iterator[None]:
    """Do nothing."""
    yield


np_array = np_shape

__all__ = exported(globals(), module=__name__)
