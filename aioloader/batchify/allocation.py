"""Memory and draws of a batch: passed to the functions that take them.

Tests of single values and arrays that batchify functions share.

Collation to lists of separate samples.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.abc import AllocatingBatchify
from aioloader.batchify.fields import collate_by_field
from aioloader.foundation.protocols import implements
from aioloader.foundation.validation import accepts_rng, require

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.abc import Allocate
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng


def is_numeric(value: Any) -> bool:
    if isinstance(value, (str, bytes)):  # numpy's own strings are among them
        return False
    return isinstance(value, (bool, int, float, complex)) or hasattr(value, "__array__")


def check_out(out: Any, shape: tuple[int, ...]) -> None:
    if not isinstance(out, np.ndarray) or out.shape != shape:
        found = out.shape if isinstance(out, np.ndarray) else type(out).__name__
        raise ValueError(f"out must be an array of shape {shape}, got {found}")


class Append:
    """Collation to lists: each field becomes a list of arrays, one per sample.

    Args:
        expand: add a batch axis of length 1 to every array.
        batch_axis: position of that axis.
        use_shared_mem: accepted and ignored, see `Stack`.
    """

    def __init__(self, expand: bool = True, batch_axis: int = 0, use_shared_mem: bool = False) -> None:
        del use_shared_mem
        self._expand = expand
        self._batch_axis = batch_axis

    def __call__(self, samples: Sequence[Any], /, out: None = None) -> Any:
        """Collate; the result is a list of arrays, so `out` must be None."""
        require(out is None, "Append() makes no array, so it takes no out")
        return collate_by_field(samples, None, self._append)

    def _append(self, values: list[Any], out: None) -> list[Any]:
        del out
        arrays = [np.asarray(value) for value in values]
        return [np.expand_dims(array, self._batch_axis) for array in arrays] if self._expand else arrays


class AsList:
    """Collation to a list of the unchanged samples."""

    def __call__(self, samples: Sequence[Any], /, out: None = None) -> list[Any]:
        """Return the samples as a list; `out` must be None."""
        require(out is None, "AsList() makes no array, so it takes no out")
        return list(samples)


def new_array(shape: tuple[int, ...], dtype: np.dtype[Any]) -> Array:
    """Return a new array with any contents; implements `aioloader.abc.Allocate`."""
    return np.empty(shape, dtype)


class Part:
    """A batchify function within another one, and what it takes besides the samples.

    Args:
        function: the function.
    """

    def __init__(self, function: Callable[..., Any]) -> None:
        self.function = function
        self._draws = accepts_rng(function)
        self._allocates = implements(function, AllocatingBatchify, instead_of="__call__")
        self._collate_draws = implements(function, AllocatingBatchify) and accepts_rng(function.collate)

    def __call__(self, samples: Sequence[Any], rng: Rng, **out: Any) -> Any:
        """Collate, without memory from elsewhere.

        Args:
            samples: as the function takes them.
            rng: the draws of the batch.
            **out: the argument of this name, if it is given.
        """
        if self._draws:
            out["rng"] = rng
        return self.function(samples, **out)

    def collate(self, samples: Sequence[Any], allocate: Allocate, rng: Rng) -> Any:
        """Collate into memory from `allocate`, if the function can.

        Args:
            samples: as the function takes them.
            allocate: returns memory.
            rng: the draws of the batch.
        """
        if not self._allocates:
            return self(samples, rng)
        function: Any = self.function
        drawn = {"rng": rng} if self._collate_draws else {}
        return function.collate(samples, allocate, **drawn)
