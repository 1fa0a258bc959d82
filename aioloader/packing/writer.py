"""Writer of the record files of a packing job, with their indexes and lists, under temporary names.

Records arrive in the order of their positions, so one file is open at a time. Data is synced to disk on request;
a later process can resume from there.
"""

from __future__ import annotations

import math
import os
from typing import TYPE_CHECKING, Any, Literal

import recordio
from aioloader.crop_index.building import put as put_entry
from aioloader.crop_index.layout import RECORDS
from aioloader.crop_index.writer import CropIndexWriter
from aioloader.packing.append import copy_old
from aioloader.packing.fields_file import fields_line
from recordio._partial_files import partial_path, publish, sync

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from aioloader.packing.report import Packed


_MOST_LABELS = 100_000


class RecordFiles:
    """Writer of all files of one packing job.

    Args:
        files: their paths, and the positions of their images; numbers of records and sizes are filled in.
    """

    def __init__(self, files: Sequence[Packed]) -> None:
        self._files = files
        self._current = -1
        self._records: recordio.RecordWriter | None = None
        self._lines: BinaryIO | None = None
        self._crops: CropIndexWriter | None = None
        self._fields: BinaryIO | None = None
        self._changed: set[int] = set()
        self._numbers: dict[str, int] = {}  # records of each part

    @property
    def partial_files(self) -> list[Path]:
        """Return the paths that the files are written to."""
        return [partial_path(place) for file in self._files for place in file.places]

    def put(
        self,
        position: int,
        key: int | None,
        labels: Sequence[float],
        name: str,
        body: bytes,
        *,
        entry: bytes | str | None = None,
        fields: str | None = None,
    ) -> None:
        """Write a record.

        Args:
            position: position of its image; not less than in the previous call.
            key: its key; None: the number of the record in its part.
            labels: one label, or several, which are all stored.
            name: name of the image in the list.
            body: the encoded image.
            entry: its entry of the crop index, or the reason why it has none; None without a crop index.
            fields: other fields of its sample, as JSON; None without a file of fields.
        """
        self._advance(position)
        file = self._files[self._current]
        number = self._numbers.setdefault(file.part, file.next_key)
        self._numbers[file.part] = number + 1
        key = number if key is None else key
        label = labels[0] if len(labels) == 1 else list(labels)
        payload = recordio.pack(recordio.IRHeader(0, label, key, 0), body)
        assert self._records is not None
        offset = self._records.write(payload, None if file.idx is None else key)
        if self._crops is not None and entry is not None:
            put_entry(self._crops, offset, len(body), entry)
        if self._lines is not None:
            text = f"{key}\t{''.join(_label_text(each) + chr(9) for each in labels)}{name}\n"
            self._lines.write(text.encode("utf-8", "surrogateescape"))
        if self._fields is not None and fields is not None:
            self._fields.write(fields_line(key, name, fields))
        file.records += 1

    def sync(self) -> dict[str, list[int]]:
        """Flush written data to disk; return records and sizes of the files changed since the last call of `synced`."""
        for file in (self._records, self._lines, self._crops, self._fields):
            if file is not None:
                file.flush()
        found = {}
        for number in sorted(self._changed):
            partial_files = [partial_path(place) for place in self._files[number].places]
            for place in partial_files:
                sync(place)
            found[str(number)] = [
                self._files[number].records,
                *(place.stat().st_size for place in partial_files),
            ]
        return found

    def synced(self) -> None:
        """Mark the files as unchanged, after the result of `sync` was journalled."""
        self._changed.clear()
        if self._records is not None:
            self._changed.add(self._current)

    def finish(self) -> None:
        """Complete the last file after all records are written."""
        self._advance(self._files[-1].stop - 1)
        self._finish_file()

    def close(self) -> None:
        """Close the open files; repeated calls do nothing."""
        records, self._records = self._records, None
        lines, self._lines = self._lines, None
        crops, self._crops = self._crops, None
        fields, self._fields = self._fields, None
        try:
            if records is not None:
                records.close()
        finally:
            for other in (lines, crops, fields):
                if other is not None:
                    other.close()

    def restore(self, states: Sequence[Mapping[str, Any]]) -> bool:
        """Truncate the files to the last state and continue; return False, without changes, if they are too short."""
        sizes: dict[int, list[int]] = {}
        for state in states:
            sizes |= {int(number): found for number, found in state["files"].items()}
        if not sizes:
            return False
        for number, (_, *expected) in sizes.items():
            for place, size in zip(self._files[number].places, expected, strict=True):
                try:
                    if partial_path(place).stat().st_size < size:
                        return False
                except OSError:
                    return False
        for number, (records, *expected) in sizes.items():
            for place, size in zip(self._files[number].places, expected, strict=True):
                os.truncate(partial_path(place), size)
            file = self._files[number]
            file.records = records
            before = self._numbers.setdefault(file.part, file.next_key)
            self._numbers[file.part] = before + records - file.kept
            file.nbytes = expected[0]
        self._current = max(sizes)
        self._changed.add(self._current)
        self._open_file(append=True)
        return True

    def publish(self, more: Sequence[Path] = ()) -> None:
        """Rename all synced files to their final names; continue where an earlier call stopped.

        Args:
            more: final paths of further files whose partial files are complete and synced; they are renamed last.
        """
        places = [place for file in self._files for place in file.places]
        publish([*places, *more])

    def _advance(self, position: int) -> None:
        """Open the file that a position belongs to, and complete those before it."""
        while self._current < 0 or position >= self._files[self._current].stop:
            if self._current >= 0:
                self._finish_file()
            self._current += 1
            self._changed.add(self._current)
            file = self._files[self._current]
            if file.kept_nbytes:
                copy_old(file.places, file.kept_nbytes)
            self._open_file(append=file.kept_nbytes > 0)

    def _open_file(self, *, append: bool) -> None:
        file = self._files[self._current]
        index = False if file.idx is None else partial_path(file.idx)
        self._records = recordio.RecordWriter(partial_path(file.rec), index=index, append=append)
        if file.crops is not None:
            self._crops = CropIndexWriter(file.crops, kind=RECORDS, resume=append)
        mode: Literal["ab", "wb"] = "ab" if append else "wb"
        if file.lst is not None:
            self._lines = open(partial_path(file.lst), mode)  # noqa: SIM115 - closed with the file
        if file.fields is not None:
            self._fields = open(partial_path(file.fields), mode)  # noqa: SIM115 - closed with the file

    def _finish_file(self) -> None:
        crops, self._crops = self._crops, None
        file = self._files[self._current]
        try:
            self.close()
            if crops is not None:
                crops.complete()
        finally:
            if crops is not None:
                crops.close()
        file.nbytes = partial_path(file.rec).stat().st_size


