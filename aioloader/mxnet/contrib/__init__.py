"""`mx.contrib`: `io`, with `DataLoaderIter`."""

from __future__ import annotations

from typing import Any

from aioloader.mxnet.base import names_in
from aioloader.mxnet.contrib import io
from aioloader.mxnet.outside import outside_module

__all__ = ("io",)

_OUTSIDE = names_in(
    "amp autograd ndarray nd onnx quant quantization svrg_optimization sym symbol tensorboard tensorrt text"
)


def __getattr__(name: str) -> Any:
    if name not in _OUTSIDE:
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    return outside_module(f"{__name__}.{name}")
