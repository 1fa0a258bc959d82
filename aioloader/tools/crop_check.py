"""Check of a crop index: whether each entry is intact, and belongs to the bytes of its image."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.crop_index.layout import FOLDER, RECORDS, folder_key
from aioloader.crop_index.lookup import relative_name
from aioloader.crop_index.places import folder_index, record_index
from aioloader.crop_index.reader import CropIndex
from aioloader.datasets.base import IndexedView
from aioloader.datasets.record import RecordFileDataset
from aioloader.errors import CropIndexError
from aioloader.jpeg.crop_entry import CropEntryError, check_entry
from aioloader.loader.sync_loader import DataLoader
from aioloader.tools.crop_images import FolderImages, image_paths
from recordio import extract, unpack

if TYPE_CHECKING:
    from collections.abc import Callable

    import recordio
    from aioloader.datasets.files import FileDataset
    from aioloader.foundation.types import Array, IntArray, ItemLocation, Spans

_FITS, _STALE, _DAMAGED = range(3)
_BATCH = 64


@dataclass(frozen=True, slots=True)
class CropCheck:
    """Result of checking a crop index.

    Attributes:
        path: the index.
        entries: number of entries that are intact and belong to their images.
        stale: number of entries that belong to other bytes: their images were changed.
        damaged: number of entries that are damaged.
        missing: number of images that are not in the index, and not known as images that can have no entry.
        surplus: number of images in the index that do not exist.
        refused: number of images that can have no entry.
        fault: why the index cannot be used at all, or "".
    """

    path: str
    entries: int = 0
    stale: int = 0
    damaged: int = 0
    missing: int = 0
    surplus: int = 0
    refused: int = 0
    fault: str = ""

    @property
    def ok(self) -> bool:
        """Return whether every image has the entry that it should have."""
        return not (self.fault or self.stale or self.damaged or self.missing)

    def facts(self) -> dict[str, Any]:
        """Return the result as JSON values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__} | {"ok": self.ok}


@dataclass(frozen=True)
class _CheckDecoder:
    """Decoder of an image, or of a record with an image, to the state of its entry; extras are the keys.

    Attributes:
        index: the crop index.
        records: items are records.
    """

    index: CropIndex
    records: bool

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> np.uint8:
        image: Any = data
        if self.records:
            payload: Any = extract(data, path=location.path, offset=location.offset or 0)
            _, image = unpack(payload)
        entry = self.index.find(int(extra))
        try:
            if entry is None:
                raise CropEntryError("damaged")
            check_entry(entry, image)
        except CropEntryError as error:
            return np.uint8(_STALE if error.reason == "of other bytes" else _DAMAGED)
        return np.uint8(_FITS)


class _ValidRecords(RecordFileDataset):
    """Dataset of the valid records of a file as the states of their entries."""

    def __init__(self, path: str, report: recordio.Report, index: CropIndex) -> None:
        super().__init__(path)
        self._report = report
        self._index = index

    def __len__(self) -> int:
        return self._report.records

    @property
    def decoder(self) -> Any:
        return _CheckDecoder(self._index, records=True)

    def spans(self, indices: IntArray) -> Spans:
        from aioloader.foundation.types import Spans

        offset = self._report.offsets[indices]
        return Spans(np.zeros(len(offset), np.int64), offset, self._report.lengths[indices])

    def extras(self, indices: IntArray) -> Any:
        return self._report.offsets[indices]


def check_record_index(path: str, report: recordio.Report, **options: Any) -> CropCheck | None:
    """Check the crop index of a record file.

    Args:
        path: the .rec file, or its URL.
        report: result of `recordio.verify`; only valid records are compared.
        options: see `_compare`.

    Returns:
        None if there is no index.
    """
    found = _opened(record_index(path), RECORDS)
    if not isinstance(found, CropIndex):
        return found
    dataset = _ValidRecords(path, report, found)
    return _compare(found, dataset, report.offsets.astype(np.uint64), **options)


def check_folder_index(root: str, **options: Any) -> CropCheck | None:
    """Check the crop index of a folder of images.

    Args:
        root: the folder, or its URL.
        options: see `_compare`.

    Returns:
        None if there is no index.

    Raises:
        OSError: the folder cannot be listed.
    """
    found = _opened(folder_index(root), FOLDER)
    if not isinstance(found, CropIndex):
        return found
    paths = image_paths(root)
    keys = np.array([folder_key(relative_name(root, path)) for path in paths], np.uint64)
    dataset = FolderImages(root, paths, _CheckDecoder(found, records=False), keys)
    return _compare(found, dataset, keys, **options)


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
    num_workers: int | None = None,
    executor: str = "process",
    tick: Callable[[int], Any] | None = None,
) -> CropCheck:
    """Check the entries of a dataset's items.

    Args:
        index: the crop index.
        dataset: its samples are the states of entries.
        keys: uint64 (n,), keys of its items.
        num_workers: workers of the loader; None: one per core.
        executor: see `aioloader.DataLoader`.
        tick: called with the number of images done so far.
    """
    tables = index.tables()
    with_entry = np.flatnonzero(np.isin(keys, tables.keys[tables.lengths > 0]))
    counts = np.zeros(3, np.int64)
    unread = done = 0
    if len(with_entry):
        loader: DataLoader[Array]
        with DataLoader(
            IndexedView(dataset, with_entry),
            _BATCH,
            num_workers=num_workers,
            executor=executor,
            on_error="skip",
        ) as loader:
            batch: Array
            for batch in loader:
                counts += np.bincount(batch, minlength=3)
                done += len(batch)
                if tick is not None:
                    tick(done)
            unread = loader.stats().skipped
    return CropCheck(
        index.path,
        entries=int(counts[_FITS]),
        stale=int(counts[_STALE]),
        damaged=int(counts[_DAMAGED]),
        missing=int((~np.isin(keys, tables.keys)).sum()) + unread,
        surplus=int((~np.isin(tables.keys, keys)).sum()),
        refused=int(np.isin(keys, tables.keys[tables.lengths == 0]).sum()),
    )
