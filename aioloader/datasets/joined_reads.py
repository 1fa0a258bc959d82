"""Partial reads of several joined datasets: each part leaves out what it knows that its samples do not need."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aioloader.datasets.decoding import PARTS
from aioloader.foundation.types import IntArray, PartialItems, Spans

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.abc import PartialReads
    from aioloader.storage.joined import FileNumbers


class JoinedReads:
    """Finder of the parts of items that samples need; implements `aioloader.abc.PartialReads`.

    Args:
        finders: of each dataset; None for one whose items are read whole.
        numbers: of their files.
    """

    def __init__(self, finders: Sequence[PartialReads | None], numbers: FileNumbers) -> None:
        self._finders = tuple(finders)
        self._numbers = numbers

    async def narrow(
        self, spans: Spans, index: IntArray, epoch: IntArray, position: IntArray
    ) -> PartialItems | None:
        """Leave out what the samples do not need; see `PartialReads.narrow`."""
        parts = self._numbers.parts_of(spans.file)
        length, gaps = spans.length.copy(), np.zeros((len(spans), 2), np.int64)
        extras = np.zeros(len(spans), PARTS)
        found = False
        for part in np.unique(parts).tolist():
            finder = self._finders[part]
            if finder is None:
                continue
            places = np.flatnonzero(parts == part)
            own = Spans(
                spans.file[places] - self._numbers.start(part), spans.offset[places], spans.length[places]
            )
            narrowed = await finder.narrow(own, index[places], epoch[places], position[places])
            if narrowed is None or narrowed.spans.gaps is None:
                continue
            found = True
            length[places], gaps[places] = narrowed.spans.length, narrowed.spans.gaps
            extras[places] = narrowed.extras
        return PartialItems(Spans(spans.file, spans.offset, length, gaps), extras) if found else None

    def exclude(self, file: int, offset: int) -> None:
        """Read an item whole from now on."""
        part, number = self._numbers.locate(file)
        finder = self._finders[part]
        if finder is not None:
            finder.exclude(number, offset)

    def close(self) -> None:
        """End threads; may be called twice."""
        for finder in self._finders:
            if finder is not None:
                finder.close()
