"""The format tar, for the registry."""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.formats.base import Format

if TYPE_CHECKING:
    from aioloader.formats.tar.dataset import TarDataset

_BLOCK = 512
_CHECKSUM = slice(148, 156)


class TarFormat(Format):
    """Tars in WebDataset's layout."""

    name = "tar"
    suffixes = (".tar",)
    text = "tar files in WebDataset's layout (.tar)"
    has_shards = True
    scanned = True
    pack_example = (
        "'train-*.tar' out --fields json,txt    images of WebDataset, unchanged, and out.fields.jsonl"
    )

    def recognizes(self, path: str, head: bytes) -> bool:
        """Return True for a file that begins with a header whose checksum fits (POSIX.1-2017, "pax")."""
        if len(head) < _BLOCK:
            return False
        block = head[:_BLOCK]
        try:
            stored = int(block[_CHECKSUM].strip(b" \0") or b"x", 8)
        except ValueError:
            return False
        return stored == sum(block) - sum(block[_CHECKSUM]) + 8 * ord(" ")

    def dataset(self) -> type[TarDataset]:
        """Return `TarDataset`."""
        from aioloader.formats.tar.dataset import TarDataset

        return TarDataset


FORMAT = TarFormat()
