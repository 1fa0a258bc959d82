"""The format Parquet, for the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.formats.base import Format, Requirement

if TYPE_CHECKING:
    from aioloader.formats.parquet.dataset import ParquetDataset


class ParquetFormat(Format):
    """Parquet files, whose row groups are read one by one."""

    name = "Parquet"
    suffixes = (".parquet", ".parq", ".pq")
    extra = "parquet"
    text = "Parquet files (.parquet)"
    noun = "rows"
    has_shards = True
    pack_example = "train.parquet out --image img --label fine_label"
    requirements = (Requirement("Parquet", "pyarrow", "parquet"),)

    def recognizes(self, path: str, head: bytes) -> bool:
        """Return True for a file that begins like one (parquet-format's README, "File format")."""
        return head.startswith((b"PAR1", b"PARE"))

    def dataset(self) -> type[ParquetDataset]:
        """Return `ParquetDataset`."""
        from aioloader.formats.parquet.dataset import ParquetDataset

        return ParquetDataset


FORMAT = ParquetFormat()
