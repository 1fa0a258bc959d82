"""Check of a whole MDS shard: its size, its hash, its table, and the sizes of the columns of every sample."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.errors import SampleFormatError
from aioloader.formats.mds.index import LayoutFault, MDSColumn, SampleLayout, parse_table, table_nbytes
from aioloader.storage.cache.unpacked import FileCheck
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterable, Iterator

    from aioloader.formats.mds.sets import ShardFile
    from aioloader.foundation.types import IntArray


def check_shard(
    blocks: Iterable[bytes],
    file: ShardFile,
    columns: tuple[MDSColumn, ...],
    tick: Callable[[int], object] | None,
) -> Generator[SampleFormatError, None, int]:
    """Read a shard once, and yield each fault of it; see `aioloader.datasets.shard_dataset.ShardDataset.check_shard`.

    Args:
        blocks: of the shard without compression.
        file: of the shard, for errors.
        columns: of every sample.
        tick: called after each block with the number of bytes so far.
    """
    check, path = FileCheck(file.shard.raw.hashes), redact_url(file.path)
    walk = _Walk(file, SampleLayout(columns))
    for block in blocks:
        check.add(block)
        yield from walk.feed(block)
        if tick is not None:
            tick(check.nbytes)
    try:
        check.require(file.shard.raw.nbytes, path, "the shard")
    except SampleFormatError as error:
        yield error
    else:
        yield from walk.finish()
    return walk.valid


class _Walk:
    """Walk through the samples of a shard that arrives in blocks. Holds little more than a block.

    Args:
        file: of the shard.
        layout: of the samples.

    Attributes:
        valid: number of samples without a fault.
    """

    def __init__(self, file: ShardFile, layout: SampleLayout) -> None:
        self._file = file
        self._path = redact_url(file.path)
        self._layout = layout
        self._offsets: IntArray | None = None
        self._failed = False
        self._row = 0
        self._held = bytearray()
        self._begin = 0  # place of the held bytes in the shard
        self.valid = 0

    def feed(self, block: bytes) -> Iterator[SampleFormatError]:
        """Yield the faults of the samples whose sizes are in the bytes so far."""
        if self._failed:
            return
        self._held += block
        if self._offsets is None:
            if len(self._held) < table_nbytes(self._file.shard.samples):
                return
            try:
                self._offsets = parse_table(self._held, self._file.shard, self._path)
            except SampleFormatError as error:
                self._failed = True
                yield error
                return
        yield from self._samples(self._offsets)

    def finish(self) -> Iterator[SampleFormatError]:
        """Yield the fault of a shard that has ended inside its table."""
        if self._offsets is None and not self._failed:
            try:
                parse_table(self._held, self._file.shard, self._path)
            except SampleFormatError as error:
                yield error

    def _samples(self, offsets: IntArray) -> Iterator[SampleFormatError]:
        last, end = len(offsets) - 1, self._begin + len(self._held)
        while self._row < last:
            low, high = int(offsets[self._row]), int(offsets[self._row + 1])
            if min(high, low + self._layout.head_nbytes) > end:
                break
            try:
                at = low - self._begin
                self._layout.spans(self._held[at : at + self._layout.head_nbytes], high - low)
                self.valid += 1
            except LayoutFault as fault:
                yield SampleFormatError(
                    str(fault),
                    path=self._path,
                    offset=low,
                    key=str(self._row),
                    expected=None if fault.expected is None else f"{fault.expected} bytes",
                    found=high - low,
                )
            self._row += 1
        needed = int(offsets[self._row]) if self._row < last else end
        kept = min(max(0, needed - self._begin), len(self._held))
        del self._held[:kept]
        self._begin += kept
