"""Batches of peers as numpy arrays, and epochs of endless iterators. Standard library only."""

from __future__ import annotations

from itertools import islice
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Iterator


class NumpyBatches:
    """Batches of tensors as numpy arrays over the same memory."""

    def __init__(self, loader: Any) -> None:
        self._loader = loader

    def __iter__(self) -> Iterator[Any]:
        for images, labels in self._loader:
            yield images.numpy(), labels.numpy()


class Epochs:
    """Epochs of an endless iterator of batches: each iteration is the next one."""

    def __init__(self, batches: Iterator[Any], length: int) -> None:
        self._batches = batches
        self._length = length

    def __iter__(self) -> Iterator[Any]:
        return islice(self._batches, self._length)
