"""`ImageIter`: batches of images from a record file, a .lst file or a list, through a list of augmenters.

It translates: the items are a dataset, the steps are a transform of it, and the batches are those of one
`aioloader.DataLoader`, whose order is drawn here from Python's `random`, as MXNet draws it.
"""

from __future__ import annotations

import logging
import operator
import os
import random
import weakref
from dataclasses import dataclass, field, replace
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar, NamedTuple

import numpy as np

import aioloader
from aioloader.errors import DecodeError, SampleError, TooManyErrorsError, error_report, over_budget
from aioloader.foundation.error_log import strip_exception
from aioloader.foundation.replacement import replacement_rows
from aioloader.foundation.types import Array, ItemLocation
from aioloader.foundation.validation import require
from aioloader.loader.options import LoaderOptions, check_max_errors, error_limits
from aioloader.mxnet import ndarray
from aioloader.mxnet import random as mx_random
from aioloader.mxnet.base import TooManyFailedError, methods_of, overrides
from aioloader.mxnet.image._encoded_images import open_images
from aioloader.mxnet.image._sample_steps import (
    IteratorTransform,
    SampleSteps,
    SkippedImage,
    broken_image,
    original,
)
from aioloader.mxnet.image.augmenter import Augmenter, CreateAugmenter, augmenters
from aioloader.mxnet.io.iterator import DataBatch, DataIter
from aioloader.mxnet.io.schedule import LAST_BATCH, ListSchedule, part_of
from aioloader.mxnet.ndarray.ndarray import from_numpy
from recordio import unpack

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aioloader.mxnet.image._encoded_images import ImageSource
    from aioloader.mxnet.io.schedule import Part


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


@dataclass
class FailedImages:
    """Images of an iterator that failed, and what becomes of them.

    Args:
        on_error, max_errors: see `ImageIter`.

    Attributes:
        noted: errors from before the loader was made, and without it.
        in_pass: number of failed images of this pass.
        in_a_row: number of failed images since the last one that did not.

    Raises:
        ValueError, TypeError: an argument is not allowed (an AssertionError too).
    """

    on_error: str
    max_errors: float | None
    noted: list[SampleError] = field(default_factory=list)
    in_pass: int = 0
    in_a_row: int = 0

    def __post_init__(self) -> None:
        require(
            self.on_error in ("raise", "skip", "replace"),
            f"on_error must be 'raise', 'skip' or 'replace', got {self.on_error!r}",
        )
        check_max_errors(self.max_errors)

    @property
    def replaces(self) -> bool:
        """Return True if another image takes the place of one that failed."""
        return self.on_error == "replace"

    def raises(self, error: BaseException | None) -> bool:
        """Return True if an error ends the call; one of `check_valid_image` does not."""
        return self.on_error == "raise" and not isinstance(error, SkippedImage)

    @property
    def counts(self) -> bool:
        """Return True if images of this pass failed, and not any number may."""
        return self.max_errors is not None and self.in_pass > 0

    def begin(self) -> None:
        """Begin a pass."""
        self.in_pass = self.in_a_row = 0

    def add(self, error: SampleError) -> None:
        """Note an image that failed without the loader."""
        self.noted.append(error)
        self.in_pass += 1
        self.in_a_row += 1

    def too_many(self, errors: list[SampleError], samples: int, at_end: bool) -> TooManyErrorsError | None:
        """Return the error for too many failures after some samples of the pass; `errors` are all failures so far."""
        assert self.max_errors is not None
        too_many = over_budget(self.max_errors, len(errors), self.in_pass, samples, at_end)
        if too_many is not None:
            too_many.__class__ = TooManyFailedError
            too_many.__cause__ = errors[-1]
        return too_many


