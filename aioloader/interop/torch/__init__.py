"""Torch: a replacement of its DataLoader, batches on a device, and a bridge to torch's DataLoader.

- `DataLoader`: the arguments and batches of ``torch.utils.data.DataLoader``; a script only changes its import
- `to_device`, `StatefulLoader`: batches of tensors, copied to a device ahead of the caller, with a state
- `LoaderDataset`: an IterableDataset for torch's DataLoader
- `as_tensors`: a batch of arrays as tensors over the same memory
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from aioloader.loader.outputs import needed
from recordio._lazy_names import lazy_names

if TYPE_CHECKING:
    from aioloader.interop.torch._dataset import LoaderDataset as LoaderDataset
    from aioloader.interop.torch._device import StatefulLoader as StatefulLoader
    from aioloader.interop.torch._device import to_device as to_device
    from aioloader.interop.torch._loader import DataLoader as DataLoader
    from aioloader.loader.outputs import as_tensors as as_tensors

needed("torch")  # before the modules that import it, because its error names the extra to install

__getattr__, __dir__, __all__ = lazy_names(
    __name__,
    {
        "aioloader.interop.torch._dataset": "LoaderDataset",
        "aioloader.interop.torch._device": "StatefulLoader to_device",
        "aioloader.interop.torch._loader": "DataLoader",
        "aioloader.loader.outputs": "as_tensors",
    },
)
