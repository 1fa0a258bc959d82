"""Run of one packing job: resume, encode, write, and publish the files.

The output depends only on the order of the images, not on the order in which workers finish them.

A plan assigns images to files and positions. The seed alone determines the parts of a split, so they are the same with
and without shuffling. Each shard of a part has a contiguous range of its order; where the images do not divide evenly,
the first shards have one more.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import numpy as np

import recordio
from aioloader.formats.base import RECORD_SUFFIX
from aioloader.formats.packed_files import fields_place
from aioloader.formats.shards import shard_name
from aioloader.foundation.error_log import strip_exception
from aioloader.packing.append import Journal
from aioloader.packing.encoding import Encoded
from aioloader.packing.lists import split_bounds
from aioloader.packing.options import SYNC_S
from aioloader.packing.report import (
    Packed,
    PackError,
    PackReport,
    as_json,
    as_raised,
    check_errors,
    failure_of,
    record_of,
    recorded,
)
from aioloader.packing.sources import Listing, Source, examine
from aioloader.packing.writer import RecordFiles, count_labels, encoded_in_order, labels_not_in_train
from aioloader.samplers.epoch_order import permute
from recordio._partial_files import partial_path, sync

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Iterable

    from aioloader.abc import Executor
    from aioloader.errors import SampleError
    from aioloader.foundation.types import IntArray
    from aioloader.packing.options import PackOptions


_MOST_SHARDS = 100_000


@dataclass(frozen=True)
class Plan:
    """Files to be written, and the order of the images in them.

    Attributes:
        order: int64 (n,), number of the image at each position.
        outputs: the files, whose ranges cover all positions in order.
    """

    order: IntArray
    outputs: tuple[Packed, ...]


def stem_of(out: Path) -> Path:
    """Return the path without the suffix of record files; the names of all files begin with it."""
    return out.with_suffix("") if out.suffix == RECORD_SUFFIX else out


def other_shards(outputs: Iterable[Packed], names: Iterable[str]) -> list[str]:
    """Find shards of the same set with another number of shards: a pattern such as OUT-* matches them too.

    Args:
        outputs: the files of a plan.
        names: names of all files in their folder.
    """
    own = {output.rec.name for output in outputs}
    sets = {shard[0] for shard in map(shard_name, own) if shard is not None}
    return sorted(
        name for name in set(names) - own if (shard := shard_name(name)) is not None and shard[0] in sets
    )


def make_plan(count: int, out: Path, options: PackOptions, parts: dict[str, int] | None = None) -> Plan:
    """Divide images among files.

    Args:
        count: number of images, at least 1.
        out: the record file, with or without its extension.
        options: the order, the parts and the shards, and which files each has.
        parts: number of images of each part where the source is already divided, in the order of its images.

    Raises:
        ValueError: an argument is not allowed, or a part or a shard would be empty.
    """
    shards, seed, shuffle = options.shards, options.seed, options.shuffle
    train_ratio, test_ratio = options.train_ratio, options.test_ratio
    if shards is not None and not 1 <= shards <= _MOST_SHARDS:
        raise ValueError(f"shards must lie between 1 and {_MOST_SHARDS:,}, got {shards}")
    mixed = permute(seed, 0, count, 0, count)
    if train_ratio is None and test_ratio is None:
        numbers = np.arange(count, dtype=np.int64)
        ends = np.cumsum(list(parts.values())) if parts else [count]
        divided = list(zip(parts or [""], np.split(numbers, ends[:-1]), strict=True))
        if shuffle:
            divided = [
                (name, members[permute(seed, 0, len(members), 0, len(members))]) for name, members in divided
            ]
    else:
        if parts:
            raise ValueError(
                "this set has published train and test parts: leave out train_ratio and test_ratio"
            )
        divided = _split(mixed, train_ratio, test_ratio)
        if not shuffle:
            divided = [(name, np.sort(members)) for name, members in divided]
    outputs: list[Packed] = []
    place = 0
    stem = stem_of(out)
    for name, members in divided:
        for number in range(shards or 1):
            share, longer = divmod(len(members), shards or 1)
            stop = place + share + (number < longer)
            if stop == place:
                of = f"the part {name}" if name else "the source"
                raise ValueError(f"{of} has {len(members)} images, too few for {shards or 1} shards")
            ending = "" if shards is None else f"-{number:05}-of-{shards:05}"
            base = f"{stem.name}{'_' if name else ''}{name}{ending}"
            rec, idx, lst = (stem.with_name(f"{base}.{suffix}") for suffix in ("rec", "idx", "lst"))
            shard = None if shards is None else number
            index = stem.with_name(f"{base}.crops") if options.crops else None
            outputs.append(
                Packed(
                    rec,
                    idx,
                    lst,
                    part=name,
                    shard=shard,
                    start=place,
                    stop=stop,
                    crops=index,
                    fields=fields_place(rec) if options.kept else None,
                )
            )
            place = stop
    return Plan(np.concatenate([members for _, members in divided]), tuple(outputs))


def _split(mixed: IntArray, train: float | None, test: float | None) -> list[tuple[str, IntArray]]:
    test = 0.0 if test is None else test
    train = 1.0 - test if train is None else train
    if not (0 < train < 1 and 0 <= test < 1) or train + test > 1 + 1e-9:
        raise ValueError(
            "train_ratio and test_ratio must be between 0 and 1 and their sum at most 1, got "
            f"{train:g} and {test:g}"
        )
    found = [(name[1:], mixed[start:stop]) for name, start, stop in split_bounds(len(mixed), 1, train, test)]
    for name, members in found:
        if not len(members):
            raise ValueError(f"the part {name} would get none of {len(mixed)} images: choose other ratios")
    return found


_SYNC_NBYTES = 256 << 20
# Size of the header before an image in a record, without labels.
_HEADER_NBYTES = 24


@dataclass(frozen=True)
class Job:
    """Packing job.

    Attributes:
        source: the images.
        plan: their order and files.
        encode: encodes each image; see `encoded_in_order`.
        out: path that the names of all files begin with, the journal's too.
        arguments: options that determine the bytes of the result.
        workers, executor: see `encoded_in_order`.
        on_error: "raise", "skip" or "replace".
        max_errors: largest number or share of failed images; None: no limit.
        all_labels: store all labels of an image, not only the first.
        json: path of the report to be written, or None.
        resume: resume an earlier run of the same job.
        sync_s: see `SYNC_S`.
    """

    source: Source
    plan: Plan
    encode: Any
    out: Path
    arguments: dict[str, Any]
    workers: int
    executor: str | Executor = "thread"
    on_error: str = "raise"
    max_errors: float | None = None
    all_labels: bool = True
    json: Path | None = None
    resume: bool = True
    sync_s: float = SYNC_S


def run(
    job: Job,
    report: PackReport,
    *,
    begin: Callable[[int, int, str], object] | None = None,
    tick: Callable[[int], object] | None = None,
) -> PackReport:
    """Run a packing job.

    Args:
        job: the job.
        report: report with the files of the plan; filled in.
        begin: called once with the number of images that are already packed, the number of all images, and the reason
            why the result of an earlier run cannot be used, or "".
        tick: called after each image with the number of images packed so far.

    Raises:
        PackBusyError: another process packs into the same files.
        PackError, OSError, TooManyErrorsError: see `aioloader.tools.pack.pack`.
    """
    listing = examine(job.source)
    job.out.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(
        journal_of(job.out),
        str(job.out),
        arguments=job.arguments,
        sources=listing.digest,
        resume=job.resume,
    )
    with closing(journal):
        packing = _Packing(job, report, journal, listing)
        with closing(packing.files):
            try:
                done = packing.resume()
                if begin is not None:
                    begin(done, len(job.plan.order), journal.reason)
                if not packing.publishing:
                    packing.pack(done, tick)
                packing.publish()
            except BaseException as error:
                packing.clean_up(error)
                raise
        journal.remove()
    return report


def can_go_on(out: str | os.PathLike[str]) -> bool:
    """Return whether an interrupted packing into `out` can be resumed."""
    return journal_of(stem_of(Path(out))).exists()


def journal_of(stem: Path) -> Path:
    """Return the path of the journal of a packing into files whose names begin with a path."""
    return partial_path(stem.with_name(f"{stem.name}.pack"))


class _Packing:
    """State of a running packing job."""

    def __init__(self, job: Job, report: PackReport, journal: Journal, listing: Listing) -> None:
        self._job = job
        self._report = report
        self._journal = journal
        self._listing = listing
        self.files = RecordFiles(job.plan.outputs)
        self.publishing = False
        self._done = 0
        self._synced = -1  # images done at the last sync; -1: there was none
        self._journalled = 0  # failures that the journal contains
        self._synced_at = time.monotonic()
        self._unsynced_nbytes = 0
        self._consistent = (
            True  # False while an image is being written: an interrupt may come between the writes
        )
        # Of the part that is being written: failures that still need a replacement, and its first valid image.
        self._part: str | None = None
        self._waiting: list[SampleError] = []
        self._first: int | None = None

    def resume(self) -> int:
        """Resume an earlier run, or delete the files it left; return the number of images already packed."""
        journal, states = self._journal, self._journal.states
        if states:
            self.publishing = bool(states[-1].get("publish"))
            if not self.publishing and not self.files.restore(states):
                journal.forget("its files are gone or incomplete")
                states = []
        if states:
            self._restore(states)
        else:
            for name in journal.partial_files:
                if name.endswith(".partial") and name.startswith(self._job.out.name) and "/" not in name:
                    self._job.out.with_name(name).unlink(missing_ok=True)
        journal.begin([place.name for place in self._partial_files()])
        return self._done

    def _restore(self, states: list[dict[str, Any]]) -> None:
        last = states[-1]
        report = self._report
        for state in states:
            report.errors += map(recorded, state["errors"])
            if self.publishing:
                for number, (records, nbytes, *_) in state["files"].items():
                    file = report.files[int(number)]
                    file.records, file.nbytes = records, nbytes
        report.restore(last["counts"])
        self._done = self._synced = last["done"]
        self._journalled = len(report.errors)
        self._part, self._first = last["part"], last["first"]

    def _partial_files(self) -> list[Path]:
        report = [] if self._job.json is None else [partial_path(self._job.json)]
        return [*self.files.partial_files, *report]

    # -- packing -------------------------------------------------------------------------------------------------------

    def pack(self, start: int, tick: Callable[[int], object] | None) -> None:
        """Encode and write all images from position `start` on."""
        job = self._job
        outputs = iter(job.plan.outputs)
        output = next(outputs, None)
        with closing(self._encoded(start)) as images:
            for place, image in images:
                position = start + place
                while output is not None and position >= output.stop:
                    output = next(outputs, None)
                assert output is not None
                self._consistent = False
                if output.part != self._part:
                    self._end_part()
                    self._part = output.part
                self._take(position, image)
                self._done = position + 1
                self._consistent = True
                if tick is not None:
                    tick(self._done)
                self._sync_if_due()
        self._consistent = False
        self._end_part()
        check_errors(job.max_errors, self._report.errors, len(job.plan.order), at_end=True)
        self.files.finish()
        self._consistent = True

    def _encoded(self, start: int) -> Any:
        job, limit = self._job, self._job.max_errors
        whole = limit is not None and hasattr(limit, "__index__")
        return encoded_in_order(
            job.source,
            job.plan.order[start:],
            job.encode,
            workers=job.workers,
            executor=job.executor,
            mean_nbytes=self._listing.mean_nbytes,
            on_error=job.on_error,
            most_errors=max(0, int(limit or 0) - len(self._report.errors)) if whole else None,
        )

    def _take(self, position: int, image: Encoded | SampleError) -> None:
        job = self._job
        number = int(job.plan.order[position])
        if isinstance(image, Encoded):
            nbytes = _HEADER_NBYTES + len(image.data)
            labels = self._labels(number, image)
            nbytes += 4 * len(labels) if len(labels) > 1 else 0
            if nbytes <= recordio.MAX_PAYLOAD:
                self._put(position, number, image)
                return
            reason = f"{len(image.data)} bytes do not fit into one record; resize it"
            failed = failure_of(job.source, number, position, PackError(job.source.place(number), reason))
        else:
            failed = failure_of(job.source, number, position, image.__cause__ or image)
        if job.on_error == "raise":
            raise as_raised(failed)
        strip_exception(failed)  # there may be many, and each may hold its image
        self._report.errors.append(failed)
        if job.on_error == "replace":
            self._waiting.append(failed)
        check_errors(job.max_errors, self._report.errors, position + 1)

    def _put(self, position: int, number: int, image: Encoded) -> None:
        if self._first is None:
            self._first = number
        self._replace_waiting(number, image)
        self._write(position, number, number, image)

    def _replace_waiting(self, number: int, image: Encoded) -> None:
        """Write image `number` in place of each failed one that still needs a replacement."""
        waiting, self._waiting = self._waiting, []
        for failed in waiting:
            failed.replaced_by = number
            assert failed.position is not None
            self._write(failed.position, failed.index, number, image)

    def _write(self, position: int, place_of: int, number: int, image: Encoded) -> None:
        """Write a record with the key of image `place_of`, and the labels, name and bytes of image `number`."""
        source = self._job.source
        self.files.put(
            position,
            source.item(place_of).key,
            self._labels(number, image),
            source.item(number).path,
            image.data,
            entry=image.entry,
            fields=image.fields,
        )
        self._report.count(image)
        self._unsynced_nbytes += len(image.data)

    def _labels(self, number: int, image: Encoded) -> tuple[float, ...]:
        """Return the labels of an image that its record stores."""
        labels = self._job.source.item(number).labels if image.labels is None else image.labels
        return labels if self._job.all_labels else labels[:1]

    def _end_part(self) -> None:
        """Finish a part: failures that still need a replacement are replaced by the part's first image."""
        if self._part is None:
            return
        if self._first is None:
            files = [file for file in self._job.plan.outputs if file.part == self._part]
            count = files[-1].stop - files[0].start
            first = self._report.errors[-count]
            of = f" of the part {self._part}" if self._part else ""
            raise PackError(
                str(first.path), f"{first.reason}; and none of the {count} images{of} could be packed"
            )
        if self._waiting:
            self._replace_waiting(self._first, self._encoded_again(self._first))
        self._first = None
        self._part = None

    def _encoded_again(self, number: int) -> Encoded:
        job = self._job
        order = job.plan.order[job.plan.order == number]
        images = encoded_in_order(
            job.source, order, job.encode, workers=1, executor="inline", mean_nbytes=1, on_error="raise"
        )
        with closing(images):
            _, image = next(images)
        if isinstance(image, Encoded):
            return image
        raise as_raised(failure_of(job.source, number, 0, image.__cause__ or image))

    # -- syncing and publishing ----------------------------------------------------------------------------------------

    def _sync_if_due(self) -> None:
        late = time.monotonic() - self._synced_at >= self._job.sync_s
        if late or self._unsynced_nbytes >= _SYNC_NBYTES:
            self._sync()

    def _sync(self, **more: Any) -> None:
        """Flush the files to disk and append the state to the journal, unless a failure still needs a replacement."""
        if self._waiting or not self._consistent or (self._synced == self._done and not more):
            return
        report = self._report
        files = self.files.sync()
        state = {
            "done": self._done,
            "part": self._part,
            "first": self._first,
            "files": files,
            "counts": report.counts,
            "errors": [record_of(error) for error in report.errors[self._journalled :]],
        }
        self._journal.append({**state, **more}, lasting=not more)
        self.files.synced()
        self._synced, self._journalled = self._done, len(report.errors)
        self._synced_at = time.monotonic()
        self._unsynced_nbytes = 0

    def publish(self) -> None:
        """Write the report and rename all partial files to their final names."""
        job = self._job
        if not self.publishing:
            self._sync(publish=True)
        self._count_labels()
        self._report.not_in_train = labels_not_in_train(job.plan.outputs)
        more = []
        if job.json is not None:
            more.append(job.json)
            source = {"kind": job.source.kind, "path": job.source.path, "images": len(job.source)}
            text = as_json(self._report, source, job.arguments)
            partial_path(job.json).write_text(text, encoding="utf-8")
            sync(partial_path(job.json))
        self.files.publish(more)

    def _count_labels(self) -> None:
        """Count the records of each label afterwards, so that no counts have to be journalled.

        Labels of items are known, and so are the failures; labels of samples are read from the lists.
        """
        continued = any(output.kept_nbytes for output in self._job.plan.outputs)
        if self._job.source.samples is not None or continued:
            self._report.labels = count_labels(self._job.plan.outputs)
            return
        items, counts = self._job.source.items, self._report.labels
        replaced_by = {error.index: error.replaced_by for error in self._report.errors}
        for number in range(len(items)):
            packed = replaced_by.get(number, number)
            if packed is not None and len(items[packed].labels) == 1:
                label = items[packed].labels[0]
                counts[label] = counts.get(label, 0) + 1

    def clean_up(self, error: BaseException) -> None:
        """Keep the files if a later run can resume from them, otherwise delete them."""
        stopped = not isinstance(error, Exception)
        # If a disk is full or not mounted, the same command may succeed later. A missing file needs a decision.
        final = not isinstance(error, OSError) or isinstance(error, FileNotFoundError)
        if stopped and self._done:
            with suppress(OSError):
                self._sync()
        self.files.close()
        if self._synced > 0 and (stopped or not final):
            return
        for place in self._partial_files():
            with suppress(OSError):
                place.unlink()
        with suppress(OSError):
            self._journal.remove()