class ImageIter(SampleSteps, DataIter):
    """Batches of images with augmentation.

    Data are float32 (batch_size, 3, height, width), RGB; labels float32 (batch_size,) or (batch_size, label_width).
    Order and augmentations come from Python's `random` (lighting: `numpy.random`), so `random.seed` decides them. With
    `num_workers` the augmenters' draws depend on `mx.random.seed`, the pass and the image instead, and not on the
    number of workers.

    Images come from `path_imgrec`, or else from the files that `path_imglist` or `imglist` names. A list given together
    with a record file replaces its labels, by key.

    Args:
        batch_size: images of a batch.
        data_shape: (3, height, width).
        label_width: labels of an image.
        path_imgrec: a record file.
        path_imglist: a .lst file: lines of key, labels and path, separated by TABs.
        path_root: the folder that paths are relative to, and must not lead out of; empty: any path is allowed.
        path_imgidx: the .idx file of `path_imgrec`. Without it the records are found by a scan and have no keys.
        shuffle: draw a new order at each `reset`.
        part_index, num_parts: load only this one of `num_parts` parts; the first parts are longer by one where the
            number of images does not divide.
        aug_list: augmenters; None: those that `CreateAugmenter` makes from `kwargs`.
        imglist: list of ``[label, path]``, ``[[label, ...], path]`` or ``[label, ..., path]``; keys are "1", "2", ...
        data_name, label_name: names of the two inputs in the network.
        dtype: type that labels of lists are converted to first: "int32", "float32", "int64" or "float64".
        last_batch_handle: "pad" fills the last batch up from the start; "discard" drops it; "roll_over" keeps its
            images for the next pass.
        num_workers: worker processes; 0: this thread; None: one per core.
        exif: "apply" turns images upright, "ignore" leaves them as stored.
        pad_counts_rolled: with "roll_over", `pad` of the first batch after kept images is the number of its new rows,
            as in MXNet, although none is padding; False: it is 0.
        drop_remainder: parts of equal size; the remaining images are in none of them, as in MXNet.
        on_error: "raise" the error of an image that cannot be read, decoded or augmented; "skip": leave it out, and the
            next one takes its place; "replace": the next valid image of its batch replaces it, so that batches and
            `pad` stay as they are. With workers "skip" loses the batches that were started ahead, "replace" nothing. An
            image that `check_valid_image` refuses is left out with "raise" too.
        max_errors: number of images that may fail or be refused before an error is raised all the same; less than 1:
            the share of a pass, checked after 1,000 images and at its end; None: any number.
        **kwargs: arguments of `CreateAugmenter`; together with `aug_list` they have no effect, which is warned about.

    Attributes:
        seq: keys in the order of this pass; None for a record file without index, in its own order.
        cur: number of images of the pass that were taken.
        num_image: images of a pass.
        imgrec, imgidx, imglist: reader, keys of the index, and key to (labels, path); None where not used.
        auglist, data_shape, label_width, shuffle, last_batch_handle, path_root: as given.
        provide_data, provide_label: (name, shape).

    Raises:
        ValueError: an argument is not allowed, or a list is malformed (where MXNet asserts, an AssertionError too).
        TypeError: `CreateAugmenter` does not have an argument.
        MXNetError: there is no such record file.
    """

    _steps: ClassVar[type[SampleSteps]] = SampleSteps

    def __init__(
        self,
        batch_size: int,
        data_shape: Sequence[int],
        label_width: int = 1,
        path_imgrec: str | None = None,
        path_imglist: str | None = None,
        path_root: str | None = None,
        path_imgidx: str | None = None,
        shuffle: bool = False,
        part_index: int = 0,
        num_parts: int = 1,
        aug_list: Sequence[Any] | None = None,
        imglist: list[Any] | None = None,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: str = "float32",
        last_batch_handle: str = "pad",
        *,
        num_workers: int | None = 0,
        exif: str = "apply",
        pad_counts_rolled: bool = True,
        drop_remainder: bool = False,
        on_error: str = "raise",
        max_errors: float | None = None,
        **kwargs: Any,
    ) -> None:
        self._num_workers = LoaderOptions(None, batch_size, num_workers=num_workers).workers
        super().__init__(int(batch_size))
        require(label_width >= 1, f"label_width must be at least 1, got {label_width}")
        require(0 <= part_index < num_parts, f"part_index must be in [0, {num_parts}), got {part_index}")
        _check_choices(last_batch_handle, exif)
        self._failures = FailedImages(on_error, max_errors)
        self.check_data_shape(data_shape)
        self.data_shape = tuple(int(extent) for extent in data_shape)
        self.label_width = label_width
        self.label_row = (label_width,) if label_width > 1 else ()
        self.shuffle = shuffle
        self.last_batch_handle = last_batch_handle
        self.path_root = path_root
        self.exif = exif
        self.auglist = augmenters(CreateAugmenter, self.data_shape, aug_list, kwargs)
        self._pad_counts_rolled = pad_counts_rolled
        source = open_images(
            path_imgrec=path_imgrec,
            path_imgidx=path_imgidx,
            path_imglist=path_imglist,
            imglist=imglist,
            path_root=path_root,
            dtype=dtype,
        )
        part = part_of(len(source.dataset.keys), num_parts, part_index, drop_remainder)
        self._take(source, part, ordered=shuffle or num_parts > 1)
        self.provide_data = [(data_name, (self.batch_size, *self.data_shape))]
        self.provide_label = [(label_name, (self.batch_size, *self.label_row))]
        self._parts: list[Any] = []
        self._engine: aioloader.DataLoader[Any] | None = None
        self._drop_kept()
        self.reset()

    def _take(self, source: ImageSource, part: Part, *, ordered: bool) -> None:
        """Take the images of a part. In the own order of a record file, unless it is `ordered`, they need no keys."""
        self.imgrec, self.imgidx, self.imglist = source.imgrec, source.imgidx, source.imglist
        self._sources = self.imgrec, self.imglist, self.path_root
        self._dataset = source.dataset
        keys = source.dataset.keys
        self._row_of = {key: row for row, key in enumerate(keys)}
        ordered |= source.imgrec is None or source.imgidx is not None
        self.seq: list[Any] | None = keys[part.first : part.first + part.length] if ordered else None
        self.num_image = part.length

    def _drop_kept(self) -> None:
        """Drop what "roll_over" kept of the pass before."""
        self._kept: list[int] = []  # images
        # The same, as samples, where a derived class reads them.
        self._held: list[tuple[Any, Any] | None] = []
        self._cache_data: Any = None
        self._cache_label: Any = None
        self._cache_idx: int | None = None

    def __getstate__(self) -> dict[str, Any]:
        failures = replace(self._failures, noted=self.errors)
        return {**self.__dict__, "_engine": None, "_batches": None, "_failures": failures}

    @property
    def _replaced(self) -> bool:
        """Return True if the caller has assigned another source of images."""
        return any(map(operator.is_not, self._sources, (self.imgrec, self.imglist, self.path_root)))

    @property
    def _reads(self) -> bool:
        """Return True if images are read one by one, by what a derived class or the caller has put in place."""
        return overrides(self, _READS) or self._replaced

    @property
    def _allow_read(self) -> bool:
        return not self._over

    @_allow_read.setter
    def _allow_read(self, allowed: bool) -> None:
        self._over = not allowed

    def check_data_shape(self, data_shape: Sequence[int]) -> None:
        """Refuse a shape of images.

        Raises:
            ValueError: it is not (3, height, width).
        """
        if len(data_shape) != 3:
            raise ValueError("data_shape should have length 3, with dimensions CxHxW")
        if data_shape[0] != 3:
            raise ValueError("This iterator expects inputs to have 3 channels.")

    # --- passes ---

    def reset(self) -> None:
        """Begin the next pass."""
        if self.shuffle and self.seq is not None:
            random.shuffle(self.seq)
        if self.imgrec is not None and self._reads:
            self.imgrec.reset()
        self.cur = self._reached = 0
        self._failures.begin()
        self._over = False
        self._order: list[int] | None = None
        self._ordered = self.seq
        self._leave()

    def hard_reset(self) -> None:
        """Begin a pass again; images that "roll_over" kept are dropped."""
        self._drop_kept()
        self.reset()

    def close(self) -> None:
        """Stop the workers; garbage collection does so too. May be called twice."""
        self._leave()
        if self._engine is not None:
            self._failures.noted += self._engine.errors
            self._engine.close()
            self._engine = None

    @property
    def errors(self) -> list[SampleError]:
        """Return every image that failed or was refused so far, in the order of the batches. Not in MXNet."""
        return [*self._failures.noted, *(() if self._engine is None else self._engine.errors)]

    def error_report(self) -> dict[str, Any]:
        """Return every image that failed, as a JSON object; see `aioloader.DataLoader.error_report`. Not in MXNet."""
        return error_report(self.errors)

    def _leave(self) -> None:
        """Drop the batches that were started ahead."""
        self._batches: Iterator[Any] | None = None

    def _made_of(self) -> list[Any]:
        """Return what the loader was made from: attributes that the caller may have assigned."""
        hooks = (name for name in vars(SampleSteps) if name[:1] != "_")
        fields = (self.batch_size, self.last_batch_handle, self.data_shape, self.label_row, self.exif)
        return [*fields, *map(vars(self).get, hooks), *_values_of(self.auglist)]

    def _begin(self) -> Iterator[Any]:
        parts = self._made_of()
        if len(parts) != len(self._parts) or not all(map(operator.is_, parts, self._parts)):
            self.close()
            self._parts = parts
        if self._engine is None:
            self._schedule = ListSchedule(self.batch_size, self.last_batch_handle)
            self._engine = aioloader.DataLoader(
                self._dataset.transform(IteratorTransform(weakref.ref(self), self._steps)),
                batch_sampler=self._schedule,
                num_workers=self._num_workers,
                on_error="replace" if self._failures.replaces else "raise",
                **(error_limits(self._failures.max_errors) if self._failures.replaces else {}),
                # In one thread the global generators are used in the order of the images, as in MXNet.
                watch_globals=self._num_workers > 0,
            )
        self._schedule.begin(self._rows(), self.cur, self._kept)
        self._start = self._reached = self.cur
        self._number = 0
        self._engine.set_epoch(mx_random.next_pass())
        return iter(self._engine)

    def _rows(self) -> list[int]:
        """Return the items of this pass, in its order."""
        if self._order is None or self.seq is not self._ordered:
            self._ordered = self.seq
            if self.seq is None:
                self._order = list(range(self.num_image))
            else:
                self._order = [self._row_of[key] for key in self.seq[: self.num_image]]
        return self._order

    def _check_errors(self, samples: int, at_end: bool = False) -> None:
        if not self._failures.counts:
            return
        too_many = self._failures.too_many(self.errors, samples, at_end)
        if too_many is not None:
            self._over = True
            raise too_many

    def next(self) -> DataBatch:
        """Return the next batch.

        Raises:
            StopIteration: there is none; `reset` begins the next pass.
            BrokenImageError: an image is damaged, or is not one (a RuntimeError). The pass can continue behind it.
            TooManyFailedError: more images failed than `max_errors` (a RuntimeError). It ends the pass.
            Exception: a file cannot be read, or an augmenter raised it.
        """
        while not self._over:
            if self._batches is None or self.cur != self._reached or self.seq is not self._ordered:
                # At its start, or the caller has moved it.
                self._leave()
                if overrides(self, _BATCHIFY):
                    return self._batch_of_rows()
                if self._reads:
                    return self._batch_of_samples()
                self._batches = self._begin()
            try:
                data, label = next(self._batches)
            except StopIteration:
                self._kept = self._schedule.left()
                self._over = True
                self.cur = len(self._rows())
                self._check_errors(self.cur + self._failures.in_pass, at_end=True)
            except SampleError as error:
                self._leave()
                if self._failures.raises(error.__cause__):
                    place = self._schedule.items(self._number).index(error.index)
                    self.cur, self._kept = self._schedule.behind(self._number, place)
                    raise original(error, is_file=self.imgrec is None) from error
                _log.warning("image %r is left out: %s", error.key, error.__cause__)
                strip_exception(error)  # there may be many
                self._drop(error.index)
                self._failures.in_pass += 1
                self._check_errors(self.cur + self._failures.in_pass)
            except TooManyErrorsError as error:
                self._leave()
                self._over = True
                error.__class__ = TooManyFailedError
                raise
            except Exception:
                # The loader's pass has ended. The next call begins again with this batch.
                self._leave()
                raise
            else:
                return self._batch(data, label)
        raise StopIteration

    def _batch(self, data: Array, label: Array) -> DataBatch:
        schedule, number = self._schedule, self._number
        self._number += 1
        self.cur = self._reached = self._start + max(0, schedule.reached(number))
        pad, kept = schedule.pad(number), schedule.kept_in(number)
        if kept:
            self._kept = []
            if self._pad_counts_rolled:
                pad = self.batch_size - kept
        return DataBatch([from_numpy(data)], [from_numpy(label)], pad=pad)

    def _drop(self, row: int) -> None:
        """Leave an image out of this pass."""
        order = self._rows()
        if row in self._kept:
            self._kept.remove(row)
            return
        place = order.index(row)
        # A new list: workers may still use the old one.
        self._order = order[:place] + order[place + 1 :]
        self.cur -= place < self.cur
        self._reached = self.cur

    # --- images that a derived class reads ---

    def next_sample(self) -> tuple[Any, bytes]:
        """Return labels and bytes of the next image. A derived class may override this; `next` then uses it.

        Raises:
            StopIteration: there is none.
        """
        self._leave()
        replaced = self._replaced
        keys: Sequence[Any] = range(self.num_image) if self.seq is None else self.seq
        order = keys if replaced else self._rows()
        if self._over:
            raise StopIteration
        if self.cur >= min(len(order), self.num_image):
            self._reached = self.cur
            if self.last_batch_handle != "discard":
                self.cur = 0  # padding begins there
            raise StopIteration
        key = order[self.cur] if replaced else self._dataset.keys[order[self.cur]]
        self.cur += 1
        if self.imgrec is None:
            assert self.imglist is not None
            label, path = self.imglist[key]
            return label, self.read_image(path)
        if replaced:
            reader: Any = self.imgrec
            header, body = unpack(reader.read() if self.seq is None else reader.read_idx(key))
            return header.label if self.imglist is None else self.imglist[key][0], body
        encoded, label = self._dataset[self._row_of[key]]
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
            self._check_errors(self._reached, at_end=True)
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

    def _batch_of_rows(self) -> DataBatch:
        """Return a batch that a derived class fills, in MXNet's steps."""
        data, label, row = self._cache_data, self._cache_label, self._cache_idx
        rolled = data is not None
        if row is None:
            data, label = (ndarray.zeros(place[0][1]) for place in (self.provide_data, self.provide_label))
            row = self._batchify(data, label)
        pad = self.batch_size - row
        if pad:
            if self.last_batch_handle == "roll_over" and not rolled:
                self._cache_data, self._cache_label, self._cache_idx = data, label, row
            if self.last_batch_handle == "discard" or (self._cache_data is not None and not rolled):
                raise StopIteration
            self._batchify(data, label, row)
            self._allow_read = self.last_batch_handle != "pad"
            self._cache_data = self._cache_label = self._cache_idx = None
        return DataBatch([data], [label], pad=0 if rolled and not self._pad_counts_rolled else pad)

    def _batchify(self, batch_data: Any, batch_label: Any, start: int = 0) -> int:
        """Put the next images into a batch, and return the number of its rows. A derived class may override this.

        Args:
            batch_data, batch_label: arrays of all rows of the batch.
            start: the first row to fill.

        Raises:
            StopIteration: there is no image, and `start` is 0.
        """
        found = list(islice(self._made(self._samples()), self.batch_size - start))
        if not found and not start:
            raise StopIteration
        for row, (data, label) in enumerate(self._sound(found) if found else (), start):
            batch_data[row], batch_label[row] = data, label
        return start + len(found)

    def _sound(self, rows: Sequence[_Made]) -> list[tuple[Array, Array]]:
        """Return the rows, with those of failed images filled by their replacements.

        Raises:
            SampleError: all images of the batch failed.
        """
        sound = [place for place, each in enumerate(rows) if each.row is not None]
        if not sound:
            raise self._failures.noted[-1]
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
                if self._failures.raises(None) or self.cur == before:
                    raise
                self._unread = self._note(error, "read")
                if self._failures.replaces:
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
                if self._failures.raises(error):
                    if isinstance(error, DecodeError):
                        raise broken_image(
                            error, self._last_location(), is_file=self.imgrec is None
                        ) from error
                    raise
                failed = self._note(error, "transform")
                if self._failures.replaces:
                    yield _Made(sample, None, self._last_row(), failed)
                continue
            self._failures.in_a_row = 0
            yield _Made(sample, row, self._last_row())

    def _note(self, error: Exception, stage: str) -> SampleError:
        """Record that the image read last failed.

        Raises:
            TooManyFailedError: too many images failed.
            SampleError: all failed, more than the iterator has: a derived class with endless images would never stop.
        """
        key, path, offset = self._last_location()
        failed = SampleError(
            str(error) or type(error).__name__,
            dataset=type(self).__name__,
            index=self._last_row(),
            position=self.cur - 1,
            stage=stage,
            key=key,
            path=path,
            offset=offset,
        )
        failed.__cause__ = error
        strip_exception(failed)
        self._failures.add(failed)
        _log.warning("image %r is %s: %s", key, "replaced" if self._failures.replaces else "left out", error)
        self._check_errors(self.cur)
        if self._failures.in_a_row > max(self.num_image, self.batch_size):
            self._over = True
            raise failed
        return failed

    def _last_row(self) -> int:
        """Return the image that was read last; -1 where a derived class does not count in `cur`."""
        order = () if self._replaced else self._rows()
        return order[self.cur - 1] if 0 < self.cur <= len(order) else -1

    def _last_location(self) -> ItemLocation:
        row = self._last_row()
        return ItemLocation() if row < 0 else self._dataset.location(row)


def _check_choices(last_batch_handle: str, exif: str) -> None:
    require(
        last_batch_handle in LAST_BATCH,
        f"last_batch_handle must be one of {', '.join(LAST_BATCH)}, got {last_batch_handle!r}",
    )
    require(exif in ("apply", "ignore"), f"exif must be 'apply' or 'ignore', got {exif!r}")


_READS = methods_of(ImageIter, "next_sample", "read_image")
_BATCHIFY = methods_of(ImageIter, "_batchify")


def _values_of(augmenter: Any) -> Iterator[Any]:
    """Yield an augmenter or a list of them, and the values of their attributes."""
    yield augmenter
    parts = augmenter if isinstance(augmenter, list | tuple) else ()
    for each in vars(augmenter).values() if isinstance(augmenter, Augmenter) else parts:
        yield from _values_of(each)
