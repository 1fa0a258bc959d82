"""`mx.npx`: MXNet's additions to numpy's functions, as far as they concern data."""

from __future__ import annotations

from typing import Any

from aioloader.mxnet import ndarray_image
from aioloader.mxnet.base import OutsideError as _OutsideError
from aioloader.mxnet.base import exported as _exported
from aioloader.mxnet.context import cpu as cpu
from aioloader.mxnet.context import cpu_pinned as cpu_pinned
from aioloader.mxnet.context import current_context as current_context
from aioloader.mxnet.context import gpu as gpu
from aioloader.mxnet.context import num_gpus as num_gpus
from aioloader.mxnet.ndarray import waitall as waitall
from aioloader.mxnet.ndarray_file import load as load
from aioloader.mxnet.ndarray_file import save as save
from aioloader.mxnet.random import seed as seed
from aioloader.mxnet.util import is_np_array as is_np_array
from aioloader.mxnet.util import is_np_shape as is_np_shape
from aioloader.mxnet.util import reset_np as reset_np
from aioloader.mxnet.util import set_np as set_np

image = ndarray_image

__all__ = _exported(globals(), "image")


def __getattr__(name: str) -> Any:
    if name.startswith("__"):
        raise AttributeError(f"module {__name__!r} has no attribute {name!r}")
    raise _OutsideError(f"mx.npx.{name}")
