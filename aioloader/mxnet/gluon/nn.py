"""`mx.gluon.nn`: the bases of blocks. Layers can be imported and derived from, and raise when used."""

from __future__ import annotations

from typing import Any

from aioloader.mxnet.gluon.block import Block, HybridBlock
from aioloader.mxnet.outside import outside_class

__all__ = ("Block", "HybridBlock")

# Modules that MXNet's package has.
_OUTSIDE = frozenset(("activations", "basic_layers", "conv_layers"))

__path__: list[str] = []


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    value = globals()[name] = outside_class(f"mx.gluon.nn.{name}")
    return value
