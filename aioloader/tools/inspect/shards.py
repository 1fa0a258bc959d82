"""Inspection of shards of other formats than RecordIO, by their indexes and a sample of their samples."""

from __future__ import annotations

import os
from collections import Counter
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.fields import FieldKind
from aioloader.datasets.resolve import version_at
from aioloader.datasets.shard_dataset import NumberKeys
from aioloader.formats.inspection import (
    FieldFacts,
    Inspection,
    Options,
    SampleIndexes,
    crop_indexes,
    images_in,
    labels_of,
    sizes_of,
)
from aioloader.formats.sampling import evenly, fetch_each, in_passes
from aioloader.sample_index.store import IndexState, index_state
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.datasets.shard_dataset import ShardDataset
    from aioloader.formats.base import Format
    from aioloader.foundation.types import IntArray

_LABELS_AT_A_TIME = 256
_MOST_LABELS = 1 << 22
_MOST_NBYTES = 32 << 20
_MOST_FIELDS = 200


def inspect_shards(path: str, whole: ShardDataset, format: Format, options: Options) -> Inspection:
    """Inspect shards.

    Args:
        path: as the caller passed it.
        whole: dataset over the shards.
        format: theirs.
        options: see `Options`.

    Raises:
        OSError: a shard cannot be read.
    """
    # Opening the shards makes the indexes that are missing.
    indexes = None if whole.index_kind is None else _sample_indexes(whole.paths, whole.index_kind)
    fine, reasons = whole.openable()
    damage = list(reasons.values())
    name = f"{format.name} {format.noun}"
    nbytes = sum(map(_nbytes, whole.paths))
    if not fine:
        return Inspection(
            path, name, len(whole.paths), nbytes, 0, fields=[], sample_indexes=indexes, damage=damage
        )
    dataset = whole.only(fine).with_all_fields()
    chosen = evenly(len(dataset), options.sample)
    sample = _Sample(dataset, chosen)
    damage += sample.damage
    labels, read = _labels(dataset, options)
    length = dataset.tables.length
    images = None
    if sample.image is not None:
        tick = options.stage("decoding a sample", len(sample.images))
        images = images_in(sample.images, max_pixels=options.max_pixels, tick=tick)
    return Inspection(
        path,
        name,
        len(whole.paths),
        nbytes,
        len(dataset),
        # The rows of a table have no places, and damage may make a length negative.
        sizes=sizes_of(length[length > 0]),
        labels=labels_of(labels),
        images=images,
        crop_indexes=None if images is None else crop_indexes(whole.paths, is_record_file=False),
        fields=sample.fields(),
        sample_indexes=indexes,
        details={
            "image_field": sample.image,
            "label_field": sample.chosen(dataset.label_field) if labels else None,
            "labels_read": read if labels and read < len(dataset) else None,
            "keys": _keys(dataset),
            "members_outside": dataset.members_outside() or None,
            **_shards(whole, dataset, fine),
        },
        damage=damage,
    )


def _shards(whole: ShardDataset, dataset: ShardDataset, fine: list[int]) -> dict[str, Any]:
    if len(whole.paths) == 1:
        return {}
    samples = dict(zip(fine, map(len, dataset.tables.tables), strict=True))
    return {
        "shards": [
            {"path": redact_url(path), "samples": samples.get(number), "nbytes": _nbytes(path)}
            for number, path in enumerate(whole.paths)
        ]
    }


def _keys(dataset: ShardDataset) -> list[str]:
    """Return the keys of the first and the last sample, if they are more than numbers."""
    tables = dataset.tables.tables
    if not len(dataset) or all(isinstance(table.keys, NumberKeys) for table in tables):
        return []
    return [str(dataset.location(number).key) for number in (0, len(dataset) - 1)]


def _nbytes(path: str) -> int:
    version = version_at(path)
    try:
        return os.path.getsize(path) if version is None else version.nbytes
    except FileNotFoundError:  # it is one of the damaged shards
        return 0


class _Field:
    """Statistics of one field.

    Attributes:
        samples: number of samples that have it.
        sizes: bytes of each value that is stored as bytes.
        values: descriptions of other values, with their numbers.
    """

    def __init__(self) -> None:
        self.samples = 0
        self.sizes: list[int] = []
        self.values: Counter[str] = Counter()

    def add(self, value: Any) -> None:
        self.samples += 1
        if isinstance(value, (memoryview, bytes, bytearray)):
            self.sizes.append(len(value))
        else:
            self.values[_description(value)] += 1


