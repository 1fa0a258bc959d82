"""Making and checking of crop indexes for record files, shards of other formats and folders of images.

The images are read by an ordinary loader, whose workers make the entries; the entries are written as they arrive. An
interrupted run is continued by the next one, and entries of an earlier index are kept if they still fit.

The check compares each entry with its checksums and with the bytes of its image. On request the entries are also made
again and compared, which finds entries of a faulty writer: their checksums are right. Then the images that were
refused are tried again, too.
"""

from __future__ import annotations

import errno
import os
import warnings
from contextlib import ExitStack
from dataclasses import dataclass, field
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np

from aioloader.abc import Decoder
from aioloader.crop_index.layout import FOLDER, RECORDS, file_number
from aioloader.crop_index.lookup import RecordCrops
from aioloader.crop_index.reader import CropIndex
from aioloader.crop_index.writer import (
    CropIndexWriter,
    entry_or_reason,
    fits,
    is_intact,
    is_reproduced,
    put,
    warn_if_slow,
)
from aioloader.datasets.base import IndexedView
from aioloader.datasets.redecoded import RedecodedDataset, own_extra
from aioloader.datasets.resolve import version_at
from aioloader.errors import CropIndexError, MissingFieldError
from aioloader.formats.base import image_folder
from aioloader.formats.foreign import IMAGE_SUFFIXES
from aioloader.formats.opening import make_dataset
from aioloader.formats.shards import open_shards, record_sets, shard_sets
from aioloader.foundation.decodes import REFUSED
from aioloader.jpeg.crop_entry import CropEntryError, check_entry
from aioloader.loader.sync_loader import DataLoader
from aioloader.storage.urls import is_url, redact_url
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS
from recordio._partial_files import partial_path

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioloader.crop_index.layout import CropFiles
    from aioloader.datasets.base import Dataset
    from aioloader.datasets.decoding import ImageDecoder
    from aioloader.datasets.files import FileDataset
    from aioloader.datasets.shard_dataset import ShardDataset
    from aioloader.errors import SampleError
    from aioloader.foundation.types import Array, IntArray, ItemLocation


NO_IMAGE = "no encoded image in the sample"
"""Reason why a sample has no entry."""


class FoundImage(NamedTuple):
    """Image of an item.

    Attributes:
        number: number of its crop index.
        key: its key there.
        data: the encoded image, or the reason why there is none.
    """

    number: int
    key: int
    data: memoryview | str


@dataclass(frozen=True)
class ImageFinder:
    """Finder of the image of an item of a dataset from `keyed`; a part of its decoder, and sent to workers with it.

    Attributes:
        decoder: finds the image, see `FileDataset.image_decoder`.
    """

    decoder: ImageDecoder

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> FoundImage:
        """Return the image of an item; arguments and errors are those of a `Decoder`."""
        try:
            image = self.decoder.parse(data, own_extra(extra), location)[0]
        except MissingFieldError:
            image = NO_IMAGE
        # Some formats store pixels, or several images in one field.
        found = image if isinstance(image, (memoryview, bytes, bytearray)) else NO_IMAGE
        # Bytes are read like a memoryview; the type of the field names the usual one only.
        return FoundImage(int(extra["file"]), int(extra["key"]), found)  # type: ignore[arg-type]


def keyed(dataset: FileDataset, decoder: Decoder[Any]) -> RedecodedDataset:
    """Return the items of a dataset with another decoder, whose extras have the numbers that `ImageFinder` reads."""
    return RedecodedDataset(dataset, decoder, partial(_keys, dataset))


def _keys(dataset: FileDataset, indices: IntArray) -> dict[str, Array]:
    file, key = dataset.crop_keys(indices)
    return {"file": file, "key": key}


def images_of_folder(path: str, *, max_pixels: int | None = DEFAULT_MAX_PIXELS) -> FileDataset:
    """Return the dataset of all images of a folder, without warnings of other files in it: see its `left_out`.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such folder.
    """
    with warnings.catch_warnings():
        warnings.simplefilter("ignore", UserWarning)
        return image_folder().open((path,), max_pixels=max_pixels, crop_index=None, label=None)


_BATCH = 32
# Errors of a place that cannot be written to, for which another place is the remedy.
_ELSEWHERE = (errno.EACCES, errno.EPERM, errno.EROFS, errno.ENOENT, errno.ENOTDIR)


