"""Optional abilities of datasets over shards, for the commands: checking a shard, and making its index."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Sequence

    from aioloader.errors import SampleFormatError
    from aioloader.sample_index.layout import SampleIndex


@runtime_checkable
class CheckableShards(Protocol):
    """Dataset over files whose structure can be checked without decoding a sample, for `aioloader verify`."""

    @property
    def paths(self) -> Sequence[str]:
        """Return the files, or their URLs."""
        ...

    def check_shard(
        self, number: int, tick: Callable[[int], object] | None = None
    ) -> Generator[SampleFormatError, None, int]:
        """Read a whole file, and yield each fault of it. Blocking.

        Args:
            number: of the file.
            tick: called now and then with the number of bytes read so far.

        Returns:
            the number of samples without a fault.

        Raises:
            OSError: the file cannot be read.
        """
        ...


@runtime_checkable
class IndexedShards(Protocol):
    """Dataset over files that are scanned for their samples, for `aioloader index`."""

    @property
    def paths(self) -> Sequence[str]:
        """Return the files, or their URLs."""
        ...

    @property
    def index_kind(self) -> str:
        """Return the kind of the indexes of the files, see `aioloader.sample_index.layout.SampleIndex`."""
        ...

    def scan_shard(self, number: int, tick: Callable[[int], object] | None = None) -> SampleIndex:
        """Scan a file for its samples and return their index. Blocking.

        Args:
            number: of the file.
            tick: called now and then with the number of bytes read so far.

        Raises:
            OSError: the file cannot be read.
            SampleFormatError: it is damaged.
        """
        ...
