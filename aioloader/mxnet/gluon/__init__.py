"""`mx.gluon`: its data part. Gluon's training parts can be imported and raise when used."""

from __future__ import annotations

import importlib
from typing import TYPE_CHECKING, Any

from aioloader.mxnet.base import Outside
from aioloader.mxnet.gluon.block import Block, HybridBlock

if TYPE_CHECKING:
    from aioloader.mxnet.gluon import contrib, data, utils

__all__ = ("Block", "HybridBlock", "contrib", "data", "utils")

_MODULES = ("block", "contrib", "data", "utils")
_OUTSIDE = frozenset(
    (
        *("Constant", "Parameter", "ParameterDict", "SymbolBlock", "Trainer"),
        *("loss", "metric", "model_zoo", "nn", "parameter", "probability", "rnn", "trainer"),
    )
)


def __getattr__(name: str) -> Any:
    if name in _MODULES:
        return importlib.import_module(f"aioloader.mxnet.gluon.{name}")
    if name in _OUTSIDE:
        value = globals()[name] = Outside(f"mx.gluon.{name}")
        return value
    raise AttributeError(f"module 'aioloader.mxnet.gluon' has no attribute {name!r}")


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
