"""Collation of arrays of different shapes: their values behind one another, with offsets and shapes."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.batchify.fields import by_field
from aioloader.batchify.nesting import flatten_levels

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.foundation.types import Array


@dataclass(frozen=True)
class RaggedBatch:
    """Arrays of different shapes in one array. With ``output="torch"`` or "jax" all its arrays are tensors.

    Attributes:
        values: (elements of all arrays,), each array in C order behind the one before.
        offsets: int64 (arrays + 1,), the first element of each array, and the number of all.
        shapes: int64 (arrays, axes).
        levels: for samples that are lists of arrays: int64 (samples + 1,), the first array of each sample; one for each
            level of lists, see `aioloader.batchify.nesting.flatten_levels`. Empty if each sample is an array.
    """

    values: Any
    offsets: Any
    shapes: Any
    levels: tuple[Any, ...] = ()

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.levels[0] if self.levels else self.offsets) - 1

    @property
    def arrays(self) -> int:
        """Return the number of arrays of all samples."""
        return len(self.offsets) - 1

    def array(self, number: int) -> Any:
        """Return one array of all, a view of `values`.

        Raises:
            IndexError: there is no such array.
        """
        if not 0 <= number < self.arrays:
            raise IndexError(f"array {number} of {self.arrays}")
        first, last = int(self.offsets[number]), int(self.offsets[number + 1])
        return self.values[first:last].reshape([int(extent) for extent in self.shapes[number]])

    def __getitem__(self, sample: int) -> Any:
        """Return a sample: an array, or nested lists of arrays; views of `values`.

        Raises:
            IndexError: there is no such sample.
        """
        place = sample + len(self) if sample < 0 else sample
        if not 0 <= place < len(self):
            raise IndexError(f"sample {sample} of {len(self)}")
        return self._at(0, place)

    def _at(self, level: int, place: int) -> Any:
        if level == len(self.levels):
            return self.array(place)
        first, last = int(self.levels[level][place]), int(self.levels[level][place + 1])
        return [self._at(level + 1, number) for number in range(first, last)]

    def __iter__(self) -> Iterator[Any]:
        """Iterate over the samples."""
        return (self[place] for place in range(len(self)))


class Ragged:
    """Collation of arrays of different shapes to a `RaggedBatch`; each field of a sample separately.

    In a loader a worker collates the batch, and its values are in the batch's own shared memory: no pixel is pickled.
    Fields that are not arrays, numbers or lists of them become lists, as with `Stack`.
    """

    def __call__(self, samples: Sequence[Any], /, out: None = None) -> Any:
        """Collate.

        Args:
            samples: arrays, or lists of arrays (nested equally deep), or tuples, dicts and dataclasses of such fields.
            out: must be None.

        Raises:
            ValueError: arrays of one field have different dtypes or numbers of axes, or some are nested deeper than
                others; or there are no samples, or `out` is given.
        """
        if out is not None:
            raise ValueError("Ragged() makes arrays of sizes that nobody knows before, so it takes no out")
        if not len(samples):
            raise ValueError("there are no samples to collate")
        if isinstance(samples[0], list):
            return _ragged(list(samples))
        if isinstance(samples[0], tuple) and any(isinstance(field, list) for field in samples[0]):
            counts = {len(sample) for sample in samples}
            if len(counts) != 1:
                raise ValueError(f"samples have different numbers of fields: {sorted(counts)}")
            return tuple([self([sample[place] for sample in samples]) for place in range(counts.pop())])
        if isinstance(samples[0], dict) and any(isinstance(field, list) for field in samples[0].values()):
            return {key: self([sample[key] for sample in samples]) for key in samples[0]}
        return by_field(samples, None, lambda values, _: _ragged(values))


def _ragged(values: list[Any]) -> Any:
    found, levels = flatten_levels(values)
    if any(isinstance(value, (str, bytes)) or not hasattr(value, "__array__") for value in found) and not all(
        isinstance(value, (bool, int, float)) for value in found
    ):
        return values
    arrays: list[Array] = [np.asarray(value) for value in found]
    kinds = sorted({str(array.dtype) for array in arrays})
    if len(kinds) > 1:
        raise ValueError(
            f"arrays of different dtypes cannot be one ragged batch: {', '.join(kinds)}; convert them"
        )
    axes = sorted({array.ndim for array in arrays})
    if len(axes) > 1:
        raise ValueError(f"arrays with different numbers of axes cannot be one ragged batch: {axes}")
    if any(array.dtype.hasobject for array in arrays):
        return values
    sizes = [array.size for array in arrays]
    offsets = np.cumsum([0, *sizes], dtype=np.int64)
    joined = np.empty(int(offsets[-1]), arrays[0].dtype if arrays else np.float64)
    for array, first, last in zip(arrays, offsets, offsets[1:], strict=False):
        joined[first:last].reshape(array.shape)[...] = array
    shapes = np.array([array.shape for array in arrays], np.int64).reshape(
        len(arrays), axes[0] if axes else 0
    )
    return RaggedBatch(joined, offsets, shapes, levels)
