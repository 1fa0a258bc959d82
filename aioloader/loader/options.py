"""Options of a loader: checked when it is made, frozen afterwards."""

from __future__ import annotations

import inspect
from collections.abc import Sequence
from contextlib import suppress
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import UnshardedWarning
from aioloader.executors.factory import check_executor
from aioloader.executors.process.executor import WorkerPool
from aioloader.foundation.dealing import check_shard, rank_and_world
from aioloader.foundation.host_limits import cores_of_rank
from aioloader.foundation.stacks import warn_caller
from aioloader.foundation.validation import at_least, file_path, is_async, one_of
from aioloader.pipeline.plan import not_batches, not_indices
from aioloader.samplers.basic import BatchSampler, is_computed, is_positional
from aioloader.samplers.dealt import dealt_by_sampler, dealt_twice, dealt_unevenly, shard_of

if TYPE_CHECKING:
    import os
    from collections.abc import Callable

    from aioloader.abc import Executor

AUTO = "auto"
EXECUTORS = ("process", "fork", "thread", "inline", AUTO)
OUTPUTS = ("numpy", "torch", "jax")
_PAGE = 4096


def check_max_errors(limit: float | None) -> None:
    """Raise if `limit` is neither a number of samples nor a share of them.

    Raises:
        ValueError: it is negative, or a share of 1 or more.
        TypeError: it is not a number.
    """
    at_least("max_errors", limit, 0)
    if limit is not None and not hasattr(limit, "__index__") and not limit < 1:
        raise ValueError(
            f"max_errors must be a number of samples, or a share of them less than 1, got {limit!r}"
        )


def error_limits(limit: float | None) -> dict[str, Any]:
    """Return the options of a loader for a limit that is a number of samples, or a share of them."""
    return {"max_errors" if limit is None or hasattr(limit, "__index__") else "max_error_rate": limit}


def _is_iterable(value: Any) -> bool:
    # Without calling `iter`: samplers count how often they are iterated.
    return hasattr(value, "__iter__") or hasattr(value, "__getitem__")


def chosen_last_batch(last_batch: str | None, drop_last: bool | None, batch_sampler: Any) -> str | None:
    """Return `last_batch`, or what `drop_last` means.

    Raises:
        ValueError: both are given, or `drop_last` is True and there is a batch sampler.
        TypeError: `drop_last` is neither True nor False.
    """
    if drop_last is None:
        return last_batch
    if not isinstance(drop_last, bool):
        raise TypeError(f"drop_last must be True or False, got {drop_last!r}")
    if last_batch is not None:
        raise ValueError(
            f"drop_last={drop_last} and last_batch={last_batch!r} both say what becomes of an incomplete batch: "
            "pass one of them"
        )
    if batch_sampler is not None and not drop_last:
        return None
    return "discard" if drop_last else "keep"


def chosen_batchify(batchify_fn: Any, collate_fn: Any) -> Any:
    """Return the function that was given.

    Raises:
        ValueError: both were.
    """
    if batchify_fn is not None and collate_fn is not None:
        raise ValueError("batchify_fn and collate_fn are two names of one option: pass one of them")
    return collate_fn if batchify_fn is None else batchify_fn


def check_kind_of_samplers(sampler: Any, batch_sampler: Any) -> None:
    """Raise if a sampler of single indices is given as a batch sampler, or a batch sampler as a sampler.

    Only what can be seen without iterating over them is checked here; what comes is checked when it comes.

    Raises:
        TypeError: one of them is of the wrong kind; the error says what to pass instead.
    """
    if is_positional(batch_sampler):
        raise not_batches(type(batch_sampler).__name__)
    if (
        isinstance(batch_sampler, (Sequence, np.ndarray))
        and len(batch_sampler)
        and not np.ndim(batch_sampler[0])
    ):
        raise not_batches(type(batch_sampler).__name__)
    batches = isinstance(sampler, BatchSampler) or is_computed(sampler)
    if isinstance(sampler, (Sequence, np.ndarray)) and len(sampler):
        batches = isinstance(sampler[0], (Sequence, np.ndarray)) and not isinstance(sampler[0], str)
    if batches:
        raise not_indices(type(sampler).__name__)


