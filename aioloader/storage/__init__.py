"""Where bytes come from: byte sources (`aioloader.abc.ByteSource`)."""

from aioloader.storage.local import LocalByteSource
from aioloader.storage.mapped import MappedByteSource

__all__ = ("LocalByteSource", "MappedByteSource")
