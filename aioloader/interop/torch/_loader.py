"""`DataLoader`: torch's loader by its arguments and its batches, with this project's engine."""

from __future__ import annotations

import logging
import math
import warnings
import weakref
import zlib
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np
import torch
import torch.utils.data
from torch.utils.data import IterableDataset, default_collate

from aioloader.abc import GatherDataset, MapDataset
from aioloader.datasets.arrays import ArrayDataset
from aioloader.datasets.base import Dataset
from aioloader.datasets.iterable import IterableDataset as Stream
from aioloader.datasets.resolve import resolve
from aioloader.errors import OutputError, SampleError, WorkerError
from aioloader.interop.torch._items import Crew, Items, WorkerStage, known_dataset, reads_batches
from aioloader.interop.torch._samples import Collated, Odd, RowCollate, batch_of_whole, take_apart
from aioloader.interop.torch._tensors import as_tensors
from aioloader.loader import sync_loader as sync

if TYPE_CHECKING:
    import pickle
    from collections.abc import Callable, Iterator

    from aioloader.loader.runtime import LoaderRuntime
    from aioloader.metrics import Stats

__all__ = ("DataLoader",)

_log = logging.getLogger("aioloader")
_MANY = 10_000_000  # indices that are drawn before the first batch, at most


class DataLoader(torch.utils.data.DataLoader):  # type: ignore[misc]  # torch is not there where types are checked
    """``torch.utils.data.DataLoader`` with another engine: the same arguments, the same batches.

    ::

        from aioloader.interop.torch import DataLoader  # before: from torch.utils.data import DataLoader

    Arguments, attributes and errors of arguments are torch's, by inheritance: frameworks that ask for its loader take
    this one. Batches are those of torch's default_collate, or of `collate_fn`; the order of ``shuffle=True`` is
    torch's, for the same `generator` or ``torch.manual_seed``. What is different:

    - Worker processes are fresh interpreters (not forks), which live as long as the loader, as with torch's
      ``persistent_workers=True``. The dataset is sent to them by cloudpickle; one that was changed between two epochs
      is noticed and sent again, unless ``persistent_workers=True`` says that it is not. `multiprocessing_context` is
      checked and has no further effect.
    - In worker processes Python's, numpy's and torch's global generators are seeded for every sample, from torch's
      seed, the epoch and the index. So random transforms are reproducible after ``torch.manual_seed``, for any number
      of workers; their draws are not torch's.
    - A sample that fails raises its own exception here too, with a note that names the sample. A worker process that
      dies is replaced, and its samples are made again.
    - `timeout` is how long a worker may take over one sample before it is ended; 0: for ever.
    - Batches come in order; ``in_order=False`` changes nothing. `pin_memory_device` is torch's own affair.
    - Datasets of this project, and torch's TensorDataset, are read whole batches at a time; so are torch's Subsets of
      them, and datasets with ``__getitems__``, whose batches are made by one worker each.
    - An IterableDataset has no indices to hand out: torch's own engine loads it, as before, and counts nothing.

    Raises:
        TypeError: the dataset is an `aioloader.IterableDataset`.
        ValueError: as torch's.
    """

    def __init__(
        self,
        dataset: Any,
        batch_size: int | None = 1,
        shuffle: bool | None = None,
        sampler: Any = None,
        batch_sampler: Any = None,
        num_workers: int = 0,
        collate_fn: Any = None,
        pin_memory: bool = False,
        drop_last: bool = False,
        timeout: float = 0,
        worker_init_fn: Any = None,
        multiprocessing_context: Any = None,
        generator: Any = None,
        *,
        prefetch_factor: int | None = None,
        persistent_workers: bool = False,
        pin_memory_device: str = "",
        in_order: bool = True,
    ) -> None:
        if isinstance(dataset, Stream):
            raise TypeError(
                "torch's DataLoader has no place for an aioloader.IterableDataset: give it to "
                "aioloader.DataLoader(dataset, batch_size, output='torch')"
            )
        super().__init__(
            dataset,
            batch_size,
            shuffle,
            sampler,
            batch_sampler,
            num_workers,
            collate_fn,
            pin_memory,
            drop_last,
            timeout,
            worker_init_fn,
            multiprocessing_context,
            generator,
            prefetch_factor=prefetch_factor,
            persistent_workers=persistent_workers,
            pin_memory_device=pin_memory_device,
            in_order=in_order,
        )
        self._engine: sync.DataLoader[Any] | None = None
        self._made_of: tuple[Any, ...] = ()
        if self._streams:
            _log.info("%s is an IterableDataset, which torch's own engine loads", type(dataset).__name__)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_engine": None, "_made_of": (), "_iterator": None}

    @property
    def _streams(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    def __iter__(self) -> Any:
        """A new pass."""
        if self._streams:
            return super().__iter__()
        if self.pin_memory and not torch.accelerator.is_available():
            warnings.warn(
                "pin_memory has no effect: torch finds no accelerator here, so tensors stay in pageable memory",
                UserWarning,
                stacklevel=2,
            )
        return _Batches(self, iter(self._ready_engine()))

    def _ready_engine(self) -> sync.DataLoader[Any]:
        made_of = (self.collate_fn, self.worker_init_fn, self.pin_memory, self._told())
        if self._engine is None or made_of != self._made_of:
            if self._engine is not None:
                _log.info(
                    "the dataset or its functions were changed: worker processes are started anew for them"
                )
            self._engine = self._make_engine()  # passes under way keep the old one
            self._made_of = made_of
        return self._engine

    def _told(self) -> Any:
        """Something that is another when the dataset is, as its worker processes know it."""
        # Torch's workers are forked for every epoch, so they see what was done to the dataset since the last one.
        return None if self.persistent_workers or not self.num_workers else _checksum(self.dataset)

    def _make_engine(self) -> sync.DataLoader[Any]:
        crew = Crew(self.dataset, self.num_workers, self.worker_init_fn)
        default = self._auto_collation and self.collate_fn is default_collate
        items = known_dataset(self.dataset, tensors=default)
        known = items is not None
        single = known and isinstance(self.dataset, torch.utils.data.Dataset) and _single(items)
        together = not known and self._auto_collation and reads_batches(self.dataset)
        if not known:
            items = Items(self.dataset, crew, None if together else take_apart if default else Odd)
        elif (
            self.worker_init_fn is not None
            and isinstance(items, Dataset)
            and not isinstance(items, ArrayDataset)
        ):
            items = items.transform(WorkerStage(crew))
        batchify: Any = None
        restore: Any = batch_of_whole
        if together or not default:
            read = self.dataset.__getitems__ if together else None
            batchify = Collated(self.collate_fn, self.num_workers > 0, not self._auto_collation, read)
        elif known:
            restore = _Known(single)
        else:
            batchify = RowCollate(self.num_workers > 0)
            restore = batchify.batch
        order = _Order(self, crew)
        engine: sync.DataLoader[Any] = sync.DataLoader(
            items,
            batch_sampler=order,
            batchify_fn=batchify,
            num_workers=self.num_workers,
            prefetch=max(1, (self.prefetch_factor or 1) * self.num_workers),
            timeout=self.timeout or math.inf,
            output=_Pinned(restore) if self.pin_memory and torch.accelerator.is_available() else restore,
        )
        order.runtime = weakref.ref(engine._runtime)
        engine._runtime.watch_globals = (
            False  # torch's scripts draw from them, and without workers in their own order
        )
        return engine

    def close(self) -> None:
        """End the worker processes, within a second. Batches that were delivered stay valid."""
        engine, self._engine = self._engine, None
        self._iterator = None  # of torch's own engine
        if engine is not None:
            engine.close()

    def stats(self) -> Stats:
        """The counters of the engine; see `aioloader.DataLoader.stats`.

        Raises:
            TypeError: the dataset is an IterableDataset.
        """
        return self._counting().stats()

    def explain(self) -> str:
        """What limits the loader, and what to change, in one paragraph.

        Raises:
            TypeError: the dataset is an IterableDataset.
        """
        return self._counting().explain()

    def _counting(self) -> sync.DataLoader[Any]:
        if self._streams:
            raise TypeError(
                f"{type(self.dataset).__name__} is an IterableDataset: torch's own engine loads it, and counts nothing"
            )
        return self._ready_engine()


def _single(dataset: MapDataset[Any]) -> bool:
    """Whether its items are one array's rows themselves: torch's are tuples of one."""
    base = resolve(dataset).base
    return isinstance(base, GatherDataset) and len(base.arrays) == 1


def _checksum(parts: Any) -> tuple[int, ...]:
    """Tells one from another by what would be sent to workers. Empty where it cannot be sent: its use will say so."""
    buffers: list[pickle.PickleBuffer] = []
    try:
        blob = cloudpickle.dumps(parts, protocol=5, buffer_callback=buffers.append)
    except Exception:  # whatever the pickling of a foreign object raises
        return ()
    return zlib.crc32(blob), len(blob), *[zlib.crc32(buffer.raw()) for buffer in buffers]


class _Order:
    """The lists of indices that torch's samplers give, drawn when torch draws them."""

    def __init__(self, loader: DataLoader, crew: Crew) -> None:
        self._lists = loader._index_sampler
        self._single = not loader._auto_collation
        self._generator = loader.generator
        self._ahead = loader.num_workers > 0
        self._kept = loader.persistent_workers
        self._crew = crew
        self._begun = False
        self.batch_size = loader.batch_size
        self.runtime: Callable[[], LoaderRuntime | None] = lambda: None

    def __len__(self) -> int:
        return len(self._lists)

    def __iter__(self) -> Iterator[Any]:
        # The order of these draws is torch's: so is the order of the samples then.
        lists = iter(self._lists)
        if not (self._begun and self._kept):
            seed = int(torch.empty((), dtype=torch.int64).random_(generator=self._generator).item())
        if not self._begun:
            self._begun = True
            self._crew.seed = seed
            runtime = self.runtime()
            assert runtime is not None
            runtime.order.progress.seed = seed
        batches: Iterator[Any] = map(self._checked, lists)
        if self._ahead and self._few():
            # The engine asks for them in a thread of its own; the caller's generators are drawn from here and now.
            batches = iter(list(batches))
        return batches

    def _few(self) -> bool:
        try:
            return len(self._lists) * (self.batch_size or 1) <= _MANY
        except (TypeError, NotImplementedError):  # of samplers without an end
            return False

    def _checked(self, indices: Any) -> Any:
        if self._single:
            indices = [indices]
        try:
            numbers = [index.__index__() for index in indices]
        except (AttributeError, TypeError):
            raise TypeError(
                f"the sampler gave {indices!r}: with workers of aioloader indices are whole numbers; give this sampler "
                "to torch's own DataLoader"
            ) from None
        if not numbers:
            raise ValueError("the batch sampler gave a batch without indices: leave such batches out")
        return np.asarray(numbers, np.int64)


class _Known:
    """Makes the batch of a dataset that is read without torch what default_collate would have made."""

    def __init__(self, single: bool) -> None:
        self._single = single

    def __call__(self, batch: Any) -> Any:
        tensors = _as_lists(as_tensors(batch), False)
        return [tensors] if self._single else tensors


def _as_lists(value: Any, in_sequence: bool) -> Any:
    """Tuples as lists, and columns of texts in them as tuples."""
    if type(value) is tuple:
        return [_as_lists(each, True) for each in value]
    if type(value) is dict:
        return {key: _as_lists(each, False) for key, each in value.items()}
    if type(value) is list and in_sequence and value and isinstance(value[0], (str, bytes)):
        return tuple(value)
    return value


class _Pinned:
    """Copies the tensors of a batch to pinned memory, as torch's loader does."""

    def __init__(self, restore: Any) -> None:
        self._restore = restore

    def __call__(self, batch: Any) -> Any:
        from torch.utils.data._utils.pin_memory import pin_memory

        return pin_memory(self._restore(batch))


class _Batches:
    """One pass."""

    def __init__(self, loader: DataLoader, batches: Any) -> None:
        self._loader = loader  # an iterator keeps its loader alive
        self._batches = batches

    def __iter__(self) -> _Batches:
        return self

    def __len__(self) -> int:
        """Number of batches of a whole pass."""
        return len(self._loader)

    def __next__(self) -> Any:
        """The next batch; blocks. Raises what the dataset or the collate function raised, as it is."""
        if not torch.autograd._profiler_enabled():
            return self._next()
        with torch.profiler.record_function(
            "enumerate(DataLoader)#aioloader.__next__"
        ):  # as torch's loaders do
            return self._next()

    def _next(self) -> Any:
        try:
            return next(self._batches)
        except WorkerError as error:
            error.add_note(
                "this loader has no executor to choose: what cannot be sent is best made when it is first used, in "
                "__getitem__; or set num_workers=0"
            )
            raise
        except (SampleError, OutputError) as error:
            cause = error.__cause__
            # Of a StopIteration the caller's loop would only end early. What ends a worker need not end this process.
            if (
                cause is None
                or isinstance(cause, StopIteration)
                or not (isinstance(cause, Exception) or self._loader.num_workers == 0)
            ):
                raise
            cause.add_note(str(error))
        try:
            raise cause
        finally:
            del cause  # breaks the cycle error -> traceback -> frame -> error
