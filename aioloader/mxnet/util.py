"""`mx.util`: MXNet's switches between its two kinds of arrays. There is one kind here, so they switch nothing."""

from __future__ import annotations

import contextlib
from typing import TYPE_CHECKING, TypeVar

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = (
    "is_np_array",
    "is_np_shape",
    "np_array",
    "np_shape",
    "reset_np",
    "set_np",
    "set_np_shape",
    "use_np",
    "use_np_array",
    "use_np_shape",
)

T = TypeVar("T")


def use_np(func: T) -> T:
    """The function or class itself."""
    return func


use_np_array = use_np_shape = use_np


def set_np(shape: bool = True, array: bool = True, dtype: bool = False) -> None:
    """Nothing to do: `mx.np` and `mx.nd` make the same arrays."""


def reset_np() -> None:
    """Nothing to do."""


def set_np_shape(active: bool) -> bool:
    """Nothing to do. Returns what it was: True."""
    return True


def is_np_shape() -> bool:
    """True: shapes are numpy's, () and 0 among them."""
    return True


def is_np_array() -> bool:
    """False: arrays have the methods of `mx.nd`, and an element of a vector has shape (1,)."""
    return False


@contextlib.contextmanager
def np_shape(active: bool = True) -> Iterator[None]:
    """Nothing to do."""
    yield


np_array = np_shape
