"""Check of a whole Parquet file: its footer, and the pages and rows of every row group."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.errors import ParquetError
from aioloader.formats.parquet.footer import STORED, open_bytes, read_footer
from aioloader.formats.parquet.huggingface import features_of, image_columns
from aioloader.formats.parquet.row_groups import RowGroupReader
from aioloader.formats.parquet.table import lay_out_blocks
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Generator

    from aioloader.storage.remote.transport import Version


def check_parquet(
    path: str, version: Version | None, image: str, tick: Callable[[int], object] | None
) -> Generator[ParquetError, None, int]:
    """Read a file, and yield each fault; see `aioloader.datasets.shard_dataset.ShardDataset.check_shard`.

    All columns are decompressed and decoded by pyarrow, which compares the checksums of pages that have one. A fault is
    a damaged footer, a row group that cannot be read, or a row without its image.

    Args:
        path: the file, or its URL.
        version: of the object if `path` is a URL.
        image: name of the column of images; besides it, those with the feature Image of `datasets` are images.
        tick: called after each row group with the number of bytes so far.

    Raises:
        OSError: the file cannot be read.
        MissingPackageError: pyarrow is not installed.
    """
    try:
        footer = read_footer(path, version)
        names = [column.name for column in footer.columns]
        columns = [column for column in footer.columns if names.count(column.name) == 1]
        for name in sorted({name for name in names if names.count(name) > 1}):
            yield ParquetError(f"there are {names.count(name)} columns {name!r}", path=redact_url(path))
        table = lay_out_blocks([footer], [column.name for column in columns])
    except ParquetError as error:
        yield error
        return 0
    required = frozenset({image, *image_columns(features_of(footer.features))})
    reader = RowGroupReader(
        [footer],
        table,
        columns,
        required=required,
        source=open_bytes(path, version),
        modified=[None],
        checksums=True,
    )
    valid = reached = 0
    try:
        for number in range(len(table)):
            try:
                block = reader.read(number)
            except (ParquetError, EOFError) as error:
                yield _fault(error, path, int(table.group[number]))
            else:
                valid += block.rows - len(block.faults)
                for row, reason in sorted(block.faults.items()):
                    yield reader.fault(number, row, reason)
            if not table.first[number]:
                reached += int(footer.chunks[int(table.group[number]), :, STORED].sum())
            if tick is not None:
                tick(min(reached, footer.nbytes))
    finally:
        reader.close()
    return valid


def _fault(error: ParquetError | EOFError, path: str, group: int) -> ParquetError:
    if isinstance(error, ParquetError):
        return error
    return ParquetError(f"the row group cannot be read: {error}", path=redact_url(path), row_group=group)
