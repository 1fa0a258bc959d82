"""The loaders: `AsyncDataLoader`, and its blocking counterpart `DataLoader`."""

from aioloader.loader.async_loader import AsyncBatches, AsyncDataLoader
from aioloader.loader.sync_loader import DataLoader

__all__ = ("AsyncBatches", "AsyncDataLoader", "DataLoader")
