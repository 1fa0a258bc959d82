"""The options of a loader: checked when it is made, frozen afterwards."""

from __future__ import annotations

import inspect
import math
import os
import re
from dataclasses import dataclass
from fractions import Fraction
from typing import TYPE_CHECKING, Any

from aioloader._checks import is_async

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("CacheOptions", "LoaderOptions", "available_cores", "check_max_errors", "parse_nbytes")

AUTO = "auto"
EXECUTORS = ("process", "thread", "inline", AUTO)
OUTPUTS = ("numpy", "torch", "jax")
_PAGE = 4096


def available_cores() -> int:
    """Cores that this process may use: its affinity, and the CPU quota of its control group; at least 1."""
    if hasattr(os, "sched_getaffinity"):
        cores = len(os.sched_getaffinity(0))
    else:
        cores = os.cpu_count() or 1
    try:
        with open("/sys/fs/cgroup/cpu.max") as file:
            quota, period = file.read().split()
        if quota != "max":
            cores = min(cores, math.ceil(int(quota) / int(period)))
    except (OSError, ValueError):
        pass
    return max(1, cores)


def _one_of(name: str, value: object, allowed: tuple[str, ...]) -> None:
    if value not in allowed:
        raise ValueError(f"{name} must be one of {', '.join(map(repr, allowed))}, but got {value!r}")


def _at_least(name: str, value: Any, least: float, *, exclusive: bool = False) -> None:
    if value is None:
        return
    if isinstance(value, bool) or (not isinstance(value, (int, float)) and not hasattr(value, "__index__")):
        raise TypeError(f"{name} must be a number, got {value!r}")
    if not value >= least or (exclusive and value == least):  # NaN is not at least anything
        raise ValueError(f"{name} must be {'more than' if exclusive else 'at least'} {least}, got {value}")


def _from_environment() -> tuple[int, int]:
    rank, world = os.environ.get("RANK"), os.environ.get("WORLD_SIZE")
    if rank is None and world is None:
        return 0, 1
    try:
        found = int(rank or ""), int(world or "")
    except ValueError:
        found = -1, 0
    if not 0 <= found[0] < found[1]:
        raise ValueError(
            "shard='auto' needs whole numbers 0 <= RANK < WORLD_SIZE in the environment, or neither of them; "
            f"found RANK={rank!r}, WORLD_SIZE={world!r}"
        )
    return found


def check_max_errors(limit: float | None) -> None:
    """Raise if `limit` is neither a number of samples nor a share of them.

    Raises:
        ValueError: it is negative, or a share of 1 or more.
        TypeError: it is no number.
    """
    _at_least("max_errors", limit, 0)
    if limit is not None and not hasattr(limit, "__index__") and not limit < 1:
        raise ValueError(
            f"max_errors must be a number of samples, or a share of them less than 1, got {limit!r}"
        )


def _is_iterable(value: Any) -> bool:
    # Not by `iter`: samplers count how often they are iterated.
    return hasattr(value, "__iter__") or hasattr(value, "__getitem__")


_UNITS = {"": 1, "B": 1} | {
    prefix + unit: base**power
    for power, prefix in enumerate("KMGTP", 1)
    for unit, base in (("", 1000), ("B", 1000), ("iB", 1024))
}
_SIZE = re.compile(r"\s*([0-9]+(?:\.[0-9]*)?|\.[0-9]+)\s*([A-Za-z]*)\s*")


