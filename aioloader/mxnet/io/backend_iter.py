"""`MXDataIter`: the common part of the iterators that MXNet writes in C++."""

from __future__ import annotations

from functools import cached_property
from typing import TYPE_CHECKING, Any, Protocol, TypeAlias

import numpy as np

from aioloader.datasets import ArrayDataset
from aioloader.datasets.resolve import fingerprint
from aioloader.errors import error_report
from aioloader.mxnet.io.desc import DataBatch, DataDesc
from aioloader.mxnet.io.iterator import DataIter
from aioloader.mxnet.io.states import STATE_VERSION, check_state, whole_number
from aioloader.mxnet.ndarray import from_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aioloader.errors import SampleError
    from aioloader.foundation.types import Array, IntArray
    from aioloader.mxnet.io.rounds import Rounds

Description: TypeAlias = "tuple[tuple[int, ...], np.dtype[Any]]"

__all__ = ("ArrayBatches", "Batches", "Loaded", "MXDataIter", "filled")


class Loaded:
    """One batch: data, label, number of rows at its end that only fill it up, and ids of its rows.

    `taken` counts the batches of its pass up to it and with it, those among them of which nothing was left.
    """

    __slots__ = ("data", "index", "label", "pad", "taken")

    def __init__(self, data: Any, label: Any, pad: int, index: Any, taken: int) -> None:
        self.data = data
        self.label = label
        self.pad = pad
        self.index = index
        self.taken = taken


class Batches(Protocol):
    """Source of the batches of an `MXDataIter`.

    Attributes:
        batch_size: rows of each.
        data_desc, label_desc: shape (including that of the batch) and dtype of its arrays.
    """

    batch_size: int
    data_desc: Description
    label_desc: Description

    @property
    def errors(self) -> Sequence[SampleError]:
        """Return the errors of the rows that failed so far, and were left out or replaced."""

    def next(self) -> Loaded | None:
        """Return the next batch of this pass; None at its end."""

    def reset(self) -> None:
        """Begin the next pass, or restart this one if it has not reached its end."""

    def identity(self) -> dict[str, Any]:
        """Return the entries that a state must share with these batches."""

    def place(self) -> dict[str, int]:
        """Return the place at which the pass of the last delivered batch begins; at first, that of the first pass."""

    def go_to(self, place: Mapping[str, Any], taken: int) -> None:
        """Go to the pass that begins at `place`, after its first `taken` batches.

        Raises:
            ResumeError: there is no such place.
        """

    def close(self) -> None:
        """Stop the background work. May be called twice."""


class ArrayBatches:
    """Batches of arrays in memory.

    Args:
        data, label: rows, of one length.
        rounds: which rows each batch has.
        batch_size: rows of a batch.
        first: added to row numbers to give `index`.
        order: the rows to give, in this order; by default all.
        convert: given the rows of `data` and of `label`, what is delivered; by default they themselves.
    """

    errors: Sequence[SampleError] = ()

    def __init__(
        self,
        data: Array,
        label: Array,
        rounds: Rounds,
        batch_size: int,
        first: int = 0,
        order: IntArray | None = None,
        convert: Callable[[Array, Array], tuple[Array, Array]] | None = None,
    ) -> None:
        self._data = data
        self._label = label
        self._rounds = rounds
        self._first = first
        self._order = order
        self._convert = convert
        self.batch_size = batch_size
        described = self._rows(np.zeros(0, np.int64))
        self.data_desc, self.label_desc = (
            ((batch_size, *array.shape[1:]), array.dtype) for array in described
        )

    def _rows(self, rows: IntArray) -> tuple[Array, Array]:
        data, label = self._data[rows], self._label[rows]
        return (data, label) if self._convert is None else self._convert(data, label)

    def next(self) -> Loaded | None:
        """The next batch of this pass; None at its end."""
        found = self._rounds.next()
        if found is None:
            return None
        rows = found.rows if self._order is None else self._order[found.rows]
        data, label = (from_numpy(filled(array, self.batch_size)) for array in self._rows(rows))
        index = (rows + self._first).astype(np.uint64)
        return Loaded(data, label, found.pad, index, self._rounds.taken)

    def reset(self) -> None:
        """Begin the next pass, or this one again if it has not come to its end."""
        self._rounds.reset()

    @cached_property
    def _fingerprint(self) -> str:
        arrays = [self._data, self._label[: len(self._data)]]
        order = [] if self._order is None else [self._order]
        return "".join(fingerprint(ArrayDataset(each)) for each in (*arrays, *order))

    def identity(self) -> dict[str, Any]:
        """See `Batches.identity`."""
        return {**self._rounds.identity(), "first": self._first, "fingerprint": self._fingerprint}

    def place(self) -> dict[str, int]:
        """See `Batches.place`."""
        return self._rounds.place()

    def go_to(self, place: Mapping[str, Any], taken: int) -> None:
        """See `Batches.go_to`."""
        self._rounds.go_to(place, taken)

    def close(self) -> None:
        """Nothing runs beside the caller."""