def _description(value: Any) -> str:
    if isinstance(value, np.ndarray):
        return f"{value.dtype} {'x'.join(map(str, value.shape))}"
    return value.dtype.name if isinstance(value, np.generic) else type(value).__name__


class _Sample:
    """Some samples of a dataset, and statistics of their fields.

    Args:
        dataset: the dataset.
        chosen: int64 (n,), the samples.

    Attributes:
        image: name of the images; None if there are none.
        images: key and encoded image, or the error, of each sample with images.
        damage: descriptions of damaged samples.
    """

    def __init__(self, dataset: ShardDataset, chosen: IntArray) -> None:
        self._reader = dataset.reader
        self._found: dict[str, _Field] = {}
        self.damage: list[str] = []
        samples: list[tuple[str, dict[str, Any]]] = []
        extras = dataset.extras(chosen)
        for place, (number, data) in enumerate(
            zip(chosen.tolist(), fetch_each(dataset, chosen), strict=True)
        ):
            location = dataset.location(number)
            extra = None if extras is None else extras[place]
            try:
                if isinstance(data, BaseException):
                    raise data
                names = self._reader.names(data, extra, location)
                values = dict(zip(names, self._reader.read(data, extra, location, names), strict=True))
            except (OSError, ValueError, EOFError) as error:
                self.damage.append(f"sample {location.key}: {' '.join(str(error).split())}")
                continue
            for name, value in values.items():
                if name in self._found or len(self._found) < _MOST_FIELDS:
                    self._found.setdefault(name, _Field()).add(value)
            samples.append((str(location.key), values))
        encoded = [
            name
            for name, each in self._found.items()
            if each.sizes and self._reader.kind(name) is FieldKind.IMAGE
        ]
        preferred = self.chosen(dataset.image_field)
        self.image = preferred if preferred in encoded else next(iter(encoded), None)
        self.images = [
            (key, values[self.image])
            for key, values in samples
            if self.image in values and isinstance(values[self.image], (memoryview, bytes))
        ]

    def chosen(self, name: str) -> str | None:
        """Return the field with a name, or the first of several names "jpg;png" that there is; None without one."""
        return next((each for each in (name, *name.split(";")) if each in self._found), None)

    def fields(self) -> list[FieldFacts]:
        """Return the statistics of all fields, in the order in which they were found."""
        return [
            FieldFacts(
                name,
                self._kind(name),
                each.samples,
                sizes_of(np.array(each.sizes)),
                dict(each.values.most_common(8)),
            )
            for name, each in self._found.items()
        ]

    def _kind(self, name: str) -> str:
        """Return the kind of a field; that of values that are bytes in all samples is not only "value"."""
        kind = self._reader.kind(name)
        is_bytes = kind is FieldKind.VALUE and not self._found[name].values
        return (FieldKind.BYTES if is_bytes else kind).value


def _labels(dataset: ShardDataset, options: Options) -> tuple[Counter[float], int]:
    """Count the labels of samples, evenly spread over the dataset, until the time is over; return their number, too."""
    count = len(dataset)
    tick = options.stage("reading labels", count)
    labels: Counter[float] = Counter()
    begun, read = monotonic(), 0
    source = dataset.open_source()
    try:
        for numbers in in_passes(count, _LABELS_AT_A_TIME):
            late = options.seconds is not None and monotonic() - begun > options.seconds
            if read and (late or not labels or read >= _MOST_LABELS):
                break  # without labels: there is no such field, or it contains vectors
            for indices in _bounded(dataset, numbers):
                found = dataset.labels_at(indices, source)
                scalars = [float(label) for label in found if np.ndim(label) == 0 and _is_number(label)]
                labels.update(value for value in scalars if np.isfinite(value))
                read += len(indices)
                tick(read)
    finally:
        source.close()
    return labels, read


def _bounded(dataset: ShardDataset, numbers: IntArray) -> list[IntArray]:
    """Split samples into parts of a bounded number of bytes."""
    parts = np.cumsum(dataset.spans(numbers).length.clip(min=0)) // _MOST_NBYTES
    return np.split(numbers, np.flatnonzero(np.diff(parts)) + 1)


def _is_number(label: Any) -> bool:
    return isinstance(label, (int, float, np.number))


def _sample_indexes(paths: Sequence[str], kind: str) -> SampleIndexes:
    """Examine the sample indexes of shards at their usual places."""
    counts: Counter[IndexState] = Counter()
    for path in paths:
        counts[index_state(path, version_at(path), kind)] += 1
    return SampleIndexes(
        adjacent=counts[IndexState.BESIDE],
        cached=counts[IndexState.CACHED],
        stale=counts[IndexState.STALE],
        missing=counts[IndexState.MISSING],
    )
