"""IterableDatasets of a torch loader: torch's own engine loads them, and each batch says where its worker is."""

from __future__ import annotations

import pickle
import warnings
import weakref
from dataclasses import asdict, dataclass
from typing import TYPE_CHECKING, Any

import torch
import torch.utils.data

from aioloader.errors import NotResumableError, ResumeError
from aioloader.interop.torch._state import (
    STATE_VERSION,
    check,
    decode,
    encode,
    generators_of,
    restore,
    states_of,
)
from aioloader.interop.torch._stream_parts import Position, StartWorker, StreamParts, unchanged

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_PARTS = ("stream", "batch_size", "generators")
_ENTRIES = ("num_workers", "seed", "taken", "first", "finished", "workers", "start")


@dataclass
class _Progress:
    """Progress of the caller in an epoch.

    Attributes:
        positions: where the workers are, after the batches that the caller received.
        seed: seed of worker 0.
        start: states of the generators at the start of the epoch.
        first: number of the worker that makes the next batch.
        taken: number of batches.
        finished: the caller has received all.
    """

    positions: list[Position]
    seed: int
    start: dict[str, Any]
    first: int = 0
    taken: int = 0
    finished: bool = False


class Streams:
    """Epochs of an IterableDataset, and their state.

    Args:
        every: number of batches of a worker after which it sends a state; 0: only at the end of an epoch.
    """

    def __init__(self, every: int) -> None:
        self._every = every
        self._engine: torch.utils.data.DataLoader | None = None
        self._latest: _Progress | None = None
        self._running: Callable[[], StreamBatches | None] = lambda: None
        self._loaded: dict[str, Any] | None = None

    def begin(self, loader: torch.utils.data.DataLoader) -> StreamBatches:
        """Return the iterator of a new epoch of a loader."""
        loaded, self._loaded = self._loaded, None
        stream = None if loaded is None else loaded["stream"]
        if loaded is not None:
            self._latest = self._engine = None
            restore(generators_of(loader), decode(generators_of(loader), loaded["generators"]))
        found = self._new(loader) if stream is None else self._resumed(loader, stream)
        self._running = weakref.ref(found)
        return found

    def _new(self, loader: torch.utils.data.DataLoader) -> StreamBatches:
        before = self._latest
        kept = loader.persistent_workers and self._engine is not None
        positions = [Position()] * max(1, loader.num_workers)
        if before is not None and (kept or not loader.num_workers):
            positions = [each.next_epoch() for each in before.positions]
        start = states_of(generators_of(loader))
        engine: Any = self._engine if kept else self._make_engine(loader, positions)
        self._engine = engine
        parts: Any = iter(engine)
        if not loader.num_workers:
            positions = [engine.dataset.position]
        seed = before.seed if kept and before is not None else parts._base_seed
        self._latest = _Progress(positions, seed, start)
        return StreamBatches(loader, parts, self._latest)

    def _resumed(self, loader: torch.utils.data.DataLoader, stream: dict[str, Any]) -> StreamBatches:
        generators = generators_of(loader)
        present = states_of(generators)
        start = present if stream["start"] is None else decode(generators, stream["start"])
        positions = [_hidden(each) for each in stream["workers"]]
        latest = _Progress(positions, stream["seed"], start, stream["first"], stream["taken"])
        if stream["finished"]:
            latest = _Progress([each.next_epoch() for each in positions], stream["seed"], start)
        restore(generators, start)  # batches that are made again draw what they drew
        self._engine = self._make_engine(
            loader, latest.positions, load=True, seed=latest.seed, first=latest.first
        )
        parts: Any = iter(self._engine)
        if not stream["finished"]:
            restore(generators, present)
        elif not loader.num_workers:
            latest.seed = parts._base_seed
        self._latest = latest
        return StreamBatches(loader, parts, latest)

    def _make_engine(
        self,
        loader: torch.utils.data.DataLoader,
        positions: Sequence[Position],
        *,
        load: bool = False,
        seed: int | None = None,
        first: int = 0,
    ) -> torch.utils.data.DataLoader:
        parts = StreamParts(
            loader.dataset, loader.batch_size, loader.drop_last, loader.collate_fn, self._every
        )
        parts.positions, parts.load, parts.first = list(positions), load, first
        # Workers of a run that is resumed have its seed, so that nothing may be drawn for them.
        drawn = seed is None or not loader.num_workers
        return torch.utils.data.DataLoader(
            parts,
            batch_size=None,
            num_workers=loader.num_workers,
            collate_fn=unchanged,
            pin_memory=loader.pin_memory,
            timeout=loader.timeout,
            worker_init_fn=StartWorker(loader.worker_init_fn, seed),
            multiprocessing_context=loader.multiprocessing_context,
            generator=loader.generator if drawn else torch.Generator(),
            prefetch_factor=loader.prefetch_factor,
            persistent_workers=loader.persistent_workers,
            pin_memory_device=loader.pin_memory_device,
            in_order=loader.in_order,
        )

    def close(self) -> None:
        """End the worker processes; the state stays."""
        self._engine = None
        running = self._running()
        if running is not None:
            running.close()

    def state_dict(self, loader: torch.utils.data.DataLoader) -> dict[str, Any]:
        """Return the state: the positions of the workers after the batches that the caller received.

        Raises:
            NotResumableError: the dataset could not return its state.
        """
        if self._loaded is not None:
            return dict(self._loaded)
        latest = self._latest
        stream = None
        # Without persistent workers the next epoch has new ones, which know nothing of this one.
        if latest is not None and not (
            latest.finished and loader.num_workers and not loader.persistent_workers
        ):
            stream = {
                "num_workers": loader.num_workers,
                "seed": latest.seed,
                "taken": latest.taken,
                "first": latest.first,
                "finished": latest.finished,
                "workers": [_shown(each) for each in latest.positions],
                "start": None if loader.num_workers or latest.finished else encode(latest.start),
            }
        return {
            "torch_version": STATE_VERSION,
            "stream": stream,
            "batch_size": loader.batch_size,
            "generators": encode(states_of(generators_of(loader))),
        }

    def load_state_dict(self, loader: torch.utils.data.DataLoader, state: Any) -> None:
        """Resume from a state in the next epoch.

        Raises:
            ResumeError: the state is corrupt, or belongs to another number of workers or another batch size.
        """
        check(state, _PARTS, loader.batch_size)
        generators = generators_of(loader)
        states = decode(generators, state["generators"])
        if state["stream"] is not None:
            _check_stream(state["stream"], loader.num_workers, generators)
        self.close()
        self._latest = None
        restore(generators, states)
        self._loaded = dict(state)


