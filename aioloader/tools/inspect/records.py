"""Inspection of record files by their headers and a sample of their images."""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict, dataclass, field
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.insightface_layout import face_header
from aioloader.datasets.insightface_property import PROPERTY, read_property
from aioloader.datasets.record import RecordFileDataset
from aioloader.datasets.record_layout import Detection, detection_label, key_range
from aioloader.datasets.shards import shard_name
from aioloader.errors import LayoutError, SpanTooShortError
from aioloader.foundation.types import IntArray, ItemLocation, Spans
from aioloader.storage.urls import is_url, redact_url, sibling, suffix_of
from aioloader.tools.fetching import fetch
from aioloader.tools.header_sample import evenly, sample_headers
from aioloader.tools.inspect.images import images_in
from aioloader.tools.inspect.report import Images, Inspection, labels_of, sizes_of
from aioloader.tools.paths import version_at
from aioloader.transforms.formats import read_header
from recordio import (
    CorruptRecordError,
    RecordIOError,
    extract,
    unpack,
    verify,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    import recordio
    from aioloader.datasets.record_heads import RecordHeads

_MOST_NAMED = 5
_NO_IMAGES = ("empty", "plain records")
_LOOKED_AT = 256
_MOST_SHARDS = 1_000_000  # names may say anything


class _ValidRecords(RecordFileDataset):
    """Dataset of the valid records of a damaged file without an index."""

    def __init__(self, path: str, report: recordio.Report) -> None:
        super().__init__(path)
        self.report = report

    def __len__(self) -> int:
        return self.report.records

    def spans(self, indices: IntArray) -> Spans:
        offset = self.report.offsets[indices]
        return Spans(np.zeros(len(offset), np.int64), offset, self.report.lengths[indices])

    def location(self, index: int) -> ItemLocation:
        return ItemLocation(None, self.report.path, int(self.report.offsets[index]))


@dataclass(kw_only=True)
class _File:
    """Record file and what was read of it.

    Attributes:
        nbytes: size of the file.
        offsets, lengths: int64 (n,), offsets of its records and upper bounds of their framed lengths.
        numbers: int64 (m,), numbers of the records whose headers were read.
        heads: these headers.
    """

    path: str
    nbytes: int
    indexed: bool
    records: RecordFileDataset
    offsets: IntArray
    lengths: IntArray
    numbers: IntArray
    heads: RecordHeads
    damage: list[str] = field(default_factory=list)
    fetched: dict[int, Any] = field(default_factory=dict)

    def fetch(self, numbers: IntArray) -> None:
        """Read these records in advance, if the file is remote."""
        if is_url(self.path) and len(numbers):
            self.fetched = dict(zip(numbers.tolist(), fetch(self.records, numbers), strict=True))

    def payload(self, number: int) -> Any:
        """Return the payload of a record.

        Raises:
            OSError, ValueError, EOFError: it cannot be read, or is damaged.
        """
        framed = self.fetched.get(number)
        if framed is None or isinstance(framed, SpanTooShortError):
            return self.records[number]
        if isinstance(framed, BaseException):
            raise framed
        return extract(framed, path=redact_url(self.path), offset=int(self.offsets[number]))


def inspect_records(
    path: str,
    files: list[str],
    *,
    sample: int,
    seconds: float | None,
    max_pixels: int | None,
    stage: Callable[[str, int], Callable[[int], Any]],
) -> Inspection:
    """Inspect record files that make up one set.

    Args:
        path: path of the set as the caller passed it.
        files: the .rec files, at least one.
        sample: number of images to decode.
        seconds: approximate time for reading headers; None: read all.
        max_pixels: larger images count as damaged; None for no limit.
        stage: called at the start of a stage with its name and amount of work; returns a function that is called with
            the progress.

    Raises:
        OSError: a file cannot be read.
        RecordIOError: an index cannot be read at all.
    """
    share = None if seconds is None else seconds / len(files)
    found = [_open(file, share, stage) for file in files]
    counts = np.array([len(file.offsets) for file in found])
    starts = np.cumsum(counts) - counts
    chosen = evenly(int(counts.sum()), sample)
    picked = [
        (found[place], int(number - starts[place]))
        for number, place in zip(
            chosen.tolist(), (np.searchsorted(starts, chosen, side="right") - 1).tolist(), strict=True
        )
    ]
    for file in found:
        file.fetch(np.array([number for one, number in picked if one is file], np.int64))
    kind, details = _kind(found, [picked[place] for place in evenly(len(picked), _LOOKED_AT).tolist()])
    damage = [text for file in found for text in file.damage]
    images = None
    if kind not in _NO_IMAGES:
        images = images_in(
            _bodies(picked), max_pixels=max_pixels, tick=stage("decoding a sample", len(picked))
        )
    if len(files) > 1:
        details["shards"] = [
            {"path": redact_url(file.path), "records": len(file.offsets), "nbytes": file.nbytes}
            for file in found
        ]
    if files != [path]:
        details["shard_faults"] = _shard_faults(files)
    return _summary(path, kind, found, details=details, damage=damage, images=images)


def _shard_faults(files: list[str]) -> list[str]:
    """Find missing and superfluous shards by their names, NAME-00000-of-00004.rec."""
    sets: dict[str, dict[int, set[int]]] = {}
    for name, number, count in filter(None, map(shard_name, files)):
        sets.setdefault(name, {}).setdefault(count, set()).add(number)
    faults = []
    for name, divisions in sets.items():
        if len(divisions) > 1:
            counts = " and into ".join(f"{count:,}" for count in sorted(divisions))
            faults.append(f"{name} is divided into {counts} shards, so images may be read twice")
        for count, numbers in sorted(divisions.items()):
            missing = [number for number in range(min(count, _MOST_SHARDS)) if number not in numbers]
            if missing:
                first = f"{name}-{missing[0]:05}-of-{count:05}.rec"
                faults.append(f"{len(missing):,} of {count:,} shards are missing, first {first}")
    return faults


def _open(path: str, seconds: float | None, stage: Callable[[str, int], Callable[[int], Any]]) -> _File:
    records = RecordFileDataset(path)
    name, version = redact_url(path), version_at(path)
    nbytes = os.path.getsize(path) if version is None else version.nbytes
    indexed = version is None and os.path.exists(os.path.splitext(path)[0] + ".idx")
    damage = []
    try:
        count = len(records)
        spans = records.spans(np.arange(count, dtype=np.int64))
        offsets, lengths = spans.offset, spans.length
        if version is not None:
            indexed = suffix_of(records.table.index.path or "") == ".idx"
        if records.table.index.faults:
            first = next(iter(records.table.index.faults.values()))
            faulty = len(records.table.index.faults)
            lines = "a line" if faulty == 1 else f"{faulty:,} lines"
            damage.append(f"{lines} of the index cannot be read: {first}")
    except CorruptRecordError as error:
        if indexed:
            raise
        tick = stage("searching for valid records", nbytes)
        records = _ValidRecords(path, verify(path, tick=tick))
        offsets, lengths = records.report.offsets, records.report.lengths
        damage.append(
            f"{name} is damaged and has no index: {error.message} at byte {error.offset}, and "
            f"{len(records.report.problems)} faults in all"
        )
    tick = stage("reading headers", len(offsets))
    numbers, heads = sample_headers(path, offsets, version=version, seconds=seconds, tick=tick)
    lost = np.flatnonzero(~heads.valid)
    if indexed:  # invalid lines were reported above
        lost = lost[~np.isin(numbers[lost], list(records.table.index.faults))]
    if len(lost):
        places = offsets[numbers[lost[:_MOST_NAMED]]].tolist()
        more = ", ..." if len(lost) > _MOST_NAMED else ""
        damage.append(
            f"{name}: {len(lost):,} of {len(heads):,} offsets of the index that were checked have no record: byte "
            f"{', '.join(map(str, places))}{more}"
        )
    return _File(
        path=path,
        nbytes=nbytes,
        indexed=indexed,
        records=records,
        offsets=offsets,
        lengths=lengths,
        numbers=numbers,
        heads=heads,
        damage=damage,
    )


def _kind(found: list[_File], picked: list[tuple[_File, int]]) -> tuple[str, dict[str, Any]]:
    """Return the kind of the records, and the details that only this kind has."""
    labels: list[Any] = []
    images = 0
    for _, payload in _payloads(picked):
        if not isinstance(payload, Exception):
            header, body = payload
            images += _is_image(body)
            if header.flag:
                labels.append(header.label)
    if not picked:
        return "empty", {}
    if not images:
        return "plain records", {}
    faces = _faces(found[0]) if len(found) == 1 else None
    if faces is not None:
        return "InsightFace", faces
    layouts = [detection_label(label) for label in labels]
    boxes = [box for box in layouts if box is not None]
    if len(boxes) == len(layouts) and any(box.objects for box in boxes):
        return "detection", _detection(labels, boxes)
    return ("packed images with label vectors" if labels else "packed images"), {}


def _payloads(picked: list[tuple[_File, int]]) -> Iterator[tuple[object, Any]]:
    """Yield the key of each record, and its header and body or an error, without records that have no image."""
    for file, number in picked:
        key = file.records.location(number).key
        try:
            header, body = unpack(memoryview(file.payload(number)))
        except (OSError, ValueError, EOFError) as error:
            yield key, error
            continue
        if not header.flag or key_range(header.label, len(body)) is None:
            yield key, (header, body)


def _bodies(picked: list[tuple[_File, int]]) -> Iterator[tuple[object, Any]]:
    """Yield the key of each image, and its bytes or an error."""
    for key, payload in _payloads(picked):
        yield key, payload if isinstance(payload, Exception) else payload[1]


def _detection(labels: list[Any], boxes: list[Detection]) -> dict[str, Any]:
    counted = sizes_of(np.array([box.objects for box in boxes]))
    classes = {
        float(value)
        for label, box in zip(labels, boxes, strict=True)
        for value in label[box.header_width :: box.object_width]
    }
    return {
        "header_width": sorted({box.header_width for box in boxes}),
        "object_width": sorted({box.object_width for box in boxes}),
        "objects": None if counted is None else asdict(counted),
        "classes_in_sample": len(classes),
    }


def _is_image(body: Any) -> bool:
    try:
        read_header(body)
    except ValueError:
        return False
    return True


def _faces(file: _File) -> dict[str, Any] | None:
    """Return the details of a set in InsightFace's layout, or None if it has another layout."""
    if isinstance(file.records, _ValidRecords) or not len(file.offsets):
        return None
    try:
        header = face_header(file.records[file.records.table.index.position(0)])
        if header is None or header.first >= header.end:
            return None
        identity = face_header(file.records[file.records.table.index.position(header.first)])
    except (RecordIOError, ValueError, OSError):
        return None
    if identity is None:
        return None
    return {
        "identities": header.end - header.first,
        "identity_keys": [header.first, header.end],
        "property": _property(file.path),
    }


def _property(rec: str) -> list[int] | None:
    """Return number of classes, height and width of an InsightFace set; None if its file is missing or malformed."""
    place = sibling(rec, PROPERTY) if is_url(rec) else os.path.join(os.path.dirname(rec), PROPERTY)
    try:
        return list(read_property(place))
    except (OSError, LayoutError):
        return None


def _summary(
    path: str,
    kind: str,
    found: list[_File],
    *,
    details: dict[str, Any],
    damage: list[str],
    images: Images | None,
) -> Inspection:
    nbytes: list[Any] = []
    widths: Counter[int] = Counter()
    labels: Counter[float] = Counter()
    bad = 0
    total = sum(len(file.offsets) for file in found)
    headers = 0
    for file in found:
        heads = file.heads
        # The length of a split record is known only with its framing, from its offset and the next one's.
        nbytes.append(np.where(heads.split, file.lengths[file.numbers], heads.nbytes)[heads.valid])
        headers += len(heads)
        if kind in _NO_IMAGES:
            continue
        image = heads.packed & ~(heads.bare & (heads.flag == 2))
        values, counts = np.unique(np.where(heads.flag == 0, 1, heads.flag)[image], return_counts=True)
        widths.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
        scalar = heads.label[image & (heads.flag == 0)]
        finite = np.isfinite(scalar)
        bad += int((~finite).sum())
        values, counts = np.unique(scalar[finite], return_counts=True)
        labels.update(dict(zip(values.astype(float).tolist(), counts.tolist(), strict=True)))
    if bad:
        damage.append(f"{bad:,} labels are not finite numbers")
    return Inspection(
        path,
        kind,
        len(found),
        sum(file.nbytes for file in found),
        total,
        images_in_all=sum(widths.values()) if headers == total and kind not in _NO_IMAGES else None,
        headers=headers,
        indexed=all(file.indexed for file in found),
        sizes=sizes_of(np.concatenate(nbytes)) if nbytes else None,
        labels=labels_of(labels),
        label_widths=dict(widths.most_common()),
        images=images,
        details=details,
        damage=damage,
    )
