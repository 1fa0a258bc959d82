"""Tensors over the arrays of a batch, and their copies to a device."""

from __future__ import annotations

from typing import Any

import torch

from aioloader.foundation.pytree import flatten, map_leaves
from aioloader.loader.outputs import torch_leaf

_tensor = torch_leaf()


def as_tensors(batch: Any) -> Any:
    """Return the batch with tensors that share the arrays' memory; arrays of dtypes that torch lacks are unchanged.

    Args:
        batch: arrays in tuples, lists, dicts, named tuples or dataclasses.
    """
    return map_leaves(_tensor, batch)


class Mover:
    """Copier of batches to a device: `start` starts a copy, and `arrive` waits for it at delivery.

    Batches are copied to a CUDA device from pinned memory, on a separate stream, while the caller computes. The pinned
    memory belongs to torch and is not reused before the copy has ended; so the loader may reuse the batch's memory as
    soon as the copy has started.

    Args:
        device: target device; None: tensors over the batch's own memory.

    Attributes:
        takes_long: True if `start` copies in the calling thread.

    Raises:
        RuntimeError: torch has no such device here.
    """

    def __init__(self, device: Any) -> None:
        self.device = None if device is None else torch.device(device)
        self._stream: Any = None
        if self.device is not None and self.device.type == "cuda":
            if not torch.cuda.is_available():
                raise RuntimeError(
                    f"torch finds no CUDA device here for device={str(device)!r}; use 'cpu' or None"
                )
            if self.device.index is None:  # each thread has its own current device
                self.device = torch.device("cuda", torch.cuda.current_device())
            self._stream = torch.cuda.Stream(self.device)
        self.takes_long = self.device is not None and self.device.type not in ("cpu", "meta")

    def start(self, batch: Any) -> tuple[Any, Any]:
        """Start the copy of a batch, in any thread; return its tensors and the event that `arrive` waits for."""
        tensors = as_tensors(batch)
        if self.device is None:
            return tensors, None
        if self._stream is None:
            return map_leaves(self._to, tensors), None
        with torch.cuda.stream(self._stream):
            moved = map_leaves(self._to_cuda, tensors)
            return moved, self._stream.record_event()

    def _to(self, leaf: Any) -> Any:
        return leaf.to(self.device) if isinstance(leaf, torch.Tensor) else leaf

    def _to_cuda(self, leaf: Any) -> Any:
        if not isinstance(leaf, torch.Tensor):
            return leaf
        if leaf.device.type == "cpu" and not leaf.is_pinned():
            leaf = leaf.pin_memory()
        return leaf.to(self.device, non_blocking=True)

    def arrive(self, tensors: Any, event: Any) -> Any:
        """Return the tensors; later work on the current stream of this thread runs after the copy."""
        if event is not None:
            current = torch.cuda.current_stream(self.device)
            current.wait_event(event)
            for leaf in flatten(tensors)[1]:
                if isinstance(leaf, torch.Tensor) and leaf.device.type == "cuda":
                    leaf.record_stream(current)  # its memory belongs to the other stream
        return tensors
