"""IterableDatasets of a torch loader: torch's own engine loads them, and each batch says where its worker is.

Batches of an IterableDataset as torch's worker processes make them, each with the position of the worker.
"""

from __future__ import annotations

import pickle
import random
import warnings
import weakref
from dataclasses import asdict, dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.utils.data
from torch.utils.data._utils import worker as torch_worker

from aioloader.errors import NotResumableError, ResumeError
from aioloader.interop.torch._order import (
    STATE_VERSION,
    check,
    decode,
    encode,
    generators_of,
    restore,
    states_of,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


@dataclass(frozen=True)
class Position:
    """Position of one worker in its samples.

    Attributes:
        made: number of batches that it has made in this epoch.
        at: number of batches after which `state` was taken; 0 without a state.
        state: pickled state of the dataset and of its iterator; None if they have none, or if it was not taken yet.
        over: there were no more samples when the state was taken.
        before: `state` was taken at the end of the previous epoch.
        refusal: why there is no state of a dataset that should have one; None if there is one.
    """

    made: int = 0
    at: int = 0
    state: bytes | None = None
    over: bool = False
    before: bool = False
    refusal: str | None = None

    def next_epoch(self) -> Position:
        """Return the position at the start of the epoch that follows; what is known of an unfinished one is lost."""
        return replace(self, made=0, at=0, over=False, before=True) if self.over else Position()


class Part(NamedTuple):
    """Message of a worker: a batch, or only its position.

    Attributes:
        worker: number of the worker.
        position: its position after the batch.
        has_batch: False for a worker that has no more samples, or whose turn it is not yet.
        batch: the batch.
    """

    worker: int
    position: Position
    has_batch: bool
    batch: Any


def is_stateful(value: Any) -> bool:  # a caller's object, of any class
    """Return True if an object has torchdata's methods of a state."""
    return callable(getattr(value, "state_dict", None)) and callable(getattr(value, "load_state_dict", None))


class StreamParts(torch.utils.data.IterableDataset):  # type: ignore[misc]  # torch is absent where types are checked
    """IterableDataset of the `Part` objects of another one.

    Args:
        dataset: the caller's.
        batch_size: number of samples of a batch; None: a sample is a batch.
        drop_last: leave out a batch with fewer samples.
        collate_fn: makes a batch of a list of samples, or of one sample.
        every: take a state after each `every` batches of a worker; 0: only at the end of the epoch.

    Attributes:
        positions: where the workers begin; None: where the previous epoch ended.
        load: the dataset is not there yet, so the states of the positions must be loaded.
        first: number of the worker that makes the first batch. Those before it send an empty part first.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None,
        drop_last: bool,
        collate_fn: Callable[[Any], Any],
        every: int,
    ) -> None:
        super().__init__()
        self.dataset = dataset
        self.batch_size = batch_size
        self.drop_last = drop_last
        self.collate_fn = collate_fn
        self.every = every
        self.positions: Sequence[Position] | None = None
        self.load = False
        self.first = 0
        self._latest: _Parts | None = None

    def __iter__(self) -> _Parts:
        info = torch.utils.data.get_worker_info()
        worker = 0 if info is None else info.id
        if self.positions is not None:
            position = self.positions[worker]
        else:
            position = Position() if self._latest is None else self._latest.position.next_epoch()
        self._latest = _Parts(self, worker, position, load=self.load, wait=worker < self.first)
        if info is None and not self.load:
            self._latest.take_first_state()
        self.positions, self.load, self.first = None, False, 0
        return self._latest

    @property
    def position(self) -> Position:
        """Return the position in this process."""
        return Position() if self._latest is None else self._latest.position


class _Parts:
    """Iterator over the parts of one worker. Errors of the caller's code leave it usable, as in torch.

    Attributes:
        position: the position after the latest batch.
    """

    def __init__(self, stream: StreamParts, worker: int, position: Position, load: bool, wait: bool) -> None:
        self.position = position
        self._stream = stream
        self._worker = worker
        self._wait = wait
        self._over = self._ended = False
        if load:
            self._load()
        else:
            self._samples = iter(stream.dataset)

    def _load(self) -> None:
        position, dataset = self.position, self._stream.dataset
        parts: dict[str, Any] = {} if position.state is None else pickle.loads(position.state)
        # The dataset first, then its iterator, as torchdata does.
        if "dataset" in parts:
            dataset.load_state_dict(parts["dataset"])
        self._samples = iter(dataset)
        if "iterator" in parts:
            self._samples.load_state_dict(parts["iterator"])
            if position.before:
                self._samples = iter(dataset)
        self._over = position.over and position.at == position.made
        try:
            for _ in range(position.made - position.at):
                self._draw()
        except StopIteration:
            raise ResumeError(
                "workers",
                f"a stream of at least {position.made} batches in worker {self._worker}",
                "fewer",
                "the samples must be those of the saved run",
            ) from None

    def __iter__(self) -> _Parts:
        return self

    def __next__(self) -> Part:
        if self._wait:
            self._wait = False
            return Part(self._worker, self.position, False, None)
        if self._ended:
            raise StopIteration
        try:
            batch = self._draw()
        except StopIteration:
            self._ended = True
            self._take_state()
            return Part(self._worker, self.position, False, None)
        made = self.position.made + 1
        self.position = replace(self.position, made=made)
        if self._stream.every and made % self._stream.every == 0:
            self._take_state()
        return Part(self._worker, self.position, True, batch)

    def _draw(self) -> Any:
        stream = self._stream
        if self._over:
            raise StopIteration
        if stream.batch_size is None:
            try:
                sample = next(self._samples)
            except StopIteration:
                self._over = True
                raise
            return stream.collate_fn(sample)
        samples: list[Any] = []
        while len(samples) < stream.batch_size:
            try:
                samples.append(next(self._samples))
            except StopIteration:
                self._over = True
                if not samples or stream.drop_last:
                    raise
                break
        return stream.collate_fn(samples)

    def take_first_state(self) -> None:
        """Take the state of the iterator at the start, in a process where the dataset may have been used before.

        That of the dataset alone says nothing yet: what it was used for may have ended in the middle.
        """
        if is_stateful(self._samples):
            self._take_state()

    def _take_state(self) -> None:
        """Put the present state into the position, if the caller's objects have one."""
        dataset, samples, position = self._stream.dataset, self._samples, self.position
        found: dict[str, Any] = {}
        try:
            if samples is not dataset and is_stateful(dataset):
                found["dataset"] = dataset.state_dict()
            if is_stateful(samples):
                found["iterator"] = samples.state_dict()
            state = pickle.dumps(found, protocol=5) if found else None
        except Exception as error:  # the script may never ask for a state, so that it must not end here
            self.position = replace(position, refusal=f"{type(error).__name__}: {error}")
            return
        if state is None:
            self.position = replace(position, over=self._over)
        else:
            self.position = Position(position.made, position.made, state, self._over)


def unchanged(part: Part) -> Part:
    """Return a part: the collate function of torch's loader."""
    return part


class StartWorker:
    """Function that torch calls in each worker process of a stream before it makes the iterator.

    Args:
        init: the caller's `worker_init_fn`, or None.
        seed: seed of worker 0 in the run that is resumed; None: the seed that torch has drawn.
    """

    def __init__(self, init: Callable[[int], object] | None, seed: int | None) -> None:
        self._init = init
        self._seed = seed

    def __call__(self, worker: int) -> None:
        """Set up a worker process."""
        info: Any = torch.utils.data.get_worker_info()
        seed = info.seed
        if self._seed is not None:
            seed = self._seed + worker
            random.seed(seed)
            torch.manual_seed(seed)
            np.random.seed(torch_worker._generate_state(self._seed, worker))
        # The caller's functions expect the caller's dataset there.
        torch_worker._worker_info = torch_worker.WorkerInfo(
            id=worker, num_workers=info.num_workers, seed=seed, dataset=info.dataset.dataset
        )
        if self._init is not None:
            self._init(worker)


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