@dataclass(frozen=True)
class LoaderOptions:
    """Arguments of `AsyncDataLoader` and `DataLoader`, whose signature these fields are.

    Raises:
        ValueError: a value is not allowed, or two options exclude each other (the rules are Gluon's).
        TypeError: a value is of the wrong type.
    """

    dataset: Any  # the caller's, of any class
    batch_size: int | None = None
    _: KW_ONLY
    shuffle: bool = False
    sampler: Any = None
    batch_sampler: Any = None
    last_batch: str | None = None
    drop_last: bool | None = None
    batchify_fn: Callable[..., Any] | None = None
    collate_fn: Callable[..., Any] | None = None
    num_workers: int | str | None = None
    seed: int | None = 0
    executor: str | Executor | WorkerPool = "process"
    prefetch: int | None = None
    timeout: float = 120
    shard: Any = None
    on_error: str = "raise"
    max_errors: int | None = None
    max_error_rate: float | None = None
    memory_limit: int | None = None
    even: str = "pad"
    output: Any = "numpy"
    device: Any = None
    pin_memory: bool = False
    progress: bool | str = False
    stall_timeout: float | None = 30
    trace: str | os.PathLike[str] | None = None
    in_order: bool = True
    watch_globals: bool = True

    def __post_init__(self) -> None:
        chosen = {
            "last_batch": chosen_last_batch(self.last_batch, self.drop_last, self.batch_sampler),
            "batchify_fn": chosen_batchify(self.batchify_fn, self.collate_fn),
            # They are other ways to pass these two.
            "drop_last": None,
            "collate_fn": None,
        }
        for name, value in chosen.items():
            object.__setattr__(self, name, value)
        self._check_batches()
        self._check_numbers()
        self._check_workers()
        self._check_max_errors()
        self._check_functions()
        one_of("on_error", self.on_error, ("raise", "skip", "replace"))
        one_of("even", self.even, ("pad", "drop", "exact"))
        if self.even == "exact" and self.last_batch in ("discard", "rollover"):
            raise ValueError(
                f"even='exact' delivers every sample of an epoch in it, and last_batch={self.last_batch!r} leaves some "
                "out (drop_last=True is 'discard'): leave one of them out"
            )
        self._check_output()
        if not isinstance(self.progress, bool):
            one_of("progress", self.progress, ("tqdm", "rich", "plain"))
        file_path("trace", self.trace)
        self._check_shard()

    def _check_batches(self) -> None:
        if self.batch_sampler is None:
            if self.batch_size is None:
                raise ValueError("batch_size must be specified unless batch_sampler is specified")
            if self.sampler is not None and self.shuffle:
                raise ValueError("shuffle must not be specified if sampler is specified")
        elif (
            self.batch_size is not None
            or self.shuffle
            or self.sampler is not None
            or self.last_batch is not None
        ):
            raise ValueError(
                "batch_size, shuffle, sampler and last_batch must not be specified if batch_sampler is specified."
            )
        if self.last_batch is not None and self.last_batch not in ("keep", "discard", "rollover"):
            raise ValueError(
                f"last_batch must be one of 'keep', 'discard', or 'rollover', but got {self.last_batch}"
            )

    def _check_numbers(self) -> None:
        at_least("timeout", self.timeout, 0, exclusive=True)
        at_least("stall_timeout", self.stall_timeout, 0, exclusive=True)
        for name in ("batch_size", "num_workers", "prefetch", "memory_limit", "seed"):
            value = getattr(self, name)
            if name == "num_workers" and value == AUTO:
                continue
            if value is not None and not hasattr(value, "__index__"):
                raise TypeError(f"{name} must be a whole number, got {value!r}")
        at_least("batch_size", self.batch_size, 1)
        if self.num_workers != AUTO:
            at_least("num_workers", self.num_workers, 0)
        at_least("prefetch", self.prefetch, 1)
        if self.memory_limit is not None and self.memory_limit < _PAGE:
            raise ValueError(
                f"memory_limit is in bytes and must be at least {_PAGE}, one page; a batch needs more, "
                f"256 << 20 are 256 MiB; got {self.memory_limit}"
            )
        if self.seed is not None:
            at_least("seed", self.seed, 0)
            if self.seed >= 2**64:
                raise ValueError(f"seed must be less than 2**64, got {self.seed}")

    def _check_workers(self) -> None:
        if isinstance(self.executor, str):
            one_of("executor", self.executor, EXECUTORS)
        elif self.pool is None:
            check_executor(self.executor)
        if self.pool is not None and self.num_workers in (0, AUTO):
            raise ValueError(
                f"executor is a WorkerPool, whose processes are the workers, but num_workers={self.num_workers!r}: "
                "pass a number of them, or leave it out"
            )
        if self.pool is not None and self.pool.closed:
            raise ValueError("this WorkerPool is closed; make a new one")
        if self.executor == "inline" and self.num_workers not in (None, 0):
            raise ValueError(
                f"executor='inline' makes batches in the caller's thread and has no workers, but num_workers="
                f"{self.num_workers!r}: leave one of them out"
            )

    def _check_max_errors(self) -> None:
        if isinstance(self.max_errors, float):
            raise TypeError(
                f"max_errors is a number of samples, got {self.max_errors!r}; a share of them is max_error_rate="
            )
        check_max_errors(self.max_errors)
        at_least("max_error_rate", self.max_error_rate, 0)
        if self.max_error_rate is not None and not self.max_error_rate < 1:
            raise ValueError(
                f"max_error_rate is a share of samples, less than 1, got {self.max_error_rate!r}; a number of them is "
                "max_errors="
            )
        given = [name for name in ("max_errors", "max_error_rate") if getattr(self, name) is not None]
        if given and self.on_error == "raise":
            raise ValueError(
                f"{given[0]} limits the samples that may be left out, and on_error='raise' allows none: pass "
                "on_error='skip' or 'replace'"
            )

    def _check_functions(self) -> None:
        for name, each in (("sampler", "indices"), ("batch_sampler", "lists of indices")):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, (type, str, bytes)) or not _is_iterable(value):
                raise TypeError(f"{name} must be an iterable of {each}, got {value!r}")
        check_kind_of_samplers(self.sampler, self.batch_sampler)
        batchify = self.batchify_fn
        if batchify is not None and not callable(batchify):
            raise TypeError(f"batchify_fn must be a function that takes a list of samples, got {batchify!r}")
        if is_async(batchify):
            name = getattr(batchify, "__name__", type(batchify).__name__)
            raise TypeError(
                "batchify_fn must be a function that takes a list of samples and runs in a worker, got the async "
                f"function {name}: await what it needs in an async transform"
            )
        if isinstance(batchify, type) and any("__call__" in vars(base) for base in batchify.__mro__):
            raise TypeError(
                f"batchify_fn must be a function that takes a list of samples, got the class {batchify.__name__}; "
                f"did you mean {batchify.__name__}()?"
            )

    def _check_output(self) -> None:
        if self.device is not None and self.pin_memory:
            raise ValueError("pin_memory keeps batches on the host, and device= moves them: pass one of them")
        output = self.output
        if isinstance(output, str) or not callable(output):
            if output not in OUTPUTS:
                allowed = ", ".join(map(repr, OUTPUTS))
                raise ValueError(
                    f"output must be one of {allowed} or a function of a batch, but got {output!r}"
                )
        elif inspect.iscoroutinefunction(output if inspect.isroutine(output) else type(output).__call__):
            raise TypeError(
                f"output must be a plain function, and {output!r} is async: await it in the body of your loop"
            )

    def _check_shard(self) -> None:
        check_shard(self.shard)
        if self.shard is None and self.shuffle:
            with suppress(ValueError):  # other programs set RANK and WORLD_SIZE, too
                _warn_of_ranks(rank_and_world("auto")[1])
        if shard_of(self.batch_sampler)[1] > 1:
            if self.shard is not None:
                raise dealt_twice(type(self.batch_sampler).__name__)
            if self.even == "exact":
                raise dealt_unevenly(type(self.batch_sampler).__name__)
        if self.shard is not None and self.rank_and_world[1] > 1:
            for each in (self.sampler, self.batch_sampler, getattr(self.batch_sampler, "sampler", None)):
                # Torch's DistributedSampler, and torchvision's for repeated augmentation, have these two attributes.
                world = getattr(each, "num_replicas", 1) if hasattr(each, "rank") else 1
                if isinstance(world, int) and world > 1:
                    raise dealt_by_sampler(type(each).__name__, world)
        if self.shard is not None and self.seed is None and self.rank_and_world[1] > 1:
            raise ValueError(
                "seed=None draws another seed in every process, and all ranks of an epoch need one seed: pass it"
            )

    @property
    def pool(self) -> WorkerPool | None:
        """Return the pool whose processes are the workers; None: the loader starts its own."""
        return self.executor if isinstance(self.executor, WorkerPool) else None

    @property
    def own(self) -> Executor | None:
        """Return the executor that is the caller's own, or None."""
        return None if isinstance(self.executor, (str, WorkerPool)) else self.executor

    @property
    def kind(self) -> str:
        """Return the kind of executor; "" for the caller's own."""
        return "process" if self.pool is not None else self.executor if isinstance(self.executor, str) else ""

    @property
    def rank_and_world(self) -> tuple[int, int]:
        """Return the rank of this process and the world size.

        ``"auto"`` reads RANK and WORLD_SIZE, as torchrun and Ray Train set them; without both the world size is 1.

        Raises:
            ValueError: only one of them is set, or RANK is not in the world.
        """
        return rank_and_world(self.shard)

    @property
    def workers(self) -> int:
        """Return the number of workers, or their maximum if it is to be measured; 0: inline."""
        if self.executor == "inline":
            return 0
        if self.num_workers is None and self.pool is not None:
            return self.pool.workers
        if self.num_workers is None or isinstance(self.num_workers, str):
            return cores_of_rank()
        return int(self.num_workers)

    @property
    def measures(self) -> bool:
        """Return True if the executor, or the number of its workers, is to be chosen by measurement."""
        if self.kind in ("", "inline") or self.num_workers == 0:
            return False
        return self.kind == AUTO or self.num_workers == AUTO


def _warn_of_ranks(world: int) -> None:
    if world > 1:
        warn_caller(
            f"WORLD_SIZE is {world}, and this loader has no shard: each rank gets all samples, with one seed in the "
            "same order and with the same crops; pass shard='auto', or shard=(0, 1) if this is wanted",
            UnshardedWarning,
        )
