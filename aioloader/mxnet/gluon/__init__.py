"""`mx.gluon`: its data part. Gluon's training parts can be imported and raise when used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from aioloader.mxnet.gluon.block import Block, HybridBlock
from aioloader.mxnet.ndarray.ndarray import NDArray
from aioloader.mxnet.outside import outside_class, outside_module

if TYPE_CHECKING:
    from aioloader.mxnet.gluon import contrib, data, nn, utils

__all__ = ("Block", "HybridBlock", "contrib", "data", "nn", "tensor_types", "utils")

_MODULES = ("block", "contrib", "data", "nn", "utils")
_OUTSIDE = frozenset(("loss", "metric", "model_zoo", "parameter", "probability", "rnn", "trainer"))
_OUTSIDE_CLASSES = frozenset(
    ("Constant", "DeferredInitializationError", "Parameter", "ParameterDict", "SymbolBlock", "Trainer")
)

tensor_types = (NDArray,)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"aioloader.mxnet.gluon.{name}")
    if name in _OUTSIDE:
        value = globals()[name] = outside_module(f"aioloader.mxnet.gluon.{name}")
        return value
    if name in _OUTSIDE_CLASSES:
        value = globals()[name] = outside_class(f"mx.gluon.{name}")
        return value
    raise AttributeError(f"module 'aioloader.mxnet.gluon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
