"""Collation to lists, and by one function for each field of a tuple."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

from aioloader.batchify.fields import by_field
from aioloader.foundation.validation import require

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


class Append:
    """Collation to lists: each field becomes a list of arrays, one per sample.

    Args:
        expand: add a batch axis of length 1 to every array.
        batch_axis: position of that axis.
        use_shared_mem: accepted and ignored, see `Stack`.
    """

    def __init__(self, expand: bool = True, batch_axis: int = 0, use_shared_mem: bool = False) -> None:
        del use_shared_mem
        self._expand = expand
        self._batch_axis = batch_axis

    def __call__(self, samples: Sequence[Any], /, out: None = None) -> Any:
        """Collate; the result is a list of arrays, so `out` must be None."""
        require(out is None, "Append() makes no array, so it takes no out")
        return by_field(samples, None, self._append)

    def _append(self, values: list[Any], out: None) -> list[Any]:
        del out
        arrays = [np.asarray(value) for value in values]
        return [np.expand_dims(array, self._batch_axis) for array in arrays] if self._expand else arrays


class Group:
    """Collation of tuples with one function for each field: ``Group(Stack(), Pad())`` or ``Group([Stack(), Pad()])``.

    Args:
        fn: function of the first field, or a tuple or list of all functions.
        *args: functions of the other fields.

    Raises:
        ValueError: one of them cannot be called.
    """

    _wrong_count: ClassVar[str] = (
        "Group() has {count} functions, so each sample must be a tuple or list of {count} elements; sample {place} has "
        "{found}"
    )

    def __init__(self, fn: Any, *args: Callable[..., Any]) -> None:
        if isinstance(fn, (tuple, list)):
            require(not args, "Group() takes the functions one by one or in one list, not both")
            functions = tuple(fn)
        else:
            functions = (fn, *args)
        for place, function in enumerate(functions):
            require(callable(function), f"function {place} of Group() cannot be called: {function!r}")
        self._functions = functions

    def __call__(self, samples: Sequence[Any], /, out: Any = None) -> tuple[Any, ...]:
        """Collate.

        Args:
            samples: tuples or lists with as many elements as there are functions.
            out: a tuple with an entry for each function to write into, or None.

        Raises:
            ValueError: a sample has another number of elements.
        """
        if not len(samples):
            raise ValueError("there are no samples to collate")
        count = len(self._functions)
        for place, sample in enumerate(samples):
            found = len(sample) if isinstance(sample, (tuple, list)) else type(sample).__name__
            require(found == count, self._wrong_count.format(count=count, place=place, found=found))
        columns = [[sample[field] for sample in samples] for field in range(count)]
        if out is None:
            return tuple([fn(column) for fn, column in zip(self._functions, columns, strict=True)])
        require(len(out) == count, f"out must have {count} entries, got {len(out)}")
        return tuple(
            [fn(column, out=to) for fn, column, to in zip(self._functions, columns, out, strict=True)]
        )


class AsList:
    """Collation to a list of the unchanged samples."""

    def __call__(self, samples: Sequence[Any], /, out: None = None) -> list[Any]:
        """Return the samples as a list; `out` must be None."""
        require(out is None, "AsList() makes no array, so it takes no out")
        return list(samples)
