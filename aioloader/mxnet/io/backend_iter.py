"""`MXDataIter`: the common part of the iterators that MXNet writes in C++."""

from __future__ import annotations

from abc import ABC, abstractmethod
from functools import cached_property
from typing import TYPE_CHECKING, Any, NamedTuple, TypeAlias

import numpy as np

from aioloader.datasets.arrays import ArrayDataset
from aioloader.datasets.resolve import fingerprint
from aioloader.errors import SampleError, error_report
from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.io.iterator import (
    STATE_VERSION,
    DataBatch,
    DataDesc,
    DataIter,
    check_state,
    whole_number,
)
from aioloader.mxnet.io.schedule import RecordSchedule, part_of
from aioloader.mxnet.ndarray.ndarray import from_numpy

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence

    from aioloader.foundation.types import Array, IntArray

Description: TypeAlias = "tuple[tuple[int, ...], np.dtype[Any]]"


class Loaded(NamedTuple):
    """One batch: data, label, number of padding rows at its end, and ids of its rows.

    `taken` counts the batches of its pass up to and including it, also those of which no row was left.
    """

    data: Any
    label: Any
    pad: int
    index: Any
    taken: int


class Batches(ABC):
    """Base of sources of the batches of an `MXDataIter`.

    Attributes:
        batch_size: rows of each.
        data_desc, label_desc: shape (including that of the batch) and dtype of its arrays.
    """

    batch_size: int
    data_desc: Description
    label_desc: Description

    @property
    def errors(self) -> Sequence[SampleError]:
        """Return the errors of the rows that failed so far, and were left out or replaced; none by default."""
        return ()

    @abstractmethod
    def next(self) -> Loaded | None:
        """Return the next batch of this pass; None at its end."""

    @abstractmethod
    def reset(self) -> None:
        """Begin the next pass, or restart this one if it has not reached its end."""

    @abstractmethod
    def identity(self) -> dict[str, Any]:
        """Return the entries that a state must share with these batches."""

    @abstractmethod
    def place(self) -> dict[str, int]:
        """Return the place at which the pass of the last delivered batch begins; at first, that of the first pass."""

    @abstractmethod
    def go_to(self, place: Mapping[str, Any], taken: int) -> None:
        """Go to the pass that begins at `place`, after its first `taken` batches.

        Raises:
            ResumeError: there is no such place.
        """

    def close(self) -> None:  # noqa: B027  # rows in memory have no background work
        """Stop the background work. May be called twice."""


class RowBatches(Batches):
    """Base of batches of rows in memory; a subclass sets `data_desc` and `label_desc`.

    Args:
        length: number of rows.
        batch_size: rows of a batch, at least 1.
        round_batch: fill the last batch with the first rows.
        first: added to row numbers in a state.

    Raises:
        MXNetError: `batch_size` is 0; or `round_batch`, and there are fewer rows than a batch has, but not none.
    """

    def __init__(self, length: int, batch_size: int, *, round_batch: bool, first: int = 0) -> None:
        if batch_size < 1:
            raise MXNetError(f"batch_size must be at least 1, not {batch_size}")
        if round_batch and 0 < length < batch_size:
            raise MXNetError(
                f"number of input must be bigger than batch size: there are {length} rows for batches of "
                f"{batch_size}; give round_batch=False or a smaller batch_size"
            )
        self._length = length
        self._round_batch = bool(round_batch)
        self._first = first
        self._schedule = RecordSchedule(part_of(length, 1, 0), batch_size, round_batch)
        self._taken = 0
        self.batch_size = batch_size

    @abstractmethod
    def _load(self, rows: IntArray) -> tuple[Any, Any, IntArray]:
        """Return data and labels of rows, padded to a batch, and the numbers of the rows."""

    @abstractmethod
    def _contents(self) -> list[Array]:
        """Return arrays that identify the data."""

    def next(self) -> Loaded | None:
        """Return the next batch of this pass; None at its end."""
        if self._taken >= self._schedule.batches:
            return None
        pad = self._schedule.pad(self._taken)
        data, label, index = self._load(self._schedule.batch(self._taken) % self._length)
        self._taken += 1
        return Loaded(data, label, pad, index.astype(np.uint64), self._taken)

    def reset(self) -> None:
        """Begin the next pass, or restart this one if it has not reached its end."""
        if self._taken >= self._schedule.batches:
            self._schedule.advance()
        else:
            self._schedule.rewind()
        self._taken = 0

    @cached_property
    def _fingerprint(self) -> str:
        return "".join(fingerprint(ArrayDataset(each)) for each in self._contents())

    def identity(self) -> dict[str, Any]:
        """Return the entries that a state must share with these batches."""
        return {
            "rows": self._length,
            "batch_size": self.batch_size,
            "round_batch": self._round_batch,
            "first": self._first,
            "fingerprint": self._fingerprint,
        }

    def place(self) -> dict[str, int]:
        """Return the row at which this pass begins."""
        return {"began": self._schedule.place()["borrowed"]}

    def go_to(self, place: Mapping[str, Any], taken: int) -> None:
        """Go to the pass that begins at `place`, after its first `taken` batches."""
        began = whole_number(place, "began", 0, max(1, self._length))
        self._schedule.go_to({"order": 0, "borrowed": began}, taken)
        self._taken = taken


