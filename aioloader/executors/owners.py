"""Executors that callers made: each belongs to the one loader or image service that opened it."""

from __future__ import annotations

import weakref
from typing import Any

from aioloader.abc import Executor

_owners: weakref.WeakKeyDictionary[Any, weakref.ref[object]] = weakref.WeakKeyDictionary()


def check_executor(executor: object) -> None:
    """Raise TypeError unless an object can be an executor."""
    if isinstance(executor, type) or not all(
        hasattr(executor, name) for name in ("open", "serving", "run", "close")
    ):
        raise TypeError(f"executor must be a name or an Executor, got {executor!r}")


def claim(executor: Any, owner: object) -> Executor:
    """Take note that an executor of any class belongs to `owner`, which will end it; return it as an `Executor`.

    Raises:
        ValueError: it belongs to another one, or did.
    """
    if _owners.setdefault(executor, weakref.ref(owner))() is not owner:
        raise ValueError(
            f"this {type(executor).__name__} belongs to another loader or image service, with which it ends: make one "
            "for each, or share the processes of an aioloader.executors.WorkerPool"
        )
    return executor if isinstance(executor, Executor) else ForeignExecutor(executor)


def _own(name: str) -> Any:
    """Return a property: an attribute of the caller's executor, or the default where it has none."""

    def find(self: ForeignExecutor) -> Any:
        return getattr(self.given if hasattr(self.given, name) else super(ForeignExecutor, self), name)

    return property(find)


class ForeignExecutor(Executor):
    """Executor of the caller's that is not derived from `Executor`.

    Args:
        given: has its methods as far as `close`, and any of the others.
    """

    def __init__(self, given: Any) -> None:
        self.given = given
        for name in ("open", "serving", "close", "activity", "workers_now"):
            if hasattr(given, name):
                setattr(self, name, getattr(given, name))

    def run(self, chunks: Any) -> Any:
        return self.given.run(chunks)

    @property
    def kind(self) -> Any:
        return self.given.kind if hasattr(self.given, "kind") else type(self.given).__name__

    workers = _own("workers")
    spills = _own("spills")
    maps_files = _own("maps_files")
    ready = _own("ready")
    failure = _own("failure")
    restarts = _own("restarts")
    most = _own("most")
    tuning = _own("tuning")
    concurrency = _own("concurrency")
    queued = _own("queued")