def filled(rows: Array, batch_size: int) -> Array:
    """Return `rows`, padded with zeros to `batch_size` rows; the array itself if it has that many."""
    if len(rows) == batch_size:
        return rows
    result = np.zeros((batch_size, *rows.shape[1:]), rows.dtype)
    result[: len(rows)] = rows
    return result


class MXDataIter(DataIter):
    """Data iterator over batches of one data array and one label array.

    `getdata` and `getlabel` return the array itself; `next` puts each into a list.

    Args:
        batches: source of the batches. The first is loaded at once, so that errors are raised here.
        data_name, label_name: names of the two inputs in the network.
    """

    def __init__(self, batches: Batches, data_name: str = "data", label_name: str = "softmax_label") -> None:
        super().__init__(batches.batch_size)
        self._batches = batches
        self._current: Loaded | None = None
        try:
            self._ahead: Loaded | None = batches.next()
        except BaseException:
            batches.close()  # whoever keeps the error would keep the workers
            raise
        self._over = self._ahead is None
        self._skip_load = False
        self._taken = 0
        self.provide_data = [_described(data_name, batches.data_desc)]
        self.provide_label = [_described(label_name, batches.label_desc)]

    def iter_next(self) -> bool:
        """Move to the next batch; return False at the end, until `reset`."""
        if self._skip_load and self._current is not None:
            return True
        if self._over:
            return False
        if self._ahead is not None:
            self._current, self._ahead = self._ahead, None
        else:
            self._current = self._batches.next()
        if self._current is None:
            self._over = True
            return False
        self._taken = self._current.taken
        return True

    def next(self) -> DataBatch:
        """Return the next batch.

        Raises:
            StopIteration: there is none.
        """
        if not self.iter_next():
            raise StopIteration
        return DataBatch(
            data=[self.getdata()], label=[self.getlabel()], pad=self.getpad(), index=self.getindex()
        )

    def reset(self) -> None:
        """Begin the next pass; before the end of a pass: return to the first row."""
        self._current = None
        self._over = False
        self._taken = 0
        if self._ahead is None:
            self._batches.reset()

    def _identity(self) -> dict[str, Any]:
        return {"version": STATE_VERSION, "iterator": "MXDataIter", **self._batches.identity()}

    def state_dict(self) -> dict[str, Any]:
        """Return the position, see `DataIter.state_dict`; this takes no longer late in a pass than early in it."""
        return {**self._identity(), **self._batches.place(), "taken": self._taken}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go to the position of `state`, see `DataIter.load_state_dict`. Number of workers and executor may differ.

        Where no batch of a pass was taken yet, a `reset` that follows changes nothing, as with a new iterator.
        """
        check_state(state, self._identity())
        taken = whole_number(state, "taken", 0, 1 << 62)
        self._batches.go_to({name: state.get(name) for name in self._batches.place()}, taken)
        self._current = self._ahead = None
        self._over = self._skip_load = False
        self._taken = taken
        if not taken:
            self._ahead = self._batches.next()
            self._over = self._ahead is None

    def close(self) -> None:
        """Stop the workers; garbage collection does so too. Batches stay valid. May be called twice."""
        self._batches.close()

    @property
    def errors(self) -> list[SampleError]:
        """Return the errors of all records that failed so far, in the order of delivery; empty for arrays in memory."""
        return list(self._batches.errors)

    def error_report(self) -> dict[str, Any]:
        """Return every record that failed so far, as a JSON object; see `aioloader.DataLoader.error_report`."""
        return error_report(self._batches.errors)

    def _loaded(self) -> Loaded:
        if self._current is None:
            raise RuntimeError("there is no current batch: call next() or iter_next() first")
        return self._current

    def getdata(self) -> Any:
        """Return the data of the current batch: an array."""
        return self._loaded().data

    def getlabel(self) -> Any:
        """Return the labels of the current batch: an array."""
        return self._loaded().label

    def getindex(self) -> Any:
        """Return the numbers of the current batch's rows, uint64; rows of zeros that pad a batch have none."""
        return self._loaded().index

    def getpad(self) -> int:
        """Return the number of rows at the end of the current batch that are padding."""
        return self._loaded().pad

    def debug_skip_load(self) -> None:
        """Return the first batch again and again from now on, to measure everything except loading."""
        self.reset()
        self.iter_next()
        self._skip_load = True


def _described(name: str, desc: Description) -> DataDesc:
    shape, dtype = desc
    return DataDesc(name, shape, np.dtype(dtype).type)
