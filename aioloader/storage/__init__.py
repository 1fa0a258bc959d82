"""Where bytes come from: byte sources (`aioloader.abc.ByteSource`)."""

from aioloader.storage.local import LocalByteSource

__all__ = ("LocalByteSource",)
