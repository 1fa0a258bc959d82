"""Collation to lists of separate samples."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.batchify.fields import collate_by_field
from aioloader.foundation.validation import require

if TYPE_CHECKING:
    from collections.abc import Sequence


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
