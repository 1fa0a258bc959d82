"""`mx.npx`: MXNet's additions to numpy's functions, as far as they concern data."""

from __future__ import annotations

from typing import Any

from aioloader.mxnet import ndarray_image as image
from aioloader.mxnet.base import OutsideError
from aioloader.mxnet.context import cpu, cpu_pinned, current_context, gpu, num_gpus
from aioloader.mxnet.ndarray import waitall
from aioloader.mxnet.ndarray_file import load, save
from aioloader.mxnet.random import seed
from aioloader.mxnet.util import is_np_array, is_np_shape, reset_np, set_np

__all__ = (
    "cpu",
    "cpu_pinned",
    "current_context",
    "gpu",
    "image",
    "is_np_array",
    "is_np_shape",
    "load",
    "num_gpus",
    "reset_np",
    "save",
    "seed",
    "set_np",
    "waitall",
)


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise OutsideError(f"mx.npx.{name}")
