"""Memory and draws of a batch: passed to the functions that take them."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.abc import AllocatingBatchify
from aioloader.foundation.protocols import implements
from aioloader.foundation.validation import accepts_rng

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.abc import Allocate
    from aioloader.foundation.types import Array
    from aioloader.rng import Rng


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
