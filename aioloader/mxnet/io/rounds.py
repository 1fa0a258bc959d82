"""Which rows a batch of an iterator with `round_batch` has. Pure.

Rule (MXNet's, kept because training schedules count such batches): where the data ends inside a batch, the batch is
filled up with the first rows, `pad` says how many, and the next pass goes on behind these. 10 rows in batches of 4
give 0123 4567 89+01, then 2345 6789. A reset before the end of a pass goes back to row 0. Without `round_batch`
every pass has all rows, and what fills the last batch up are not rows.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.io.states import whole_number

if TYPE_CHECKING:
    from collections.abc import Mapping

    from aioloader.foundation.types import IntArray

__all__ = ("Round", "Rounds")


class Round(NamedTuple):
    """Rows of one batch.

    Attributes:
        rows: numbers of its rows, int64; `batch_size` of them, or fewer where zeros fill it up.
        pad: number of rows at its end that only fill it up, whether they are in `rows` or not.
    """

    rows: IntArray
    pad: int


class Rounds:
    """The batches of pass after pass.

    Args:
        length: number of rows.
        batch_size: rows of a batch, at least 1.
        round_batch: whether the last batch is filled up with the first rows.

    Raises:
        MXNetError: `batch_size` is 0; or `round_batch`, and there are fewer rows than a batch has, but not none.
    """

    def __init__(self, length: int, batch_size: int, round_batch: bool) -> None:
        if batch_size < 1:
            raise MXNetError(f"batch_size must be at least 1, not {batch_size}")
        if round_batch and 0 < length < batch_size:
            raise MXNetError(
                f"number of input must be bigger than batch size: there are {length} rows for batches of "
                f"{batch_size}; give round_batch=False or a smaller batch_size"
            )
        self._length = length
        self._batch_size = batch_size
        self._round_batch = round_batch
        self._began = 0
        self._at = 0
        self._borrowed = 0

    def next(self) -> Round | None:
        """The next batch of this pass; None at its end."""
        start, stop = self._at, self._at + self._batch_size
        if start >= self._length:
            return None
        self._at = stop
        pad = max(0, stop - self._length)
        rows = np.arange(start, stop - pad)
        if pad and self._round_batch:
            rows = np.concatenate((rows, np.arange(pad)))
            self._borrowed = pad
        return Round(rows, pad)

    def reset(self) -> None:
        """Begin the next pass, or this one again if it has not come to its end."""
        self._began = self._at = self._borrowed if self._at >= self._length else 0
        self._borrowed = 0

    @property
    def taken(self) -> int:
        """Batches of this pass that were given."""
        return (self._at - self._began) // self._batch_size

    def identity(self) -> dict[str, Any]:
        """What a state must share with these rounds."""
        return {"rows": self._length, "batch_size": self._batch_size, "round_batch": bool(self._round_batch)}

    def place(self) -> dict[str, int]:
        """Where this pass begins."""
        return {"began": self._began}

    def go_to(self, place: Mapping[str, Any], taken: int) -> None:
        """Go to a pass, behind so many of its batches.

        Raises:
            ResumeError: there is no such place.
        """
        began = whole_number(place, "began", 0, max(1, self._length))
        most = -(-(self._length - began) // self._batch_size)
        whole_number({"taken": taken}, "taken", 0, most + 1)
        self._began = began
        self._at = began + taken * self._batch_size
        self._borrowed = max(0, self._at - self._length) if self._round_batch else 0
