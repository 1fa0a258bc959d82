"""Writing of the .idx of a record file by scanning it, with keys 0, 1, 2, ...

``python -m aioloader.tools.rec2idx REC IDX`` does it as MXNet's tool, ``aioloader index REC`` for remote files too.
"""

from __future__ import annotations

import argparse
import os
import shutil
import sys
import tempfile
from typing import TYPE_CHECKING, Any

import recordio
from aioloader.storage.urls import beside, is_url, name_of, redact_url
from recordio._partial_files import published

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


def write_index(
    path: str, out: str | None = None, *, tick: Callable[[int], object] | None = None
) -> tuple[str, int]:
    """Write an .idx with the keys 0, 1, 2, ... in the order of the file; an old one is replaced.

    Args:
        path: the record file, or its URL, of which only the records' headers are read.
        out: the .idx, a path or URL; None: next to the file.
        tick: called regularly with the number of bytes scanned so far.

    Returns:
        the path of the index, and its number of records.

    Raises:
        OSError: the file cannot be read, or the index cannot be written.
        RecordIOError: the file is damaged, or would be overwritten; nothing is written.
    """
    target = beside(path, ".idx") if out is None else out
    if target == path:
        raise recordio.RecordIOError(f"the index would overwrite {redact_url(path)}; choose another name")
    if not is_url(target):
        return target, len(recordio.build_index(path, target, tick=tick))
    from aioloader.storage.remote.stores import upload

    with tempfile.TemporaryDirectory(prefix="aioloader-") as folder:
        local = os.path.join(folder, name_of(target))
        index = recordio.build_index(path, local, tick=tick)
        upload(local, target)
    return redact_url(target), len(index)


class IndexCreator:
    """Writer of the .idx of a record file.

    Args:
        uri: the record file.
        idx_path: the .idx to write.
        key_type: converts a record's number to its key.

    Attributes:
        uri, idx_path, key_type: as given.
    """

    def __init__(
        self,
        uri: str | os.PathLike[str],
        idx_path: str | os.PathLike[str],
        key_type: Callable[[int], Any] = int,
    ) -> None:
        self.uri = os.fspath(uri)
        self.idx_path = os.fspath(idx_path)
        self.key_type = key_type
        self._place = 0

    def tell(self) -> int:
        """Return the number of bytes of the record file that were read: none, or all of them."""
        return self._place

    def create_index(self) -> None:
        """Read the whole file and write a line for each record; an existing .idx is replaced at the end.

        Raises:
            RecordFileNotFoundError: there is no such file.
            SameFileError: the .idx is the record file itself.
            CorruptRecordError: the file is damaged; nothing is written.
            OSError: the .idx cannot be written.
        """
        if os.path.realpath(self.idx_path) == os.path.realpath(self.uri):
            raise shutil.SameFileError(f"the index would overwrite {self.uri}; choose another name")
        offsets = recordio.Index.scan(self.uri, cache=False).offsets.tolist()
        with (
            published(self.idx_path) as (partial,),
            open(partial, "w", encoding="utf-8", newline="\n") as lines,
        ):
            lines.writelines(f"{self.key_type(number)}\t{offset}\n" for number, offset in enumerate(offsets))
        self._place = os.path.getsize(self.uri)

    def close(self) -> None:
        """Do nothing; exists for callers of MXNet's tool."""


def main(argv: Sequence[str] | None = None) -> int:
    """Run the command line.

    Args:
        argv: arguments after the program's name; None: those of this process.

    Returns:
        0: done; 1: the file is damaged, or the .idx cannot be written; 2: wrong usage, or there is no such file.
    """
    parser = argparse.ArgumentParser(
        prog="python -m aioloader.tools.rec2idx",
        description="Write an index of a record file, with keys 0, 1, 2, ..., as aioloader index does",
    )
    parser.add_argument("record", help="the .rec file")
    parser.add_argument("index", help="the .idx file to write")
    options = parser.parse_args(argv)
    try:
        IndexCreator(options.record, options.index).create_index()
    except (OSError, recordio.RecordIOError) as error:
        print(f"rec2idx: error: {error}", file=sys.stderr)
        return 2 if isinstance(error, (FileNotFoundError, shutil.SameFileError)) else 1
    return 0


if __name__ == "__main__":
    sys.exit(main())