def labels_not_in_train(files: Sequence[Packed]) -> dict[str, tuple[float, ...]]:
    """Return the whole labels of each other part that no record of the part "train" has.

    Args:
        files: as for `count_labels`.

    Returns:
        labels by part; without the parts that have none. Empty if there is no part "train", or its labels are too many.
    """
    parts: dict[str, list[Packed]] = {}
    for file in files:
        parts.setdefault(file.part, []).append(file)
    train = count_labels(parts.pop("train")) if "train" in parts and len(parts) > 1 else {}
    found = {}
    for part, others in parts.items() if train else ():
        missing = sorted(label for label in count_labels(others).keys() - train.keys() if label.is_integer())
        if missing:
            found[part] = tuple(missing)
    return found


def count_labels(files: Sequence[Packed]) -> dict[float, int]:
    """Count the records of each label in the lists of files; records with several labels are not counted.

    Args:
        files: complete files with lists, with their final or their partial names.

    Returns:
        empty if there are more than 100,000 different labels.
    """
    counts: dict[float, int] = {}
    for file in files:
        if file.lst is None:  # of a file that was continued without one
            return {}
        partial = partial_path(file.lst)
        with open(partial if partial.exists() else file.lst, "rb") as lines:
            for line in lines:
                fields = line.split(b"\t")
                if len(fields) != 3:
                    continue
                label = float(fields[1])
                label = label if label == label else math.nan  # one object, so that it is one key
                counts[label] = counts.get(label, 0) + 1
                if len(counts) > _MOST_LABELS:
                    return {}
    return counts


def _label_text(label: float) -> str:
    """Format a label of a list: six decimals, as MXNet does, or more if they are needed."""
    text = f"{label:f}"
    return text if float(text) == label or label != label else repr(label)
