"""Progress bar of the scans of shards, for scans that take long."""

from __future__ import annotations

import threading
from time import monotonic
from typing import TYPE_CHECKING

from aioloader.observability.progress import ProgressBar

if TYPE_CHECKING:
    from collections.abc import Callable

_SOON_S = 2.0


class ScanProgress:
    """Progress bar of the scans of several shards, as a context manager. Used from several threads.

    The bar appears when the scans have taken two seconds.

    Args:
        label: the work, in a word or two.
        total: returns the number of bytes of all shards; called when the bar appears.
    """

    def __init__(self, label: str, total: Callable[[], int]) -> None:
        self._label = label
        self._total = total
        self._due = monotonic() + _SOON_S
        self._lock = threading.Lock()
        self._reached: dict[str, int] = {}
        self._sum = 0
        self._bar: ProgressBar | None = None
        self._closed = False

    def __enter__(self) -> ScanProgress:
        return self

    def __exit__(self, *error: object) -> None:
        with self._lock:
            self._closed = True
            if self._bar is not None:
                self._bar.close()

    def update(self, path: str, reached: int) -> None:
        """Set the number of bytes of a shard whose samples are known."""
        with self._lock:
            if self._closed:
                return
            self._sum += reached - self._reached.get(path, 0)
            self._reached[path] = reached
            if self._bar is not None:
                self._bar.update(self._sum >> 20)
            elif monotonic() >= self._due:
                self._bar = ProgressBar(self._label, max(1, self._total() >> 20), unit="MiB")
                self._bar.update(self._sum >> 20)
