"""Batches of an `ImageIter` whose derived class reads the images: sample after sample, without a loader."""

from __future__ import annotations

import logging
import os
from itertools import islice
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.errors import DecodeError, SampleError
from aioloader.foundation.error_budget import over_budget
from aioloader.foundation.error_log import strip_exception
from aioloader.foundation.replacement import replacement_rows
from aioloader.foundation.types import ItemLocation
from aioloader.mxnet.base import TooManyFailedError
from aioloader.mxnet.image._errors import broken_image
from aioloader.mxnet.image._sample_steps import SampleSteps, SkippedImage
from aioloader.mxnet.io.desc import DataBatch
from aioloader.mxnet.io.iterator import DataIter
from aioloader.mxnet.ndarray import from_numpy

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aioloader.foundation.types import Array
    from aioloader.mxnet.image._encoded_images import EncodedImages
    from aioloader.mxnet.image._errors import BrokenImageError
    from aioloader.mxnet.recordio import MXRecordIO

__all__ = ("SampleIterator",)

_log = logging.getLogger(__name__)


class _Made(NamedTuple):
    """Result of one image.

    Attributes:
        sample: (labels, encoded image) as read; None if reading failed.
        row: rows of data and labels; None if the image failed.
        item: its place in the dataset; -1 where a derived class does not count in `cur`.
        failed: the reason why there is no row.
    """

    sample: tuple[Any, Any] | None
    row: tuple[Array, Array] | None
    item: int
    failed: SampleError | None = None


