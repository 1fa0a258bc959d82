"""Statistics of loaders and image services as Prometheus metrics, read when they are scraped; needs
``pip install aioloader[metrics]``.

::

    from aioloader.interop import prometheus
    prometheus_client.start_http_server(8000)

    loader = aioloader.DataLoader(dataset, 64, shuffle=True)
    prometheus.register(loader, "train")
    prometheus.register(service, "photos")

Names begin with ``aioloader_`` and end with the unit, counters with ``_total``: ``aioloader_delivered_samples_total``,
``aioloader_stage_seconds_total{stage="decode"}``, ``aioloader_starvation_ratio``. Each has the label ``loader``.
Those of image services begin with ``aioloader_service_`` and have the label ``service``.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from aioloader.errors import MissingPackageError
from aioloader.interop._measures import KINDS, Kind, Measure, Source, Sources

try:
    from prometheus_client import REGISTRY
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
except ImportError as error:
    raise MissingPackageError("prometheus-client", extra="metrics") from error

if TYPE_CHECKING:
    from collections.abc import Iterator

__all__ = ("register", "unregister")

_UNITS = {"s": "seconds", "By": "bytes", "1": "ratio"}


class _Collector(Sources):
    """Collector of all sources of one registry, because a registry accepts every metric name only once."""

    def describe(self) -> Iterator[Any]:
        """Return the metrics without values."""
        return (_family(kind, measure) for kind in KINDS for measure in kind.measures)

    def collect(self) -> Iterator[Any]:
        """Iterate over the metrics with their current values."""
        for kind in KINDS:
            found = list(self.stats(kind))
            for measure in kind.measures if found else ():
                family = _family(kind, measure)
                for name, stats in found:
                    for label, value in measure.read(stats).items():
                        if value is not None:
                            family.add_metric([name, label] if measure.label else [name], value)
                yield family


def _family(kind: Kind, measure: Measure) -> Any:
    unit = _UNITS.get(measure.unit, measure.unit)
    name = f"aioloader_{measure.name.replace('.', '_')}_{unit}"
    labels = [kind.label, measure.label] if measure.label else [kind.label]
    make = CounterMetricFamily if measure.kind == "counter" else GaugeMetricFamily
    return make(name, measure.about, labels=labels)


_collectors: weakref.WeakKeyDictionary[Any, _Collector] = weakref.WeakKeyDictionary()


def register(source: Source, name: str | None = None, registry: Any = REGISTRY) -> None:
    """Export the statistics of a loader or an image service until it is closed or garbage-collected.

    Args:
        source: an `AsyncDataLoader`, `DataLoader`, `AsyncImageService` or `ImageService`.
        name: value of the label ``loader`` or ``service``, unique among the loaders or services of a registry; None:
            the label itself.
        registry: registry of `prometheus_client`.

    Raises:
        ValueError: another one has the name.
        TypeError: it is neither a loader nor a service.
    """
    collector = _collectors.get(registry)
    if collector is None:
        collector = _Collector()
        registry.register(collector)
        _collectors[registry] = collector
    collector.add(name, source)


def unregister(source: Source, name: str | None = None, registry: Any = REGISTRY) -> None:
    """Stop the export of a loader or service that is still open. Nothing happens if it is not registered."""
    collector = _collectors.get(registry)
    if collector is not None:
        collector.drop(name, source)
