"""Writer of the record files of a packing job, with their indexes and lists, under temporary names.

Records arrive in the order of their positions, so one file is open at a time. Data is synced to disk on request;
a later process can resume from there.

Encoding of a source's images with the loader, in any of its executors, in order.

A sample of the dataset is an encoded image; the loader keeps the order, prefetches a few batches and supervises the
workers. A file is read by the worker that encodes it: a separate reading thread costs more time than it saves. Samples
of shards are read by the loader, as for training.
"""

from __future__ import annotations

import errno
import math
import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

import recordio
from aioloader.crop_index.layout import RECORDS
from aioloader.crop_index.writer import CropIndexWriter
from aioloader.crop_index.writer import put as put_entry
from aioloader.datasets.arrays import ArrayDataset
from aioloader.datasets.base import IndexedView
from aioloader.errors import SampleError, TooManyErrorsError
from aioloader.formats.packed_files import fields_line
from aioloader.loader.sync_loader import DataLoader
from aioloader.packing.append import copy_old
from aioloader.packing.encoding import Encoded
from aioloader.packing.report import failure_of
from aioloader.packing.samples import EncodedSample
from aioloader.storage.local.descriptors import open_regular
from recordio._partial_files import partial_path, publish, sync

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Mapping, Sequence
    from pathlib import Path
    from typing import BinaryIO

    from aioloader.abc import Executor, MapDataset
    from aioloader.foundation.types import Array, IntArray
    from aioloader.packing.report import Packed
    from aioloader.packing.sources import Source


MOST_NBYTES = 1 << 30
"""Size limit of an image file in bytes; the datasets have the same one."""

# Bytes of files in a batch: transferring a smaller batch costs more than the work in it.
_BATCH_NBYTES = 1 << 20
_MOST_IN_BATCH = 32
_MEMORY_NBYTES = 1 << 16
# One image may take a worker long: rewriting a progressive JPEG of a gigapixel, or reading from a sleeping disk.
_TIMEOUT_S = 3600.0


class _Files:
    """Dataset of files that the loader's workers read and encode."""

    def __init__(self, paths: Sequence[str], encode: Callable[[bytes], Encoded | bytes]) -> None:
        self._paths = paths
        self._encode = encode

    def __len__(self) -> int:
        return len(self._paths)

    def __getitem__(self, index: int) -> EncodedSample:
        data = _read(self._paths[index])
        made = self._encode(data)
        return EncodedSample(index, made if isinstance(made, Encoded) else Encoded(made, len(data)))


def _read(path: str) -> bytes:
    """Read a regular file.

    Raises:
        OSError: it cannot be read, is not a regular file, or is larger than `MOST_NBYTES`.
    """
    fd = open_regular(path)
    try:
        size = os.fstat(fd).st_size
        if size > MOST_NBYTES:
            raise OSError(errno.EFBIG, f"{size} bytes are too large for an image", path)
        data = os.read(fd, size)
        while len(data) < size:
            more = os.read(fd, size - len(data))
            if not more:
                raise OSError(
                    errno.EIO, f"the file shrank from {size} to {len(data)} bytes while it was read", path
                )
            data += more
        return data
    finally:
        os.close(fd)


@dataclass(frozen=True)
class _EncodePixels:
    """Transform from the pixels and the number of an image to its encoded form."""

    encode: Callable[[Array, int], Encoded]

    def __call__(self, image: Array, number: Any) -> EncodedSample:
        # A copy, because encoding may overwrite it.
        return EncodedSample(int(number), self.encode(image.copy(), image.nbytes))


def encoded_in_order(
    source: Source,
    order: IntArray,
    encode: Any,
    *,
    workers: int,
    executor: str | Executor,
    mean_nbytes: int,
    on_error: str,
    most_errors: int | None = None,
) -> Generator[tuple[int, Encoded | SampleError]]:
    """Encode the images of a source.

    Args:
        source: the images.
        order: int64 (n,), number of the image at each place, without repetitions.
        encode: encodes the bytes of a file; for images in memory its method ``of_pixels`` is called.
        workers: number of workers.
        executor: "thread", "process", "fork", "inline" or an executor.
        mean_nbytes: approximate mean size of an image.
        on_error: "raise": the first failed image is the last one yielded, and some before it may be missing.
        most_errors: stop once more than this number of images have failed; None: no limit.

    Yields:
        place in `order`, and the encoded image or its error.
    """
    dataset: MapDataset[Any]
    if source.samples is not None:
        dataset = source.samples.encoded(encode)
    elif source.images is None:
        dataset = files = _Files(source.paths, encode)
        if executor == "inline":
            yield from _encoded_here(source, order, files)
            return
    else:
        numbers = np.arange(len(source.images), dtype=np.int64)
        dataset = ArrayDataset(source.images, numbers).transform(_EncodePixels(encode.of_pixels))
    # Executors in this process pass images by reference, so batches need no slab memory, unless the loader reads files.
    few = source.samples is None and executor in ("thread", "inline")
    batch = int(min(_MOST_IN_BATCH, max(1, _BATCH_NBYTES // max(1, mean_nbytes))))
    loader: DataLoader[list[EncodedSample]] = DataLoader(
        IndexedView(dataset, order),
        batch,
        batchify_fn=list,
        num_workers=None if executor == "inline" else workers,
        executor=executor,
        timeout=_TIMEOUT_S,
        on_error="raise" if on_error == "raise" else "skip",
        max_errors=None if on_error == "raise" else most_errors,
        memory_limit=_MEMORY_NBYTES if few else None,
    )
    with loader:
        place = taken = 0
        failed: dict[int, SampleError] = {}
        try:
            for images in loader:
                for sample in images:
                    while order[place] != sample.number:  # it has failed
                        if place not in failed:
                            errors = loader.errors
                            failed |= {_position(each): each for each in errors[taken:]}
                            taken = len(errors)
                        yield place, failed.pop(place)
                        place += 1
                    yield place, sample.image
                    place += 1
        except SampleError as error:
            yield _position(error), error
            return
        except TooManyErrorsError:
            pass  # the errors follow
        failed |= {_position(each): each for each in loader.errors[taken:]}
        for place in sorted(failed):
            yield place, failed[place]


def _encoded_here(
    source: Source, order: IntArray, files: _Files
) -> Generator[tuple[int, Encoded | SampleError]]:
    """Encode files one after the other, without a loader, which takes as long as copying a file."""
    for place, number in enumerate(order.tolist()):
        made: Encoded | SampleError
        try:
            made = files[number].image
        except Exception as error:
            made = failure_of(source, number, place, error)
        yield place, made


def _position(error: SampleError) -> int:
    assert error.position is not None
    return error.position


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
        head = recordio.pack(recordio.IRHeader(0, label, key, 0), b"")
        assert self._records is not None
        offset = self._records.write_with_head(head, body, None if file.idx is None else key)
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
