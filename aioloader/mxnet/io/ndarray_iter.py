"""`NDArrayIter`: batches of arrays in memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import numpy.typing as npt

from aioloader._checks import require
from aioloader.mxnet.io.desc import DataBatch, DataDesc
from aioloader.mxnet.io.iterator import DataIter
from aioloader.mxnet.io.sources import named_sources, rows_of
from aioloader.mxnet.sparse import CSRNDArray

if TYPE_CHECKING:
    from aioloader.mxnet.ndarray import NDArray

__all__ = ("NDArrayIter",)

_LAST = ("pad", "discard", "roll_over")


class NDArrayIter(DataIter):
    """Batches of arrays in memory; each batch is a copy of its rows.

    Args:
        data: array, list of arrays, or dict of name to array; numpy, NDArray, h5py datasets, sparse matrices (with
            "discard" only). Sources are sorted by name.
        label: the same; None or an empty list: batches have no labels.
        batch_size: rows of a batch.
        shuffle: another order of the rows at the start and after every `reset`, drawn from `numpy.random`.
        last_batch_handle: what is done with an incomplete last batch. "pad": it is completed with rows from the
            start. "discard": it is dropped. "roll_over": its rows come first in the next pass.
        data_name, label_name: names of the sources that have none. Of several, the names are `_0_<name>`,
            `_1_<name>`, ...
        layout: what the axes mean: the place of "N" is the axis of the batch.
        dtype: what everything but NDArrays and h5py datasets is converted to; None: arrays keep their type.
        pad_counts_rolled: count the rows that were rolled over as `pad` in the batch they come first in, as MXNet
            does, although they are no filling.

    Attributes:
        data, label: lists of (name, array).
        data_list: all these arrays; num_source: how many.
        num_data: number of rows.
        idx: the order of the rows in this pass, int64 (num_data,).
        cursor: place in `idx` of the current batch's first row; `-batch_size` before the first, negative while rolled
            over rows come first.

    Raises:
        TypeError: a source is no array.
        NotImplementedError: a source is sparse, and `last_batch_handle` is not "discard".
        ValueError: there is no data, sources differ in their number of rows, or `last_batch_handle` is none of the
            three.
    """

    def __init__(
        self,
        data: Any,
        label: Any = None,
        batch_size: int = 1,
        shuffle: bool = False,
        last_batch_handle: str = "pad",
        data_name: str = "data",
        label_name: str = "softmax_label",
        layout: str | None = "NCHW",
        *,
        dtype: npt.DTypeLike | None = np.float32,
        pad_counts_rolled: bool = False,
    ) -> None:
        super().__init__(batch_size)
        require(
            hasattr(batch_size, "__index__") and batch_size >= 1,
            f"batch_size must be at least 1 and a whole number, not {batch_size!r}",
        )
        require(
            last_batch_handle in _LAST, f"last_batch_handle must be one of {_LAST}, not {last_batch_handle!r}"
        )
        self.data = named_sources(data, data_name, dtype)
        require(self.data, "there is no data: give at least one array")
        self.label = named_sources(label, label_name, dtype)
        self.data_list = [array for _, array in (*self.data, *self.label)]
        self.num_source = len(self.data_list)
        if last_batch_handle != "discard" and any(isinstance(array, CSRNDArray) for array in self.data_list):
            raise NotImplementedError(
                "`NDArrayIter` only supports ``CSRNDArray`` with `last_batch_handle` set to `discard`."
            )
        self.layout = layout
        self.last_batch_handle = last_batch_handle
        self.shuffle = shuffle
        self._axis = DataDesc.get_batch_axis(layout)
        require(self._axis >= 0, f"the layout {layout!r} has no 'N', the axis of the batch")
        self._pad_counts_rolled = pad_counts_rolled
        self.num_data = self._common_length()
        self.idx = np.arange(self.num_data)
        self._drawn = self.idx.copy()
        self.hard_reset()

    def _common_length(self) -> int:
        lengths = {name: array.shape[self._axis] for name, array in (*self.data, *self.label)}
        require(
            len(set(lengths.values())) == 1,
            f"all sources must have the same number of rows, and they have: {lengths}",
        )
        return int(next(iter(lengths.values())))

    # --- where it stands ---

    def hard_reset(self) -> None:
        """Go back to the start and forget rows that were rolled over."""
        self._begin(np.zeros(0, np.intp))

    def reset(self) -> None:
        """Begin the next pass; an incomplete last batch that was reached is rolled over, if so asked for."""
        stopped_inside = self.num_data - self.batch_size < self.cursor < self.num_data
        roll = self.last_batch_handle == "roll_over" and stopped_inside
        self._begin(self._rows(self.cursor, self.num_data) if roll else np.zeros(0, np.intp))

    def _begin(self, rolled: npt.NDArray[np.intp]) -> None:
        if self.shuffle:
            # MXNet's orders: it puts the data in the order drawn, and draws the next one by shuffling the last.
            np.random.shuffle(self._drawn)
            self.idx = self.idx[self._drawn]
        self._rolled = rolled
        self.cursor = -self.batch_size - len(rolled)

    def _rows(self, start: int, stop: int) -> npt.NDArray[np.intp]:
        """The rows from a place on; below 0 are those that were rolled over, beyond the end are the first again."""
        if start >= 0 and stop <= self.num_data:
            return self.idx[start:stop]
        places = np.arange(start, stop)
        rows = self.idx[places % self.num_data]
        early = places < 0
        rows[early] = self._rolled[places[early]]
        return rows

    # --- batches ---

    def iter_next(self) -> bool:
        """Move to the next batch; False at the end, until `reset`."""
        if self.cursor + self.batch_size > self.num_data:
            return False  # it is in the last batch, or behind it
        self.cursor += self.batch_size
        if self.last_batch_handle == "pad":
            return self.cursor < self.num_data
        return self.cursor + self.batch_size <= self.num_data

    def getdata(self) -> list[NDArray | CSRNDArray]:
        """Arrays of the current batch, one per data source."""
        return self._batch_of(self.data)

    def getlabel(self) -> list[NDArray | CSRNDArray]:
        """Arrays of the current batch, one per label source."""
        return self._batch_of(self.label)

    def _batch_of(self, sources: list[tuple[str, Any]]) -> list[NDArray | CSRNDArray]:
        rows = self._rows(self.cursor, self.cursor + self.batch_size)
        return [rows_of(array, rows, self._axis) for _, array in sources]

    def getpad(self) -> int:
        """Number of rows at the end of the current batch that only fill it up."""
        if self.last_batch_handle == "pad":
            return max(0, self.cursor + self.batch_size - self.num_data)
        if self._pad_counts_rolled and -self.batch_size < self.cursor < 0:
            return -self.cursor
        return 0

    def next(self) -> DataBatch:
        """The next batch.

        Raises:
            StopIteration: there is none.
        """
        if not self.iter_next():
            raise StopIteration
        return DataBatch(data=self.getdata(), label=self.getlabel(), pad=self.getpad(), index=None)

    @property
    def provide_data(self) -> list[DataDesc]:
        """Name, shape, type and layout of the arrays of a batch."""
        return self._described(self.data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """Name, shape, type and layout of the labels of a batch."""
        return self._described(self.label)

    def _described(self, sources: list[tuple[str, Any]]) -> list[DataDesc]:
        found = []
        for name, array in sources:
            shape = list(array.shape)
            shape[self._axis] = self.batch_size
            found.append(DataDesc(name, tuple(shape), np.dtype(array.dtype).type, self.layout))
        return found
