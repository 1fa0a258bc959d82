"""Making of sample indexes for shards of other formats than RecordIO."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from aioloader.errors import SampleFormatError
from aioloader.sample_index.store import cached_index, index_beside, load_index, shard_state, write_index
from aioloader.storage.urls import is_url, redact_url
from aioloader.tools.paths import version_at
from aioloader.tools.shards import fault_line, openable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.datasets.shard_dataset import ShardDataset


# Scans of remote shards wait for the network; those of local ones compute.
_REMOTE_SCANS = 16


@dataclass(frozen=True, slots=True)
class SampleIndexReport:
    """Result of making the index of one shard.

    Attributes:
        path: the shard.
        index: the index; "" if there is none.
        samples: number of samples in it.
        nbytes: its size.
        kept: there was one that fits, and it stays as it is.
        ok: there is an index, or none is needed.
        fault: why there is none, or why it is not next to the shard; "" otherwise.
    """

    path: str
    index: str = ""
    samples: int = 0
    nbytes: int = 0
    kept: bool = False
    ok: bool = True
    fault: str = ""

    def facts(self) -> dict[str, Any]:
        """Return the report as JSON values."""
        return {name: getattr(self, name) for name in self.__dataclass_fields__}


def index_all(dataset: ShardDataset, *, remake: bool = False) -> Iterator[SampleIndexReport]:
    """Make the indexes of all shards of a dataset, and yield the reports in order.

    Args:
        dataset: the dataset.
        remake: see `index_samples`.

    Raises:
        OSError: as for `index_samples`.
    """
    workers = _REMOTE_SCANS if dataset.reads_ahead else 1
    with ThreadPoolExecutor(workers, "aioloader-scan") as pool:
        yield from pool.map(
            lambda number: index_samples(dataset, number, remake=remake), range(len(dataset.paths))
        )


def index_samples(dataset: ShardDataset, number: int, *, remake: bool = False) -> SampleIndexReport:
    """Make the index of a shard: next to it, or of a URL, or in a folder that cannot be written, in the user's cache.

    Args:
        dataset: over the shard.
        number: of the shard.
        remake: make an index that fits again, too.

    Returns:
        the report; that of a damaged shard, or of one that needs no index, has none. One that cannot be opened is
        not `ok`.

    Raises:
        OSError: the shard cannot be read, or no index can be written.
    """
    path = dataset.paths[number]
    name = redact_url(path)
    if dataset.index_kind is None:
        reasons = {} if dataset.opens_whole else openable(dataset.only([number]))[1]
        fault = next(iter(reasons.values()), "")
        return SampleIndexReport(name, ok=not fault, fault=fault)
    version = version_at(path)
    before = shard_state(path, version)
    if before is None:
        text = "the server does not identify the version of this object, so no index of it is kept"
        return SampleIndexReport(name, ok=False, fault=f"{name}: {text}")
    places = [cached_index(path)] if is_url(path) else [index_beside(path), cached_index(path)]
    if not remake and load_index(path, before, dataset.index_kind, places[:1]) is not None:
        return _report(dataset, number, places[0], kept=True)
    try:
        index = dataset.scan_shard(number)
    except SampleFormatError as error:
        return SampleIndexReport(name, ok=False, fault=fault_line(name, error))
    if version is None and shard_state(path) != before:
        return SampleIndexReport(name, ok=False, fault=f"{name}: the file changed while it was read")
    fault = ""
    for place in places:
        try:
            write_index(place, index, before)
        except OSError as error:
            if place == places[-1]:
                raise
            fault = f"{name}: {place} cannot be written: {error.strerror}"
        else:
            break
    return _report(dataset, number, place, fault=fault)


def _report(
    dataset: ShardDataset, number: int, place: str, *, kept: bool = False, fault: str = ""
) -> SampleIndexReport:
    samples = len(dataset.only([number]))  # read as a loader reads it
    name = redact_url(dataset.paths[number])
    return SampleIndexReport(name, place, samples, os.path.getsize(place), kept=kept, fault=fault)
