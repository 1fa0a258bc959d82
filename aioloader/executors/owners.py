"""Executors that callers made: each belongs to the one loader or image service that opened it."""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from aioloader.abc import Executor

_owners: weakref.WeakKeyDictionary[Executor, weakref.ref[object]] = weakref.WeakKeyDictionary()


def check_executor(executor: object) -> None:
    """Raise TypeError unless an object can be an executor."""
    # Not by `isinstance`, which would read `workers`: that of a `RayExecutor` asks the cluster.
    if isinstance(executor, type) or not all(
        hasattr(executor, name) for name in ("open", "serving", "run", "close")
    ):
        raise TypeError(f"executor must be a name or an Executor, got {executor!r}")


def claim(executor: Executor, owner: object) -> None:
    """Take note that an executor belongs to `owner`, which will end it.

    Raises:
        ValueError: it belongs to another one, or did.
    """
    if _owners.setdefault(executor, weakref.ref(owner))() is not owner:
        raise ValueError(
            f"this {type(executor).__name__} belongs to another loader or image service, with which it ends: make one "
            "for each, or share the processes of an aioloader.executors.WorkerPool"
        )