@dataclass
class CropReport:
    """Result of making one crop index.

    Attributes:
        path: the record file, shard or folder.
        crops: the index.
        images: number of images in the index.
        indexed: number of images that have an entry.
        kept: number of images whose entry, or reason for none, is from an earlier index or an interrupted run.
        refused: number of images without an entry, by reason.
        nbytes: size of the index.
        jpeg_nbytes: size of the images that have an entry.
        errors: errors of the images that could not be read; they are not in the index.
        written: the index is complete. False: no image could be read, so nothing was written, and an earlier index
            stays as it was.
        fault: why the images of a damaged shard cannot be found; "" otherwise.
    """

    path: str
    crops: str
    images: int = 0
    indexed: int = 0
    kept: int = 0
    refused: dict[str, int] = field(default_factory=dict)
    nbytes: int = 0
    jpeg_nbytes: int = 0
    errors: list[SampleError] = field(default_factory=list)
    written: bool = True
    fault: str = ""

    @property
    def ok(self) -> bool:
        """Return whether all images could be read."""
        return not self.errors and not self.fault

    @property
    def share(self) -> float:
        """Return the size of the index as a share of the size of the images that have an entry; 0 without any."""
        return self.nbytes / self.jpeg_nbytes if self.jpeg_nbytes else 0.0

    def facts(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {**_facts(self), "share": self.share}


def _facts(report: CropReport | CropCheck) -> dict[str, Any]:
    facts = {name: getattr(report, name) for name in report.__dataclass_fields__}
    facts["image_errors"] = [error.facts() for error in facts.pop("errors")]
    return facts


@dataclass(frozen=True, slots=True)
class _Made:
    """Result for one image.

    Attributes:
        number: number of its index.
        key: its key there.
        nbytes: size of the image.
        made: see `entry_or_reason`; None: the entry of the earlier index is kept.
    """

    number: int
    key: int
    nbytes: int
    made: bytes | str | None


@dataclass(frozen=True)
class _EntryDecoder(Decoder[_Made]):
    """Decoder of an item with an image to a `_Made`.

    Attributes:
        earlier: the earlier indexes, by number.
        find: finds the image.
    """

    earlier: RecordCrops
    find: ImageFinder

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> _Made:
        number, key, image = self.find(data, extra, location)
        if isinstance(image, str):
            return _Made(number, key, 0, image)
        entry = self.earlier.find(number, key)
        kept = entry is not None and fits(entry, image)
        return _Made(number, key, len(image), None if kept else entry_or_reason(image))


class _Target:
    """Index that is being made.

    Args:
        path: the record file, shard or folder.
        crops: the index to be written.
        kind: see `CropIndexWriter`.
        source: number of the file's state; 0 for a folder.
        remake: make all entries again.

    Attributes:
        path, crops, kind: as given.
        earlier: the earlier index, or None.
        is_current: the earlier index was made from the file in its present state.
        kept: number of images whose entry, or reason for none, was not made in this run.
        images: number of images that should be in the index.
        written: see `CropReport`.
    """

    def __init__(self, path: str, crops: str, kind: int, *, source: int, remake: bool) -> None:
        self.path = path
        self.crops = crops
        self.kept = self.images = 0
        self.written = True
        self.kind = kind
        self._source = source
        self._resume = not remake
        self._writer: CropIndexWriter | None = None
        self.earlier = None if remake else _earlier(crops, kind)
        self.is_current = self.earlier is not None and source != 0 and self.earlier.header.source == source

    def done(self) -> tuple[Array, Array]:
        """Return keys and sizes of the images that need not be read: uint64 (n,), ascending, and uint64 (n,)."""
        if self.is_current:
            keys = np.array([key for key, _, _ in self._intact()], np.uint64)
            return keys, np.zeros_like(keys)
        if not self._resume or not partial_path(Path(self.crops)).exists():
            return np.empty(0, np.uint64), np.empty(0, np.uint64)
        found = self.open().restored()
        self.close()
        return found

    def _intact(self) -> Iterator[tuple[int, int, memoryview | str]]:
        """Yield key, size, and entry or reason of the images of the earlier index, without damaged entries."""
        assert self.earlier is not None
        for key, nbytes, made in self.earlier.images():
            if isinstance(made, str) or is_intact(made):
                yield key, nbytes, made
        self.earlier.close()

    def open(self) -> CropIndexWriter:
        """Return the writer, which is opened at the first call.

        Raises:
            CropIndexBusyError: another process makes the same index.
            OSError: the index cannot be written.
        """
        if self._writer is None:
            folder = os.path.dirname(self.crops)
            if is_url(self.path) and folder:
                os.makedirs(folder, exist_ok=True)
            try:
                self._writer = CropIndexWriter(
                    self.crops, kind=self.kind, source=self._source, resume=self._resume
                )
            except OSError as error:
                if error.errno not in _ELSEWHERE:
                    raise
                reason = f"{error.strerror}; choose another place for the index with --out"
                raise type(error)(error.errno, reason, self.crops) from error
            self._resume = True
            if self.is_current:
                for key, nbytes, made in self._intact():
                    put(self._writer, key, nbytes, made)
        return self._writer

    def put(self, made: _Made) -> None:
        """Write the entry of an image."""
        writer = self.open()
        if made.made is not None:
            put(writer, made.key, made.nbytes, made.made)
            return
        entry = None if self.earlier is None else self.earlier.find(made.key)
        if entry is None:
            raise CropIndexError("it was changed while it was read", path=self.crops)
        self.kept += 1
        writer.put(made.key, made.nbytes, entry)

    def flush(self) -> None:
        """Make what is written survive the end of this process."""
        if self._writer is not None:
            self._writer.flush()

    def finish(self, keys: Array) -> None:
        """Complete the index; only images with these keys are in it.

        A current index that lacks none stays as it is, and so does any if no image could be read.
        """
        if not self.is_current or self._writer is not None:
            writer = self.open()
            self.written = len(writer) > 0 or not self.images
            if self.written:
                writer.finish(keys)
            else:
                writer.discard()
            self._writer = None
        if self.earlier is not None:
            self.earlier.close()

    def close(self) -> None:
        """Close the partial file of an index that is not complete; `open` continues it."""
        writer, self._writer = self._writer, None
        if writer is not None:
            writer.close()

    def report(self, errors: list[SampleError]) -> CropReport:
        """Return the report on the finished index."""
        if not self.written:
            return CropReport(redact_url(self.path), self.crops, errors=errors, written=False)
        index = CropIndex(self.crops)
        refused = index.refused()
        index.close()
        return CropReport(
            redact_url(self.path),
            self.crops,
            images=len(index),
            indexed=len(index) - sum(refused.values()),
            kept=self.kept,
            refused=refused,
            nbytes=os.path.getsize(self.crops),
            jpeg_nbytes=index.header.jpeg_nbytes,
            errors=errors,
        )


def _earlier(crops: str, kind: int) -> CropIndex | None:
    try:
        index = CropIndex(crops)
        index.check_kind(kind)
    except (OSError, CropIndexError):
        return None  # it is made again
    index.close()
    return index


def index_crops(
    paths: Sequence[str | ShardDataset],
    *,
    image: str | None = None,
    out: str | os.PathLike[str] | None = None,
    num_workers: int | None = None,
    executor: str = "process",
    remake: bool = False,
    begin: Callable[[int], object] | None = None,
    tick: Callable[[int], object] | None = None,
) -> list[CropReport]:
    """Make the crop indexes of record files, shards of other formats and folders.

    Args:
        paths: record files, patterns, folders of record files or of images at any depth, shards of other formats, and
            URLs of all of them; or datasets over shards.
        image: name of the field of the image, where samples have fields; None: the default of the format's class, or
            the option `image` of a dataset.
        out: where to write the indexes: a directory, or with one record file or folder a file. None: next to the data,
            or for URLs in the user's cache directory.
        num_workers: number of workers; None: one per core.
        executor: see `aioloader.DataLoader`.
        remake: make all entries again; otherwise those that still fit are kept.
        begin: called with the number of images before the work on some files begins, perhaps several times.
        tick: called with the number of these images that are done.

    Returns:
        A report for each record file, each shard and each folder of images.

    Raises:
        CropIndexBusyError: another process makes one of the indexes.
        FileNotFoundError: there is no such file or folder, or no file matches a pattern.
        OSError: a file cannot be read, or an index cannot be written.
        ValueError: `out` is a file, and there are several indexes to be written.
    """
    warn_if_slow()
    found, others = shard_sets([each for each in paths if isinstance(each, str)])
    datasets, folders = record_sets(others, label=None, crop_index=None)
    datasets += [each for each in paths if not isinstance(each, str)]
    datasets += [
        open_shards(each, image=image) if each.format.has_fields else make_dataset(each, {}) for each in found
    ]
    unindexed = next((each for each in datasets if not each.crop_files().paths), None)
    if unindexed is not None:
        raise ValueError(
            f"{type(unindexed).__name__} has no crop indexes, because it defines no crop_files()"
        )
    chosen = None if out is None else os.path.expanduser(os.fspath(out))
    names = [path for dataset in datasets for path in dataset.crop_files().paths]
    count = len(dict.fromkeys((*names, *folders)))
    if chosen is not None and is_url(chosen):
        raise ValueError(f"a crop index is written to a local file, and {redact_url(chosen)} is a URL")
    if chosen is not None and count > 1 and not os.path.isdir(chosen):
        raise ValueError(
            f"there are {count} indexes to be written, so {chosen!r} must be a directory that exists"
        )
    run = _Run(chosen, remake, num_workers, executor, begin, tick)
    reports = [report for dataset in datasets for report in run.index(dataset)]
    return reports + [report for root in dict.fromkeys(folders) for report in run.index(_folder(root))]


def make_all(
    dataset: Dataset,
    *,
    num_workers: int | None,
    executor: str,
    tick: Callable[[int], object] | None,
    add: Callable[[Any], object] | None = None,
    batchify_fn: Callable[[list[Any]], Any] | None = None,
) -> list[SampleError]:
    """Make every sample of a dataset once.

    Args:
        dataset: the dataset; its samples are integers if there is no `batchify_fn`.
        num_workers, executor, batchify_fn: see `aioloader.DataLoader`.
        tick: called with the number of samples done so far.
        add: called with each batch, valid during the call only: an array (n,), or what `batchify_fn` returns.

    Returns:
        the errors of the samples that could not be made, in the order of the dataset.

    Raises:
        ValueError: an option is not allowed.
    """
    count = len(dataset)
    if not count:
        return []
    done = 0
    loader: DataLoader[Any] = DataLoader(
        dataset,
        _BATCH,
        batchify_fn=batchify_fn,
        num_workers=num_workers,
        executor=executor,
        on_error="skip",
    )
    with loader:
        for batch in loader:
            done += len(batch)
            if add is not None:
                add(batch)
            if tick is not None:
                tick(done + loader.stats().skipped)
        errors = loader.errors
    if tick is not None:
        tick(count)
    return sorted(errors, key=lambda error: error.index)


def _folder(path: str) -> FileDataset:
    """Return the images of a folder.

    Raises:
        FileNotFoundError: there are none.
    """
    dataset = images_of_folder(path)
    if not len(dataset):
        raise FileNotFoundError(
            errno.ENOENT,
            f"there are no images ({', '.join(sorted(IMAGE_SUFFIXES))}) in the folder",
            redact_url(path),
        )
    return dataset


@dataclass(frozen=True)
class _Run:
    """One call of `index_crops`; see its arguments."""

    out: str | None
    remake: bool
    num_workers: int | None
    executor: str
    begin: Callable[[int], object] | None
    tick: Callable[[int], object] | None

    def index(self, dataset: FileDataset) -> list[CropReport]:
        """Make the indexes of the files of a dataset, or of the folder; of those whose items can be found."""
        paths = dataset.crop_files().paths
        fine, faults = dataset.openable()
        reports = {
            number: CropReport(redact_url(paths[number]), "", written=False, fault=fault)
            for number, fault in faults.items()
        }
        if fine:
            reports.update(zip(fine, self._files(dataset.only(fine)), strict=True))
        return [report for _, report in sorted(reports.items())]

    def _target(self, files: CropFiles, path: str) -> _Target:
        number = 0 if files.kind == FOLDER else file_number(path, version_at(path), field=files.field)
        crops = files.place(path, self.out)
        return _Target(path, crops, files.kind, source=number, remake=self.remake)

    def _files(self, dataset: FileDataset) -> list[CropReport]:
        """Make the indexes of files whose items can be found."""
        files = dataset.crop_files()
        targets = [self._target(files, path) for path in files.paths]
        file, key = dataset.crop_keys(np.arange(len(dataset), dtype=np.int64))
        wanted, keys = [], []
        with _closing(targets):
            for number, target in enumerate(targets):
                lines = np.flatnonzero(file == number)
                # Several lines may name one record; lines that cannot be read have negative numbers.
                unique, first = np.unique(key[lines], return_index=True)
                keys.append(unique[unique >= 0].astype(np.uint64))
                # Records are read in the order of the file, and files in that of their names.
                lines = lines[first if files.kind == RECORDS else np.sort(first)]
                missing = ~_done(dataset, target, lines, key[lines])
                target.images = len(lines)
                target.kept = len(lines) - int(missing.sum())
                wanted.append(lines[missing])
            finder = ImageFinder(dataset.image_decoder())
            items = keyed(dataset, _EntryDecoder(_earlier_crops(targets), finder))
            failed = self._make(items, np.concatenate(wanted), targets, keys)
        reports = []
        for number, target in enumerate(targets):
            reports.append(target.report([error for item, error in failed if file[item] == number]))
        return reports

    def _make(
        self, dataset: FileDataset, wanted: IntArray, targets: Sequence[_Target], keys: Sequence[Array]
    ) -> list[tuple[int, SampleError]]:
        """Make the entries of some items, and complete the indexes; return (number of the item, error) of failures.

        Args:
            dataset: its samples are `_Made`.
            wanted: int64 (n,), indices, of the first index first.
            targets: the indexes.
            keys: uint64 (n,), keys of all images of each index.
        """
        if self.begin is not None:
            self.begin(len(wanted))
        current = 0

        def put_all(batch: list[_Made]) -> None:
            nonlocal current
            for made in batch:
                while current < made.number:
                    targets[current].finish(keys[current])
                    current += 1
                targets[current].put(made)
            targets[current].flush()

        errors = make_all(
            IndexedView(dataset, wanted),
            num_workers=self.num_workers,
            executor=self.executor,
            tick=self.tick,
            add=put_all,
            batchify_fn=list,
        )
        for number in range(current, len(targets)):
            targets[number].finish(keys[number])
        return [(int(wanted[error.index]), error) for error in errors]


def _earlier_crops(targets: Sequence[_Target]) -> RecordCrops:
    """Return the earlier indexes of files that have changed; those of the others need not be compared."""
    return RecordCrops([None if target.is_current else target.earlier for target in targets])


def _closing(targets: Sequence[_Target]) -> ExitStack:
    stack = ExitStack()
    for target in targets:
        stack.callback(target.close)
    return stack


def _done(dataset: FileDataset, target: _Target, items: IntArray, keys: Array) -> Array:
    """Return which items need not be read, bool (n,): they are in the earlier index, or done by an interrupted run.

    Of a folder, images of an interrupted run whose size is unchanged; objects at a URL are read again.
    """
    done, nbytes = target.done()
    if target.kind == RECORDS:
        return np.isin(keys, done.astype(np.int64))
    if is_url(target.path):
        return np.zeros(len(items), bool)
    sizes = dict(zip(done.tolist(), nbytes.tolist(), strict=True))
    return np.array(
        [
            0 <= dataset.file_nbytes(item) == sizes.get(key, -1)
            for item, key in zip(items.tolist(), keys.tolist(), strict=True)
        ],
        bool,
    )


_FITS, _STALE, _DAMAGED, _DIFFERENT, _REFUSED, _MISSING = range(6)


@dataclass(frozen=True, slots=True)
class CropCheck:
    """Result of checking a crop index.

    Attributes:
        path: the index.
        entries: number of entries that are intact and belong to their images.
        stale: number of entries that belong to other bytes: their images were changed.
        damaged: number of entries that are damaged.
        different: number of entries that differ from those made again, if `rebuilt`.
        missing: number of images that are not in the index, and not known as images that can have no entry.
        surplus: number of images in the index that do not exist.
        refused: number of images that can have no entry.
        rebuilt: the entries were made again. Then `missing` includes the images that the index says can have none,
            but that can have one.
        errors: errors of the images that could not be read.
        fault: why the index cannot be used at all, or "".
    """

    path: str
    entries: int = 0
    stale: int = 0
    damaged: int = 0
    different: int = 0
    missing: int = 0
    surplus: int = 0
    refused: int = 0
    rebuilt: bool = False
    errors: list[SampleError] = field(default_factory=list)
    fault: str = ""

    @property
    def ok(self) -> bool:
        """Return whether every image has the entry that it should have."""
        return not (self.fault or self.stale or self.damaged or self.different or self.missing or self.errors)

    def facts(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {**_facts(self), "ok": self.ok}


@dataclass(frozen=True)
class _CheckDecoder(Decoder[np.uint8]):
    """Decoder of an item with an image to the state of its entry.

    Attributes:
        index: the crop index.
        find: finds the image.
        rebuild: make the entries again, and compare them.
    """

    index: CropIndex
    find: ImageFinder
    rebuild: bool

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> np.uint8:
        _, key, image = self.find(data, extra, location)
        entry = self.index.lookup(key)
        if isinstance(image, str):
            refused = isinstance(entry, str) and entry.startswith(REFUSED)
            return np.uint8(_REFUSED if refused else _STALE)
        return np.uint8(self._state(image, entry))

    def _state(self, image: Any, entry: memoryview | str) -> int:
        if isinstance(entry, str):
            # Only images of the index are read: without an entry they are refused ones, if the index can be read.
            if not entry.startswith(REFUSED):
                return _DAMAGED
            return _REFUSED if isinstance(entry_or_reason(image), str) else _MISSING
        try:
            check_entry(entry, image)
        except CropEntryError as error:
            return _STALE if error.reason == "of other bytes" else _DAMAGED
        return _DIFFERENT if self.rebuild and not is_reproduced(entry, image) else _FITS


def check_index(dataset: FileDataset, *, rebuild: bool = False, **options: Any) -> CropCheck | None:
    """Check the crop index of a file, a shard or a folder of images.

    Args:
        dataset: over this one only, and only with items that can be read.
        rebuild: make the entries again, and compare them.
        options: see `_compare`.

    Returns:
        None if there is no index.

    Raises:
        OSError, SampleFormatError: the items cannot be found.
    """
    files = dataset.crop_files()
    found = _opened(files.place(files.paths[0]), files.kind) if files.paths else None
    if not isinstance(found, CropIndex):
        return found
    items = keyed(dataset, _CheckDecoder(found, ImageFinder(dataset.image_decoder()), rebuild))
    keys = dataset.crop_keys(np.arange(len(dataset)))[1].astype(np.uint64)
    return _compare(found, items, keys, rebuild=rebuild, **options)


def _opened(path: str, kind: int) -> CropIndex | CropCheck | None:
    if not os.path.exists(path):
        return None
    try:
        index = CropIndex(path)
        index.check_kind(kind)
    except (OSError, CropIndexError) as error:
        return CropCheck(path, fault=error.reason if isinstance(error, CropIndexError) else str(error))
    return index


def _compare(
    index: CropIndex,
    dataset: FileDataset,
    keys: Array,
    *,
    rebuild: bool,
    num_workers: int | None = None,
    executor: str = "process",
    begin: Callable[[int], object] | None = None,
    tick: Callable[[int], object] | None = None,
) -> CropCheck:
    """Check the entries of a dataset's items.

    Args:
        index: the crop index.
        dataset: its samples are the states of entries.
        keys: uint64 (n,), keys of its items.
        rebuild: see `check_index`.
        num_workers: workers of the loader; None: one per core.
        executor: see `aioloader.DataLoader`.
        begin: called with the number of images that are read, before the first one is.
        tick: called with the number of images done so far.
    """
    tables = index.tables()
    refused = tables.keys[tables.lengths == 0]
    wanted = np.flatnonzero(np.isin(keys, tables.keys if rebuild else tables.keys[tables.lengths > 0]))
    counts = np.zeros(6, np.int64)
    counts[_MISSING] = (~np.isin(keys, tables.keys)).sum()
    counts[_REFUSED] = 0 if rebuild else np.isin(keys, refused).sum()
    if begin is not None:
        begin(len(wanted))

    def add(batch: Array) -> None:
        nonlocal counts
        counts += np.bincount(batch, minlength=len(counts))

    view = IndexedView(dataset, wanted)
    errors = make_all(view, num_workers=num_workers, executor=executor, tick=tick, add=add)
    return CropCheck(
        index.path,
        entries=int(counts[_FITS]),
        stale=int(counts[_STALE]),
        damaged=int(counts[_DAMAGED]),
        different=int(counts[_DIFFERENT]),
        missing=int(counts[_MISSING]),
        surplus=int((~np.isin(tables.keys, keys)).sum()),
        refused=int(counts[_REFUSED]),
        rebuilt=rebuild,
        errors=errors,
    )
