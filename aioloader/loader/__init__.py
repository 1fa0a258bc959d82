"""The loaders: `AsyncDataLoader`, and its blocking counterpart `DataLoader`.

Both are thin front ends, `async_loader` and `sync_loader`, over `runtime`, which chooses the parts of a loader. `order`
and `checkpoint` know what comes in which order and how far the caller is; `epoch` is one iteration over the dataset.
"""

from aioloader.loader.async_loader import AsyncBatches, AsyncDataLoader
from aioloader.loader.sync_loader import DataLoader

__all__ = ("AsyncBatches", "AsyncDataLoader", "DataLoader")
