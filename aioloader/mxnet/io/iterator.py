"""`DataIter`: the contract of a data iterator, and the base class to derive from."""

from __future__ import annotations

from typing import Any

from aioloader.mxnet.io.desc import DataBatch

__all__ = ("DataIter",)


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
            f"{type(self).__name__} cannot tell where it is: define state_dict() and load_state_dict(), or use an "
            "iterator whose order does not come from a generator that others draw from, such as ImageRecordIter"
        )

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Continue where `state` was taken, without a `reset`; the current batch is not produced again.

        Raises:
            ResumeError: the state is damaged, or belongs to other data or another kind of iterator.
            NotImplementedError: this iterator cannot go to a place.
        """
        raise NotImplementedError(f"{type(self).__name__} cannot go to a place: define load_state_dict()")

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
