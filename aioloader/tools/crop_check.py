"""Check of a crop index: whether each entry is intact, and belongs to the bytes of its image.

On request the entries are also made again and compared, which finds entries of a faulty writer: their checksums are
right. Then the images that were refused are tried again, too.
"""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.abc import Decoder
from aioloader.crop_index.reader import CropIndex
from aioloader.crop_index.writer import check_builder, entry_or_reason, is_reproduced
from aioloader.datasets.base import IndexedView
from aioloader.errors import CropIndexError
from aioloader.foundation.decodes import REFUSED
from aioloader.jpeg.crop_entry import CropEntryError, check_entry
from aioloader.tools.crops import ImageFinder, keyed, make_all

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.datasets.files import FileDataset
    from aioloader.errors import SampleError
    from aioloader.foundation.types import Array, ItemLocation

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
        facts = {name: getattr(self, name) for name in self.__dataclass_fields__}
        facts["image_errors"] = [error.facts() for error in facts.pop("errors")]
        return facts | {"ok": self.ok}


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
        MissingPackageError: `rebuild` needs numba, which is not installed.
    """
    files = dataset.crop_files()
    found = _opened(files.place(files.paths[0]), files.kind, rebuild=rebuild)
    if not isinstance(found, CropIndex):
        return found
    items = keyed(dataset, _CheckDecoder(found, ImageFinder(dataset.image_decoder()), rebuild))
    keys = dataset.crop_keys(np.arange(len(dataset)))[1].astype(np.uint64)
    return _compare(found, items, keys, rebuild=rebuild, **options)


def _opened(path: str, kind: int, *, rebuild: bool) -> CropIndex | CropCheck | None:
    if not os.path.exists(path):
        return None
    if rebuild:
        check_builder()
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
