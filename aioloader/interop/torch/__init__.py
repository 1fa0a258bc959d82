"""Torch: a replacement of its DataLoader, batches on a device, and a bridge to torch's DataLoader.

- `DataLoader`: the arguments and batches of ``torch.utils.data.DataLoader``; a script only changes its import
- `to_device`, `StatefulLoader`: batches of tensors, copied to a device ahead of the caller, with a state
- `LoaderDataset`: an IterableDataset for torch's DataLoader
- `as_tensors`: a batch of arrays as tensors over the same memory
"""

from aioloader.loader.outputs import needed

needed("torch")  # before the modules that import it, because its error names the extra to install

from aioloader.interop.torch._dataset import LoaderDataset  # noqa: E402
from aioloader.interop.torch._device import StatefulLoader, to_device  # noqa: E402
from aioloader.interop.torch._loader import DataLoader  # noqa: E402
from aioloader.interop.torch._mover import as_tensors  # noqa: E402

__all__ = ("DataLoader", "LoaderDataset", "StatefulLoader", "as_tensors", "to_device")
