"""Collation, and changes of the batch after it.

Collation of tuples with one function for each field.
"""

from __future__ import annotations

from functools import partial
from typing import TYPE_CHECKING, Any, ClassVar

from aioloader.abc import Transform
from aioloader.batchify.fields import collate_each
from aioloader.batchify.stack import Part, new_array
from aioloader.foundation.protocols import implements
from aioloader.foundation.pytree import flatten, unflatten
from aioloader.foundation.validation import check_sync, require
from aioloader.rng import Rng, default_rng

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Iterator, Sequence

    import numpy as np

    from aioloader.abc import Allocate
    from aioloader.foundation.types import Array


class _Allocated:
    """Function that returns memory for arrays, and remembers them."""

    def __init__(self, allocate: Allocate) -> None:
        self._allocate = allocate
        self._arrays: list[Array] = []

    def __call__(self, shape: tuple[int, ...], dtype: np.dtype[Any], /) -> Array:
        array = self._allocate(shape, dtype)
        self._arrays.append(array)
        return array

    def own(self, batch: Any) -> Any:
        """Return the batch with None for all but these arrays, to which nothing else refers."""
        known = {id(array) for array in self._arrays}
        structure, leaves = flatten(batch)
        return unflatten(structure, [leaf if id(leaf) in known else None for leaf in leaves])


class Compose:
    """Collation, and then changes of the batch: ``Compose(Stack(), transforms.MixUp(num_classes=1000))``.

    All of it runs in a worker. Functions that take ``rng`` draw from one stream, that of the batch, one after the
    other; see `aioloader.abc.Batchify`.

    Args:
        collate: a batchify function, such as `Stack` or `Group`; or a tuple or list of all functions.
        *changes: callables of the batch, applied one after the other. A transform of `aioloader.transforms` for batches
            writes to the batch's own memory where that is possible.

    Raises:
        ValueError: one of them cannot be called.
        TypeError: one of them is async.
    """

    def __init__(self, collate: Any, *changes: Callable[..., Any]) -> None:
        if isinstance(collate, (tuple, list)):
            require(
                not changes and collate,
                "Compose() takes the functions one by one, or in one list that has some",
            )
            collate, *rest = collate
            changes = tuple(rest)
        for place, function in enumerate((collate, *changes)):
            require(callable(function), f"function {place} of Compose() cannot be called: {function!r}")
            check_sync(function, "Compose")
        self._collate = Part(collate)
        self._changes = [(Part(function), implements(function, Transform)) for function in changes]

    def __call__(self, samples: Sequence[Any], /, *, rng: Rng | None = None) -> Any:
        """Collate, and change the batch.

        Args:
            samples: the samples of the batch, in order.
            rng: the draws of the batch; None: see `aioloader.rng.default_rng`.
        """
        return self.collate(samples, new_array, rng=rng)

    def collate(self, samples: Sequence[Any], allocate: Allocate, *, rng: Rng | None = None) -> Any:
        """Collate into memory from `allocate`; see `aioloader.abc.AllocatingBatchify`."""
        rng = default_rng() if rng is None else rng
        allocated = _Allocated(allocate)
        batch = self._collate.collate(samples, allocated, rng)
        lend = True  # no code of the caller might keep a reference to the arrays
        for part, is_transform in self._changes:
            function: Any = part.function
            if is_transform:
                batch = function.apply(batch, rng, allocated.own(batch) if lend else None)
            else:
                batch, lend = part(batch, rng), False
        return batch


class Group:
    """Collation of tuples with one function for each field: ``Group(Stack(), Pad())`` or ``Group([Stack(), Pad()])``.

    Functions that take ``rng`` draw from one stream, that of the batch, one after the other.

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
        self._parts = tuple(map(Part, functions))

    def __call__(
        self, samples: Sequence[Any], /, out: Any = None, *, rng: Rng | None = None
    ) -> tuple[Any, ...]:
        """Collate.

        Args:
            samples: tuples or lists with as many elements as there are functions.
            out: a tuple with an entry for each function to write into, or None.
            rng: the draws of the batch; None: see `aioloader.rng.default_rng`.

        Raises:
            ValueError: a sample has another number of elements.
        """
        columns = self._split(samples)
        rng = default_rng() if rng is None else rng
        if out is None:
            return self._collated(partial(part, column, rng) for part, column in self._pairs(columns))
        require(len(out) == len(columns), f"out must have {len(columns)} entries, got {len(out)}")
        pairs = zip(self._pairs(columns), out, strict=True)
        return self._collated(partial(part, column, rng, out=to) for (part, column), to in pairs)

    def collate(
        self, samples: Sequence[Any], allocate: Allocate, *, rng: Rng | None = None
    ) -> tuple[Any, ...]:
        """Collate into memory from `allocate`; see `aioloader.abc.AllocatingBatchify`."""
        rng = default_rng() if rng is None else rng
        pairs = self._pairs(self._split(samples))
        return self._collated(partial(part.collate, column, allocate, rng) for part, column in pairs)

    def _pairs(self, columns: list[list[Any]]) -> Iterator[tuple[Part, list[Any]]]:
        return zip(self._parts, columns, strict=True)

    def _collated(self, calls: Iterable[Callable[[], Any]]) -> tuple[Any, ...]:
        return tuple(collate_each(calls, lambda: [f"[{number}]" for number in range(len(self._parts))]))

    def _split(self, samples: Sequence[Any]) -> list[list[Any]]:
        if not len(samples):
            raise ValueError("there are no samples to collate")
        count = len(self._parts)
        for place, sample in enumerate(samples):
            found = len(sample) if isinstance(sample, (tuple, list)) else type(sample).__name__
            require(found == count, self._wrong_count.format(count=count, place=place, found=found))
        return [[sample[field] for sample in samples] for field in range(count)]
