"""Collation of tuples with one function for each field."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any, ClassVar

from aioloader.batchify.allocation import collate_with
from aioloader.foundation.validation import require

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.abc import Allocate


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
        columns = self._split(samples)
        if out is None:
            return tuple([fn(column) for fn, column in zip(self._functions, columns, strict=True)])
        require(len(out) == len(columns), f"out must have {len(columns)} entries, got {len(out)}")
        return tuple(
            [fn(column, out=to) for fn, column, to in zip(self._functions, columns, out, strict=True)]
        )

    def collate(self, samples: Sequence[Any], allocate: Allocate) -> tuple[Any, ...]:
        """Collate into memory from `allocate`; see `aioloader.abc.AllocatingBatchify`."""
        pairs = zip(self._functions, self._split(samples), strict=True)
        return tuple([collate_with(fn, column, allocate) for fn, column in pairs])

    def _split(self, samples: Sequence[Any]) -> list[list[Any]]:
        if not len(samples):
            raise ValueError("there are no samples to collate")
        count = len(self._functions)
        for place, sample in enumerate(samples):
            found = len(sample) if isinstance(sample, (tuple, list)) else type(sample).__name__
            require(found == count, self._wrong_count.format(count=count, place=place, found=found))
        return [[sample[field] for sample in samples] for field in range(count)]