def parse_nbytes(size: int | str, name: str = "size") -> int:
    """A number of bytes, at least 1.

    Args:
        size: the number, or a text like "50GB" (10^9 bytes each), "1.5 TB", "512MiB" (2^20 bytes each).
        name: what it is called in errors.

    Raises:
        TypeError: it is neither.
        ValueError: it is no size, or less than one byte.
    """
    if isinstance(size, str):
        found = _SIZE.fullmatch(size)
        units = {unit.lower(): factor for unit, factor in _UNITS.items()}
        if found is None or found[2].lower() not in units:
            raise ValueError(f"{name} must be a size such as '50GB' or '512MiB', but got {size!r}")
        nbytes = int(Fraction(found[1]) * units[found[2].lower()])
    elif isinstance(size, bool) or not hasattr(size, "__index__"):
        raise TypeError(f"{name} must be a number of bytes or a text such as '50GB', got {size!r}")
    else:
        nbytes = int(size)
    if nbytes < 1:
        raise ValueError(f"{name} must be at least 1 byte, but got {size!r}")
    return nbytes


MEMORY = "memory"
_DIRECTORY_LIMIT = "50GB"
_MEMORY_LIMIT = "4GB"


@dataclass(frozen=True)
class CacheOptions:
    """The options `cache` and `cache_limit` of datasets.

    Attributes:
        cache: a directory; "memory"; or None for no cache. A directory of that name is "./memory".
        cache_limit: most bytes, as for `parse_nbytes`; None: 50 GB in a directory, 4 GB in memory.

    Raises:
        TypeError: an option is of the wrong type.
        ValueError: a size is malformed, or there is a limit without a cache.
    """

    cache: Any = None
    cache_limit: Any = None

    def __post_init__(self) -> None:
        if self.cache is not None:
            if not isinstance(self.cache, (str, os.PathLike)):
                raise TypeError(f"cache must be a directory, 'memory' or None, got {self.cache!r}")
            if not os.fspath(self.cache):
                raise ValueError("cache must be a directory, 'memory' or None, got an empty text")
            if "://" in os.fspath(self.cache):
                raise ValueError(f"cache must be a directory of this machine, but got the URL {self.cache!r}")
        if self.cache_limit is not None:
            parse_nbytes(self.cache_limit, "cache_limit")
            if self.cache is None:
                raise ValueError(
                    f"cache_limit={self.cache_limit!r} has no effect without cache='DIR' or 'memory'"
                )

    @property
    def in_memory(self) -> bool:
        """Whether the cache is in memory."""
        return self.cache is not None and os.fspath(self.cache) == MEMORY

    @property
    def directory(self) -> str | None:
        """The directory, or None."""
        return None if self.cache is None or self.in_memory else os.fspath(self.cache)

    @property
    def limit_nbytes(self) -> int:
        """Most bytes that the cache holds."""
        limit = self.cache_limit
        if limit is None:
            limit = _MEMORY_LIMIT if self.in_memory else _DIRECTORY_LIMIT
        return parse_nbytes(limit, "cache_limit")


