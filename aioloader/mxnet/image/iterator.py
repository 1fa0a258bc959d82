"""`ImageIter`: batches of images from a record file, a .lst file or a list, through a list of augmenters.

A translation: the items are a dataset, the hooks are a transform of it, and the batches are those of one
`aioloader.DataLoader`, whose order is drawn here from Python's `random`, as MXNet draws it.
"""

from __future__ import annotations

import logging
import os
import random
from itertools import islice
from typing import TYPE_CHECKING, Any, ClassVar

import numpy as np

import aioloader
from aioloader._checks import require
from aioloader.errors import DecodeError, SampleError
from aioloader.mxnet import random as mx_random
from aioloader.mxnet.image._failures import broken_image, original
from aioloader.mxnet.image._hooks import Hooks, SkippedImage, Through
from aioloader.mxnet.image._sources import open_source
from aioloader.mxnet.image._turns import HANDLES, Turns, part_of
from aioloader.mxnet.image.create import CreateAugmenter, augmenters
from aioloader.mxnet.io.desc import DataBatch
from aioloader.mxnet.io.iterator import DataIter
from aioloader.mxnet.ndarray import from_numpy
from aioloader.options import LoaderOptions

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Sequence

    from aioloader._types import Array
    from aioloader.mxnet.image._failures import BrokenImageError

__all__ = ("ImageIter",)

_LABEL_DTYPES = ("int32", "float32", "int64", "float64")
_log = logging.getLogger(__name__)


class _Plan:
    """The batches of the pass that begins, as the engine's batch sampler."""

    def __init__(self) -> None:
        self.turns = Turns((), 0, (), 1, "discard")

    def __iter__(self) -> Iterator[list[int]]:
        return iter(self.turns)

    def __len__(self) -> int:
        return len(self.turns)


