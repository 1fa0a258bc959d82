"""Values that travel between the stations of a sample. Plain data, no behaviour beyond checks.

Three numbers that are never mixed: *position* (place in the epoch's order), *index* (place in the dataset),
*key* (name in the .idx).
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass, field
from typing import Any, NamedTuple, TypeAlias

import numpy as np
import numpy.typing as npt

IntArray: TypeAlias = npt.NDArray[np.int64]
Array: TypeAlias = npt.NDArray[Any]

WHOLE_FILE = -1


@dataclass(frozen=True, slots=True)
class ArraySpec:
    """Shape and dtype of an array, known before it is made.

    Attributes:
        shape: extents; None where an extent varies from sample to sample.
        dtype: numpy dtype.
    """

    shape: tuple[int | None, ...]
    dtype: np.dtype[Any]

    @property
    def fixed(self) -> bool:
        """Whether every extent is known, so that a row of a batch can be laid out."""
        return None not in self.shape


@dataclass(frozen=True, slots=True)
class Spans:
    """Where the bytes of some items lie.

    Attributes:
        file: int64 (n,), number of the file in its byte source.
        offset: int64 (n,), byte offset of each span.
        length: int64 (n,), bytes of each span; -1 for the whole file.
    """

    file: IntArray
    offset: IntArray
    length: IntArray

    def __len__(self) -> int:
        return len(self.offset)


class Facts(NamedTuple):
    """What is known of an item apart from its content; used in errors."""

    key: object = None
    path: str | None = None
    offset: int | None = None


@dataclass(slots=True)
class ReadPlan:
    """The outcome of planning a batch of spans: how much memory they need and where each item will lie in it.

    Attributes:
        nbytes: bytes to allocate.
        start: int64 (n,), place of each item in that memory; -1 where planning failed.
        length: int64 (n,), bytes of each item.
        reads: (file, offset, nbytes, destination) of every read, neighbours merged.
        failures: (place in the batch, error) of items whose size could not be found.
    """

    nbytes: int
    start: IntArray
    length: IntArray
    reads: Sequence[Any] = ()
    failures: list[tuple[int, BaseException]] = field(default_factory=list)
