"""Memory of a batch's arrays: that of the caller's `allocate` for functions that take it."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.abc import AllocatingBatchify
from aioloader.foundation.method_order import defines_first

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.abc import Allocate
    from aioloader.foundation.types import Array


def new_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return a new array with any contents; implements `aioloader.abc.Allocate`."""
    return np.empty(shape, dtype)


def collate_with(function: Callable[[Sequence[Any]], Any], samples: Sequence[Any], allocate: Allocate) -> Any:
    """Call a batchify function; it takes memory from `allocate` if it can."""
    if isinstance(function, AllocatingBatchify) and defines_first(type(function), "collate", "__call__"):
        return function.collate(samples, allocate)
    return function(samples)
