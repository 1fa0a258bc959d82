"""Several samples of a dataset at once, here and now: torch's loader asks for a batch so, by ``__getitems__``.

Rule: the samples, and the draws of their transforms, are those of ``dataset[i]`` one after the other. Of record files
the bytes are read together, and decoding and the transforms are fused as in this package's own loader.
"""

from __future__ import annotations

import operator
import os
import threading
import weakref
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.base import IndexedView, TransformedView
from aioloader.datasets.files import FileDataset, load
from aioloader.datasets.record import RecordFileDataset
from aioloader.datasets.resolve import resolve
from aioloader.foundation.types import StageTimer
from aioloader.rng import default_rng

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.foundation.types import IntArray

__all__ = ("samples_of",)

_local = threading.local()


def samples_of(dataset: Any, indices: Sequence[int]) -> list[Any]:
    """The samples at some indices.

    Args:
        dataset: one of the file datasets, or a view.
        indices: any, also several times; negative ones count from the end.

    Raises:
        Exception: what ``dataset[i]`` raises, for the first index for which it raises anything.
    """
    maker = _maker_of(dataset) if len(indices) > 1 else None
    made = None if maker is None else maker.make(dataset, indices)
    return [dataset[index] for index in indices] if made is None else made


def _maker_of(dataset: Any) -> _Maker | None:
    """What makes samples of a dataset in this thread of this process; None where it has to be asked one by one."""
    makers = getattr(_local, "makers", None)
    if makers is None or _local.pid != os.getpid():
        makers = _local.makers = weakref.WeakKeyDictionary()
        _local.pid = os.getpid()
    if dataset not in makers:
        makers[dataset] = _Maker.of(dataset)
    maker: _Maker | None = makers[dataset]
    return maker


class _Maker:
    """Reads, decodes and transforms. Used by one thread; holds no reference to the dataset that it was made for."""

    @classmethod
    def of(cls, dataset: Any) -> _Maker | None:
        """One for this dataset; None if its ``__getitem__``, or that of a dataset beneath, has a meaning of its own."""
        own = type(dataset).__getitem__
        if own not in (FileDataset.__getitem__, IndexedView.__getitem__, TransformedView.__getitem__):
            return None
        resolved = resolve(dataset)
        plain = isinstance(resolved.base, RecordFileDataset) and resolved.base_kind == "bytes"
        return cls(dataset, resolved) if plain else None

    def __init__(self, dataset: Any, resolved: Any) -> None:
        base = resolved.base
        self._base = None if base is dataset else base
        self._remap: IntArray | None = resolved.remap
        self._source = base.open_source()
        self._decoder = base.decoder
        fuse = getattr(self._decoder, "fuse", None)
        self._fused = None if fuse is None else fuse(resolved.stages)
        self._stages = resolved.stages
        self._rest = resolved.stages[0 if self._fused is None else self._fused.stages :]

    def make(self, dataset: Any, indices: Sequence[int]) -> list[Any] | None:
        """The samples; None if an index or a read is at fault, which ``dataset[i]`` then tells of."""
        length = len(dataset)
        places = np.array([operator.index(index) for index in indices], np.int64)
        if (places < -length).any() or (places >= length).any():
            return None
        places[places < 0] += length
        base = dataset if self._base is None else self._base
        if self._remap is not None:
            places = self._remap[places]
        try:
            plan, data = load(self._source, base.spans(places))
        except (OSError, ValueError, EOFError):
            return None
        rng = default_rng()
        trace = StageTimer([0.0] * len(self._stages))
        samples = []
        for place, start, nbytes in zip(
            places.tolist(), plan.start.tolist(), plan.length.tolist(), strict=True
        ):
            framed = data[start : start + nbytes].toreadonly()
            facts = base.facts(place)
            if self._fused is None:
                sample = self._decoder(framed, None, facts)
            else:
                # What it makes may lie in memory that is used again for the next one.
                sample = _kept(self._fused(framed, None, facts, rng, None, trace))
            for stage in self._rest:
                sample = stage.apply(sample, rng)
            samples.append(sample)
        return samples


def _kept(sample: Any) -> Any:
    image, *others = sample
    return (image.copy() if isinstance(image, np.ndarray) else image, *others)
