"""`mx.contrib`: `io`, with `DataLoaderIter`."""

from __future__ import annotations

from aioloader.mxnet.contrib import io

__all__ = ("io",)