class ImageIter(Hooks, DataIter):
    """Batches of images with augmentation.

    Data are float32 (batch_size, 3, height, width), RGB; labels float32 (batch_size,) or (batch_size, label_width).
    Order and augmentations come from Python's `random` (lighting: `numpy.random`), so `random.seed` decides them. With
    `num_workers` what augmenters draw is decided by `mx.random.seed`, the pass and the image instead, whatever the
    number of workers.

    Images come from `path_imgrec`, or else from the files that `path_imglist` or `imglist` names. A list beside a
    record file replaces its labels, by key.

    Args:
        batch_size: images of a batch.
        data_shape: (3, height, width).
        label_width: labels of an image.
        path_imgrec: a .rec file.
        path_imglist: a .lst file: lines of key, labels and path, separated by TABs.
        path_root: the folder that paths are relative to, and must not lead out of; empty: they may be anywhere.
        path_imgidx: the .idx file of `path_imgrec`. Without it the records are found by a scan and have no keys.
        shuffle: draw a new order at each `reset`.
        part_index, num_parts: take only this of so many parts; the first parts are longer by one where the number
            of images does not divide.
        aug_list: augmenters; None: those that `CreateAugmenter` makes of `kwargs`.
        imglist: list of ``[label, path]``, ``[[label, ...], path]`` or ``[label, ..., path]``; keys are "1", "2", ...
        data_name, label_name: what the network calls the two inputs.
        dtype: type that labels of lists are converted to first: "int32", "float32", "int64" or "float64".
        last_batch_handle: "pad" fills the last batch up from the start; "discard" drops it; "roll_over" keeps its
            images for the next pass.
        num_workers: worker processes; 0: this thread; None: one per core.
        exif: "apply" turns images upright, "ignore" leaves them as stored.
        pad_counts_rolled: with "roll_over", the first batch after kept images says in `pad` how many of its rows are
            new, as in MXNet, although none only fills up; False: it says 0.
        drop_remainder: parts of equal size; what is left over is in none of them, as in MXNet.
        **kwargs: for `CreateAugmenter`; beside `aug_list` they have no effect, which is warned about.

    Attributes:
        seq: keys in the order of this pass; None for a record file without index, in its own order.
        cur: how many images of the pass were taken.
        num_image: images of a pass.
        imgrec, imgidx, imglist: reader, keys of the index, and key to (labels, path); None where there is none.
        auglist, data_shape, label_width, shuffle, last_batch_handle, path_root: as given.
        provide_data, provide_label: (name, shape).

    Raises:
        ValueError: an argument is not allowed, or a list is malformed (where MXNet asserts, an AssertionError too).
        TypeError: `CreateAugmenter` does not know an argument.
        MXNetError: there is no such record file.
    """

    _hooks: ClassVar[type[Hooks]] = Hooks

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
        **kwargs: Any,
    ) -> None:
        self._num_workers = LoaderOptions(batch_size, num_workers=num_workers).workers
        super().__init__(int(batch_size))
        require(
            path_imgrec or path_imglist or isinstance(imglist, list),
            "ImageIter needs images: give path_imgrec, path_imglist or a list imglist",
        )
        require(str(np.dtype(dtype)) in _LABEL_DTYPES, f"{dtype} label not supported")
        require(
            last_batch_handle in HANDLES,
            f"last_batch_handle must be one of {', '.join(HANDLES)}, got {last_batch_handle!r}",
        )
        require(label_width >= 1, f"label_width must be at least 1, got {label_width}")
        require(0 <= part_index < num_parts, f"part_index must lie in [0, {num_parts}), got {part_index}")
        require(exif in ("apply", "ignore"), f"exif must be 'apply' or 'ignore', got {exif!r}")
        self.check_data_shape(data_shape)
        self.data_shape = tuple(int(extent) for extent in data_shape)
        self.label_width = label_width
        self.label_row = (label_width,) if label_width > 1 else ()
        self.shuffle = shuffle
        self.last_batch_handle = last_batch_handle
        self.path_root = path_root
        self.exif = exif
        self.auglist = augmenters(CreateAugmenter, self.data_shape, aug_list, kwargs)
        source = open_source(path_imgrec, path_imgidx, path_imglist, imglist, path_root, dtype)
        self.imgrec, self.imgidx, self.imglist = source.imgrec, source.imgidx, source.imglist
        self._dataset, self._keys = source.dataset, source.keys
        self._row_of = {key: row for row, key in enumerate(source.keys)}
        ordered = source.imgrec is None or source.imgidx is not None or shuffle or num_parts > 1
        part = part_of(source.keys, part_index, num_parts, drop_remainder)
        self.seq: list[Any] | None = part if ordered else None
        self.num_image = len(part)
        self.provide_data = [(data_name, (self.batch_size, *self.data_shape))]
        self.provide_label = [(label_name, (self.batch_size, *self.label_row))]
        self._pad_counts_rolled = pad_counts_rolled
        self._plan = _Plan()
        self._engine: aioloader.DataLoader[Any] | None = None
        self._kept: list[int] = []  # images of the pass before
        self._held: list[tuple[Any, Any]] = []  # the same, as samples, where a derived class reads them
        self._reads = any(
            getattr(type(self), name) is not getattr(ImageIter, name)
            for name in ("next_sample", "read_image")
        )
        self.reset()

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engine": None, "_batches": None}

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
        self._over = False
        self._order: list[int] | None = None
        self._leave()

    def hard_reset(self) -> None:
        """Begin a pass anew; images that "roll_over" kept are dropped."""
        self._kept = []
        self._held = []
        self.reset()

    def close(self) -> None:
        """End the workers; an iterator that is collected does so by itself. May be called twice."""
        self._leave()
        if self._engine is not None:
            self._engine.close()
            self._engine = None

    def _leave(self) -> None:
        """Drop the batches that were begun ahead."""
        self._batches: Iterator[Any] | None = None

    def _rows(self) -> list[int]:
        """The items of this pass, in its order."""
        if self._order is None:
            if self.seq is None:
                self._order = list(range(self.num_image))
            else:
                self._order = [self._row_of[key] for key in self.seq]
        return self._order

    def _begin(self) -> Iterator[Any]:
        if self._engine is None:
            self._engine = aioloader.DataLoader(
                self._dataset.transform(Through(self, self._hooks)),
                batch_sampler=self._plan,
                num_workers=self._num_workers,
            )
            # In one thread the global generators are drawn from in the order of the images, as in MXNet.
            self._engine._core.watch_globals = self._num_workers > 0
        self._plan.turns = Turns(self._rows(), self.cur, self._kept, self.batch_size, self.last_batch_handle)
        self._start = self.cur
        self._number = 0
        self._engine.set_epoch(mx_random.next_pass())
        return iter(self._engine)

    def next(self) -> DataBatch:
        """The next batch.

        Raises:
            StopIteration: there is none; `reset` begins the next pass.
            BrokenImageError: an image is none, or damaged (a RuntimeError). The pass can go on behind it.
            Exception: a file cannot be read, or an augmenter raised it.
        """
        while not self._over:
            if self._reads:
                return self._batch_of_samples()
            if self._batches is None:
                self._batches = self._begin()
            turns = self._plan.turns
            try:
                data, label = next(self._batches)
            except StopIteration:
                self._kept = turns.left()
                self._over = True
                self.cur = len(self._rows())
            except SampleError as error:
                self._leave()
                if not isinstance(error.__cause__, SkippedImage):
                    place = turns.items(self._number).index(error.index)
                    self.cur, self._kept = turns.behind(self._number, place)
                    raise original(error, is_file=self.imgrec is None) from error
                _log.warning("image %r is left out: %s", error.key, error.__cause__)
                self._drop(error.index)
            except Exception:
                # The engine's pass has ended. The next call begins again with this batch.
                self._leave()
                raise
            else:
                return self._batch(data, label)
        raise StopIteration

    def _batch(self, data: Array, label: Array) -> DataBatch:
        turns, number = self._plan.turns, self._number
        self._number += 1
        self.cur = self._start + max(0, turns.reached(number))
        pad, kept = turns.pad(number), turns.kept_in(number)
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
        # A new list: workers may be at the old one still.
        self._order = order[:place] + order[place + 1 :]
        self.cur -= place < self.cur

    # --- images one by one, for derived classes ---

    def next_sample(self) -> tuple[Any, bytes]:
        """Labels and bytes of the next image of the pass. A derived class may override it; it is then used by `next`.

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
        """The bytes of an image file of the list. A derived class may override it; it is then used by `next`."""
        with open(os.path.join(self.path_root or "", fname), "rb") as file:
            return file.read()

    def _batch_of_samples(self) -> DataBatch:
        """A batch where a derived class reads the images."""
        held, self._held = self._held, []
        rows = list(self._made(held))
        kept = len(rows)
        rows += islice(self._made(self._samples()), self.batch_size - kept)
        pad = self.batch_size - kept if kept and self._pad_counts_rolled else 0
        if len(rows) < self.batch_size:
            self._over = True
            if self.last_batch_handle == "roll_over":
                self._held = [sample for sample, _ in rows]
            if not rows or self.last_batch_handle != "pad":
                raise StopIteration
            pad = self.batch_size - len(rows)
            rows += self._from_the_start(pad)
            for place in range(self.batch_size - len(rows)):
                rows.append(rows[place])
        data, label = (np.stack(column) for column in zip(*(row for _, row in rows), strict=True))
        return DataBatch([from_numpy(data)], [from_numpy(label)], pad=pad)

    def _from_the_start(self, count: int) -> list[tuple[Any, tuple[Array, Array]]]:
        """Up to `count` rows that fill the last batch up."""
        self.cur, self._over = 0, False
        try:
            return list(islice(self._made(self._samples()), count))
        finally:
            self._over = True

    def _samples(self) -> Iterator[tuple[Any, Any]]:
        while True:
            try:
                sample = self.next_sample()
            except StopIteration:
                return
            yield sample

    def _made(self, samples: Iterable[tuple[Any, Any]]) -> Iterator[tuple[Any, tuple[Array, Array]]]:
        """Samples with the rows that become of them; those that are refused are left out."""
        for sample in samples:
            label, encoded = sample
            try:
                row = self.make(encoded, label)
            except SkippedImage as error:
                _log.warning("image %r is left out: %s", self._last_key(), error)
                continue
            except DecodeError as error:
                raise self._broken(error) from error
            yield sample, row

    def _last_key(self) -> Any:
        """Key of the image that was read last; None where a derived class does not count in `cur`."""
        order = self._rows()
        return self._keys[order[self.cur - 1]] if 0 < self.cur <= len(order) else None

    def _broken(self, error: DecodeError) -> BrokenImageError:
        if self._last_key() is None:
            return broken_image(error, None, None, None, is_file=False)
        facts = self._dataset.facts(self._rows()[self.cur - 1])
        return broken_image(error, facts.key, facts.path, facts.offset, is_file=self.imgrec is None)
