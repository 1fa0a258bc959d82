"""`DataLoader`: a replacement of torch's loader with the same arguments and batches."""

from __future__ import annotations

import logging
import math
import multiprocessing
import warnings
import weakref
from functools import partial
from typing import TYPE_CHECKING, Any, Generic

import torch
import torch.utils.data
from torch.utils.data import (
    DistributedSampler,
    IterableDataset,
    IterDataPipe,
    RandomSampler,
    SequentialSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    default_collate,
)

from aioloader.datasets.base import TransformedView
from aioloader.datasets.iterable import IterableDataset as Stream
from aioloader.datasets.resolve import resolve
from aioloader.datasets.stage import Stage
from aioloader.errors import NotResumableError, OutputError, SampleError, StalledError, WorkerError
from aioloader.executors.process.executor import ProcessExecutor
from aioloader.foundation.error_log import add_note
from aioloader.foundation.forks import has_cuda_context
from aioloader.interop.torch._items import (
    Items,
    WorkerSetup,
    current_settings,
    known_dataset,
    reads_batches,
    set_up_worker,
)
from aioloader.interop.torch._order import (
    STATE_VERSION,
    Order,
    all_generators,
    check,
    decode,
    encode,
    generators_of,
    prefetch,
    restore,
    states_of,
)
from aioloader.interop.torch._samples import (
    Collated,
    RowCollate,
    UnencodedSample,
    encode_sample,
    is_passed_draws,
    restore_batch,
)
from aioloader.interop.torch._sending import Changes, detached, unsendable
from aioloader.interop.torch._streams import Streams
from aioloader.loader import sync_loader as sync
from aioloader.loader.outputs import as_tensors

if TYPE_CHECKING:
    from collections.abc import Callable

    from typing_extensions import TypeVar  # those of `typing` have defaults from Python 3.13 on

    from aioloader.abc import MapDataset
    from aioloader.metrics import Stats

    T = TypeVar("T", default=Any)
else:
    from typing import TypeVar

    T = TypeVar("T")

_log = logging.getLogger("aioloader")
_START_S = 10.0
_STATE_PARTS = ("engine", "batch_size", "generators", "present", "begun")
# Samplers that return whole numbers.
_BY_NUMBER = (
    SequentialSampler,
    RandomSampler,
    SubsetRandomSampler,
    WeightedRandomSampler,
    DistributedSampler,
)