class ArrayBatches(RowBatches):
    """Batches of arrays in memory.

    Args:
        data, label: rows, of one length.
        batch_size: rows of a batch.
        round_batch: fill the last batch with the first rows.
        first: added to row numbers to produce `index`.
        order: the rows to deliver, in this order; by default all.
        convert: function of rows of `data` and of `label` that returns the delivered arrays; by default the rows.
    """

    def __init__(
        self,
        data: Array,
        label: Array,
        *,
        batch_size: int,
        round_batch: bool = False,
        first: int = 0,
        order: IntArray | None = None,
        convert: Callable[[Array, Array], tuple[Array, Array]] | None = None,
    ) -> None:
        super().__init__(
            len(data) if order is None else len(order), batch_size, round_batch=round_batch, first=first
        )
        self._data = data
        self._label = label
        self._order = order
        self._convert = convert
        described = self._rows(np.zeros(0, np.int64))
        self.data_desc, self.label_desc = (
            ((batch_size, *array.shape[1:]), array.dtype) for array in described
        )

    def _rows(self, rows: IntArray) -> tuple[Array, Array]:
        data, label = self._data[rows], self._label[rows]
        return (data, label) if self._convert is None else self._convert(data, label)

    def _load(self, rows: IntArray) -> tuple[Any, Any, IntArray]:
        rows = rows if self._order is None else self._order[rows]
        data, label = (from_numpy(filled(array, self.batch_size)) for array in self._rows(rows))
        return data, label, rows + self._first

    def _contents(self) -> list[Array]:
        order = [] if self._order is None else [self._order]
        return [self._data, self._label[: len(self._data)], *order]


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
            batches.close()  # a caller that keeps the error would keep the workers
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

    def _batch_of_parts(self) -> DataBatch:
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
            if self._ahead is not None:
                return self._ahead
            raise RuntimeError("there is no current batch: call next() or iter_next() first")
        return self._current

    def getdata(self) -> Any:
        """Return the data of the current batch: an array. Before the first `next`: that of the first batch."""
        return self._loaded().data

    def getlabel(self) -> Any:
        """Return the labels of the current batch: an array."""
        return self._loaded().label

    def getindex(self) -> Any:
        """Return the numbers of the current batch's rows, uint64; rows of zeros that pad a batch have none.

        Before the first `next`: zeros, as in MXNet.
        """
        if self._current is None:
            return np.zeros(self.batch_size, np.uint64)
        return self._current.index

    def getpad(self) -> int:
        """Return the number of rows at the end of the current batch that are padding; 0 before the first `next`."""
        return 0 if self._current is None else self._current.pad

    def debug_skip_load(self) -> None:
        """Return the first batch again and again from now on, to measure everything except loading."""
        self.reset()
        self.iter_next()
        self._skip_load = True


def _described(name: str, desc: Description) -> DataDesc:
    shape, dtype = desc
    return DataDesc(name, shape, np.dtype(dtype).type)
