"""Statistics of loaders and image services as OpenTelemetry metrics, observed when they are exported; needs
``pip install aioloader[metrics]``.

::

    from aioloader.interop import opentelemetry

    loader = aioloader.DataLoader(dataset, 64, shuffle=True)
    opentelemetry.register(loader, "train")
    opentelemetry.register(service, "photos")

Names begin with ``aioloader.``, and units are properties of the instruments: ``aioloader.delivered.samples`` in
``{sample}``, ``aioloader.stage.time`` in ``s`` with the attribute ``aioloader.stage``. Each metric has the attribute
``aioloader.loader``. Those of image services begin with ``aioloader.service.`` and have ``aioloader.service``.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from aioloader.errors import MissingPackageError
from aioloader.foundation.version import __version__
from aioloader.interop._measures import KINDS, Kind, Measure, Source, Sources

try:
    from opentelemetry.metrics import CallbackOptions, Observation, get_meter_provider
except ImportError as error:
    raise MissingPackageError("opentelemetry-api", extra="metrics") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

__all__ = ("register", "unregister")

# By the semantic conventions a name does not contain the unit; these words name the measured quantity.
_WORDS = {"s": "time", "By": "size", "1": "ratio"}
_COUNTED = {
    "samples": "{sample}",
    "images": "{image}",
    "waits": "{wait}",
    "lookups": "{lookup}",
    "batches": "{batch}",
    "workers": "{worker}",
    "restarts": "{restart}",
    "requests": "{request}",
    "retries": "{request}",
    "hedges": "{request}",
}


def _instrument(meter: Any, kind: Kind, measure: Measure, sources: Sources) -> None:
    make = {
        "counter": meter.create_observable_counter,
        "level": meter.create_observable_up_down_counter,
        "gauge": meter.create_observable_gauge,
    }[measure.kind]
    name = f"aioloader.{measure.name}.{_WORDS.get(measure.unit, measure.unit)}"
    unit = _COUNTED.get(measure.unit, measure.unit)
    make(name, callbacks=[_callback(kind, measure, sources)], unit=unit, description=measure.about)


def _callback(
    kind: Kind, measure: Measure, sources: Sources
) -> Callable[[CallbackOptions], Iterator[Observation]]:
    def observe(options: CallbackOptions) -> Iterator[Observation]:
        for name, stats in sources.stats(kind):
            for label, value in measure.read(stats).items():
                attributes = {f"aioloader.{kind.label}": name}
                if measure.label is not None:
                    attributes[f"aioloader.{measure.label}"] = label
                if value is not None:
                    yield Observation(value, attributes)

    return observe


_sources: weakref.WeakKeyDictionary[Any, Sources] = weakref.WeakKeyDictionary()


def register(source: Source, name: str | None = None, meter_provider: Any = None) -> None:
    """Export the statistics of a loader or an image service until it is closed or garbage-collected.

    Args:
        source: an `AsyncDataLoader`, `DataLoader`, `AsyncImageService` or `ImageService`.
        name: value of the attribute ``aioloader.loader`` or ``aioloader.service``, unique among the loaders or services
            of a provider; None: "loader" or "service".
        meter_provider: OpenTelemetry meter provider; None: the global one.

    Raises:
        ValueError: another one has the name.
        TypeError: it is neither a loader nor a service.
    """
    provider = get_meter_provider() if meter_provider is None else meter_provider
    sources = _sources.get(provider)
    if sources is None:
        # Each instrument is created once for a provider and observes all its sources.
        sources = _sources[provider] = Sources()
        meter = provider.get_meter("aioloader", __version__)
        for kind in KINDS:
            for measure in kind.measures:
                _instrument(meter, kind, measure, sources)
    sources.add(name, source)


def unregister(source: Source, name: str | None = None, meter_provider: Any = None) -> None:
    """Stop the export of a loader or service that is still open. Nothing happens if it is not registered."""
    sources = _sources.get(get_meter_provider() if meter_provider is None else meter_provider)
    if sources is not None:
        sources.drop(name, source)