class DataLoader(torch.utils.data.DataLoader, Generic[T]):  # type: ignore[misc]  # torch is absent where types are checked
    """Replacement of ``torch.utils.data.DataLoader``: the same arguments, the same batches, another engine.

    ::

        from aioloader.interop.torch import DataLoader  # before: from torch.utils.data import DataLoader

    The class inherits arguments, attributes and argument errors from torch's, so frameworks that require torch's loader
    accept it. Batches are those of torch's default_collate, or of `collate_fn`. With the same `generator` or
    ``torch.manual_seed``, the order of ``shuffle=True`` is torch's. Differences:

    - Worker processes live as long as the loader, as with torch's ``persistent_workers=True``. If the dataset or a
      function has changed between two epochs, they are started again, unless ``persistent_workers=True``.
      `multiprocessing_context`, or multiprocessing's default, decides whether they are forks of the script, which have
      all that it has, or new interpreters, which receive the dataset by cloudpickle. For datasets of this project they
      are always new interpreters.
    - In worker processes Python's, numpy's and torch's global generators are seeded for every sample, from torch's
      seed, the epoch, the index and the position. So random transforms are reproducible after ``torch.manual_seed``,
      for any number of workers; their random numbers differ from those with torch's loader.
    - A sample that fails raises its own exception, with a note that names the sample. A worker process that dies is
      replaced, and its samples are made again.
    - `timeout` is the time in seconds that a worker may spend on one sample before it is killed; 0: no limit.
    - `pin_memory_device` has no effect: torch's current accelerator is used.
    - Datasets of this project, torch's TensorDataset, and torch's Subsets of these are read one batch at a time. So are
      datasets with ``__getitems__``; one worker makes each of their batches.
    - An IterableDataset has no indices: torch's own engine loads it, and there are no statistics. It can be resumed;
      `snapshot_every_n_steps` is the number of batches of a worker after which it sends the dataset's state, as with
      torchdata's StatefulDataLoader (0 or None: at the end of an epoch). It has no effect on other datasets, whose
      state is a number of batches.

    Raises:
        TypeError: the dataset is an `aioloader.IterableDataset`.
        ValueError: for the same reasons as in torch.
    """

    def __init__(
        self,
        dataset: Any,  # the caller's: torch's datasets, this project's, or any other
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
        snapshot_every_n_steps: int | None = 1,
    ) -> None:
        # All arguments that torch's own class has, by their names.
        given = dict(locals())
        for name in ("self", "__class__", "snapshot_every_n_steps"):
            del given[name]
        if isinstance(dataset, Stream):
            raise TypeError(
                "torch's DataLoader cannot load an aioloader.IterableDataset: pass it to "
                "aioloader.DataLoader(dataset, batch_size, output='torch')"
            )
        super().__init__(**given)
        self._engine: sync.DataLoader[Any] | None = None
        self._order: Order | None = None
        self._made_of: tuple[Any, ...] = ()
        self._forked: ProcessExecutor | None = None
        self._changes = Changes()
        self._loaded: dict[str, Any] | None = None  # of the next iteration
        self._reached: dict[str, Any] | None = None  # when it was closed
        self.snapshot_every_n_steps = snapshot_every_n_steps
        self._streams: Streams | None = None
        if self._is_stream:
            _log.info("%s is an IterableDataset, so torch's own engine loads it", type(dataset).__name__)

    def __getstate__(self) -> dict[str, Any]:
        return {
            **self.__dict__,
            "_engine": None,
            "_order": None,
            "_made_of": (),
            "_forked": None,
            "_iterator": None,
            "_changes": Changes(),
            "_loaded": None,
            "_reached": None,
            "_streams": None,
        }

    @property
    def _forks(self) -> bool:
        """Return whether torch's own workers would be forks of this process."""
        if not self.num_workers:
            return False
        context = self.multiprocessing_context or multiprocessing
        # Otherwise asking would decide it, and the script could not set it any more.
        method = context.get_start_method(allow_none=True) or multiprocessing.get_all_start_methods()[0]
        return bool(method == "fork")

    @property
    def _executor_of_own(self) -> str:
        """Return the executor for a dataset of this project, which needs no forks: a script has to ask for them."""
        asked = self.multiprocessing_context is not None and not has_cuda_context()
        return "fork" if self._forks and asked else "process"

    @property
    def _is_stream(self) -> bool:
        return isinstance(self.dataset, IterableDataset)

    def _ready_streams(self) -> Streams:
        if isinstance(self.dataset, IterDataPipe):
            raise NotResumableError(
                f"{type(self.dataset).__name__} is an IterDataPipe: torch's own engine loads it, without a state; "
                "make it a torch.utils.data.IterableDataset, or a dataset with indices"
            )
        if self._streams is None:
            self._streams = Streams(self.snapshot_every_n_steps or 0)
        return self._streams

    def __iter__(self) -> Any:
        """Begin a new epoch."""
        if isinstance(self.dataset, IterDataPipe):
            return super().__iter__()
        if self._is_stream:
            return self._ready_streams().begin(self)
        if self.pin_memory and not torch.accelerator.is_available():
            warnings.warn(
                "pin_memory has no effect: torch finds no accelerator here, so tensors stay in pageable memory",
                UserWarning,
                stacklevel=2,
            )
        engine = self._ready_engine()
        if self._loaded is not None:
            engine = self._resume(engine, self._loaded)
        self._loaded = self._reached = None
        batches = _Batches(self, iter(engine), self._order)
        if self._forked is not None:
            self._forked.started.wait(_START_S)  # what the script does next is not in its workers
        return batches

    def state_dict(self) -> dict[str, Any]:
        """Return a checkpoint as a JSON object: it records the batches that you received, not those prefetched.

        The method is that of torchdata's StatefulDataLoader. The state holds the number of batches, and the states of
        the generators that torch's samplers drew the epoch's order from: of `generator`, of the sampler's, or torch's
        global one. Each has about 7 kB. Without workers the samples draw from them, too, so that their present
        states are added. That of an IterableDataset holds the position of each worker, with the states
        of the dataset and its iterator, if they have `state_dict` and `load_state_dict`; it is JSON if theirs are.

        Raises:
            NotResumableError: the dataset is a data pipe, or its own `state_dict` has failed.
        """
        if self._is_stream:
            return self._ready_streams().state_dict(self)
        known = self._loaded or self._reached
        if known is not None:
            return dict(known)
        order, engine = self._order, self._engine
        state = None if engine is None else engine.state_dict()
        within = engine is not None and engine._runtime.planner.current is not None
        present = states_of(all_generators(self))
        drawn = {name: present[name] for name in generators_of(self)}
        return {
            "torch_version": STATE_VERSION,
            "engine": state,
            "batch_size": self.batch_size,
            "generators": encode(order.start if within and order is not None else drawn),
            "present": encode(present) if within and not self.num_workers else None,
            "begun": order is not None
            and engine is not None
            and (order.begun_before if within else order.begun),
        }

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Resume from a state: the next iteration delivers the rest of its epoch, and later ones those that follow.

        The order is drawn again, so the generators are set to where the epoch began, also torch's global one if the
        loader has no `generator`. A sampler that draws from something else must be set up by the caller. The number of
        workers may differ, except for an IterableDataset. With workers, random transforms draw what they would have
        drawn.

        Raises:
            ResumeError: the state is corrupt, or belongs to other data, another batch size or another way of sampling.
            NotResumableError: the dataset is a data pipe.
        """
        if self._is_stream:
            self._ready_streams().load_state_dict(self, state)
            return
        check(state, _STATE_PARTS, self.batch_size)
        self._resume(self._ready_engine(), state)
        self._loaded, self._reached = dict(state), None

    def _resume(self, engine: sync.DataLoader[Any], state: dict[str, Any]) -> sync.DataLoader[Any]:
        """Return the engine that continues from a state; a state that is refused changes nothing."""
        generators = generators_of(self)
        states = decode(generators, state["generators"])
        saved = state["engine"]
        # Samples that are made in this process draw from the same generators as the order.
        present = None
        if state["present"] is not None and not self.num_workers:
            present = decode(all_generators(self), state["present"])
        assert self._order is not None
        before = self._engine, self._order
        try:
            if self._order.begun:  # its workers have a seed
                self._engine = None
                engine = self._ready_engine()
            if saved is not None:
                engine.load_state_dict(saved)
        except BaseException:
            self._engine, self._order = before
            raise
        if saved is not None:
            reached = None if present is None else (int(saved["consumed"]), present)
            self._order.resume(engine._runtime.planner.seed, bool(state["begun"]), reached)
        restore(generators, states)
        return engine

    def _ready_engine(self) -> sync.DataLoader[Any]:
        functions = [self.collate_fn, self.worker_init_fn]
        checksums: Any = None
        # Torch's workers are forked for every epoch, so they see changes of all of them since the last epoch.
        if self.num_workers and not (self.persistent_workers and self._engine is not None):
            if self._forks:
                checksums = self._changes.checksum([self.dataset, *functions])
                if () in checksums:  # what cannot be pickled may have changed
                    checksums = object()
            else:
                checksums, functions = self._changes.checksum_of_program(self.dataset, functions)
        kept = None if self.persistent_workers or not self.num_workers else (checksums, current_settings())
        made_of = (self.collate_fn, self.worker_init_fn, self.pin_memory, kept)
        if self._engine is None or made_of != self._made_of:
            if self._engine is not None:
                _log.info("the dataset or its functions have changed: worker processes are restarted")
            self._engine = self._make_engine(*functions)  # unfinished epochs keep the old one
            self._made_of = made_of
        return self._engine

    def _make_engine(self, collate_fn: Any, worker_init_fn: Any) -> sync.DataLoader[Any]:
        setup = WorkerSetup(self.dataset, self.num_workers, worker_init_fn)
        default = self._auto_collation and self.collate_fn is default_collate
        # Arrays in memory need no worker, in which worker_init_fn could be called.
        arrays = self.worker_init_fn is None or not self.num_workers
        items = known_dataset(self.dataset, tensors=default and arrays)
        if (
            not self._auto_collation
            and isinstance(self.dataset, torch.utils.data.Dataset)
            and not isinstance(self.sampler, _BY_NUMBER)
        ):
            items = None  # the sampler may return lists, each of which is one index of the dataset
        known = items is not None
        single = items is not None and isinstance(self.dataset, torch.utils.data.Dataset) and _single(items)
        together = not known and self._auto_collation and reads_batches(self.dataset)
        length = None
        if items is None:
            keep = None if together else encode_sample if default else UnencodedSample
            items = Items(self.dataset, setup, keep, collate_fn)
            length = len(items)
        elif self.worker_init_fn is not None or _runs_foreign_code(items):
            items = TransformedView(items, Stage(partial(set_up_worker, setup), first=False))
        batchify: Any = None
        restore: Any = restore_batch
        if together or not default:
            read = self.dataset.__getitems__ if together else None
            batchify = Collated(
                collate_fn,
                carried=self.num_workers > 0,
                single=not self._auto_collation,
                read=read,
                draws=is_passed_draws(self.collate_fn),
            )
        elif known:
            restore = partial(_restore_known, single=single)
        else:
            batchify = RowCollate(self.num_workers > 0)
            restore = batchify.batch
        order = Order(self, setup, length)
        timeout = self.timeout or math.inf
        self._forked = None
        if self._forks and isinstance(items, Items):
            parts = [self.dataset, collate_fn, worker_init_fn]
            self._forked = ProcessExecutor(self.num_workers, timeout, inherited=parts)
        engine: sync.DataLoader[Any] = sync.DataLoader(
            items,
            executor=self._forked or self._executor_of_own,
            batch_sampler=order,
            batchify_fn=batchify,
            num_workers=self.num_workers,
            prefetch=prefetch(self),
            timeout=timeout,
            in_order=self.in_order or not self.num_workers,  # as torch, which ignores it without workers
            output=partial(_pinned, restore)
            if self.pin_memory and torch.accelerator.is_available()
            else restore,
            # Scripts for torch use the global generators, and without workers in a fixed order.
            watch_globals=False,
        )
        order.runtime = weakref.ref(engine._runtime)
        self._order = order
        return engine

    def close(self) -> None:
        """End the worker processes, within a second. Delivered batches stay valid."""
        if self._engine is not None:
            self._reached = self.state_dict()
        engine, self._engine = self._engine, None
        self._forked = None
        self._iterator = None  # of torch's own engine
        if self._streams is not None:
            self._streams.close()
        if engine is not None:
            engine.close()

    def stats(self) -> Stats:
        """Return the statistics of the engine; see `aioloader.DataLoader.stats`.

        Raises:
            TypeError: the dataset is an IterableDataset.
        """
        return self._counting().stats()

    def explain(self) -> str:
        """Return lines about the bottleneck of the loader, and a list of options that would remove it.

        Raises:
            TypeError: the dataset is an IterableDataset.
        """
        return self._counting().explain()

    def _counting(self) -> sync.DataLoader[Any]:
        if self._is_stream:
            raise TypeError(
                f"{type(self.dataset).__name__} is an IterableDataset: torch's own engine loads it, without "
                "statistics"
            )
        return self._ready_engine()


def _runs_foreign_code(dataset: MapDataset[Any]) -> bool:
    """Return whether a transform is not of this project, and so may depend on the script's settings."""
    return not all(stage.native for stage in resolve(dataset).stages)


