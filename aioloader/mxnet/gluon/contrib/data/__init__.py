"""`mx.gluon.contrib.data`: MXNet 1.x has `IntervalSampler` here."""

from typing import Any

from aioloader.mxnet.gluon.data import sampler
from aioloader.mxnet.gluon.data.sampler import IntervalSampler
from aioloader.mxnet.outside import outside_module

__all__ = ("IntervalSampler", "sampler")

_OUTSIDE = frozenset(("text",))


def __getattr__(name: str) -> Any:
    if name not in _OUTSIDE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return outside_module(f"{__name__}.{name}")
