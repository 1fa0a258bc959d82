"""One packing from the first image to the renamed files: goes on where an earlier one stopped, and leaves what the next
one needs.

What decides over the bytes is the order of the images alone: when a worker is done with one changes nothing.
"""

from __future__ import annotations

import time
from contextlib import closing, suppress
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

import recordio
from aioloader.foundation.error_log import strip_exception
from aioloader.packing.encoding import Encoded
from aioloader.packing.errors import PackError
from aioloader.packing.failures import (
    as_raised,
    check_errors,
    failure_of,
    none_packed,
    record_of,
    recorded,
)
from aioloader.packing.journal import Journal
from aioloader.packing.plan import stem_of
from aioloader.packing.report import PackReport, as_json
from aioloader.packing.sources import Listing, look_at
from aioloader.packing.stream import encoded_in_order
from aioloader.packing.writer import RecordFiles
from recordio._partial_files import partial_path, sync

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from aioloader.errors import SampleError
    from aioloader.packing.plan import Plan
    from aioloader.packing.sources import Source

__all__ = ("SYNC_S", "Job", "can_go_on", "run")

SYNC_S = 5.0
"""Seconds between two moments at which all that was written is made safe."""

_SYNC_NBYTES = 256 << 20
# What goes before an image in a record, without labels.
_HEADER_NBYTES = 24


@dataclass(frozen=True)
class Job:
    """A packing.

    Attributes:
        source: the images.
        plan: their order and files.
        encode: what is done to each; see `encoded_in_order`.
        out: the name that the files begin with; the journal lies beside it.
        arguments: what decides over the bytes of the result.
        workers, executor: see `encoded_in_order`.
        on_error: "raise", "skip" or "replace".
        max_errors: how many may fail: a number, a share, or None.
        all_labels: store all labels of an image, not only the first.
        json: where the report is to be, or None.
        resume: go on from what an earlier process left.
        sync_s: see `SYNC_S`.
    """

    source: Source
    plan: Plan
    encode: Any
    out: Path
    arguments: dict[str, Any]
    workers: int
    executor: Any = "thread"
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
    """Pack.

    Args:
        job: what.
        report: filled with what was packed; its `files` are made here.
        begin: called once: how many images are done already, how many there are, and why what an earlier process did is
            of no use, or "".
        tick: called with the number of images done so far, after each.

    Raises:
        PackBusyError: another process packs into the same files.
        PackError, OSError, TooManyErrorsError: see `aioloader.tools.pack.pack`.
    """
    listing = look_at(job.source)
    job.out.parent.mkdir(parents=True, exist_ok=True)
    journal = Journal(
        _journal_of(job.out),
        str(job.out),
        job.arguments,
        listing.digest,
        resume=job.resume,
    )
    with closing(journal):
        packing = _Packing(job, report, journal, listing)
        with closing(packing.files):
            try:
                done = packing.take_up()
                if begin is not None:
                    begin(done, len(job.plan.order), journal.reason)
                if not packing.publishing:
                    packing.pack(done, tick)
                packing.publish()
            except BaseException as error:
                packing.leave(error)
                raise
        journal.remove()
    return report


def can_go_on(out: str | os.PathLike[str]) -> bool:
    """Whether a packing into `out` was stopped, and left what a later one goes on from."""
    return _journal_of(stem_of(Path(out))).exists()


def _journal_of(stem: Path) -> Path:
    return partial_path(stem.with_name(f"{stem.name}.pack"))


