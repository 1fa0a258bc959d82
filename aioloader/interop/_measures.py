"""Exported metrics of a loader, defined once for all monitoring systems; each builds names by its own rules."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal, Protocol, runtime_checkable

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aioloader.metrics import Stats


@dataclass(frozen=True)
class Measure:
    """One metric.

    Attributes:
        name: name without the unit, its words joined by dots.
        unit: "s", "By" (bytes), "1" (a ratio), or the objects counted, in the plural.
        kind: "counter": only grows; "level": goes up and down, and can be summed over loaders; "gauge": cannot be
            summed.
        about: description, a sentence.
        read: returns its values by label.
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
    Measure("delivered", "samples", kind="counter", about="Samples delivered.", read=_one("samples")),
    Measure("delivered", "batches", kind="counter", about="Batches delivered.", read=_one("batches")),
    Measure(
        "failed",
        "samples",
        kind="counter",
        about="Samples that failed, by outcome.",
        read=lambda stats: {"skipped": stats.skipped, "replaced": stats.replaced},
        label="outcome",
    ),
    Measure("read", "By", kind="counter", about="Bytes read.", read=_one("bytes_read")),
    Measure(
        "stage",
        "s",
        kind="counter",
        about="Time spent in each stage, summed over batches or workers.",
        read=lambda stats: {name: stage.busy_s for name, stage in stats.stages.items() if name != "consumer"},
        label="stage",
    ),
    Measure(
        "wait", "s", kind="counter", about="Time that the caller waited for batches.", read=_one("wait_s")
    ),
    Measure(
        "consumer",
        "s",
        kind="counter",
        about="Time that the caller took between batches.",
        read=_one("consumer_s"),
    ),
    Measure("worker", "restarts", kind="counter", about="Workers that were replaced.", read=_one("restarts")),
    Measure(
        "storage", "requests", kind="counter", about="Requests sent over the network.", read=_one("requests")
    ),
    Measure(
        "storage", "retries", kind="counter", about="Requests repeated after a failure.", read=_one("retries")
    ),
    Measure(
        "storage",
        "hedges",
        kind="counter",
        about="Requests sent again because the first was slow.",
        read=_one("hedges"),
    ),
    Measure(
        "storage.received",
        "By",
        kind="counter",
        about="Bytes received over the network.",
        read=_one("request_bytes"),
    ),
    Measure("in_flight", "batches", kind="level", about="Batches in flight.", read=_one("in_flight")),
    Measure("pool", "workers", kind="level", about="Workers.", read=_one("workers")),
    Measure("memory.used", "By", kind="level", about="Slab memory in use.", read=_one("memory_bytes")),
    Measure(
        "memory.limit", "By", kind="level", about="Slab memory allowed.", read=_one("memory_limit_bytes")
    ),
    Measure(
        "starvation",
        "1",
        kind="gauge",
        about="Share of the time that the caller waited.",
        read=_one("starvation"),
    ),
    Measure(
        "worker.occupancy",
        "1",
        kind="gauge",
        about="Share of the time that the workers were busy.",
        read=_one("occupancy"),
    ),
    Measure(
        "cache.hit", "1", kind="gauge", about="Share of spans that were in the cache.", read=_one("hit_rate")
    ),
    Measure(
        "loop.lag",
        "s",
        kind="gauge",
        about="Delay of the event loop, by quantile.",
        read=lambda stats: {
            "0.5": stats.loop_lag_p50_s,
            "0.99": stats.loop_lag_p99_s,
            "1": stats.loop_lag_max_s,
        },
        label="quantile",
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
        """Add a loader.

        Raises:
            ValueError: another loader has the name.
            TypeError: it is not a loader.
        """
        if not isinstance(loader, MeasuredLoader):
            raise TypeError(f"a loader was expected, got {loader!r}")
        found = self._by_name.get(name)
        other = None if found is None else found()
        if other is not None and other is not loader and not other.closed:
            raise ValueError(f"another loader is registered as {name!r}: choose a different name")
        self._by_name[name] = weakref.ref(loader)

    def drop(self, name: str, loader: MeasuredLoader) -> None:
        """Remove a loader; nothing happens if it is not registered."""
        found = self._by_name.get(name)
        if found is not None and found() is loader:
            del self._by_name[name]

    def stats(self) -> Iterator[tuple[str, Stats]]:
        """Iterate over the names and current statistics of all open loaders."""
        for name, reference in list(self._by_name.items()):
            loader = reference()
            if loader is None or loader.closed:
                self._by_name.pop(name, None)
            else:
                yield name, loader.stats()
