"""Local record files that are in the page cache: nothing is read, the executor looks the records up in maps."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from aioloader.foundation.types import ReadPlan
from aioloader.storage.local.maps import FileMaps
from aioloader.storage.local.residency import Residency

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import Spans
    from aioloader.storage.local.source import Failures, LocalByteSource

__all__ = ("MappedByteSource",)

_MOST_FILES = 16


class MappedByteSource:
    """Implements `ByteSource`, for an executor that can map files; what is not in memory is read as ever.

    Args:
        source: reads the files; closed with this one.
        maps: the same files.

    Attributes:
        paths: of the files.
        maps: what the executor is to be given.
    """

    def __init__(self, source: LocalByteSource, maps: FileMaps) -> None:
        self._source = source
        self.maps = maps
        self._residency = Residency()
        self._closed = False

    @classmethod
    def over(cls, source: LocalByteSource) -> MappedByteSource | None:
        """The source with maps, or None where its files cannot or shall not be mapped, are none of records, or many."""
        if source.whole_files or source.direct or not 0 < len(source.paths) <= _MOST_FILES:
            return None
        try:
            return cls(source, FileMaps.open(source.paths))
        except OSError:
            return None  # what is wrong with a file is told by whoever reads it

    @property
    def paths(self) -> Sequence[str]:
        """The files."""
        return self._source.paths

    async def plan(self, spans: Spans) -> ReadPlan:
        """See `ByteSource.plan`."""
        if not self._closed and self._residency.due:
            await self._source.aside(self._residency.look, self.maps.fds)
        if not self._residency.complete:
            return await self._source.plan(spans)
        length, failures = await self._source.extents(spans)
        return ReadPlan(0, np.full(len(length), -1, np.int64), length, (), failures, mapped=True)

    async def read(self, plan: ReadPlan, out: memoryview) -> Failures:
        """See `ByteSource.read`."""
        return [] if plan.mapped else await self._source.read(plan, out)

    def close(self) -> None:
        """Close files and threads; may be called twice."""
        self._closed = True
        self._residency.complete = False
        self._source.close()
        self.maps.close()
