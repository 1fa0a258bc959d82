"""Batches of an IterableDataset as torch's worker processes make them, each with the position of the worker."""

from __future__ import annotations

import pickle
import random
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, NamedTuple

import numpy as np
import torch
import torch.utils.data
from torch.utils.data._utils import worker as torch_worker

from aioloader.errors import ResumeError

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
