"""Exported metrics of loaders and image services, defined once for all monitoring systems; each builds names by its own
rules."""

from __future__ import annotations

import weakref
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal, Protocol

from aioloader.errors import ServiceClosedError
from aioloader.loader.base import BaseLoader
from aioloader.service.async_service import AsyncImageService
from aioloader.service.sync_service import ImageService

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping

    from aioloader.metrics import Stats
    from aioloader.service.stats import ServiceStats


@dataclass(frozen=True)
class Measure:
    """One metric.

    Attributes:
        name: name without the unit, its words joined by dots.
        unit: "s", "By" (bytes), "1" (a ratio), or the objects counted, in the plural.
        kind: "counter": only grows; "level": goes up and down, and can be added up; "gauge": cannot be added up.
        about: description, a sentence.
        read: returns its values by label, of `aioloader.metrics.Stats` or `ServiceStats`.
        label: name of the label, or None.
    """

    name: str
    unit: str
    kind: Literal["counter", "level", "gauge"]
    about: str
    read: Callable[[Any], Mapping[str, float | None]]
    label: str | None = None


def _one(attribute: str) -> Callable[[Any], Mapping[str, float | None]]:
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
    Measure(
        "cache.kept",
        "samples",
        "gauge",
        "Samples that cache_samples() keeps on this host.",
        _one("kept_samples"),
    ),
    Measure("cache.kept", "By", "gauge", "Bytes that the kept samples take.", _one("kept_bytes")),
    Measure("loop.lag", "s", "gauge", "Delay of the event loop, by quantile.", _lag, label="quantile"),
)


def _outcomes(stats: ServiceStats) -> Mapping[str, float | None]:
    return {"made": stats.made, "failed": stats.failed, "abandoned": stats.abandoned}


def _lookups(stats: ServiceStats) -> Mapping[str, float | None]:
    return {"hit": stats.cache_hits, "miss": stats.cache_misses}


def _phases(stats: ServiceStats) -> Mapping[str, float | None]:
    return {"read": stats.reading, "queue": stats.queued, "work": stats.in_work}


def _quantiles(attribute: str) -> Callable[[Any], Mapping[str, float | None]]:
    return lambda stats: dict(zip(("0.5", "0.99"), getattr(stats, attribute), strict=True))


SERVICE_MEASURES = (
    Measure(
        "service.ended", "images", "counter", "Images that ended, by outcome.", _outcomes, label="outcome"
    ),
    Measure("service.timed_out", "waits", "counter", "Waits that ended by their timeout.", _one("timed_out")),
    Measure(
        "service.joined",
        "requests",
        "counter",
        "Requests for an image that was being made already.",
        _one("joined"),
    ),
    Measure(
        "service.cache",
        "lookups",
        "counter",
        "Lookups in the cache of images, by result.",
        _lookups,
        label="result",
    ),
    Measure("service.copied", "images", "counter", "Images copied out of slab memory.", _one("copies")),
    Measure(
        "service.memory.wait", "s", "counter", "Time that images waited for memory.", _one("memory_wait_s")
    ),
    Measure("service.worker", "restarts", "counter", "Workers that were replaced.", _one("restarts")),
    Measure("service.pending", "images", "level", "Images in the service.", _one("pending")),
    Measure("service.phase", "images", "level", "Images in each phase.", _phases, label="phase"),
    Measure("service.admitted", "images", "level", "Places of max_pending that are taken.", _one("admitted")),
    Measure(
        "service.admission",
        "images",
        "level",
        "Images that wait until there is room for them.",
        _one("waiting_for_admission"),
    ),
    Measure("service.pool", "workers", "level", "Workers.", _one("workers")),
    Measure("service.ready", "workers", "level", "Workers that can take images.", _one("ready")),
    Measure("service.cached", "images", "level", "Images in the cache.", _one("cached")),
    Measure("service.cached", "By", "level", "Images in the cache.", _one("cache_nbytes")),
    Measure("service.held", "By", "level", "Encoded images that wait for a worker.", _one("held_nbytes")),
    Measure("service.memory.used", "By", "level", "Slab memory in use.", _one("memory_used")),
    Measure("service.memory.peak", "By", "level", "Most slab memory in use so far.", _one("memory_peak")),
    Measure("service.memory.limit", "By", "level", "Slab memory allowed.", _one("memory_limit")),
    Measure("service.read", "s", "gauge", "Time to read an image.", _quantiles("read_s"), label="quantile"),
    Measure(
        "service.queue",
        "s",
        "gauge",
        "Time that an image waits for a worker.",
        _quantiles("queue_s"),
        label="quantile",
    ),
    Measure("service.work", "s", "gauge", "Time to make an image.", _quantiles("work_s"), label="quantile"),
)


class Source(Protocol):
    """A loader or an image service."""

    @property
    def closed(self) -> bool:
        """Return True if it was closed."""

    def stats(self) -> Any:
        """Return its statistics."""


@dataclass(frozen=True)
class Kind:
    """Kind of sources that have the same metrics.

    Attributes:
        label: name of the label that says which source a value is of, and the name of one that is given none.
        types: types of the sources.
        measures: their metrics.
    """

    label: str
    types: tuple[type, ...]
    measures: tuple[Measure, ...]


KINDS = (
    Kind("loader", (BaseLoader,), MEASURES),
    Kind("service", (AsyncImageService, ImageService), SERVICE_MEASURES),
)


def _kind_of(source: object) -> Kind:
    """Return the kind of a loader or service.

    Raises:
        TypeError: it is neither.
    """
    for kind in KINDS:
        if isinstance(source, kind.types):
            return kind
    raise TypeError(f"a loader or an image service was expected, got {source!r}")


class Sources:
    """Loaders and services by kind and name, until they are closed or collected."""

    def __init__(self) -> None:
        self._named: dict[tuple[str, str], weakref.ref[Source]] = {}

    def add(self, name: str | None, source: Source) -> None:
        """Add a loader or service.

        Args:
            name: unique among those of its kind; None: the name of its kind.
            source: the loader or service.

        Raises:
            ValueError: another one has the name.
            TypeError: it is neither.
        """
        label = _kind_of(source).label
        place = label, name or label
        found = self._named.get(place)
        other = None if found is None else found()
        if other is not None and other is not source and not other.closed:
            raise ValueError(f"another {label} is registered as {place[1]!r}: choose a different name")
        self._named[place] = weakref.ref(source)

    def drop(self, name: str | None, source: Source) -> None:
        """Remove a loader or service; nothing happens if it is not registered."""
        label = _kind_of(source).label
        place = label, name or label
        found = self._named.get(place)
        if found is not None and found() is source:
            del self._named[place]

    def stats(self, kind: Kind) -> Iterator[tuple[str, Any]]:
        """Iterate over the names and current statistics of all that are open."""
        for place, reference in list(self._named.items()):
            if place[0] != kind.label:
                continue
            source = reference()
            if source is None or source.closed:
                self._named.pop(place, None)
                continue
            try:
                stats = source.stats()
            except ServiceClosedError:  # not entered yet
                continue
            yield place[1], stats
