"""The record files of a packing, with their indexes and lists, written one after the other under other names.

Records come in the order of their positions, so one file is open at a time. What was written is made safe when it is
asked for; a later process goes on from there.
"""

from __future__ import annotations

import os
from contextlib import suppress
from typing import TYPE_CHECKING, Any

import recordio
from aioloader.packing.report import Packed
from recordio._partial_files import partial_path, publish, sync

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from aioloader.packing.plan import Output

__all__ = ("RecordFiles",)


class RecordFiles:
    """All files of one packing.

    Args:
        outputs: their places, and the positions of their images.

    Attributes:
        files: what is in them so far.
    """

    def __init__(self, outputs: Sequence[Output]) -> None:
        self._outputs = outputs
        self.files = tuple(
            Packed(output.rec, output.idx, output.lst, output.part, output.shard) for output in outputs
        )
        self._current = -1
        self._records: recordio.RecordWriter | None = None
        self._lines: BinaryIO | None = None
        self._changed: set[int] = set()
        self._numbers: dict[str, int] = {}  # records of each part

    @property
    def partial_files(self) -> list[Path]:
        """Where they are written."""
        return [partial_path(place) for output in self._outputs for place in output.places]

    def put(self, position: int, key: int | None, labels: Sequence[float], name: str, body: bytes) -> None:
        """Write a record.

        Args:
            position: of its image; never less than the one before.
            key: None: the number of the record in its part.
            labels: one, or several that are all stored.
            name: of the image in the list.
            body: the encoded image.
        """
        self._advance(position)
        file = self.files[self._current]
        number = self._numbers.get(file.part, 0)
        self._numbers[file.part] = number + 1
        key = number if key is None else key
        label = labels[0] if len(labels) == 1 else list(labels)
        payload = recordio.pack(recordio.IRHeader(0, label, key, 0), body)
        assert self._records is not None
        self._records.write(payload, None if file.idx is None else key)
        if self._lines is not None:
            text = f"{key}\t{''.join(_label_text(each) + chr(9) for each in labels)}{name}\n"
            self._lines.write(text.encode("utf-8", "surrogateescape"))
        file.records += 1

    def sync(self) -> dict[str, list[int]]:
        """Make all safe that was written; gives records and sizes of the files that have changed since the last."""
        self._flush()
        found = {}
        for number in sorted(self._changed):
            partial_files = [partial_path(place) for place in self._outputs[number].places]
            for draft in partial_files:
                sync(draft)
            found[str(number)] = [
                self.files[number].records,
                *(draft.stat().st_size for draft in partial_files),
            ]
        return found

    def synced(self) -> None:
        """What `sync` gave is written down."""
        self._changed.clear()
        if self._records is not None:
            self._changed.add(self._current)

    def finish(self) -> None:
        """All records are written."""
        self._advance(self._outputs[-1].stop - 1)
        self._finish_file()

    def close(self) -> None:
        """Close what is open; may be called twice."""
        records, self._records = self._records, None
        lines, self._lines = self._lines, None
        try:
            if records is not None:
                records.close()
        finally:
            if lines is not None:
                lines.close()

    def restore(self, states: Sequence[Mapping[str, Any]]) -> bool:
        """Go on where the last state says; False if the files are not what it says, and then nothing was touched."""
        sizes: dict[int, list[int]] = {}
        for state in states:
            sizes |= {int(number): found for number, found in state["files"].items()}
        if not sizes:
            return False
        for number, (_, *expected) in sizes.items():
            for place, size in zip(self._outputs[number].places, expected, strict=True):
                try:
                    if partial_path(place).stat().st_size < size:
                        return False
                except OSError:
                    return False
        for number, (records, *expected) in sizes.items():
            for place, size in zip(self._outputs[number].places, expected, strict=True):
                os.truncate(partial_path(place), size)
            file = self.files[number]
            file.records = records
            self._numbers[file.part] = self._numbers.get(file.part, 0) + records
            file.nbytes = expected[0]
        self._current = max(sizes)
        self._changed.add(self._current)
        self._open_file(append=True)
        return True

    def publish(self, beside: Sequence[Path] = ()) -> None:
        """Put all files, which are safe, in their places; goes on where an earlier call stopped.

        Args:
            beside: places of further files whose drafts are complete and safe; they come last.
        """
        places = [place for output in self._outputs for place in output.places]
        publish([*places, *beside])

    def remove(self) -> None:
        """Take the drafts away."""
        for draft in self.partial_files:
            with suppress(OSError):
                draft.unlink()

    def _advance(self, position: int) -> None:
        """Open the file that a position belongs to; those before it are complete."""
        while self._current < 0 or position >= self._outputs[self._current].stop:
            if self._current >= 0:
                self._finish_file()
            self._current += 1
            self._changed.add(self._current)
            self._open_file(append=False)

    def _open_file(self, *, append: bool) -> None:
        output = self._outputs[self._current]
        index = False if output.idx is None else partial_path(output.idx)
        self._records = recordio.RecordWriter(partial_path(output.rec), index=index, append=append)
        if output.lst is not None:
            self._lines = open(partial_path(output.lst), "ab" if append else "wb")  # noqa: SIM115 - closed with the file

    def _finish_file(self) -> None:
        self.close()
        file = self.files[self._current]
        file.nbytes = partial_path(file.rec).stat().st_size

    def _flush(self) -> None:
        if self._records is not None:
            self._records.flush()
        if self._lines is not None:
            self._lines.flush()


def _label_text(label: float) -> str:
    """A label in a list: six decimals, as MXNet writes them, or as many as it takes."""
    text = f"{label:f}"
    return text if float(text) == label or label != label else repr(label)
