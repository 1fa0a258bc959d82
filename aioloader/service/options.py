"""Options of an image service, checked."""

from __future__ import annotations

import importlib.util
from dataclasses import KW_ONLY, dataclass
from typing import TYPE_CHECKING, Any

from aioloader.errors import MissingPackageError
from aioloader.executors.factory import check_executor
from aioloader.foundation.host_limits import cores_of_rank
from aioloader.foundation.validation import at_least, file_path, one_of
from aioloader.loader.options import OUTPUTS
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Collection

    from aioloader.abc import Executor
    from aioloader.service.references import Fetch

OVERFLOW = ("wait", "raise")
EXECUTORS = ("process", "fork", "thread")
CANNOT_BE_PICKLED = (
    "an image service cannot be pickled, because its workers and memory belong to this process: each process needs its "
    "own, and a processor cannot contain one"
)


@dataclass(frozen=True)
class ServiceOptions:
    """Arguments of `AsyncImageService` and `ImageService`, whose signature these fields are.

    Raises:
        TypeError, ValueError: an option is wrong.
        MissingPackageError: the package for `output` is not installed.
    """

    processor: Callable[..., Any] | None = None
    _: KW_ONLY
    num_workers: int | None = None
    executor: str | Executor = "process"
    memory_limit: int | None = None
    cache_limit: int = 0
    max_pending: int = 1024
    overflow: str = "wait"
    timeout: float | None = 60
    max_bytes: int = 64 << 20
    max_pixels: int | None = DEFAULT_MAX_PIXELS
    max_frames: int | None = None
    allow: Collection[str] = ("bytes", "data")
    root: str | os.PathLike[str] | None = None
    hosts: Collection[str] | None = None
    fetch: Fetch | None = None
    user_agent: str | None = None
    url_cache: str | os.PathLike[str] | None = None
    url_cache_limit: int | str | None = None
    output: str = "numpy"
    exif: str | None = None
    trace: str | os.PathLike[str] | None = None

    def __post_init__(self) -> None:
        at_least("num_workers", self.num_workers, 1)
        at_least("memory_limit", self.memory_limit, 1)
        at_least("cache_limit", self.cache_limit, 0)
        at_least("max_pending", self.max_pending, 1)
        at_least("timeout", self.timeout, 0, exclusive=True)
        at_least("max_bytes", self.max_bytes, 1)
        at_least("max_pixels", self.max_pixels, 1)
        at_least("max_frames", self.max_frames, 1)
        file_path("trace", self.trace)
        one_of("overflow", self.overflow, OVERFLOW)
        one_of("output", self.output, OUTPUTS)
        if isinstance(self.executor, str):
            one_of("executor", self.executor, EXECUTORS)
        else:
            check_executor(self.executor)
            if self.num_workers is not None:
                raise ValueError(
                    f"executor is a {type(self.executor).__name__}, which has its own number of workers, but "
                    f"num_workers={self.num_workers!r}: leave one of them out"
                )
        if self.exif is not None:
            one_of("exif", self.exif, ("apply", "ignore"))
        if self.fetch is not None and not callable(self.fetch):
            raise TypeError(f"fetch must be an async function of a URL, got a {type(self.fetch).__name__}")
        if self.output != "numpy" and importlib.util.find_spec(self.output) is None:
            raise MissingPackageError(self.output)

    @property
    def workers(self) -> int:
        """Return the number of workers."""
        return self.num_workers or cores_of_rank()

    @property
    def longest_s(self) -> float:
        """Return the seconds that anything may take: `timeout`, or an hour without one."""
        return 3600.0 if self.timeout is None else float(self.timeout)
