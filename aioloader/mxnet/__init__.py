"""MXNet's data layer by its own names: ``import aioloader.mxnet as mx``.

Arrays are numpy arrays (`mx.nd.NDArray` is a subclass with MXNet's methods). This package only translates names,
arguments and conventions; `aioloader.DataLoader` loads, `recordio` reads and writes the files.
The page Migrating from MXNet lists the differences from MXNet, with reasons.
"""

from __future__ import annotations

import importlib
import sys
from typing import TYPE_CHECKING, Any

from aioloader.mxnet.base import MXNetError as MXNetError
from aioloader.mxnet.base import names_in
from aioloader.mxnet.context import Context as Context
from aioloader.mxnet.context import cpu as cpu
from aioloader.mxnet.context import cpu_pinned as cpu_pinned
from aioloader.mxnet.context import current_context as current_context
from aioloader.mxnet.context import gpu as gpu
from aioloader.mxnet.context import num_gpus as num_gpus
from aioloader.mxnet.libinfo import __version__ as __version__
from aioloader.mxnet.outside import ImportAlias, outside_class, outside_module

if TYPE_CHECKING:
    from aioloader.mxnet import base as base
    from aioloader.mxnet import context as context
    from aioloader.mxnet import contrib as contrib
    from aioloader.mxnet import executor_manager as executor_manager
    from aioloader.mxnet import gluon as gluon
    from aioloader.mxnet import image as image
    from aioloader.mxnet import io as io
    from aioloader.mxnet import libinfo as libinfo
    from aioloader.mxnet import ndarray as ndarray
    from aioloader.mxnet import numpy as numpy
    from aioloader.mxnet import numpy_extension as numpy_extension
    from aioloader.mxnet import random as random
    from aioloader.mxnet import recordio as recordio
    from aioloader.mxnet import registry as registry
    from aioloader.mxnet import rnn as rnn
    from aioloader.mxnet import test_utils as test_utils
    from aioloader.mxnet import util as util

    nd = ndarray
    np = numpy
    npx = numpy_extension
    img = image
    rnd = random

# Modules of this package that are imported under another name are the same modules.
if not any(isinstance(finder, ImportAlias) for finder in sys.meta_path):
    sys.meta_path.insert(0, ImportAlias())


# Modules of this package; each is loaded when it is first used.
_MODULES = names_in(
    "base context contrib executor_manager gluon image io libinfo ndarray numpy numpy_extension random recordio "
    "registry rnn test_utils util"
)
_SHORT_NAMES = {"img": "image", "nd": "ndarray", "np": "numpy", "npx": "numpy_extension", "rnd": "random"}

__all__ = tuple(
    sorted(
        _MODULES.union(
            _SHORT_NAMES, names_in("Context MXNetError cpu cpu_pinned current_context gpu num_gpus")
        )
    )
)

# Names in mx that are defined in `mx.util`.
_SWITCHES = names_in(
    "is_np_array is_np_shape np_array np_shape set_np_shape use_np use_np_array use_np_shape"
)

# MXNet's parts for training. They can be imported and raise when used.
_OUTSIDE = names_in(
    "attribute autograd callback engine error executor init initializer kv kvstore library log lr_scheduler metric mod "
    "model module mon monitor name notebook onnx operator optimizer profiler rtc runtime sym symbol th torch tvmop "
    "visualization viz"
)
_OUTSIDE_CLASSES = names_in("AttrScope NameManager")


def __getattr__(name: str) -> Any:
    module = _SHORT_NAMES.get(name, name)
    if module in _MODULES:
        value: Any = importlib.import_module(f"aioloader.mxnet.{module}")
    elif name in _SWITCHES:
        value = getattr(importlib.import_module("aioloader.mxnet.util"), name)
    elif name in _OUTSIDE:
        value = outside_module(f"aioloader.mxnet.{name}")
    elif name in _OUTSIDE_CLASSES:
        value = outside_class(f"mx.{name}")
    else:
        raise AttributeError(f"module 'aioloader.mxnet' has no attribute {name!r}")
    globals()[name] = value
    return value


def __dir__() -> list[str]:
    return sorted({*globals(), *__all__})