@dataclass(frozen=True)
class LoaderOptions:
    """Options of `AsyncDataLoader` and `DataLoader`, in the order of their signature.

    Raises:
        ValueError: a value is not allowed, or two options exclude each other (Gluon's rules and texts).
        TypeError: a value is of the wrong type.
    """

    batch_size: int | None = None
    shuffle: bool = False
    sampler: Any = None
    last_batch: str | None = None
    batch_sampler: Any = None
    batchify_fn: Callable[[list[Any]], Any] | None = None
    num_workers: int | str | None = None
    seed: int | None = 0
    executor: Any = "process"
    prefetch: int | None = None
    timeout: float = 120
    shard: Any = None
    on_error: str = "raise"
    max_errors: float | None = None
    memory_limit: int | None = None
    even: str = "pad"
    output: Any = "numpy"
    pin_memory: bool = False
    progress: bool | str = False
    stall_timeout: float | None = 30
    trace: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        _at_least("timeout", self.timeout, 0, exclusive=True)
        _at_least("stall_timeout", self.stall_timeout, 0, exclusive=True)
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
        for name in ("batch_size", "num_workers", "prefetch", "memory_limit", "seed"):
            value = getattr(self, name)
            if name == "num_workers" and value == AUTO:
                continue
            if value is not None and not hasattr(value, "__index__"):
                raise TypeError(f"{name} must be a whole number, got {value!r}")
        _at_least("batch_size", self.batch_size, 1)
        if self.last_batch is not None and self.last_batch not in ("keep", "discard", "rollover"):
            raise ValueError(
                f"last_batch must be one of 'keep', 'discard', or 'rollover', but got {self.last_batch}"
            )
        if self.num_workers != AUTO:
            _at_least("num_workers", self.num_workers, 0)
        _at_least("prefetch", self.prefetch, 0)
        check_max_errors(self.max_errors)
        if self.memory_limit is not None and self.memory_limit < _PAGE:
            raise ValueError(
                f"memory_limit is in bytes and must be at least {_PAGE}, one page; a batch needs more, "
                f"256 << 20 are 256 MiB; got {self.memory_limit}"
            )
        if self.seed is not None:
            _at_least("seed", self.seed, 0)
            if self.seed >= 2**64:
                raise ValueError(f"seed must be less than 2**64, got {self.seed}")
        if isinstance(self.executor, str):
            _one_of("executor", self.executor, EXECUTORS)
        elif (
            not hasattr(self.executor, "run")
            or not hasattr(self.executor, "serving")
            or isinstance(self.executor, type)
        ):
            raise TypeError(f"executor must be a name or an Executor, got {self.executor!r}")
        self._check_functions()
        _one_of("on_error", self.on_error, ("raise", "skip", "replace"))
        _one_of("even", self.even, ("pad", "drop"))
        self._check_output()
        if not isinstance(self.progress, bool):
            _one_of("progress", self.progress, ("tqdm", "rich", "plain"))
        path: Any = self.trace
        if path is not None and (not isinstance(path, (str, os.PathLike)) or not os.fspath(path)):
            raise TypeError(f"trace must be the path of a file, got {self.trace!r}")
        if self.shard is not None and self.shard != "auto":
            self._check_shard(self.shard)
        if self.shard is not None and self.batch_sampler is not None:
            raise ValueError("shard does not go with batch_sampler: give each rank its own batch sampler")
        if self.shard is not None and self.seed is None and self.rank_and_world[1] > 1:
            raise ValueError(
                "seed=None draws another seed in every process, and the ranks of an epoch need the same: give one"
            )

    def _check_functions(self) -> None:
        for name, each in (("sampler", "indices"), ("batch_sampler", "lists of indices")):
            value = getattr(self, name)
            if value is None:
                continue
            if isinstance(value, (type, str, bytes)) or not _is_iterable(value):
                raise TypeError(f"{name} must be an iterable of {each}, got {value!r}")
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

    @staticmethod
    def _check_shard(shard: Any) -> None:
        try:
            index, count = (int(part) for part in shard)
        except (TypeError, ValueError):
            raise TypeError(f"shard must be (index, count) or 'auto', got {shard!r}") from None
        if not 0 <= index < count:
            raise ValueError(f"shard must be (index, count) with 0 <= index < count, got {shard!r}")

    @property
    def rank_and_world(self) -> tuple[int, int]:
        """This process's number and the number of processes.

        ``"auto"`` asks RANK and WORLD_SIZE, as torchrun and Ray Train set them; without both it is one process.

        Raises:
            ValueError: only one of them is set, or they are no rank of a world.
        """
        if self.shard is None:
            return 0, 1
        if self.shard == "auto":
            return _from_environment()
        index, count = self.shard
        return int(index), int(count)

    @property
    def workers(self) -> int:
        """Workers to use, at most where their number is to be found out; 0: inline."""
        if self.executor == "inline":
            return 0
        if self.num_workers is None or isinstance(self.num_workers, str):
            return available_cores()
        return int(self.num_workers)

    @property
    def measures(self) -> bool:
        """Whether the executor, or the number of its workers, is to be chosen by measurement."""
        if not isinstance(self.executor, str) or self.executor == "inline" or self.num_workers == 0:
            return False
        return self.executor == AUTO or self.num_workers == AUTO
