"""Several samples of a dataset at once, for torch's loader, which calls ``__getitems__``.

Rule: the samples, and the random numbers of their transforms, are those of ``dataset[i]`` one after the other. The
bytes of records are read together, and decoding and the transforms are fused as in this package's own loader.
"""

from __future__ import annotations

import operator
import threading
import weakref
from dataclasses import replace
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.resolve import Resolved, resolve
from aioloader.errors import IncompleteItemError
from aioloader.foundation.decodes import warn_of_bad_entries
from aioloader.foundation.forks import ForkGuard
from aioloader.foundation.types import WHOLE_FILE, IntArray, StageTimer
from aioloader.rng import default_rng

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.abc import ByteSource, MapDataset


class _Local(threading.local):
    """The batch readers of one thread, by dataset, and the process that made them."""

    def __init__(self) -> None:
        self.reset()

    def reset(self) -> None:
        """Forget the readers: those of a parent process must not be used after a fork."""
        self.guard = ForkGuard()
        self.readers: weakref.WeakKeyDictionary[MapDataset[Any], _BatchReader | None] = (
            weakref.WeakKeyDictionary()
        )


_local = _Local()


def samples_of(dataset: MapDataset[Any], indices: Sequence[int], *, owner: type) -> list[Any]:
    """Return the samples at some indices.

    Args:
        dataset: one of the file datasets, or a view.
        indices: any, also repeated; negative ones count from the end.
        owner: the class whose ``__getitem__`` the dataset must have for a batched read.

    Raises:
        Exception: the exception of ``dataset[i]``, for the first index that fails.
    """
    reader = _reader_of(dataset, owner) if len(indices) > 1 else None
    made = None if reader is None else reader.read(dataset, indices)
    return [dataset[index] for index in indices] if made is None else made


def _reader_of(dataset: MapDataset[Any], owner: type) -> _BatchReader | None:
    """Return this thread's reader of a dataset; None if its samples must be made one by one."""
    if _local.guard.forked:
        _local.reset()
    if dataset not in _local.readers:
        _local.readers[dataset] = _BatchReader.of(dataset, owner)
    return _local.readers[dataset]


class _BatchReader:
    """Reads, decodes and transforms. Used by one thread; holds no reference to the dataset that it was made for."""

    @classmethod
    def of(cls, dataset: MapDataset[Any], owner: Any) -> _BatchReader | None:
        """Return a reader; None if the samples are not records, or a class of the caller overrides ``__getitem__``."""
        if type(dataset).__getitem__ is not owner.__getitem__:
            return None
        resolved = resolve(dataset)
        base = resolved.base
        if resolved.base_kind != "bytes" or not len(base):
            return None
        if base.spans(np.zeros(1, np.int64)).length[0] == WHOLE_FILE:
            return None
        source = resolved.open_source()
        if source.fetches:
            return cls(dataset, resolved, source)
        source.close()
        return None

    def __init__(self, dataset: MapDataset[Any], resolved: Resolved, source: ByteSource) -> None:
        base = resolved.base
        self._base = None if base is dataset else base
        self._remap: IntArray | None = resolved.remap
        self._source = source
        decoder: Any = resolved.decoder
        self._decoder = decoder if base.below is None else replace(decoder, own=True)
        self._fused = self._decoder.fuse(resolved.stages)
        self._stages = resolved.stages
        self._warned: set[str] = set()
        self._rest = resolved.stages[0 if self._fused is None else self._fused.stages :]

    def read(self, dataset: MapDataset[Any], indices: Sequence[int]) -> list[Any] | None:
        """Return the samples; None if an index or a read fails, so that ``dataset[i]`` raises the error."""
        length = len(dataset)
        places = np.array([operator.index(index) for index in indices], np.int64)
        if (places < -length).any() or (places >= length).any():
            return None
        places[places < 0] += length
        base: Any = dataset if self._base is None else self._base
        if self._remap is not None:
            places = self._remap[places]
        try:
            spans = base.spans(places)
            extras = base.extras(places)
            plan, data = self._source.fetch(spans)
        except (OSError, ValueError, EOFError):
            return None
        rng = default_rng()
        timer = StageTimer([0.0] * len(self._stages))
        samples = []
        rows = zip(
            places.tolist(), spans.file.tolist(), plan.start.tolist(), plan.length.tolist(), strict=True
        )
        for row, (place, file, start, nbytes) in enumerate(rows):
            extra = None if extras is None else extras[row]
            framed = data[start : start + nbytes].toreadonly()
            location = base.location(place)
            if self._fused is None:
                sample = self._decoder(framed, extra, location)
            else:
                # The image may be in memory that is reused for the next one.
                try:
                    made = self._fused(framed, extra, location, rng=rng, out=None, trace=timer, file=file)
                except IncompleteItemError:
                    return None
                sample = _kept(made)
            for stage in self._rest:
                sample = stage.apply(sample, rng)
            samples.append(sample)
        if timer.bad_entries:
            warn_of_bad_entries(timer.bad_entries, self._warned)
        return samples


def _kept(sample: Any) -> Any:
    if not isinstance(sample, tuple):
        return sample
    image, *others = sample
    return (image.copy() if isinstance(image, np.ndarray) else image, *others)
