"""Statistics of loaders as OpenTelemetry metrics, observed when they are exported; needs
``pip install aioloader[metrics]``.

::

    from aioloader.interop import opentelemetry

    loader = aioloader.DataLoader(dataset, 64, shuffle=True)
    opentelemetry.register(loader, "train")

Names begin with ``aioloader.``, and units are properties of the instruments: ``aioloader.delivered.samples`` in
``{sample}``, ``aioloader.stage.time`` in ``s`` with the attribute ``aioloader.stage``. Each metric has the attribute
``aioloader.loader``.
"""

from __future__ import annotations

import weakref
from typing import TYPE_CHECKING, Any

from aioloader.errors import MissingPackageError
from aioloader.foundation.version import __version__
from aioloader.interop._measures import MEASURES, Loaders, Measure

try:
    from opentelemetry.metrics import CallbackOptions, Observation, get_meter_provider
except ImportError as error:
    raise MissingPackageError("opentelemetry-api", extra="metrics") from error

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioloader.loader.base import BaseLoader

__all__ = ("register", "unregister")

# By the semantic conventions a name does not contain the unit; these words name the measured quantity.
_WORDS = {"s": "time", "By": "size", "1": "ratio"}
_COUNTED = {
    "samples": "{sample}",
    "batches": "{batch}",
    "workers": "{worker}",
    "restarts": "{restart}",
    "requests": "{request}",
    "retries": "{request}",
    "hedges": "{request}",
}


def _instrument(meter: Any, measure: Measure, loaders: Loaders) -> None:
    make = {
        "counter": meter.create_observable_counter,
        "level": meter.create_observable_up_down_counter,
        "gauge": meter.create_observable_gauge,
    }[measure.kind]
    name = f"aioloader.{measure.name}.{_WORDS.get(measure.unit, measure.unit)}"
    unit = _COUNTED.get(measure.unit, measure.unit)
    make(name, callbacks=[_callback(measure, loaders)], unit=unit, description=measure.about)


def _callback(measure: Measure, loaders: Loaders) -> Callable[[CallbackOptions], Iterator[Observation]]:
    def observe(options: CallbackOptions) -> Iterator[Observation]:
        for name, stats in loaders.stats():
            for label, value in measure.read(stats).items():
                attributes = {"aioloader.loader": name}
                if measure.label is not None:
                    attributes[f"aioloader.{measure.label}"] = label
                if value is not None:
                    yield Observation(value, attributes)

    return observe


_loaders: weakref.WeakKeyDictionary[Any, Loaders] = weakref.WeakKeyDictionary()


def register(loader: BaseLoader, name: str = "loader", meter_provider: Any = None) -> None:
    """Export a loader's statistics until the loader is closed or garbage-collected.

    Args:
        loader: an `AsyncDataLoader` or `DataLoader`.
        name: value of the attribute ``aioloader.loader``, unique among the loaders of a provider.
        meter_provider: OpenTelemetry meter provider; None: the global one.

    Raises:
        ValueError: another loader has the name.
    """
    provider = get_meter_provider() if meter_provider is None else meter_provider
    loaders = _loaders.get(provider)
    if loaders is None:
        # Each instrument is created once for a provider and observes all its loaders.
        loaders = _loaders[provider] = Loaders()
        meter = provider.get_meter("aioloader", __version__)
        for measure in MEASURES:
            _instrument(meter, measure, loaders)
    loaders.add(name, loader)


def unregister(loader: BaseLoader, name: str = "loader", meter_provider: Any = None) -> None:
    """Stop the export of a loader that is still open. Nothing happens if it is not registered."""
    loaders = _loaders.get(get_meter_provider() if meter_provider is None else meter_provider)
    if loaders is not None:
        loaders.drop(name, loader)
