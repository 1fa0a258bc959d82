"""What all datasets have in common whose items are spans of files."""

from __future__ import annotations

import operator
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader._types import ReadPlan, Spans
from aioloader.datasets.base import Dataset
from aioloader.errors import SpanTooShortError
from aioloader.rng import default_rng

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader._types import Array, Facts, IntArray
    from aioloader.abc import Decoder
    from aioloader.datasets.stage import Stage
    from aioloader.storage.local import LocalByteSource

__all__ = ("FileDataset", "load")


def load(source: LocalByteSource, spans: Spans) -> tuple[ReadPlan, memoryview]:
    """Read some spans, here and now: where each lies, and the memory.

    Raises:
        Exception: the first of the errors that a span gave.
    """
    plan = source.plan_blocking(spans)
    data = memoryview(bytearray(plan.nbytes))
    for _, error in plan.failures or source.read_blocking(plan, data):
        raise error
    return plan, data


class FileDataset(Dataset):
    """Base of the byte datasets (`aioloader.abc.ByteDataset`) on local files.

    A loader reads the bytes itself, many at a time; ``dataset[i]`` reads and decodes one item here and now,
    by the same decoder. Can be pickled: files are opened anew where they are needed.
    """

    def __init__(self) -> None:
        self._source: LocalByteSource | None = None
        self._own_stage: Stage | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_source": None}

    @property
    def own_stage(self) -> Stage | None:
        """What the argument `transform` asks for, done to every sample before anything else."""
        return self._own_stage

    @property
    def decoder(self) -> Decoder[Any]:
        """See `ByteDataset.decoder`."""
        raise NotImplementedError

    def open_source(self) -> LocalByteSource:
        """See `ByteDataset.open_source`."""
        raise NotImplementedError

    def spans(self, indices: IntArray) -> Spans:
        """See `ByteDataset.spans`."""
        raise NotImplementedError

    def extras(self, indices: IntArray) -> Array | None:
        """See `ByteDataset.extras`."""
        return None

    def facts(self, index: int) -> Facts:
        """See `ByteDataset.facts`."""
        raise NotImplementedError

    def __getitem__(self, index: int) -> Any:
        """The sample at `index`; negative ones count from the end.

        Raises:
            IndexError: there is no such sample.
            OSError: its file cannot be read.
            ValueError: its bytes are damaged.
        """
        place, length = operator.index(index), len(self)
        if not -length <= place < length:
            raise IndexError(
                f"index {place} is out of range: this {type(self).__name__} has {length} samples"
            )
        place %= length
        indices = np.array([place], dtype=np.int64)
        if self._source is None:
            self._source = self.open_source()
        spans = self.spans(indices)
        try:
            plan, data = load(self._source, spans)
        except SpanTooShortError as short:
            plan, data = load(self._source, Spans(spans.file, spans.offset, np.array([short.needed])))
        extras = self.extras(indices)
        start = int(plan.start[0])
        sample = self.decoder(
            data[start : start + int(plan.length[0])].toreadonly(),
            None if extras is None else extras[0],
            self.facts(place),
        )
        return sample if self._own_stage is None else self._own_stage.apply(sample, default_rng())

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """The samples at some indices, as torch's loader asks for them: ``[self[i] for i in indices]``, but faster."""
        from aioloader.datasets.several import samples_of

        return samples_of(self, indices)
