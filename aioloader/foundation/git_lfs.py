"""Pointers of Git LFS: short texts in place of files that a checkout did not download."""

from __future__ import annotations

from contextlib import suppress

from aioloader.errors import UnknownFormatError

LFS_POINTER = b"version https://git-lfs"
"""First bytes of a pointer."""
LFS_TEXT = "a pointer of Git LFS in place of the file"
LFS_ADVICE = "`git lfs pull` in its folder downloads it"


def refuse_pointer(path: str) -> None:
    """Raise UnknownFormatError if a local file is a pointer; called where it has turned out to be damaged."""
    with suppress(OSError), open(path, "rb") as file:
        if file.read(len(LFS_POINTER)) == LFS_POINTER:
            raise UnknownFormatError(path, LFS_TEXT, advice=LFS_ADVICE)
