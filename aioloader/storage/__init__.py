"""Byte sources (`aioloader.abc.ByteSource`) of local files, remote objects, and caches of both."""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordio._lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader.storage.local.mapped import MappedByteSource as MappedByteSource
    from aioloader.storage.local.source import LocalByteSource as LocalByteSource

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "aioloader.storage.local.mapped": "MappedByteSource",
        "aioloader.storage.local.source": "LocalByteSource",
    },
)