class _Packing:
    """One packing under way."""

    def __init__(self, job: Job, report: PackReport, journal: Journal, listing: Listing) -> None:
        self._job = job
        self._report = report
        self._journal = journal
        self._listing = listing
        self.files = RecordFiles(job.plan.outputs)
        report.files = self.files.files
        self.publishing = False
        self._done = 0
        self._safe = -1  # images done when everything was safe; -1: never
        self._told = 0  # failures that the journal has
        self._safe_at = time.monotonic()
        self._unsafe_nbytes = 0
        self._settled = True  # False while an image is being written: an interrupt may come between its parts
        # Of the part that is being written: failures that wait for an image to take their place, and its first one.
        self._part: str | None = None
        self._waiting: list[SampleError] = []
        self._first: int | None = None

    def take_up(self) -> int:
        """Go on where an earlier process stopped, or clear away what it left; gives how many images are done."""
        journal, states = self._journal, self._journal.states
        if states:
            self.publishing = bool(states[-1].get("publish"))
            if not self.publishing and not self.files.restore(states):
                journal.forget("what was begun is not there any more")
                states = []
        if states:
            self._restore(states)
        else:
            for name in journal.partial_files:
                if name.endswith(".partial") and name.startswith(self._job.out.name) and "/" not in name:
                    self._job.out.with_name(name).unlink(missing_ok=True)
        journal.begin([draft.name for draft in self._drafts()])
        return self._done

    def _restore(self, states: list[dict[str, Any]]) -> None:
        last = states[-1]
        report = self._report
        for state in states:
            report.errors += map(recorded, state["errors"])
            if self.publishing:
                for number, (records, nbytes, *_) in state["files"].items():
                    file = self.files.files[int(number)]
                    file.records, file.nbytes = records, nbytes
        report.restore(last["counts"])
        self._done = self._safe = last["done"]
        self._told = len(report.errors)
        self._part, self._first = last["part"], last["first"]

    def _drafts(self) -> list[Path]:
        report = [] if self._job.json is None else [partial_path(self._job.json)]
        return [*self.files.partial_files, *report]

    # -- packing -------------------------------------------------------------------------------------------------------

    def pack(self, start: int, tick: Callable[[int], object] | None) -> None:
        """Write all records from position `start` on."""
        job = self._job
        outputs = iter(job.plan.outputs)
        output = next(outputs, None)
        with closing(self._encoded(start)) as images:
            for place, image in images:
                position = start + place
                while output is not None and position >= output.stop:
                    output = next(outputs, None)
                assert output is not None
                self._settled = False
                if output.part != self._part:
                    self._end_part()
                    self._part = output.part
                self._take(position, image)
                self._done = position + 1
                self._settled = True
                if tick is not None:
                    tick(self._done)
                self._make_safe_if_due()
        self._settled = False
        self._end_part()
        check_errors(job.max_errors, self._report.errors, len(job.plan.order), at_end=True)
        self.files.finish()
        self._settled = True

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
            labels = job.source.items[number].labels
            nbytes += 4 * len(labels) if job.all_labels and len(labels) > 1 else 0
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
        waiting, self._waiting = self._waiting, []
        for failed in waiting:
            failed.replaced_by = number
            assert failed.position is not None
            self._write(failed.position, failed.index, number, image)
        self._write(position, number, number, image)

    def _write(self, position: int, place_of: int, number: int, image: Encoded) -> None:
        """A record: the key is that of the image in whose place it stands, all else its own."""
        items = self._job.source.items
        item = items[number]
        labels = item.labels if self._job.all_labels else item.labels[:1]
        self.files.put(position, items[place_of].key, labels, item.name, image.data)
        self._report.count(image)
        self._unsafe_nbytes += len(image.data)

    def _end_part(self) -> None:
        """All images of a part are done: those that still wait get its first one."""
        if self._part is None:
            return
        if self._first is None:
            first = self._report.errors[-1]
            for each in reversed(self._report.errors):
                if self._part_of(each) != self._part:
                    break
                first = each
            count = sum(o.stop - o.start for o in self._job.plan.outputs if o.part == self._part)
            raise none_packed(first, count, self._part)
        waiting, self._waiting = self._waiting, []
        if waiting:
            image = self._encoded_again(self._first)
            for failed in waiting:
                failed.replaced_by = self._first
                assert failed.position is not None
                self._write(failed.position, failed.index, self._first, image)
        self._first = None
        self._part = None

    def _part_of(self, failed: SampleError) -> str:
        assert failed.position is not None
        return next(o.part for o in self._job.plan.outputs if o.start <= failed.position < o.stop)

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

    # -- safety --------------------------------------------------------------------------------------------------------

    def _make_safe_if_due(self) -> None:
        late = time.monotonic() - self._safe_at >= self._job.sync_s
        if late or self._unsafe_nbytes >= _SYNC_NBYTES:
            self._make_safe()

    def _make_safe(self, **more: Any) -> None:
        """Make everything safe and say so in the journal; not while a failure waits for what takes its place."""
        if self._waiting or not self._settled or (self._safe == self._done and not more):
            return
        report = self._report
        files = self.files.sync()
        state = {
            "done": self._done,
            "part": self._part,
            "first": self._first,
            "files": files,
            "counts": report.counts,
            "errors": [record_of(error) for error in report.errors[self._told :]],
        }
        self._journal.append({**state, **more}, lasting=not more)
        self.files.synced()
        self._safe, self._told = self._done, len(report.errors)
        self._safe_at = time.monotonic()
        self._unsafe_nbytes = 0

    def publish(self) -> None:
        """Write the report and put everything in its place."""
        job = self._job
        if not self.publishing:
            self._make_safe(publish=True)
        self._count_labels()
        beside = []
        if job.json is not None:
            beside.append(job.json)
            source = {"kind": job.source.kind, "path": job.source.path, "images": len(job.source.items)}
            text = as_json(self._report, source, job.arguments)
            partial_path(job.json).write_text(text, encoding="utf-8")
            sync(partial_path(job.json))
        self.files.publish(beside)

    def _count_labels(self) -> None:
        """How many records have each label: told by the images and their failures, so that nothing has to be kept."""
        items, counts = self._job.source.items, self._report.labels
        stands_for = {error.index: error.replaced_by for error in self._report.errors}
        for number in range(len(items)):
            shown = stands_for.get(number, number)
            if shown is not None and len(items[shown].labels) == 1:
                label = items[shown].labels[0]
                counts[label] = counts.get(label, 0) + 1

    def leave(self, error: BaseException) -> None:
        """Keep what a later process can go on from, and clear away all else."""
        stopped = not isinstance(error, Exception)
        # A disk that is full or away: the same command may succeed later. A file that is missing has to be dealt with.
        final = not isinstance(error, OSError) or isinstance(error, FileNotFoundError)
        if stopped and self._done:
            with suppress(OSError):
                self._make_safe()
        self.files.close()
        if self._safe > 0 and (stopped or not final):
            return
        for draft in self._drafts():
            with suppress(OSError):
                draft.unlink()
        with suppress(OSError):
            self._journal.remove()