def _single(dataset: MapDataset[Any]) -> bool:
    """Return True if the samples are the rows of one array; torch's samples would be tuples of one element."""
    resolved = resolve(dataset)
    return resolved.base_kind == "gather" and len(resolved.base.arrays) == 1


def _restore_known(batch: Any, *, single: bool) -> Any:
    """Convert a batch that this project collated to the batch that default_collate would have made."""
    tensors = _as_lists(as_tensors(batch), False)
    return [tensors] if single else tensors


def _as_lists(value: Any, in_sequence: bool) -> Any:
    """Convert tuples to lists, and lists of strings in them to tuples."""
    if type(value) is tuple:
        return [_as_lists(each, True) for each in value]
    if type(value) is dict:
        return {key: _as_lists(each, False) for key, each in value.items()}
    if type(value) is list and in_sequence and value and isinstance(value[0], (str, bytes)):
        return tuple(value)
    return value


def _pinned(restore: Callable[[Any], Any], batch: Any) -> Any:
    """Copy the tensors of a restored batch to pinned memory, as in torch's loader."""
    from torch.utils.data._utils.pin_memory import pin_memory

    return pin_memory(restore(batch))


class _Batches:
    """Iterator over the batches of one epoch."""

    def __init__(self, loader: DataLoader[Any], batches: Any, order: Order | None) -> None:
        self._loader = loader  # an iterator keeps its loader alive
        self._batches = batches
        self._drawn = None if order is None else order.latest
        batches.continue_after_errors()

    def __iter__(self) -> _Batches:
        return self

    def __len__(self) -> int:
        """Return the number of batches of an epoch."""
        return len(self._loader)

    def __next__(self) -> Any:
        """Return the next batch, blocking; raise the exceptions of the dataset and the collate function unchanged."""
        if not torch.autograd._profiler_enabled():
            return self._next()
        # As torch's loaders do.
        with torch.profiler.record_function("enumerate(DataLoader)#aioloader.__next__"):
            return self._next()

    def _next(self) -> Any:
        if self._drawn is not None:
            self._drawn.draw()
        try:
            return next(self._batches)
        except WorkerError as error:
            loader = self._loader
            parts = {
                "dataset": loader.dataset,
                "collate_fn": detached(loader.collate_fn),
                "worker_init_fn": detached(loader.worker_init_fn),
            }
            reason = None if loader._forks else unsendable(parts)
            if reason is None:
                error.add_note("torch's DataLoader has no option for another executor: set num_workers=0")
                raise
            raise WorkerError(reason) from error
        except (SampleError, OutputError) as error:
            cause = error.__cause__
            # A StopIteration would end the caller's loop early. An exception that ends a worker (SystemExit) must not
            # end this process.
            if (
                cause is None
                or isinstance(cause, StopIteration)
                or not (isinstance(cause, Exception) or self._loader.num_workers == 0)
            ):
                raise
            add_note(cause, str(error))
            if isinstance(cause, StalledError):  # in torch's words, which scripts look for
                add_note(cause, f"DataLoader timed out after {cause.timeout:g} seconds")
        try:
            raise cause
        finally:
            del cause  # breaks the cycle error -> traceback -> frame -> error
