"""Byte sources (`aioloader.abc.ByteSource`) of local files, remote objects, and caches of both."""

from aioloader.storage.local.mapped import MappedByteSource
from aioloader.storage.local.source import LocalByteSource

__all__ = ("LocalByteSource", "MappedByteSource")
