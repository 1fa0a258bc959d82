"""`DataIter`: the base class of data iterators; their batches, and the descriptions of these.

States of iterators as JSON objects: the parts common to all kinds. Pure.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, NamedTuple, Protocol

import numpy as np

from aioloader.errors import ResumeError
from aioloader.foundation.protocols import implements
from aioloader.foundation.validation import require

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    import numpy.typing as npt


STATE_VERSION = 1


class HasState(Protocol):
    """Iterator or loader that can report its position."""

    def state_dict(self) -> Any:
        """Return the position."""


def check_state(state: Any, identity: Mapping[str, Any]) -> None:
    """Refuse a state that was not written by this kind of iterator over this data.

    Args:
        state: the caller's state.
        identity: entries that it must share with the iterator.

    Raises:
        ResumeError: an entry differs; the error names it.
    """
    if not isinstance(state, dict):
        raise ResumeError("state", "a dict", type(state).__name__)
    if "version" not in state:
        raise ResumeError("version", STATE_VERSION, None, "it is not a state of an iterator")
    for name, expected in identity.items():
        if state.get(name) != expected:
            raise ResumeError(name, expected, state.get(name), _ADVICE.get(name, ""))


def whole_number(state: Mapping[str, Any], name: str, low: int, end: int) -> int:
    """Return the entry of a state that must be a whole number, low <= number < end.

    Raises:
        ResumeError: it is not one.
    """
    value = state.get(name)
    if isinstance(value, bool) or not isinstance(value, int) or not low <= value < end:
        raise ResumeError(name, f"a whole number from {low} to {end - 1}", value, "it is damaged")
    return value


def inner_state(iterator: object) -> Any:
    """Return the state of an iterator that another one wraps.

    Raises:
        NotImplementedError: it has none.
    """
    if not implements(iterator, HasState):
        raise NotImplementedError(f"{type(iterator).__name__} has no state_dict(), so it cannot be resumed")
    return iterator.state_dict()


_ADVICE = {
    "version": "it was written by another version of aioloader",
    "iterator": "it was written by an iterator of another kind",
    "fingerprint": "it was written for other data",
}


class _NameAndShape(NamedTuple):
    name: str
    shape: tuple[int, ...]


class DataDesc(_NameAndShape):
    """Name and shape of one array of a batch; equal to, and unpacked like, ``(name, shape)``.

    Args:
        name: name of this input in the network.
        shape: extents, including that of the batch.
        dtype: type of the elements.
        layout: meaning of the axes; "N" is the axis of the batch.

    Attributes:
        name, shape, dtype, layout: as given.
    """

    dtype: Any
    layout: str | None

    def __new__(
        cls,
        name: str,
        shape: tuple[int, ...],
        dtype: npt.DTypeLike = np.float32,
        layout: str | None = "NCHW",
    ) -> DataDesc:
        self = super().__new__(cls, name, shape)
        self.dtype = dtype
        self.layout = layout
        return self

    def __repr__(self) -> str:
        return f"DataDesc[{self.name},{self.shape},{self.dtype},{self.layout}]"

    @staticmethod
    def get_batch_axis(layout: str | None) -> int:
        """Return the axis of the batch, the position of "N": 0 without a layout, -1 without an "N"."""
        return 0 if layout is None else layout.find("N")

    @staticmethod
    def get_list(
        shapes: Iterable[tuple[str, tuple[int, ...]]],
        types: Iterable[tuple[str, Any]] | None = None,
    ) -> list[DataDesc]:
        """Return descriptions made from (name, shape) pairs and, unless None, (name, dtype) pairs."""
        if types is None:
            return [DataDesc(name, shape) for name, shape in shapes]
        dtypes = dict(types)
        return [DataDesc(name, shape, dtypes[name]) for name, shape in shapes]


@dataclass(eq=False, repr=False)
class DataBatch:
    """One batch, with plain attributes; any object with `data`, `label` and `pad` can take its place.

    Args:
        data: list or tuple of arrays.
        label: list or tuple of arrays, or None.
        pad: number of rows at the end that are padding; None: unknown.
        index: ids of the rows, or None.
        bucket_key: key of the bucket, for networks of several lengths.
        provide_data, provide_label: descriptions of this batch, where they vary between batches.

    Raises:
        AssertionError: `data` or `label` is not a list or tuple (a ValueError too).
    """

    data: Sequence[Any]
    label: Sequence[Any] | None = None
    pad: int | None = None
    index: Any = None
    bucket_key: Any = None
    provide_data: Sequence[DataDesc] | None = None
    provide_label: Sequence[DataDesc] | None = None

    def __post_init__(self) -> None:
        if self.data is not None:
            require(isinstance(self.data, list | tuple), "Data must be list of NDArrays")
        if self.label is not None:
            require(isinstance(self.label, list | tuple), "Label must be list of NDArrays")

    def __str__(self) -> str:
        data = [array.shape for array in self.data]
        label = [array.shape for array in self.label] if self.label else None
        return f"DataBatch: data shapes: {data} label shapes: {label}"


class DataIter:
    """Base of data iterators.

    Derive from it and override `next`, `reset`, `provide_data` and `provide_label`; or, instead of `next`, override the
    functions that it calls: `iter_next` and `getdata`, and `getlabel`, `getpad` and `getindex` where the iterator has
    labels, padding or ids.

    A ``for`` loop does not return to the start: call `reset` before every pass but the first.

    Args:
        batch_size: rows of a batch.

    Attributes:
        batch_size: as given.
    """

    # Class attributes, because a subclass need not call __init__. They may be properties there.
    batch_size: int = 0
    provide_data: Any
    provide_label: Any

    def __init__(self, batch_size: int = 0) -> None:
        self.batch_size = batch_size

    def __iter__(self) -> Any:
        return self

    def reset(self) -> None:
        """Return to the start."""

    def state_dict(self) -> dict[str, Any]:
        """Return the caller's position, a JSON object under 1 kB; all batches delivered so far count as consumed.

        Raises:
            NotImplementedError: this iterator cannot report its position.
        """
        raise NotImplementedError(
            f"{type(self).__name__} cannot report its position: define state_dict() and load_state_dict(), or use an "
            "iterator whose order does not come from a generator that others draw from, such as ImageRecordIter"
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken, without a `reset`; the current batch is not produced again.

        Raises:
            ResumeError: the state is damaged, or belongs to other data or another kind of iterator.
            NotImplementedError: this iterator cannot go to a place.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot go to a position: define load_state_dict()")

    def next(self) -> Any:
        """Return the next batch.

        Raises:
            StopIteration: there is none.
        """
        if not self.iter_next():
            raise StopIteration
        return self._batch_of_parts()

    def _batch_of_parts(self) -> Any:
        """Return the current batch, made from the results of `getdata`, `getlabel`, `getpad` and `getindex`."""
        return DataBatch(data=self.getdata(), label=self.getlabel(), pad=self.getpad(), index=self.getindex())

    def __next__(self) -> Any:
        return self.next()

    def iter_next(self) -> bool:
        """Move to the next batch; return False at the end."""
        raise NotImplementedError(f"{type(self).__name__} defines neither next() nor iter_next()")

    def getdata(self) -> Any:
        """Return the data of the current batch, a list of arrays."""
        raise NotImplementedError(f"{type(self).__name__} does not define getdata()")

    def getlabel(self) -> Any:
        """Return the labels of the current batch, a list of arrays; None if there are none."""
        return None

    def getindex(self) -> Any:
        """Return the ids of the current batch's rows, or None."""
        return None

    def getpad(self) -> int | None:
        """Return the number of rows at the end of the current batch that are padding; None if it is unknown."""
        return None
