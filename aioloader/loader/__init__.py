"""The loaders: `AsyncDataLoader`, and its blocking counterpart `DataLoader`.

Both are thin front ends, `async_loader` and `sync_loader`, over `runtime`, for which `parts` chooses the parts of a
loader. `planner` makes the plan of each epoch, `checkpoint` records the progress of the caller, and `epoch_iterator` is
one iteration over the dataset. `aioloader.samplers.epoch_order` computes the order of an epoch.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from recordio._lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader.loader.async_loader import AsyncDataLoader as AsyncDataLoader
    from aioloader.loader.epoch_iterator import AsyncBatches as AsyncBatches
    from aioloader.loader.sync_loader import DataLoader as DataLoader

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "aioloader.loader.async_loader": "AsyncDataLoader",
        "aioloader.loader.epoch_iterator": "AsyncBatches",
        "aioloader.loader.sync_loader": "DataLoader",
    },
)