class SampleIterator(SampleSteps, DataIter):
    """Samples of a pass, one by one, and batches of them; `ImageIter` sets the attributes."""

    seq: list[Any] | None
    cur: int
    num_image: int
    imgrec: MXRecordIO | None
    imglist: dict[Any, tuple[Array, str]] | None
    path_root: str | None
    last_batch_handle: str
    _dataset: EncodedImages
    _keys: list[Any]
    _row_of: dict[Any, int]
    _order: list[int] | None
    _over: bool
    _held: list[Any]
    _pad_counts_rolled: bool
    _on_error: str
    _max_errors: float | None
    _noted: list[SampleError]
    _failed: int
    _in_a_row = 0

    @property
    def errors(self) -> list[SampleError]:
        """Return every image that failed or was refused so far, in the order of the batches. Not in MXNet."""
        return list(self._noted)

    def _leave(self) -> None:
        """Drop the batches that were started ahead."""

    def _rows(self) -> list[int]:
        """Return the items of this pass, in its order."""
        if self._order is None:
            if self.seq is None:
                self._order = list(range(self.num_image))
            else:
                self._order = [self._row_of[key] for key in self.seq]
        return self._order

    def _check_errors(self, samples: int, at_end: bool = False) -> None:
        if self._max_errors is None or not self._failed:
            return
        errors = self.errors
        too_many = over_budget(self._max_errors, len(errors), self._failed, samples, at_end)
        if too_many is not None:
            self._over = True
            too_many.__class__ = TooManyFailedError
            raise too_many from errors[-1]

    def next_sample(self) -> tuple[Any, bytes]:
        """Return labels and bytes of the next image. A derived class may override this; `next` then uses it.

        Raises:
            StopIteration: there is none.
        """
        self._leave()
        order = self._rows()
        if self._over or self.cur >= len(order):
            raise StopIteration
        row = order[self.cur]
        self.cur += 1
        if self.imgrec is None:
            assert self.imglist is not None
            label, path = self.imglist[self._keys[row]]
            return label, self.read_image(path)
        encoded, label = self._dataset[row]
        return label if label.ndim else float(label), encoded

    def read_image(self, fname: str) -> bytes:
        """Return the bytes of an image file of the list. A derived class may override this; `next` then uses it."""
        with open(os.path.join(self.path_root or "", fname), "rb") as file:
            return file.read()

    def _batch_of_samples(self) -> DataBatch:
        """Return a batch where a derived class reads the images."""
        held, self._held = self._held, []
        rows = list(self._made(held))
        kept = len(rows)
        rows += islice(self._made(self._samples()), self.batch_size - kept)
        pad = self.batch_size - kept if kept and self._pad_counts_rolled else 0
        if len(rows) < self.batch_size:
            self._over = True
            self._check_errors(self.cur, at_end=True)
            if self.last_batch_handle == "roll_over":
                self._held = [each.sample for each in rows]
            if not rows or self.last_batch_handle != "pad":
                raise StopIteration
            pad = self.batch_size - len(rows)
            rows += self._from_the_start(pad)
            for place in range(self.batch_size - len(rows)):
                rows.append(rows[place])
        data, label = (np.stack(column) for column in zip(*self._sound(rows), strict=True))
        return DataBatch([from_numpy(data)], [from_numpy(label)], pad=pad)

    def _sound(self, rows: Sequence[_Made]) -> list[tuple[Array, Array]]:
        """Return the rows, with those of failed images filled by their replacements.

        Raises:
            SampleError: all images of the batch failed.
        """
        sound = [place for place, each in enumerate(rows) if each.row is not None]
        if not sound:
            raise self._noted[-1]
        fill = replacement_rows(len(rows), sound)
        for place, stand_in in fill.items():
            if (failed := rows[place].failed) is not None:
                failed.replaced_by = rows[stand_in].item
        picked = (rows[fill.get(place, place)].row for place in range(len(rows)))
        return [row for row in picked if row is not None]

    def _from_the_start(self, count: int) -> list[_Made]:
        """Return up to `count` rows that pad the last batch."""
        self.cur, self._over = 0, False
        try:
            return list(islice(self._made(self._samples()), count))
        finally:
            self._over = True

    def _samples(self) -> Iterator[tuple[Any, Any] | None]:
        """Yield (labels, encoded image) of each image; None where it failed and is to be replaced."""
        self._unread: SampleError | None = None
        while True:
            before = self.cur
            try:
                sample = self.next_sample()
            except StopIteration:
                return
            except Exception as error:
                # If `cur` did not move, the same image would fail forever.
                if self._on_error == "raise" or self.cur == before:
                    raise
                self._unread = self._note(error, "read")
                if self._on_error == "replace":
                    yield None
                continue
            yield sample

    def _made(self, samples: Iterable[tuple[Any, Any] | None]) -> Iterator[_Made]:
        """Yield samples with their rows; failed ones are left out, or have the row None."""
        for sample in samples:
            if sample is None:
                yield _Made(None, None, self._last_row(), self._unread)
                continue
            label, encoded = sample
            try:
                row = self.make(encoded, label)
            except Exception as error:
                if self._on_error == "raise" and not isinstance(error, SkippedImage):
                    if isinstance(error, DecodeError):
                        raise self._broken(error) from error
                    raise
                failed = self._note(error, "transform")
                if self._on_error == "replace":
                    yield _Made(sample, None, self._last_row(), failed)
                continue
            self._in_a_row = 0
            yield _Made(sample, row, self._last_row())

    def _note(self, error: Exception, stage: str) -> SampleError:
        """Record that the image read last failed.

        Raises:
            TooManyFailedError: too many images failed.
            SampleError: all failed, more than the iterator has: a derived class with endless images would never stop.
        """
        row = self._last_row()
        key, path, offset = self._dataset.facts(row) if row >= 0 else ItemLocation()
        failed = SampleError(
            str(error) or type(error).__name__,
            dataset=type(self).__name__,
            index=row,
            position=self.cur - 1,
            stage=stage,
            key=key,
            path=path,
            offset=offset,
        )
        failed.__cause__ = error
        strip_exception(failed)
        self._noted.append(failed)
        self._failed += 1
        _log.warning(
            "image %r is %s: %s", key, "replaced" if self._on_error == "replace" else "left out", error
        )
        self._check_errors(self.cur)
        self._in_a_row += 1
        if self._in_a_row > max(self.num_image, self.batch_size):
            self._over = True
            raise failed
        return failed

    def _last_row(self) -> int:
        """Return the image that was read last; -1 where a derived class does not count in `cur`."""
        order = self._rows()
        return order[self.cur - 1] if 0 < self.cur <= len(order) else -1

    def _last_key(self) -> Any:
        """Return its key, or None."""
        row = self._last_row()
        return None if row < 0 else self._keys[row]

    def _broken(self, error: DecodeError) -> BrokenImageError:
        if self._last_key() is None:
            return broken_image(error, None, None, None, is_file=False)
        facts = self._dataset.facts(self._last_row())
        return broken_image(error, facts.key, facts.path, facts.offset, is_file=self.imgrec is None)
