"""Batches of a record iterator: passes of `aioloader.DataLoader`, with the padding rows counted."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import SampleError, TooManyErrorsError
from aioloader.mxnet.base import MXNetError, TooManyFailedError
from aioloader.mxnet.io.backend_iter import Batches, Description, Loaded, filled
from aioloader.mxnet.io.states import whole_number
from aioloader.mxnet.ndarray import from_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    import aioloader
    from aioloader.mxnet.io.schedule import RecordSchedule


class ImageRecordError(SampleError, MXNetError):
    """Error of a record that cannot be read, decoded or augmented; see `aioloader.SampleError`. An MXNetError too."""


# Errors of the loader, and the classes that make them MXNet's errors too.
_NAMES: tuple[tuple[type[Exception], type[MXNetError]], ...] = (
    (SampleError, ImageRecordError),
    (TooManyErrorsError, TooManyFailedError),
)


class ImageBatches(Batches):
    """Batches of an `MXDataIter`, produced by `aioloader.DataLoader`.

    Args:
        loader: loader of the batches of `schedule`; its samples are (data, label, id, is padding), see `ImageRecords`.
        schedule: the rows of each batch.
        data_desc, label_desc: shape, including that of the batch, and dtype.
        replaces: a record that fails is replaced by another one.
    """

    def __init__(
        self,
        loader: aioloader.DataLoader[Any],
        schedule: RecordSchedule,
        data_desc: Description,
        label_desc: Description,
        *,
        replaces: bool,
    ) -> None:
        self.batch_size = data_desc[0][0]
        self.data_desc = data_desc
        self.label_desc = label_desc
        self._loader = loader
        self._schedule = schedule
        self._replaces = replaces
        self._pass_number = 0
        self._place = self._here()
        self._passed_over = 0
        self._batches: Iterator[Any] | None = None
        self._over = False
        # Batches of the current pass that were not given yet; more if records that failed are left out.
        self._left = 0

    @property
    def errors(self) -> Sequence[SampleError]:
        """Return the errors of the records that failed so far."""
        return self._loader.errors

    def next(self) -> Loaded | None:
        """Return the next batch of this pass; None at its end, and after an error until `reset`.

        Raises:
            MXNetError: a record failed, or too many.
        """
        if self._batches is None and not self._over:
            self._begin()
        if self._batches is None:
            return None
        try:
            data, label, index, filling = next(self._batches)
        except StopIteration:
            self._end()
            self._schedule.advance()
            return None
        except Exception as error:
            self._end()
            self._schedule.rewind()
            for known, named in _NAMES:
                if isinstance(error, known):
                    # The same object under its MXNet class: attributes, notes and traceback stay.
                    error.__class__ = named
            raise
        if self._replaces:  # a row and its replacement may differ in being padding, so the schedule counts
            pad = self._schedule.pad(len(self._schedule) - self._left)
        else:
            pad = int(np.count_nonzero(filling)) + self.batch_size - len(data)
        self._left -= 1
        data, label = (from_numpy(filled(array, self.batch_size)) for array in (data, label))
        taken = self._passed_over + self._loader.receipt().stop
        return Loaded(data, label, pad, index, taken)

    def reset(self) -> None:
        """Begin the next pass, or return to the first record if this pass has not reached its end."""
        if self._batches is not None:
            self._end()
            if self._left > 0:
                self._schedule.rewind()
            else:
                self._schedule.advance()
        self._over = False
        self._begin()

    def identity(self) -> dict[str, Any]:
        state = self._loader.state_dict()
        return {**self._schedule.identity(), "seed": state["seed"], "fingerprint": state["fingerprint"]}

    def place(self) -> dict[str, int]:
        return self._place

    def go_to(self, place: Mapping[str, Any], taken: int) -> None:
        number = whole_number(place, "pass", 0, 1 << 62)
        self._schedule.go_to(place, taken)
        self._end()
        self._pass_number = number
        self._place = self._here()
        if taken and not len(self._schedule):  # behind the last batch
            self._schedule.advance()
            self._pass_number += 1
            return
        self._over = False
        self._begin()

    def _here(self) -> dict[str, int]:
        return {**self._schedule.place(), "pass": self._pass_number}

    def close(self) -> None:
        """Stop the workers; garbage collection of the loader does so too. May be called twice."""
        self._end()
        self._loader.close()

    def _begin(self) -> None:
        if not len(self._schedule):
            self._over = True
            return
        self._place = self._here()
        self._passed_over = self._schedule.passed_over
        self._left = len(self._schedule)
        self._loader.set_epoch(self._pass_number)
        self._pass_number += 1
        self._batches = iter(self._loader)

    def _end(self) -> None:
        """Deliver nothing more until `reset`."""
        self._batches = None
        self._over = True
