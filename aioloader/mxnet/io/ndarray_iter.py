"""`NDArrayIter`: batches of arrays in memory."""

from __future__ import annotations

import hashlib
from functools import cached_property
from typing import Any, NamedTuple

import numpy as np
import numpy.typing as npt

from aioloader.errors import ResumeError
from aioloader.foundation.validation import require
from aioloader.mxnet.base import methods_of, overrides
from aioloader.mxnet.io.iterator import STATE_VERSION, DataDesc, DataIter, check_state, whole_number
from aioloader.mxnet.io.schedule import LAST_BATCH
from aioloader.mxnet.ndarray.ndarray import NDArray, from_numpy
from aioloader.mxnet.sparse import CSRNDArray


def named_sources(data: Any, default_name: str, dtype: npt.DTypeLike | None) -> list[tuple[str, Any]]:
    """Return (name, array) pairs, sorted by name.

    Args:
        data: an array, a list or tuple of arrays, a dict of name to array, or None. A list of one has the default
            name, one of several the names `_0_<default>`, `_1_<default>`, ...
        default_name: name of arrays without a name.
        dtype: type that arrays other than NDArrays are converted to; None: they keep theirs. Datasets of h5py are
            neither copied nor converted. Sparse matrices of SciPy become CSRNDArrays.

    Raises:
        TypeError: `data`, or one value of it, is not an array.
    """
    if data is None:
        return []
    if isinstance(data, np.ndarray | CSRNDArray) or _of(data, "h5py", "scipy"):
        named = {default_name: data}
    elif isinstance(data, list | tuple):
        single = len(data) == 1
        named = {default_name if single else f"_{n}_{default_name}": one for n, one in enumerate(data)}
    elif isinstance(data, dict):
        named = data
    else:
        raise TypeError(
            "Input must be NDArray, numpy.ndarray, h5py.Dataset a list of them or dict with them as values, "
            f"not {type(data).__name__}"
        )
    return [(name, _as_array(name, named[name], dtype)) for name in sorted(named)]


def _init_data(data: Any, allow_empty: bool, default_name: str) -> list[tuple[str, Any]]:
    """Return (name, array) pairs by MXNet's private name; see `named_sources`.

    Raises:
        AssertionError: there are none, and `allow_empty` is False.
    """
    found = named_sources(data, default_name, np.float32)
    require(found or allow_empty, "there is no data: give at least one array")
    return found


def _has_instance(data: list[tuple[str, Any]], dtype: Any) -> bool:
    """Return whether one of the arrays is of a type."""
    return any(isinstance(array, dtype) for _, array in data)


def _as_array(name: str, value: Any, dtype: npt.DTypeLike | None) -> Any:
    if isinstance(value, NDArray | CSRNDArray) or _of(value, "h5py"):
        return value
    if _of(value, "scipy"):
        rows = value.tocsr()
        values = rows.data if dtype is None else rows.data.astype(dtype)
        return CSRNDArray(values, rows.indices.astype(np.int64), rows.indptr.astype(np.int64), rows.shape)
    try:
        array = np.array(value, dtype)
    except (TypeError, ValueError):
        array = np.array(None)
    if array.dtype == object or not array.ndim:
        raise TypeError(
            f"Invalid type '{type(value)}' for {name}, should be NDArray, numpy.ndarray or h5py.Dataset"
        )
    return from_numpy(array)


def _of(value: Any, *packages: str) -> bool:
    # By name: neither package has to be installed.
    return type(value).__module__.partition(".")[0] in packages


def rows_of(array: Any, rows: npt.NDArray[np.intp], axis: int) -> NDArray | CSRNDArray:
    """Return copies of rows of a source, in the order requested.

    Args:
        array: an array that `named_sources` returned.
        rows: numbers of the rows.
        axis: the axis along which rows are counted.
    """
    if isinstance(array, np.ndarray):
        return from_numpy(np.take(np.asarray(array), rows, axis))
    require(axis == 0, "the batch must be the first axis of a sparse matrix and of a dataset of h5py")
    if isinstance(array, CSRNDArray):
        return array.take_rows(rows, len(rows))
    # h5py reads rows in increasing order only, each once.
    increasing, places = np.unique(rows, return_inverse=True)
    return from_numpy(np.asarray(array[increasing])[places])


class _Drawn(NamedTuple):
    """Orders of the rows that were drawn: the last one, and the digests of all, None until they are asked for."""

    rows: npt.NDArray[np.intp]
    digests: list[str | None]