def _check_stream(stream: Any, workers: int, generators: dict[str, torch.Generator]) -> None:
    if not isinstance(stream, dict) or any(name not in stream for name in _ENTRIES):
        raise ResumeError("stream", "a state of a stream", type(stream).__name__, "the state is corrupt")
    if stream["num_workers"] != workers:
        raise ResumeError(
            "num_workers",
            workers,
            stream["num_workers"],
            "each worker continues its own part of the stream: use the same number",
        )
    if stream["start"] is not None:
        decode(generators, stream["start"])
    try:
        found = len([_hidden(each) for each in stream["workers"]])
    except (TypeError, KeyError) as error:
        raise ResumeError("workers", "positions", "something else", "the state is corrupt") from error
    if found != max(1, workers):
        raise ResumeError("workers", max(1, workers), found, "the state is corrupt")


def _shown(position: Position) -> dict[str, Any]:
    """Return a position as a checkpoint holds it."""
    if position.refusal is not None:
        raise NotResumableError(
            f"the dataset could not return its state ({position.refusal}): its state_dict() must take no arguments and "
            "return what pickle can store; without state_dict() its batches are counted, and made again"
        )
    entries = asdict(position)
    del entries["refusal"]
    return {**entries, "state": None if position.state is None else pickle.loads(position.state)}


def _hidden(entries: dict[str, Any]) -> Position:
    state = entries["state"]
    return Position(**{**entries, "state": None if state is None else pickle.dumps(state, protocol=5)})


class StreamBatches:
    """Iterator over the batches of one epoch of an IterableDataset.

    Args:
        loader: the caller's loader.
        parts: torch's iterator over the parts.
        progress: receives what the caller has received.
    """

    def __init__(self, loader: torch.utils.data.DataLoader, parts: Any, progress: _Progress) -> None:
        self._loader = loader
        self._parts = parts
        self._progress = progress
        self._length = loader._IterableDataset_len_called

    def __iter__(self) -> StreamBatches:
        return self

    def __len__(self) -> int:
        """Return the number of batches of an epoch, if the dataset knows its length."""
        return len(self._loader)

    def close(self) -> None:
        """Release the worker processes: there are no more batches."""
        self._parts = None

    def __next__(self) -> Any:
        """Return the next batch, blocking; raise the exceptions of the dataset and the collate function unchanged."""
        progress = self._progress
        while self._parts is not None:
            try:
                worker, position, has_batch, batch = next(self._parts)
            except StopIteration:
                progress.finished = True
                raise
            progress.positions[worker] = position
            progress.first = (worker + 1) % len(progress.positions)
            if has_batch:
                progress.taken += 1
                self._compare_length(progress.taken)
                return batch
        raise StopIteration

    def _compare_length(self, taken: int) -> None:
        if self._length is None or taken <= self._length:
            return
        # Torch's words, because scripts filter them.
        text = (
            f"Length of IterableDataset {self._loader.dataset} was reported to be {self._length}(when accessing "
            f"len(dataloader)), but {taken} samples have been fetched. "
        )
        if self._loader.num_workers:
            text += (
                "For multiprocessing data-loading, this may be because the workers return the same samples: each must "
                "return its part of them (torch.utils.data.get_worker_info)"
            )
        warnings.warn(text, UserWarning, stacklevel=3)
