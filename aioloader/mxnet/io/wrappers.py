"""Iterators around other iterators."""

from __future__ import annotations

from concurrent.futures import Future, wait
from typing import TYPE_CHECKING, Any

from aioloader.errors import ResumeError
from aioloader.foundation.thread_start import start_thread
from aioloader.foundation.validation import require
from aioloader.mxnet.base import methods_of, overrides
from aioloader.mxnet.io.iterator import (
    STATE_VERSION,
    DataBatch,
    DataDesc,
    DataIter,
    check_state,
    inner_state,
    whole_number,
)

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence


class _Current(DataIter):
    """`DataIter` whose functions return parts of the batch that `iter_next` found."""

    current_batch: Any = None

    def _batch_of_parts(self) -> Any:
        # The batch itself may have more than these: its descriptions, and a bucket.
        return super()._batch_of_parts() if overrides(self, _PARTS) else self.current_batch

    def getdata(self) -> Any:
        """Return the data of the current batch."""
        return self.current_batch.data

    def getlabel(self) -> Any:
        """Return the labels of the current batch."""
        return self.current_batch.label

    def getindex(self) -> Any:
        """Return the ids of the current batch's rows, or None."""
        return self.current_batch.index

    def getpad(self) -> Any:
        """Return the number of rows at the end of the current batch that are padding."""
        return self.current_batch.pad


_PARTS = methods_of(_Current, "getdata", "getlabel", "getindex", "getpad")