class NDArrayIter(DataIter):
    """Batches of arrays in memory; each batch is a copy of its rows.

    Args:
        data: array, list of arrays, or dict of name to array; numpy, NDArray, h5py datasets, sparse matrices (with
            "discard" only). Sources are sorted by name.
        label: the same; None or an empty list: batches have no labels.
        batch_size: rows of a batch.
        shuffle: draw another order of the rows at the start and after every `reset`, from `numpy.random`.
        last_batch_handle: treatment of an incomplete last batch. "pad": it is completed with rows from the start.
            "discard": it is dropped. "roll_over": its rows come first in the next pass.
        data_name, label_name: names of sources that have none. Of several, the names are `_0_<name>`, `_1_<name>`, ...
        layout: meaning of the axes: the place of "N" is the axis of the batch.
        dtype: dtype that everything except NDArrays and h5py datasets is converted to; None: arrays keep their type.
        pad_counts_rolled: count the rows that were rolled over as `pad` in the batch that they begin, as MXNet does,
            although they are not padding.

    Attributes:
        data, label: lists of (name, array).
        num_data: number of rows.
        idx: the order of the rows in this pass, int64 (num_data,).
        cursor: place in `idx` of the current batch's first row; `-batch_size` before the first, negative while rolled
            over rows come first.

    Raises:
        TypeError: a source is not an array.
        NotImplementedError: a source is sparse, and `last_batch_handle` is not "discard".
        ValueError: there is no data, sources differ in their number of rows, or `last_batch_handle` is another word.
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
            last_batch_handle in LAST_BATCH,
            f"last_batch_handle must be one of {tuple(LAST_BATCH)}, not {last_batch_handle!r}",
        )
        self.data = named_sources(data, data_name, dtype)
        require(self.data, "there is no data: give at least one array")
        self.label = named_sources(label, label_name, dtype)
        sources = (*self.data, *self.label)
        if last_batch_handle != "discard" and any(isinstance(array, CSRNDArray) for _, array in sources):
            raise NotImplementedError(
                "`NDArrayIter` only supports ``CSRNDArray`` with `last_batch_handle` set to `discard`."
            )
        self._layout, self._axis = layout, DataDesc.get_batch_axis(layout)
        self.last_batch_handle = last_batch_handle
        self.shuffle = shuffle
        require(self._axis >= 0, f"the layout {layout!r} has no 'N', the axis of the batch")
        self._pad_counts_rolled = pad_counts_rolled
        self.num_data = self._common_length()
        self._cache_data: list[Any] | None = None
        self._cache_label: list[Any] | None = None
        self.idx = np.arange(self.num_data)
        self._overridden = False
        self._drawn = _Drawn(self.idx.copy(), [])
        self.hard_reset()

    # A derived class, or the caller, changes how batches are made: they are made in MXNet's steps.
    _overridden: bool

    @cached_property
    def data_list(self) -> list[Any]:
        """Return the arrays of `data` and `label`."""
        return [array for _, array in (*self.data, *self.label)]

    @cached_property
    def num_source(self) -> int:
        """Return the number of arrays."""
        return len(self.data_list)

    @property
    def layout(self) -> str | None:
        """Return the meaning of the axes."""
        return self._layout

    @layout.setter
    def layout(self, layout: str | None) -> None:
        self._layout, self._axis = layout, DataDesc.get_batch_axis(layout)

    def _look_for_hooks(self) -> None:
        """Find out whether one of the steps was replaced; from then on the data are in the order of the pass."""
        if self._overridden or not overrides(self, _STEPS):
            return
        self._overridden = True
        if self._drawn.digests:
            self._put_in_order(self.idx)

    def _put_in_order(self, rows: npt.NDArray[np.intp]) -> None:
        self.data, self.label = (
            [(name, rows_of(array, rows, self._axis)) for name, array in source]
            for source in (self.data, self.label)
        )
        self.idx = self._drawn.rows

    def _common_length(self) -> int:
        lengths = {name: array.shape[self._axis] for name, array in (*self.data, *self.label)}
        require(
            len(set(lengths.values())) == 1,
            f"all sources must have the same number of rows, and they have: {lengths}",
        )
        return int(next(iter(lengths.values())))

    # --- position ---

    def hard_reset(self) -> None:
        """Return to the start and forget rows that were rolled over."""
        self._begin(np.zeros(0, np.intp))
        self._cache_data = self._cache_label = None

    def reset(self) -> None:
        """Begin the next pass; with "roll_over" an incomplete last batch that was reached is rolled over."""
        stopped_inside = self.num_data - self.batch_size < self.cursor < self.num_data
        roll = self.last_batch_handle == "roll_over" and stopped_inside
        if roll and self._overridden:
            # Its arrays are in `_cache_data` and `_cache_label`.
            kept = self.num_data - self.cursor
            self._begin(np.zeros(kept, np.intp))
            return
        self._begin(self._rows(self.cursor, self.num_data) if roll else np.zeros(0, np.intp))

    def _begin(self, rolled: npt.NDArray[np.intp]) -> None:
        self._look_for_hooks()
        if self.shuffle:
            self._shuffle_data()
        self._rolled = rolled
        self.cursor = -self.batch_size - len(rolled)

    def _shuffle_data(self) -> None:
        """Draw the next order. A derived class that overrides this puts `data` and `label` in order itself."""
        # MXNet's orders: it puts the data in the drawn order, and draws the next one by shuffling the last.
        np.random.shuffle(self._drawn.rows)
        self._drawn.digests.append(None)
        if not self._overridden:
            self.idx = self.idx[self._drawn.rows]
            return
        self._put_in_order(self._drawn.rows)

    def _rows(self, start: int, stop: int) -> npt.NDArray[np.intp]:
        """Return rows by place: those below 0 were rolled over, those beyond the end begin again with the first."""
        places = np.arange(start, stop)
        rows = self.idx[places % self.num_data]
        early = places < 0
        rows[early] = self._rolled[places[early]]
        return rows

    @cached_property
    def _fingerprint(self) -> str:
        digest = hashlib.sha256()
        last = max(0, self.num_data - 1)
        rows = np.unique([0, last // 2, last])[: self.num_data]
        for name, array in (*self.data, *self.label):
            digest.update(repr((name, tuple(array.shape), np.dtype(array.dtype).str)).encode())
            digest.update(np.ascontiguousarray(rows_of(array, rows, self._axis).asnumpy()).tobytes())
        return digest.hexdigest()[:16]

    def _identity(self) -> dict[str, Any]:
        return {
            "version": STATE_VERSION,
            "iterator": "NDArrayIter",
            "rows": self.num_data,
            "batch_size": int(self.batch_size),
            "last_batch_handle": self.last_batch_handle,
            "shuffle": bool(self.shuffle),
            "fingerprint": self._fingerprint,
        }

    @property
    def _order_digest(self) -> str | None:
        if not self.shuffle:
            return None
        if self._drawn.digests[-1] is None:
            self._drawn.digests[-1] = hashlib.sha256(self.idx.astype("<i8").tobytes()).hexdigest()[:16]
        return self._drawn.digests[-1]

    def state_dict(self) -> dict[str, Any]:
        """Return the position, see `DataIter.state_dict`.

        Orders are drawn from `numpy.random` and are too long for a state: it holds their number and a digest. Make the
        iterator that is to continue after the same ``np.random.seed`` as this one; it draws the orders again.

        Raises:
            NotImplementedError: shuffled rows were rolled over twice, because a batch has more rows than there are.
        """
        rolled = len(self._rolled)
        if self.shuffle and rolled > self.num_data:
            raise NotImplementedError(
                f"rows of several shuffled passes are rolled over: give a batch_size below {self.num_data}"
            )
        return {
            **self._identity(),
            "shuffles": len(self._drawn.digests),
            "order": self._order_digest,
            "rolled": rolled,
            "cursor": int(self.cursor),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue at a position, see `DataIter.load_state_dict`; with `shuffle`, see `state_dict` too."""
        check_state(state, self._identity())
        shuffles = whole_number(state, "shuffles", 0, 1 << 20)
        rolled = whole_number(state, "rolled", 0, self.batch_size)
        cursor = whole_number(
            state, "cursor", -self.batch_size - rolled, max(1, self.num_data + self.batch_size)
        )
        drawn = len(self._drawn.digests)
        if shuffles < drawn or (shuffles == drawn and self.shuffle and rolled):
            raise ResumeError(
                "shuffles",
                f"more than the {drawn} that this iterator has drawn",
                shuffles,
                "load it into a new iterator, made after the same np.random.seed",
            )
        before = self.idx
        while len(self._drawn.digests) < shuffles:
            before = self.idx
            self._shuffle_data()
        if state.get("order") != self._order_digest:
            raise ResumeError(
                "order",
                self._order_digest,
                state.get("order"),
                "numpy.random was not seeded before this iterator was made as it was then, or others drew from it",
            )
        # The rows that were rolled over are the end of the pass before.
        self._rolled = before[np.arange(self.num_data - rolled, self.num_data) % max(1, self.num_data)]
        self.cursor = cursor

    # --- batches ---

    def next(self) -> Any:
        if self.cursor < 0:
            self._look_for_hooks()
        if not self.iter_next():
            raise StopIteration
        batch = self._batch_of_parts()
        if self._overridden and batch.data[0].shape[self._axis] != self.batch_size:
            self._cache_data, self._cache_label = (
                batch.data,
                batch.label,
            )  # it begins the next pass, or is dropped
            raise StopIteration
        return batch

    def iter_next(self) -> bool:
        """Move to the next batch; return False at the end, until `reset`."""
        if self.cursor + self.batch_size > self.num_data:
            return False  # it is in the last batch, or behind it
        self.cursor += self.batch_size
        if self._overridden or self.last_batch_handle == "pad":
            return self.cursor < self.num_data
        return self.cursor + self.batch_size <= self.num_data

    def getdata(self) -> list[NDArray | CSRNDArray]:
        """Return the arrays of the current batch, one for each data source."""
        return self._batchify(self.data)

    def getlabel(self) -> list[NDArray | CSRNDArray]:
        """Return the arrays of the current batch, one for each label source."""
        return self._batchify(self.label)

    def _batchify(self, data_source: list[tuple[str, Any]]) -> list[NDArray | CSRNDArray]:
        """Return the arrays of the current batch of these sources."""
        start, stop = self.cursor, self.cursor + self.batch_size
        if not self._overridden:
            inside = start >= 0 and stop <= self.num_data
            rows = self.idx[start:stop] if inside else self._rows(start, stop)
            return [rows_of(array, rows, self._axis) for _, array in data_source]
        if self.last_batch_handle == "roll_over" and -self.batch_size < start < 0:
            # The one that is there is of the data, then of the label.
            kept = self._cache_label if self._cache_data is None else self._cache_data
            if self._cache_data is not None:
                self._cache_data = None
            else:
                self._cache_label = None
            return self._concat(kept, self._getdata(data_source, end=stop))
        if self.last_batch_handle != "pad" or stop <= self.num_data:
            return self._getdata(data_source, start, min(stop, self.num_data))
        pad = stop - self.num_data
        if pad <= self.num_data:
            more = self._getdata(data_source, end=pad)
        else:
            passes, rest = divmod(pad, self.num_data)
            more = self._tile(self._getdata(data_source, end=self.num_data), passes)
            if rest:
                more = self._concat(more, self._getdata(data_source, end=rest))
        return self._concat(self._getdata(data_source, start=start), more)

    def _getdata(
        self, data_source: list[tuple[str, Any]], start: int | None = None, end: int | None = None
    ) -> list[Any]:
        """Return the rows from `start` to before `end` of these sources, for a derived class to change."""
        if start is None and end is None:
            raise AssertionError("should at least specify start or end")
        stop = (data_source[0][1].shape[self._axis] if data_source else 0) if end is None else end
        places = np.arange(start or 0, stop)
        found = []
        for _, array in data_source:
            ordered = isinstance(array, np.ndarray | CSRNDArray) and self._overridden
            found.append(rows_of(array, places if ordered else self.idx[places], self._axis))
        return found

    def _concat(self, first_data: list[Any] | None, second_data: list[Any]) -> list[Any]:
        """Return two lists of arrays, joined along the batch."""
        if not first_data or not second_data:
            return first_data or second_data
        pairs = zip(first_data, second_data, strict=True)
        return [from_numpy(np.concatenate(pair, self._axis)) for pair in pairs]

    def _tile(self, data: list[Any], repeats: int) -> list[Any]:
        """Return arrays, each repeated along the batch."""
        return [from_numpy(np.concatenate([array] * repeats, 0)) for array in data]

    def getpad(self) -> int:
        """Return the number of rows at the end of the current batch that are padding."""
        if self.last_batch_handle == "pad":
            return max(0, self.cursor + self.batch_size - self.num_data)
        if (self._pad_counts_rolled or self._overridden) and -self.batch_size < self.cursor < 0:
            return -self.cursor
        return 0

    @property
    def provide_data(self) -> list[DataDesc]:
        """Return name, shape, type and layout of the arrays of a batch."""
        return self._described(self.data)

    @property
    def provide_label(self) -> list[DataDesc]:
        """Return name, shape, type and layout of the labels of a batch."""
        return self._described(self.label)

    def _described(self, sources: list[tuple[str, Any]]) -> list[DataDesc]:
        found = []
        for name, array in sources:
            shape = list(array.shape)
            shape[self._axis] = self.batch_size
            found.append(DataDesc(name, tuple(shape), np.dtype(array.dtype).type, self.layout))
        return found


_STEPS = methods_of(NDArrayIter, "_getdata", "_concat", "_tile", "_batchify", "_shuffle_data")
