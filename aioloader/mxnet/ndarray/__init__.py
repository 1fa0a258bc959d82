"""`mx.nd`: NDArray, and the functions that make and transform such arrays; new arrays are float32.

An NDArray is a numpy array with MXNet's methods and aliasing on top (`aioloader.mxnet.ndarray.ndarray`). What is not
offered here is numpy's: the dtype of arithmetic between arrays, broadcasting, advanced indexing.
"""

from __future__ import annotations

import importlib
from typing import Any

import numpy

from aioloader.mxnet.ndarray import creation, operators
from aioloader.mxnet.ndarray.creation import *  # noqa: F403
from aioloader.mxnet.ndarray.ndarray import NDArray, from_numpy
from aioloader.mxnet.ndarray.operators import *  # noqa: F403

__all__ = ("NDArray", "from_numpy", *creation.__all__, *operators.__all__)


def __getattr__(name: str) -> Any:
    # These import this module, and are therefore loaded after it.
    if name in ("random", "sparse"):
        return importlib.import_module(f"aioloader.mxnet.{name}")
    if name == "image":
        return importlib.import_module("aioloader.mxnet.ndarray_image")
    if name in ("random_normal", "random_randint", "random_uniform"):
        return getattr(importlib.import_module("aioloader.mxnet.random"), name.removeprefix("random_"))
    if name in ("load", "load_frombuffer", "save"):
        return getattr(importlib.import_module("aioloader.mxnet.ndarray_file"), name)
    instead = (
        f"an NDArray is a numpy array: use numpy.{name}"
        if hasattr(numpy, name)
        else "hand the array, which is a numpy array, to your framework, for example torch.from_numpy(x)"
    )
    raise AttributeError(f"mx.nd.{name} is not part of aioloader.mxnet; {instead}")
