"""Conversion of delivered batches: numpy arrays, torch tensors, JAX arrays, or the results of a function.

Both loaders convert in one place, where a batch is delivered (`aioloader.loader.epoch_iterator`). A package is imported
when a loader needs it. Tensors and arrays share the batch's memory where the package can; they keep it alive, because
they refer to the array that they were made from.
"""

from __future__ import annotations

import functools
import importlib
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.errors import MissingPackageError, OutputError
from aioloader.foundation.pytree import flatten, map_leaves
from aioloader.foundation.stacks import warn_caller

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.foundation.types import Array

    Convert = Callable[[Any], Any]

_PLAIN = "?bBhHiIlLqQefdFD"  # numpy's numbers, but for long doubles
# Of the package ml_dtypes: numpy knows them as "void" (kind V), JAX as numbers.
_SHORT_FLOATS = ("bfloat16", "float8", "float6", "float4", "int4", "uint4", "int2", "uint2")


def needed(package: str) -> Any:
    """Import an optional package.

    Raises:
        MissingPackageError: it is not installed.
    """
    try:
        return importlib.import_module(package)
    except ModuleNotFoundError as error:
        if error.name != package:
            raise  # the package is installed, and one that it needs is not
        raise MissingPackageError(package) from None


class Converter:
    """Function that converts a batch before it is delivered.

    Args:
        convert: converts it.
        takes_long: it copies the batch, which would block the thread of an event loop.

    Attributes:
        takes_long: as given.
    """

    def __init__(self, convert: Convert, takes_long: bool = False) -> None:
        self._convert = convert
        self.takes_long = takes_long

    def __call__(self, batch: Any) -> Any:
        """Return the converted batch.

        Raises:
            OutputError: the conversion failed.
        """
        try:
            return self._convert(batch)
        except Exception as error:
            raise OutputError(f"{type(error).__name__}: {error}", batch) from error

    def ahead(self, batch: Any) -> Convert:
        """Convert now, from any thread; return a function that returns the result, or raises the error."""
        try:
            made = self(batch)
        except OutputError as error:
            failure = error

            def fail(_: Any) -> Any:
                raise failure

            return fail
        return lambda _: made


def make_converter(output: Any, pin_memory: bool = False, device: Any = None) -> Converter | None:
    """Return the function that converts a batch of numpy arrays; None if it is delivered as it is.

    Args:
        output: "numpy", "torch", "jax", or a function that takes the batch.
        pin_memory: copy tensors to pinned memory.
        device: device of the tensors or of JAX's arrays; None: none is chosen.

    Raises:
        MissingPackageError: the package for `output` is not installed.
        RuntimeError: there is no such device here.
        ValueError: `output` is a function, and a device is given.

    Warns:
        UserWarning: memory cannot be pinned; the warning says why.
    """
    if device is not None:
        return _to_device(output, device)
    convert: Convert | None = None
    if callable(output):
        convert = output
    elif output == "torch":
        convert = _by_leaf(torch_leaf())
    elif output == "jax":
        convert = _by_leaf(jax_leaf())
    plain = convert
    if pin_memory:
        convert = _pinning(convert, output)
    return None if convert is None else Converter(convert, takes_long=convert is not plain)


def _to_device(output: Any, device: Any) -> Converter:
    if callable(output):
        raise ValueError(
            f"device={device!r} is for tensors and JAX arrays: leave it out, and let your function move "
            "the batch"
        )
    if output == "jax":
        put = needed("jax").device_put
        place = jax_device(device)
        share = jax_leaf()
        return Converter(_by_leaf(lambda leaf: _put(put, share(leaf), leaf, place)), takes_long=True)
    mover = Mover(device)
    return Converter(lambda batch: mover.arrive(*mover.start(batch)), takes_long=mover.takes_long)


def _put(put: Any, shared: Any, leaf: Any, place: Any) -> Any:
    return shared if shared is leaf else put(shared, place)


def jax_device(device: Any) -> Any:
    """Return a device of JAX.

    Args:
        device: one, or the name of a platform, "gpu", "cpu", with the device's number if it is not the first: "gpu:1".

    Raises:
        RuntimeError: JAX has no such device here.
    """
    if not isinstance(device, str):
        return device
    platform, _, number = device.partition(":")
    try:
        return needed("jax").devices(platform)[int(number or 0)]
    except (RuntimeError, ValueError, IndexError) as error:
        raise RuntimeError(f"JAX has no device {device!r} here: {error}") from error


def _by_leaf(leaf: Convert) -> Convert:
    return lambda batch: map_leaves(leaf, batch)


def _pinning(convert: Convert | None, output: Any) -> Convert | None:
    why = None
    if output != "torch":
        named = repr(output) if isinstance(output, str) else "a function"
        why = f"output={named} stays in pageable memory; pinned memory is torch's, so set output='torch'"
    elif not needed("torch").cuda.is_available():
        why = "torch finds no CUDA device here, so tensors stay in pageable memory"
    if why is None:
        assert convert is not None
        tensors = convert
        pin = _pinned_leaf(needed("torch"))
        return lambda batch: map_leaves(pin, tensors(batch))
    warn_caller(f"pin_memory has no effect: {why}", UserWarning)
    return convert


def _pinned_leaf(torch: Any) -> Convert:
    tensor: Any = torch.Tensor

    def pin(leaf: Any) -> Any:
        return leaf.pin_memory() if isinstance(leaf, tensor) and leaf.device.type == "cpu" else leaf

    return pin


