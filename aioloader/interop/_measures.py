"""Exported metrics of a loader, defined once for all monitoring systems; each builds names by its own rules."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Literal

from aioloader.loader.base import BaseLoader

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


def _failed(stats: Stats) -> Mapping[str, float | None]:
    return {"skipped": stats.skipped, "replaced": stats.replaced}


def _stages(stats: Stats) -> Mapping[str, float | None]:
    return {name: stage.busy_s for name, stage in stats.stages.items() if name != "consumer"}


def _uncut(stats: Stats) -> Mapping[str, float | None]:
    return stats.uncut


def _lag(stats: Stats) -> Mapping[str, float | None]:
    return {"0.5": stats.loop_lag_p50_s, "0.99": stats.loop_lag_p99_s, "1": stats.loop_lag_max_s}


def _ways(stats: Stats) -> Mapping[str, float | None]:
    return stats.decode_ways if stats.decodes else {}


MEASURES = (
    Measure("delivered", "samples", "counter", "Samples delivered.", _one("samples")),
    Measure("delivered", "batches", "counter", "Batches delivered.", _one("batches")),
    Measure("failed", "samples", "counter", "Samples that failed, by outcome.", _failed, label="outcome"),
    Measure("read", "By", "counter", "Bytes read.", _one("bytes_read")),
    Measure(
        "stage",
        "s",
        "counter",
        "Time spent in each stage, summed over batches or workers.",
        _stages,
        label="stage",
    ),
    Measure("decoded", "images", "counter", "Images decoded, by way.", _ways, label="way"),
    Measure(
        "uncut", "images", "counter", "Images not cut by a crop index, by reason.", _uncut, label="reason"
    ),
    Measure("wait", "s", "counter", "Time that the caller waited for batches.", _one("wait_s")),
    Measure("consumer", "s", "counter", "Time that the caller took between batches.", _one("consumer_s")),
    Measure("worker", "restarts", "counter", "Workers that were replaced.", _one("restarts")),
    Measure("storage", "requests", "counter", "Requests sent over the network.", _one("requests")),
    Measure("storage", "retries", "counter", "Requests repeated after a failure.", _one("retries")),
    Measure(
        "storage", "hedges", "counter", "Requests sent again because the first was slow.", _one("hedges")
    ),
    Measure("storage.received", "By", "counter", "Bytes received over the network.", _one("request_bytes")),
    Measure("in_flight", "batches", "level", "Batches in flight.", _one("in_flight")),
    Measure("pool", "workers", "level", "Workers.", _one("workers")),
    Measure("memory.used", "By", "level", "Slab memory in use.", _one("memory_bytes")),
    Measure("memory.limit", "By", "level", "Slab memory allowed.", _one("memory_limit_bytes")),
    Measure("starvation", "1", "gauge", "Share of the time that the caller waited.", _one("starvation")),
    Measure(
        "worker.occupancy", "1", "gauge", "Share of the time that the workers were busy.", _one("occupancy")
    ),
    Measure("cache.hit", "1", "gauge", "Share of spans that were in the cache.", _one("hit_rate")),
    Measure("loop.lag", "s", "gauge", "Delay of the event loop, by quantile.", _lag, label="quantile"),
)


class Loaders:
    """Loaders by name, until they are closed or collected."""

    def __init__(self) -> None:
        self._by_name: dict[str, weakref.ref[BaseLoader]] = {}

    def add(self, name: str, loader: BaseLoader) -> None:
        """Add a loader.

        Raises:
            ValueError: another loader has the name.
            TypeError: it is not a loader.
        """
        if not isinstance(loader, BaseLoader):
            raise TypeError(f"a loader was expected, got {loader!r}")
        found = self._by_name.get(name)
        other = None if found is None else found()
        if other is not None and other is not loader and not other.closed:
            raise ValueError(f"another loader is registered as {name!r}: choose a different name")
        self._by_name[name] = weakref.ref(loader)

    def drop(self, name: str, loader: BaseLoader) -> None:
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
