"""`mx.gluon.contrib`: its data part."""

from typing import Any

from aioloader.mxnet.gluon.contrib import data
from aioloader.mxnet.outside import outside_module

__all__ = ("data",)

_OUTSIDE = frozenset(("cnn", "estimator", "nn", "rnn"))


def __getattr__(name: str) -> Any:
    if name not in _OUTSIDE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return outside_module(f"{__name__}.{name}")