@functools.cache
def torch_leaf() -> Convert:
    """Return a function that returns an array as a tensor over the same memory, or as it is if torch lacks its dtype.

    It copies arrays that torch cannot share: those that are read-only, in the other byte order, or have negative
    strides.

    Raises:
        MissingPackageError: torch is not installed.
    """
    torch = needed("torch")
    from_numpy: Any = torch.from_numpy
    short = {name: getattr(torch, name) for name in dir(torch) if name.startswith(("bfloat16", "float8_"))}

    def convert(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        kind = leaf.dtype.kind
        if kind not in "biufc":
            dtype = short.get(leaf.dtype.name) if kind == "V" and leaf.dtype.names is None else None
            if dtype is None:
                return leaf
            same_size = np.int16 if leaf.dtype.itemsize == 2 else np.uint8
            return convert(leaf.view(same_size)).view(dtype)
        if not leaf.flags.writeable or not leaf.dtype.isnative or (leaf.ndim and min(leaf.strides) < 0):
            leaf = leaf.astype(leaf.dtype.newbyteorder("="), order="C")  # a copy
        try:
            return from_numpy(leaf)
        except TypeError:  # a dtype that torch does not have
            return leaf

    return convert


def as_tensors(batch: Any) -> Any:
    """Return the batch with tensors that share the arrays' memory; arrays of dtypes that torch lacks are unchanged.

    Args:
        batch: arrays in tuples, lists, dicts, named tuples or dataclasses.
    """
    return map_leaves(torch_leaf(), batch)


class Mover:
    """Copier of batches to a device: `start` starts a copy, and `arrive` waits for it at delivery.

    Batches are copied to a CUDA device from pinned memory, on a separate stream, while the caller computes. The pinned
    memory belongs to torch and is not reused before the copy has ended; so the loader may reuse the batch's memory as
    soon as the copy has started.

    Args:
        device: target device; None: tensors over the batch's own memory.

    Attributes:
        takes_long: True if `start` copies in the calling thread.

    Raises:
        MissingPackageError: torch is not installed.
        RuntimeError: torch has no such device here.
    """

    def __init__(self, device: Any) -> None:
        torch = self._torch = needed("torch")
        self._tensor = torch_leaf()
        self.device = None if device is None else torch.device(device)
        self._stream: Any = None
        if self.device is not None and self.device.type == "cuda":
            if not torch.cuda.is_available():
                raise RuntimeError(
                    f"torch finds no CUDA device here for device={str(device)!r}; use 'cpu' or None"
                )
            if self.device.index is None:  # each thread has its own current device
                self.device = torch.device("cuda", torch.cuda.current_device())
            self._stream = torch.cuda.Stream(self.device)
        self.takes_long = self.device is not None and self.device.type not in ("cpu", "meta")

    def start(self, batch: Any) -> tuple[Any, Any]:
        """Start the copy of a batch, in any thread; return its tensors and the event that `arrive` waits for."""
        tensors = map_leaves(self._tensor, batch)
        if self.device is None:
            return tensors, None
        if self._stream is None:
            return map_leaves(self._to, tensors), None
        with self._torch.cuda.stream(self._stream):
            moved = map_leaves(self._to_cuda, tensors)
            return moved, self._stream.record_event()

    def _to(self, leaf: Any) -> Any:
        return leaf.to(self.device) if isinstance(leaf, self._torch.Tensor) else leaf

    def _to_cuda(self, leaf: Any) -> Any:
        if not isinstance(leaf, self._torch.Tensor):
            return leaf
        if leaf.device.type == "cpu" and not leaf.is_pinned():
            leaf = leaf.pin_memory()
        return leaf.to(self.device, non_blocking=True)

    def arrive(self, tensors: Any, event: Any) -> Any:
        """Return the tensors; later work on the current stream of this thread runs after the copy."""
        if event is not None:
            current = self._torch.cuda.current_stream(self.device)
            current.wait_event(event)
            for leaf in flatten(tensors)[1]:
                if isinstance(leaf, self._torch.Tensor) and leaf.device.type == "cuda":
                    leaf.record_stream(current)  # its memory belongs to the other stream
        return tensors


def jax_leaf() -> Convert:
    """Return a function that returns an array as a JAX array, on JAX's default device.

    On the CPU it shares the array's memory if its alignment is the one that JAX needs; otherwise JAX copies it to the
    device. JAX's own rule on 64 bits applies: without ``jax_enable_x64`` int64 becomes int32 and float64 float32. An
    array stays as it is if JAX lacks its dtype.

    The function raises OverflowError if an integer does not fit into 32 bits then.

    Raises:
        MissingPackageError: JAX is not installed.
    """
    jax = needed("jax")
    asarray: Any = needed("jax.numpy").asarray
    from_dlpack: Any = needed("jax.dlpack").from_dlpack

    def convert(leaf: Any) -> Any:
        if not isinstance(leaf, np.ndarray):
            return leaf
        plain = leaf.dtype.char in _PLAIN
        if not plain and not (leaf.dtype.kind == "V" and leaf.dtype.name.startswith(_SHORT_FLOATS)):
            return leaf
        if not leaf.dtype.isnative:
            leaf = leaf.astype(leaf.dtype.newbyteorder("="))
        dtype = np.dtype(jax.dtypes.canonicalize_dtype(leaf.dtype))
        if dtype != leaf.dtype:
            return asarray(_narrowed(leaf, dtype))
        if plain and jax.default_backend() == "cpu":
            try:
                return from_dlpack(leaf)
            except (TypeError, ValueError, RuntimeError, BufferError):  # memory or a dtype that is not shared
                pass
        return asarray(leaf)

    return convert


def _narrowed(array: Array, dtype: np.dtype[Any]) -> Array:
    narrow: Array = array.astype(dtype)
    if array.dtype.kind in "iu" and not np.array_equal(narrow, array):
        raise OverflowError(
            f"JAX has only 32 bits here, and integers of this batch ({array.dtype}) need more: set "
            "jax.config.update('jax_enable_x64', True)"
        )
    return narrow
