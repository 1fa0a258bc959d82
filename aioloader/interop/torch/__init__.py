"""Torch: its loader's names over this engine, batches on a device, and bridges to torch's own loader.

- `DataLoader`: the arguments of ``torch.utils.data.DataLoader`` and its batches; a script changes its import
- `to_device`, `StatefulLoader`: batches of tensors, copied to a device ahead of the caller, with a state
- `LoaderDataset`: an IterableDataset for torch's own loader
- `as_tensors`: a batch of arrays as tensors over the same memory
"""

from aioloader.loader.outputs import needed

needed("torch")  # before the modules that import it: what is missing is told with the extra's name

from aioloader.interop.torch._dataset import LoaderDataset  # noqa: E402
from aioloader.interop.torch._device import StatefulLoader, to_device  # noqa: E402
from aioloader.interop.torch._loader import DataLoader  # noqa: E402
from aioloader.interop.torch._tensors import as_tensors  # noqa: E402

__all__ = ("DataLoader", "LoaderDataset", "StatefulLoader", "as_tensors", "to_device")
