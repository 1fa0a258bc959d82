"""`ImageIter`: batches of images from a record file, a .lst file or a list, through a list of augmenters.

It translates: the items are a dataset, the steps are a transform of it, and the batches are those of one
`aioloader.DataLoader`, whose order is drawn here from Python's `random`, as MXNet draws it.
"""

from __future__ import annotations

import logging
import random
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import aioloader
from aioloader.errors import SampleError, TooManyErrorsError, error_report
from aioloader.foundation.error_log import strip_exception
from aioloader.foundation.validation import require
from aioloader.loader.options import LoaderOptions, check_max_errors
from aioloader.mxnet import random as mx_random
from aioloader.mxnet.base import TooManyFailedError
from aioloader.mxnet.image._encoded_images import open_images
from aioloader.mxnet.image._errors import original
from aioloader.mxnet.image._sample_iterator import SampleIterator
from aioloader.mxnet.image._sample_steps import IteratorTransform, SampleSteps, SkippedImage
from aioloader.mxnet.image.create import CreateAugmenter, augmenters
from aioloader.mxnet.io.desc import DataBatch
from aioloader.mxnet.io.schedule import LAST_BATCH, ListSchedule, part_of
from aioloader.mxnet.ndarray import from_numpy

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.foundation.types import Array

__all__ = ("ImageIter",)

_LABEL_DTYPES = ("int32", "float32", "int64", "float64")
_log = logging.getLogger(__name__)


class ImageIter(SampleIterator):
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
        path_imgrec: a .rec file.
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
        self._num_workers = LoaderOptions(batch_size=batch_size, num_workers=num_workers).workers
        super().__init__(int(batch_size))
        require(
            path_imgrec or path_imglist or isinstance(imglist, list),
            "ImageIter needs images: give path_imgrec, path_imglist or a list imglist",
        )
        require(str(np.dtype(dtype)) in _LABEL_DTYPES, f"{dtype} label not supported")
        require(
            last_batch_handle in LAST_BATCH,
            f"last_batch_handle must be one of {', '.join(LAST_BATCH)}, got {last_batch_handle!r}",
        )
        require(label_width >= 1, f"label_width must be at least 1, got {label_width}")
        require(0 <= part_index < num_parts, f"part_index must lie in [0, {num_parts}), got {part_index}")
        require(exif in ("apply", "ignore"), f"exif must be 'apply' or 'ignore', got {exif!r}")
        require(
            on_error in ("raise", "skip", "replace"),
            f"on_error must be 'raise', 'skip' or 'replace', got {on_error!r}",
        )
        check_max_errors(max_errors)
        self._on_error = on_error
        self._max_errors = max_errors
        self._noted: list[SampleError] = []  # what failed before the engine was made, and without it
        self.check_data_shape(data_shape)
        self.data_shape = tuple(int(extent) for extent in data_shape)
        self.label_width = label_width
        self.label_row = (label_width,) if label_width > 1 else ()
        self.shuffle = shuffle
        self.last_batch_handle = last_batch_handle
        self.path_root = path_root
        self.exif = exif
        self.auglist = augmenters(CreateAugmenter, self.data_shape, aug_list, kwargs)
        source = open_images(
            path_imgrec=path_imgrec,
            path_imgidx=path_imgidx,
            path_imglist=path_imglist,
            imglist=imglist,
            path_root=path_root,
            dtype=dtype,
        )
        self.imgrec, self.imgidx, self.imglist = source.imgrec, source.imgidx, source.imglist
        self._dataset, self._keys = source.dataset, source.keys
        self._row_of = {key: row for row, key in enumerate(source.keys)}
        ordered = source.imgrec is None or source.imgidx is not None or shuffle or num_parts > 1
        part = part_of(len(source.keys), num_parts, part_index, drop_remainder)
        self.seq: list[Any] | None = source.keys[part.first : part.first + part.length] if ordered else None
        self.num_image = part.length
        self.provide_data = [(data_name, (self.batch_size, *self.data_shape))]
        self.provide_label = [(label_name, (self.batch_size, *self.label_row))]
        self._pad_counts_rolled = pad_counts_rolled
        self._schedule = ListSchedule(self.batch_size, last_batch_handle)
        self._engine: aioloader.DataLoader[Any] | None = None
        self._kept: list[int] = []  # images of the pass before
        self._held: list[tuple[Any, Any]] = []  # the same, as samples, where a derived class reads them
        self._reads = any(
            getattr(type(self), name) is not getattr(ImageIter, name)
            for name in ("next_sample", "read_image")
        )
        self.reset()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engine": None, "_batches": None, "_noted": self.errors}

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
        self.cur = 0
        self._failed = self._in_a_row = 0
        self._over = False
        self._order: list[int] | None = None
        self._leave()

    def hard_reset(self) -> None:
        """Begin a pass again; images that "roll_over" kept are dropped."""
        self._kept = []
        self._held = []
        self.reset()

    def close(self) -> None:
        """Stop the workers; garbage collection does so too. May be called twice."""
        self._leave()
        if self._engine is not None:
            self._noted += self._engine.errors
            self._engine.close()
            self._engine = None

    @property
    def errors(self) -> list[SampleError]:
        """Return every image that failed or was refused so far, in the order of the batches. Not in MXNet."""
        return [*self._noted, *(() if self._engine is None else self._engine.errors)]

    def error_report(self) -> dict[str, Any]:
        """Return every image that failed, as a JSON object; see `aioloader.DataLoader.error_report`. Not in MXNet."""
        return error_report(self.errors)

    def _leave(self) -> None:
        """Drop the batches that were started ahead."""
        self._batches: Iterator[Any] | None = None

    def _begin(self) -> Iterator[Any]:
        if self._engine is None:
            self._engine = aioloader.DataLoader(
                self._dataset.transform(IteratorTransform(self, self._steps)),
                batch_sampler=self._schedule,
                num_workers=self._num_workers,
                on_error="replace" if self._on_error == "replace" else "raise",
                max_errors=self._max_errors,
            )
            # In one thread the global generators are used in the order of the images, as in MXNet.
            self._engine._runtime.watch_globals = self._num_workers > 0
        self._schedule.begin(self._rows(), self.cur, self._kept)
        self._start = self.cur
        self._number = 0
        self._engine.set_epoch(mx_random.next_pass())
        return iter(self._engine)

    def next(self) -> DataBatch:
        """Return the next batch.

        Raises:
            StopIteration: there is none; `reset` begins the next pass.
            BrokenImageError: an image is damaged, or is not one (a RuntimeError). The pass can continue behind it.
            TooManyFailedError: more images failed than `max_errors` (a RuntimeError). It ends the pass.
            Exception: a file cannot be read, or an augmenter raised it.
        """
        while not self._over:
            if self._reads:
                return self._batch_of_samples()
            if self._batches is None:
                self._batches = self._begin()
            try:
                data, label = next(self._batches)
            except StopIteration:
                self._kept = self._schedule.left()
                self._over = True
                self.cur = len(self._rows())
                self._check_errors(self.cur + self._failed, at_end=True)
            except SampleError as error:
                self._leave()
                if self._on_error == "raise" and not isinstance(error.__cause__, SkippedImage):
                    place = self._schedule.items(self._number).index(error.index)
                    self.cur, self._kept = self._schedule.behind(self._number, place)
                    raise original(error, is_file=self.imgrec is None) from error
                _log.warning("image %r is left out: %s", error.key, error.__cause__)
                strip_exception(error)  # there may be many
                self._drop(error.index)
                self._failed += 1
                self._check_errors(self.cur + self._failed)
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
        self.cur = self._start + max(0, schedule.reached(number))
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
