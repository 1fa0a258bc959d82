"""Statistics of loaders as Prometheus metrics, read when they are scraped; needs ``pip install aioloader[metrics]``.

::

    from aioloader.interop import prometheus
    prometheus_client.start_http_server(8000)

    loader = aioloader.DataLoader(dataset, 64, shuffle=True)
    prometheus.register(loader, "train")

Names begin with ``aioloader_`` and end with the unit, counters with ``_total``: ``aioloader_delivered_samples_total``,
``aioloader_stage_seconds_total{stage="decode"}``, ``aioloader_starvation_ratio``. Each has the label ``loader``.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from aioloader.errors import MissingPackageError
from aioloader.interop._measures import MEASURES, Loaders, Measure

try:
    from prometheus_client import REGISTRY
    from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily
except ImportError as error:
    raise MissingPackageError("prometheus-client", extra="metrics") from error

if TYPE_CHECKING:
    from collections.abc import Iterator

    from aioloader.loader.base import BaseLoader

__all__ = ("register", "unregister")

_UNITS = {"s": "seconds", "By": "bytes", "1": "ratio"}


class _Collector(Loaders):
    """Collector of all loaders of one registry, because a registry accepts every metric name only once."""

    def describe(self) -> Iterator[Any]:
        """Return the metrics without values."""
        return (_family(measure) for measure in MEASURES)

    def collect(self) -> Iterator[Any]:
        """Iterate over the metrics with their current values."""
        found = list(self.stats())
        for measure in MEASURES:
            family = _family(measure)
            for name, stats in found:
                for label, value in measure.read(stats).items():
                    if value is not None:
                        family.add_metric([name, label] if measure.label else [name], value)
            yield family


def _family(measure: Measure) -> Any:
    unit = _UNITS.get(measure.unit, measure.unit)
    name = f"aioloader_{measure.name.replace('.', '_')}_{unit}"
    labels = ["loader", measure.label] if measure.label else ["loader"]
    make = CounterMetricFamily if measure.kind == "counter" else GaugeMetricFamily
    return make(name, measure.about, labels=labels)


_collectors: weakref.WeakKeyDictionary[Any, _Collector] = weakref.WeakKeyDictionary()


def register(loader: BaseLoader, name: str = "loader", registry: Any = REGISTRY) -> None:
    """Export a loader's statistics until the loader is closed or garbage-collected.

    Args:
        loader: an `AsyncDataLoader` or `DataLoader`.
        name: value of the label ``loader``, unique among the loaders of a registry.
        registry: registry of `prometheus_client`.

    Raises:
        ValueError: another loader has the name.
    """
    collector = _collectors.get(registry)
    if collector is None:
        collector = _Collector()
        registry.register(collector)
        _collectors[registry] = collector
    collector.add(name, loader)


def unregister(loader: BaseLoader, name: str = "loader", registry: Any = REGISTRY) -> None:
    """Stop the export of a loader that is still open. Nothing happens if it is not registered."""
    collector = _collectors.get(registry)
    if collector is not None:
        collector.drop(name, loader)