class ResizeIter(_Current):
    """Iterator of exactly `size` batches in a pass, which restarts the inner iterator where that ends sooner.

    Args:
        data_iter: the inner iterator.
        size: batches of a pass.
        reset_internal: `reset` resets the inner iterator too.

    Attributes:
        current_batch: the batch delivered last.
        provide_data, provide_label, batch_size: those of the inner iterator; also its `default_bucket_key`, if it has
            one.
    """

    def __init__(self, data_iter: Any, size: int, reset_internal: bool = True) -> None:
        super().__init__(data_iter.batch_size)
        self.data_iter = data_iter
        self.size = size
        self.reset_internal = reset_internal
        self.cur = 0
        self.provide_data = data_iter.provide_data
        self.provide_label = data_iter.provide_label
        if hasattr(data_iter, "default_bucket_key"):
            self.default_bucket_key = data_iter.default_bucket_key

    def reset(self) -> None:
        """Begin the next pass."""
        self.cur = 0
        if self.reset_internal:
            self.data_iter.reset()

    def _identity(self) -> dict[str, Any]:
        return {"version": STATE_VERSION, "iterator": "ResizeIter", "size": self.size}

    def state_dict(self) -> dict[str, Any]:
        """Return the position, see `DataIter.state_dict`; it holds the state of the inner iterator."""
        return {**self._identity(), "taken": self.cur, "inner": inner_state(self.data_iter)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_state(state, self._identity())
        taken = whole_number(state, "taken", 0, self.size + 1)
        self.data_iter.load_state_dict(state.get("inner"))
        self.cur = taken

    def iter_next(self) -> bool:
        """Move to the next batch; return False after `size` of them.

        Raises:
            ValueError: the inner iterator has no batch even after its `reset`.
        """
        if self.cur == self.size:
            return False
        try:
            self.current_batch = self.data_iter.next()
        except StopIteration:
            self.data_iter.reset()
            try:
                self.current_batch = self.data_iter.next()
            except StopIteration:
                raise ValueError("the inner iterator has no batch, so there is nothing to repeat") from None
        self.cur += 1
        return True


def _next_batch(iterator: Any) -> Future[Any]:
    """Return the next batch of an iterator, produced in a separate thread; None at the end."""
    batch: Future[Any] = Future()

    def run() -> None:
        try:
            batch.set_result(iterator.next())
        except StopIteration:
            batch.set_result(None)
        except BaseException as error:
            batch.set_exception(error)

    start_thread(run, "aioloader-prefetching-iter")
    return batch


class PrefetchingIter(_Current):
    """Iterator that produces the next batch of one or several iterators in threads while the current one is used.

    Each iterator has its own thread. Batches of several iterators are joined: lists of data and of labels one after the
    other, `pad` and `index` of the first. An error of an iterator is raised at the batch that it belongs to; after it
    `reset` starts again.

    Args:
        iters: an iterator or a list of them. The loaders of this package prefetch by themselves; this is for your own
            iterators.
        rename_data, rename_label: for each iterator a dict of old name to new name, for `provide_data` and
            `provide_label`.

    Attributes:
        iters: the inner iterators; n_iter: how many.
        current_batch: the batch delivered last.
    """

    def __init__(
        self,
        iters: Any,
        rename_data: Sequence[Mapping[str, str]] | None = None,
        rename_label: Sequence[Mapping[str, str]] | None = None,
    ) -> None:
        self.iters = list(iters) if isinstance(iters, list | tuple) else [iters]
        require(self.iters, "give at least one iterator")
        self.n_iter = len(self.iters)
        self.rename_data = rename_data
        self.rename_label = rename_label
        super().__init__(self.provide_data[0][1][0])
        self._start()

    def _start(self) -> None:
        self._over = False
        # Once the next batch is in progress, the inner iterators' states include a batch that nobody has taken.
        self._states = [_state_or_error(one) for one in self.iters]
        self._ahead = [_next_batch(one) for one in self.iters]

    @property
    def provide_data(self) -> list[Any]:
        """Return the descriptions of the data of all iterators, under their new names."""
        return _renamed([one.provide_data for one in self.iters], self.rename_data)

    @property
    def provide_label(self) -> list[Any]:
        """Return the descriptions of the labels of all iterators, under their new names."""
        return _renamed([one.provide_label for one in self.iters], self.rename_label)

    def reset(self) -> None:
        """Wait for the threads, reset all iterators and begin the next pass."""
        wait(self._ahead)
        for inner in self.iters:
            inner.reset()
        self._start()

    def _identity(self) -> dict[str, Any]:
        return {"version": STATE_VERSION, "iterator": "PrefetchingIter"}

    def state_dict(self) -> dict[str, Any]:
        """Return the position, see `DataIter.state_dict`; it holds the inner iterators' states at the current batch."""
        for state in self._states:
            if isinstance(state, NotImplementedError):
                raise state
        return {**self._identity(), "inner": list(self._states)}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        check_state(state, self._identity())
        states = state.get("inner")
        if not isinstance(states, list) or len(states) != self.n_iter:
            raise ResumeError("inner", f"a list of {self.n_iter} states", states)
        wait(self._ahead)
        for inner, its in zip(self.iters, states, strict=True):
            inner.load_state_dict(its)
        self._start()

    def iter_next(self) -> bool:
        """Move to the next batch; return False at the end, until `reset`.

        Raises:
            AssertionError: the iterators do not end together, or their pads differ (a ValueError too).
        """
        if self._over:
            return False
        self._over = True  # unless it goes well
        wait(self._ahead)
        batches = [one.result() for one in self._ahead]
        present = [batch is not None for batch in batches]
        require(all(present) or not any(present), "Number of entry mismatches between iterators")
        if not present[0]:
            return False
        first = batches[0]
        require(
            all(batch.pad == first.pad for batch in batches),
            f"Number of entry mismatches between iterators: pads are {[batch.pad for batch in batches]}",
        )
        self.current_batch = DataBatch(
            [array for batch in batches for array in batch.data],
            [array for batch in batches for array in batch.label or []],
            first.pad,
            getattr(first, "index", None),
            provide_data=self.provide_data,
            provide_label=self.provide_label,
        )
        self._start()
        return True


def _state_or_error(iterator: Any) -> Any:
    try:
        return inner_state(iterator)
    except NotImplementedError as error:  # raised when the state is requested
        return error.with_traceback(None)


def _renamed(provided: list[Any], names: Sequence[Mapping[str, str]] | None) -> list[Any]:
    if names is None:
        return [desc for descs in provided for desc in descs]
    require(len(names) == len(provided), f"give {len(provided)} dicts of names, one for each iterator")
    found = []
    for new, descs in zip(names, provided, strict=True):
        for desc in descs:
            desc = desc if isinstance(desc, DataDesc) else DataDesc(*desc)
            found.append(DataDesc(new.get(desc.name, desc.name), desc.shape, desc.dtype, desc.layout))
    return found
