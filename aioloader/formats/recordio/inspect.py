"""Inspection of record files by their headers and a sample of their images.

Files of fields next to record files (`aioloader pack --fields`).
"""

from __future__ import annotations

import os
from collections import Counter
from dataclasses import asdict
from pathlib import Path
from time import monotonic
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.resolve import version_at
from aioloader.errors import LayoutError, SpanTooShortError
from aioloader.formats.insightface.layout import PROPERTY, face_header, read_property
from aioloader.formats.inspection import (
    Inspection,
    Options,
    _spread,
    crop_indexes,
    evenly,
    fetch,
    images_in,
    labels_of,
    sizes_of,
)
from aioloader.formats.packed_files import fields_place, read_fields
from aioloader.formats.recordio.dataset import ImageRecordDataset, RecordFileDataset, record_crop_files
from aioloader.formats.recordio.heads import Detection, RecordHeads, detection_label, key_range, read_heads
from aioloader.formats.shards import shard_name
from aioloader.foundation.types import IntArray, ItemLocation, Spans
from aioloader.storage.urls import is_url, redact_url, sibling, suffix_of
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS
from aioloader.transforms.formats import read_header
from recordio import (
    CorruptRecordError,
    RecordIOError,
    extract,
    unpack,
    verify,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    import recordio
    from aioloader.abc import ByteSource
    from aioloader.storage.remote.transport import Version


_MOST_LINES = 100_000


def examine_fields(rec: str, count: int, key_at: Callable[[int], object]) -> tuple[Counter[str], list[str]]:
    """Count the fields in the file of fields of a local record file; of a long file, those in its first 100,000 lines.

    Args:
        rec: the record file, or its URL, whose file of fields is not read.
        count: number of records.
        key_at: returns the key of a record by its number.

    Returns:
        the number of records by the name of a field, empty without a file; and descriptions of damage.
    """
    names: Counter[str] = Counter()
    place = fields_place(Path(rec))
    if is_url(rec) or not place.is_file():
        return names, []
    number = 0
    try:
        for number, line in enumerate(read_fields(place), 1):
            if number > count or line.key != key_at(number - 1):
                return names, [
                    f"{place}, line {number}: the key {line.key} is not that of record {number - 1}"
                ]
            names.update(list(line.fields))
            if number == _MOST_LINES:
                return names, []
    except (OSError, ValueError) as error:
        return names, [str(error)]
    if number < count:
        return names, [f"{place} has {number:,} lines, and its record file has {count:,} records"]
    return names, []


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


class _File:
    """Record file and what was read of it.

    Args:
        path: the .rec file, or its URL.
        seconds: approximate time for reading headers; None: read all.
        stage: see `Options`.

    Attributes:
        nbytes: size of the file.
        indexed: whether it has an .idx.
        records: its records.
        offsets, lengths: int64 (n,), offsets of its records and upper bounds of their framed lengths.
        numbers: int64 (m,), numbers of the records whose headers were read.
        heads: these headers.
        damage: descriptions of damage.
        salvaged: `records` are those that were found valid in a damaged file without an index.

    Raises:
        OSError: the file cannot be read.
        RecordIOError: its index cannot be read at all.
    """

    def __init__(
        self, path: str, seconds: float | None, stage: Callable[[str, int], Callable[[int], Any]]
    ) -> None:
        self.path = path
        self.records = RecordFileDataset(path)
        self.damage: list[str] = []
        self.salvaged = False
        self._fetched: dict[int, Any] = {}
        name, version = redact_url(path), version_at(path)
        self.nbytes = os.path.getsize(path) if version is None else version.nbytes
        self.indexed = version is None and os.path.exists(os.path.splitext(path)[0] + ".idx")
        faults: Mapping[int, Exception] = {}
        try:
            spans = self.records.spans(np.arange(len(self.records), dtype=np.int64))
            self.offsets, self.lengths = spans.offset, spans.length
            index = self.records.table.index
            if version is not None:
                self.indexed = suffix_of(index.path or "") == ".idx"
            faults = index.faults
            if faults:
                lines = "a line" if len(faults) == 1 else f"{len(faults):,} lines"
                first = next(iter(faults.values()))
                self.damage.append(f"{lines} of the index cannot be read: {first}")
            repeated = len(index.repeated())
            if repeated:
                self.damage.append(f"{repeated:,} lines of the index repeat a line before them")
        except CorruptRecordError as error:
            if self.indexed:
                raise
            report = verify(path, tick=stage("searching for valid records", self.nbytes))
            self.records, self.salvaged = _ValidRecords(path, report), True
            self.offsets, self.lengths = report.offsets, report.lengths
            self.damage.append(
                f"{name} is damaged and has no index: {error.message} at byte {error.offset}, and "
                f"{len(report.problems)} faults in all"
            )
        tick = stage("reading headers", len(self.offsets))
        self.numbers, self.heads = sample_headers(
            path, self.offsets, version=version, seconds=seconds, tick=tick
        )
        lost = self.numbers[~self.heads.valid]
        if self.indexed:  # invalid lines were reported above
            lost = lost[~np.isin(lost, list(faults))]
        if len(lost):
            places = ", ".join(map(str, self.offsets[lost[:_MOST_NAMED]].tolist()))
            more = ", ..." if len(lost) > _MOST_NAMED else ""
            self.damage.append(
                f"{name}: {len(lost):,} of {len(self.heads):,} offsets of the index that were checked have no record: "
                f"byte {places}{more}"
            )

    def sizes(self) -> IntArray:
        """Return the sizes of the payloads of the valid records whose headers were read, in bytes."""
        heads = self.heads
        # The length of a split record is known only with its framing, from its offset and the next one's.
        nbytes: IntArray = np.where(heads.split, self.lengths[self.numbers], heads.nbytes)[heads.valid]
        return nbytes

    def key_at(self, number: int) -> object:
        """Return the key of a record."""
        return self.records.location(number).key

    def fetch(self, numbers: IntArray) -> None:
        """Read these records in advance, if the file is remote."""
        if is_url(self.path) and len(numbers):
            self._fetched = dict(zip(numbers.tolist(), fetch(self.records, numbers), strict=True))

    def payload(self, number: int) -> Any:
        """Return the payload of a record.

        Raises:
            OSError, ValueError, EOFError: it cannot be read, or is damaged.
        """
        framed = self._fetched.get(number)
        if framed is None or isinstance(framed, SpanTooShortError):
            return self.records[number]
        if isinstance(framed, BaseException):
            raise framed
        return extract(framed, path=redact_url(self.path), offset=int(self.offsets[number]))


def inspect_records(path: str, files: Sequence[str], options: Options) -> Inspection:
    """Inspect record files that make up one set.

    Args:
        path: path of the set as the caller passed it.
        files: the .rec files, at least one.
        options: options of the inspection.

    Raises:
        OSError: a file cannot be read.
        RecordIOError: an index cannot be read at all.
    """
    share = None if options.seconds is None else options.seconds / len(files)
    found = [_File(file, share, options.stage) for file in files]
    total = sum(len(file.offsets) for file in found)
    picked = _picked(found, evenly(total, options.sample))
    kind, details = _kind(found, [picked[place] for place in evenly(len(picked), _LOOKED_AT).tolist()])
    damage = [text for file in found for text in file.damage]
    fields: Counter[str] = Counter()
    for file in found:
        names, faults = examine_fields(file.path, len(file.offsets), file.key_at)
        fields.update(names)
        damage += faults
    if fields:
        details["fields"] = dict(fields.most_common())
    images = None
    widths: Counter[int] = Counter()
    labels: Counter[float] = Counter()
    if kind not in _NO_IMAGES:
        bodies = (
            (key, payload if isinstance(payload, Exception) else payload[1])
            for key, payload in _payloads(picked)
        )
        tick = options.stage("decoding a sample", len(picked))
        images = images_in(bodies, max_pixels=options.max_pixels, tick=tick)
        bad = sum(_count_labels(file.heads, widths, labels) for file in found)
        if bad:
            damage.append(f"{bad:,} labels are not finite numbers")
    if len(files) > 1:
        details["shards"] = [
            {"path": redact_url(file.path), "records": len(file.offsets), "nbytes": file.nbytes}
            for file in found
        ]
    if list(files) != [path]:
        details["shard_faults"] = _shard_faults(files)
    headers = sum(len(file.heads) for file in found)
    return Inspection(
        path,
        kind,
        len(found),
        sum(file.nbytes for file in found),
        total,
        images_in_all=sum(widths.values()) if headers == total and kind not in _NO_IMAGES else None,
        headers=headers,
        indexed=all(file.indexed for file in found),
        sizes=sizes_of(np.concatenate([file.sizes() for file in found])),
        labels=labels_of(labels),
        label_widths=dict(widths.most_common()),
        images=images,
        crop_indexes=None if images is None else crop_indexes(record_crop_files(files)),
        details=details,
        damage=damage,
    )


def _picked(found: list[_File], chosen: IntArray) -> list[tuple[_File, int]]:
    """Return the file, and the number there, of records chosen by their number in the set; read remote ones."""
    starts = np.cumsum([0, *(len(file.offsets) for file in found[:-1])])
    places = np.searchsorted(starts, chosen, side="right") - 1
    picked = [
        (found[place], number)
        for place, number in zip(places.tolist(), (chosen - starts[places]).tolist(), strict=True)
    ]
    for file in found:
        file.fetch(np.array([number for one, number in picked if one is file], np.int64))
    return picked


def _count_labels(heads: RecordHeads, widths: Counter[int], labels: Counter[float]) -> int:
    """Count the records by the width of their labels, and by scalar label; return the number of unusable labels."""
    image = heads.packed & ~(heads.bare & (heads.flag == 2))
    values, counts = np.unique(np.where(heads.flag == 0, 1, heads.flag)[image], return_counts=True)
    widths.update(dict(zip(values.tolist(), counts.tolist(), strict=True)))
    scalar = heads.label[image & (heads.flag == 0)]
    finite = np.isfinite(scalar)
    values, counts = np.unique(scalar[finite], return_counts=True)
    labels.update(dict(zip(values.astype(float).tolist(), counts.tolist(), strict=True)))
    return int((~finite).sum())


def _shard_faults(files: Sequence[str]) -> list[str]:
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
    if file.salvaged or not len(file.offsets):
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


_MOST_PASSES = 64
_BETWEEN_TICKS = 4096
_MOST_SAMPLED = 1 << 22  # some hundred bytes of memory each


def sample_headers(
    path: str,
    offsets: IntArray,
    *,
    version: Version | None = None,
    seconds: float | None = None,
    tick: Callable[[int], Any] | None = None,
) -> tuple[IntArray, RecordHeads]:
    """Read the headers of records.

    Args:
        path: the record file, or its URL.
        offsets: int64 (n,), offsets of the records; ascending order is fastest.
        version: version of the object, if `path` is a URL.
        seconds: after this time an even sample is enough; at most about four million headers are read; None: read all.
        tick: called regularly with the number of headers read so far.

    Returns:
        int64 (m,), indices of the offsets whose headers were read, ascending; and the headers.

    Raises:
        OSError: the file cannot be read.
    """
    count = len(offsets)
    begun = monotonic()
    passes = 1 if seconds is None else min(_MOST_PASSES, max(1, count // _BETWEEN_TICKS))
    most = count if seconds is None else min(count, _MOST_SAMPLED)
    looked = [np.empty(0, np.int64)]
    parts = [read_heads(path, offsets[:0], version=version)]
    done = 0
    for first in _spread(passes):
        numbers = np.arange(first, count, passes, dtype=np.int64)
        late = seconds is not None and monotonic() - begun > seconds
        if done and (late or done + len(numbers) > most):
            break
        for low in range(0, len(numbers), _BETWEEN_TICKS):
            part = numbers[low : low + _BETWEEN_TICKS]
            looked.append(part)
            parts.append(read_heads(path, offsets[part], version=version))
            done += len(part)
            if tick is not None:
                tick(done)
    seen = np.concatenate(looked)
    order = np.argsort(seen, kind="stable")
    return seen[order], RecordHeads.joined(parts, order)


_LOOKED_AT_VALID = 64


class ValidRecords(ImageRecordDataset):
    """Dataset of the valid records of a file.

    Args:
        report: result of `recordio.verify` for the file.
        path: path of the file, if it is a URL: reports do not contain the signature of a URL.
        max_pixels: see `ImageRecordDataset`.

    Raises:
        OSError: the file cannot be read.
    """

    def __init__(
        self,
        report: recordio.Report,
        path: str | None = None,
        *,
        max_pixels: int | None = DEFAULT_MAX_PIXELS,
    ) -> None:
        super().__init__(path or report.path, max_pixels=max_pixels, label_dtype="float32", crop_index=None)
        self._report = report
        self._numbers = self._chosen()

    def _chosen(self) -> IntArray:
        """Return the numbers of the records in the order of the file."""
        return np.arange(self._report.records, dtype=np.int64)

    def __len__(self) -> int:
        return len(self._numbers)

    def spans(self, indices: IntArray) -> Spans:
        chosen = self._numbers[indices]
        offset, length = self._report.offsets[chosen], self._report.lengths[chosen]
        return Spans(np.zeros(len(offset), np.int64), offset, length)

    def location(self, index: int) -> ItemLocation:
        number = int(self._numbers[index])
        return ItemLocation(self._report.key_at(number), self._report.path, int(self._report.offsets[number]))


class ValidImages(ValidRecords):
    """Dataset of the images in the valid records of a file; see `ValidRecords`."""

    def _chosen(self) -> IntArray:
        """Return the numbers of the records with images: in a file of images, all but those with only a header.

        Returns:
            int64 (n,), in the order of the file; empty if the records do not contain images.
        """
        report = self._report
        chosen = evenly(report.records, _LOOKED_AT_VALID)
        source = self.open_source()
        try:
            if not any(_has_image(source, self._framed(number)) for number in chosen.tolist()):
                return chosen[:0]
        finally:
            source.close()
        heads = read_heads(self._path, report.offsets, version=self._versions[0])
        # Such records refer to ranges of others; see `aioloader.formats.recordio.heads`.
        return np.flatnonzero(~(heads.bare & (heads.flag == 2))).astype(np.int64)

    def _framed(self, number: int) -> Spans:
        one = slice(number, number + 1)
        return Spans(np.zeros(1, np.int64), self._report.offsets[one], self._report.lengths[one])


def _has_image(source: ByteSource, spans: Spans) -> bool:
    try:
        plan, data = source.fetch(spans)
        start = int(plan.start[0])
        payload: Any = extract(data[start : start + int(plan.length[0])])
        read_header(unpack(payload)[1])
    except (ValueError, EOFError):  # not an image record, or a damaged one
        return False
    return True
