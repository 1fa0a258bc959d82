"""Format LMDB: databases; each value is the label as a 64-bit number and the encoded image behind it.

pip install ./examples/lmdb_format
python -m aioloader_lmdb photos photos.lmdb     # writes a database of a folder of class folders
aioloader inspect photos.lmdb                   # and view, verify, pack, bench, index --crops
"""

from __future__ import annotations

import functools
import os
import struct
import sys
from typing import TYPE_CHECKING, Any

import lmdb

import aioloader
from aioloader.formats import EncodedDataset, Format

if TYPE_CHECKING:
    from collections.abc import Sequence

LABEL = struct.Struct("<q")


@functools.cache  # LMDB opens a database once in a process
def database(path: str) -> lmdb.Environment:
    """Open a database for reading."""
    return lmdb.open(path, subdir=os.path.isdir(path), readonly=True, lock=False)


class LMDBDataset(EncodedDataset):
    """Images of an LMDB database, in the order of their keys.

    Args:
        path: the database, a folder with data.mdb or a file.
        options: see `EncodedDataset`.
    """

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, **options)
        with database(self.paths[0]).begin() as transaction:
            self._keys: list[bytes] = list(transaction.cursor().iternext(values=False))

    def __len__(self) -> int:
        return self._counted(len(self._keys))

    def _values(self, indices: Sequence[int]) -> list[bytes]:
        with database(self.paths[0]).begin() as transaction:
            return [transaction.get(self._keys[index]) for index in indices]

    def read(self, indices: Sequence[int]) -> list[bytes]:
        """Return the encoded images of some samples."""
        return [value[LABEL.size :] for value in self._values(indices)]

    def labels(self, indices: Sequence[int]) -> list[int]:
        """Return the labels of some samples."""
        return [LABEL.unpack_from(value)[0] for value in self._values(indices)]

    def location(self, index: int) -> str:
        """Return the key of a sample."""
        return self._keys[index].decode("utf-8", "backslashreplace")


class LMDBFormat(Format):
    """LMDB databases."""

    name = "LMDB"
    suffixes = (".lmdb", ".mdb")

    def recognizes(self, path: str, head: bytes) -> bool:
        """Return True for a database, or a folder with one."""
        if not head:
            return os.path.isfile(os.path.join(path, "data.mdb"))
        return head[16:20] == b"\xde\xc0\xef\xbe"

    def open(self, paths: Sequence[str], **options: Any) -> LMDBDataset:
        """Return the dataset of a database."""
        (path,) = paths
        return LMDBDataset(path, **options)


FORMAT = LMDBFormat()


def write(folder: str, path: str) -> None:
    """Write the images of a folder with one sub-folder for each class to a database."""
    dataset = aioloader.ImageFolderDataset(folder)
    with (
        lmdb.open(path, map_size=1 << 40, subdir=False) as database,
        database.begin(write=True) as transaction,
    ):
        for file, label in dataset.items:
            with open(file, "rb") as image:
                key = os.path.relpath(file, folder).encode()
                transaction.put(key, LABEL.pack(label) + image.read())


if __name__ == "__main__":
    write(*sys.argv[1:])
