"""Batches of another sampler's indices."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from aioloader.samplers.base import Sampler

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioloader.abc import Sampler as SamplerProtocol


class BatchSampler(Sampler):
    """Lists of `batch_size` indices from another sampler.

    Args:
        sampler: yields single indices; has a length.
        batch_size: indices of a batch, at least 1.
        last_batch: treatment of an incomplete last batch: "keep" yields it unchanged, "discard" drops it,
            "rollover" begins the next pass with it. A pass that is abandoned early carries nothing over.

    Raises:
        ValueError: `last_batch` is none of these, or `batch_size` is below 1.
    """

    def __init__(self, sampler: SamplerProtocol, batch_size: int, last_batch: str = "keep") -> None:
        if last_batch not in ("keep", "discard", "rollover"):
            raise ValueError(
                f"last_batch must be one of 'keep', 'discard', or 'rollover', but got {last_batch}"
            )
        if batch_size < 1:
            raise ValueError(f"batch_size must be at least 1, got {batch_size}")
        self.sampler = sampler
        self.batch_size = batch_size
        self.last_batch = last_batch
        self._carried: list[Any] = []

    def __iter__(self) -> Iterator[list[Any]]:
        """Iterate over the batches of one pass."""
        return self._cut(self.sampler)

    def _cut(self, indices: Iterable[Any]) -> Iterator[list[Any]]:
        batch, self._carried = self._carried, []
        for index in indices:
            batch.append(index)
            if len(batch) == self.batch_size:
                yield batch
                batch = []
        if batch and self.last_batch == "keep":
            yield batch
        elif self.last_batch == "rollover":
            self._carried = batch

    def __len__(self) -> int:
        """Return the number of batches of the next pass."""
        count = len(self.sampler)
        if self.last_batch == "keep":
            return -(-count // self.batch_size)
        return (len(self._carried) + count) // self.batch_size
