"""What is exported of a loader's statistics, once for all systems; each puts names together by its own rules."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aioloader.metrics import Stats

__all__ = ("MEASURES", "Loaders", "Measure")


@dataclass(frozen=True)
class Measure:
    """One figure.

    Attributes:
        name: its words, joined by dots, without the unit.
        unit: "s", "By" (bytes), "1" (a share of one), or what is counted, in the plural.
        kind: "counter": only grows; "level": goes up and down, and loaders can be added up; "gauge": cannot be added.
        about: what it is, a sentence.
        read: its values, by label.
        label: name of the label, or None.
    """

    name: str
    unit: str
    kind: Literal["counter", "level", "gauge"]
    about: str
    read: Callable[[Stats], Mapping[str, float | None]]
    label: str | None = None


def _one(attribute: str) -> Callable[[Stats], Mapping[str, float | None]]:
    return lambda stats: {"": getattr(stats, attribute)}


MEASURES = (
    Measure("delivered", "samples", "counter", "Samples handed out.", _one("samples")),
    Measure("delivered", "batches", "counter", "Batches handed out.", _one("batches")),
    Measure(
        "failed",
        "samples",
        "counter",
        "Samples that failed, by what was done about them.",
        lambda stats: {"skipped": stats.skipped, "replaced": stats.replaced},
        "outcome",
    ),
    Measure("read", "By", "counter", "Bytes read.", _one("bytes_read")),
    Measure(
        "stage",
        "s",
        "counter",
        "Time spent in each stage, all batches or workers together.",
        lambda stats: {name: stage.busy_s for name, stage in stats.stages.items() if name != "consumer"},
        "stage",
    ),
    Measure("wait", "s", "counter", "Time that the caller waited for batches.", _one("wait_s")),
    Measure("consumer", "s", "counter", "Time that the caller took between batches.", _one("consumer_s")),
    Measure("worker", "restarts", "counter", "Workers that were replaced.", _one("restarts")),
    Measure("storage", "requests", "counter", "Requests sent over the network.", _one("requests")),
    Measure("storage", "retries", "counter", "Requests sent because one had failed.", _one("retries")),
    Measure("storage", "hedges", "counter", "Requests sent because one was late.", _one("hedges")),
    Measure("storage.received", "By", "counter", "Bytes received over the network.", _one("request_bytes")),
    Measure("in_flight", "batches", "level", "Batches on their way now.", _one("in_flight")),
    Measure("pool", "workers", "level", "Workers.", _one("workers")),
    Measure("memory.used", "By", "level", "Slab memory in use.", _one("memory_bytes")),
    Measure("memory.limit", "By", "level", "Slab memory allowed.", _one("memory_limit_bytes")),
    Measure("starvation", "1", "gauge", "Share of the time that the caller waited.", _one("starvation")),
    Measure("worker.occupancy", "1", "gauge", "Share of the workers' time that was used.", _one("occupancy")),
    Measure("cache.hit", "1", "gauge", "Share of spans that were in the cache.", _one("hit_rate")),
    Measure(
        "loop.lag",
        "s",
        "gauge",
        "How late the event loop was, by quantile.",
        lambda stats: {"0.5": stats.loop_lag_p50_s, "0.99": stats.loop_lag_p99_s, "1": stats.loop_lag_max_s},
        "quantile",
    ),
)


@runtime_checkable
class MeasuredLoader(Protocol):
    """A loader with statistics."""

    @property
    def closed(self) -> bool:
        """Return True once the loader is closed."""
        ...

    def stats(self) -> Stats:
        """Return the current statistics."""
        ...


class Loaders:
    """Loaders by name, until they are closed or collected."""

    def __init__(self) -> None:
        self._by_name: dict[str, weakref.ref[MeasuredLoader]] = {}

    def add(self, name: str, loader: MeasuredLoader) -> None:
        """Take a loader in.

        Raises:
            ValueError: another one has the name.
            TypeError: it is no loader.
        """
        if not isinstance(loader, MeasuredLoader):
            raise TypeError(f"a loader was expected, got {loader!r}")
        found = self._by_name.get(name)
        other = None if found is None else found()
        if other is not None and other is not loader and not other.closed:
            raise ValueError(f"another loader is registered as {name!r}: give this one a name of its own")
        self._by_name[name] = weakref.ref(loader)

    def drop(self, name: str, loader: MeasuredLoader) -> None:
        """Let a loader go; nothing happens if it is not there."""
        found = self._by_name.get(name)
        if found is not None and found() is loader:
            del self._by_name[name]

    def stats(self) -> Iterator[tuple[str, Stats]]:
        """Every loader's name and its statistics now."""
        for name, reference in list(self._by_name.items()):
            loader = reference()
            if loader is None or loader.closed:
                self._by_name.pop(name, None)
            else:
                yield name, loader.stats()
