"""Where bytes come from: byte sources (`aioloader.abc.ByteSource`)."""

from aioloader.storage.local.mapped import MappedByteSource
from aioloader.storage.local.source import LocalByteSource

__all__ = ("LocalByteSource", "MappedByteSource")
