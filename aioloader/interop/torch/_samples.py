"""Encoding of a torch dataset's samples as rows, and conversion of rows to the batch of torch's default_collate.

A worker encodes every sample as arrays and numbers that fit the rows of a batch, and a *signature*, which records the
type of each of them. If all samples of a batch have the same signature, tensors over the rows are equal to the batch of
default_collate. If the signatures differ, or a sample contains an object that cannot be encoded, the samples are
decoded and passed to default_collate. So the batches, and the errors, are torch's.

A signature lists the types in depth-first order, containers before their elements, as uint8 (n,): it is a row, too.
"""

from __future__ import annotations

import inspect
import io
import pickle
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np
import torch
import torch.utils.data
from torch.utils.data._utils import collate as torch_collate

from aioloader.foundation.validation import accepts_rng
from aioloader.loader.outputs import torch_leaf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioloader.foundation.types import Array
    from aioloader.rng import Rng

_TUPLE, _LIST, _DICT, _NAMED, _TENSOR, _BFLOAT16, _ARRAY, _SCALAR, _BOOL, _INT, _FLOAT, _TEXT = range(12)
# A number is encoded as a numpy scalar, whose type alone shows that it fits a row.
_NUMBERS: dict[type, tuple[int, Callable[[Any], Any]]] = {
    int: (_INT, np.int64),
    float: (_FLOAT, np.float64),
    bool: (_BOOL, np.bool_),
}
_PYTHON: dict[int, type] = {kind: cls for cls, (kind, _) in _NUMBERS.items()}
_NATIVE = [np.dtype(code) for code in "?bBhHiIlLqQefdFD"]
_to_tensor = torch_leaf()


def _tensor_dtype(make: Callable[[Any], Any], value: Any) -> Any:
    try:
        return make(value).dtype
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


# Dtypes of arrays and of numpy's scalars that torch has, and that default_collate preserves.
_ARRAYS = frozenset(each for each in _NATIVE if isinstance(_to_tensor(np.zeros(1, each)), torch.Tensor))
_SCALARS = frozenset(
    each
    for each in _ARRAYS
    if _tensor_dtype(torch.as_tensor, [np.ones((), each)[()]]) == _to_tensor(np.zeros(1, each)).dtype
)


class _NoRow(Exception):
    """Error raised for a sample that cannot be encoded as a row."""


# Not a dataclass, and neither is the next: the fields of a dataclass are collated.
class UnencodedSample:
    """Sample that could not be encoded."""

    __slots__ = ("sample",)

    def __init__(self, sample: Any) -> None:
        self.sample = sample


class FinishedBatch:
    """Batch that needs no further conversion."""

    __slots__ = ("batch",)

    def __init__(self, batch: Any) -> None:
        self.batch = batch


# -- in the worker -----------------------------------------------------------------------------------------------------

_signatures: dict[bytes, Array] = {}


def encode_sample(sample: Any) -> Any:
    """Encode a sample as (signature, rows); return an `UnencodedSample` sample if it cannot be encoded."""
    signature = bytearray()
    try:
        rows = _encode(sample, signature)
    except (_NoRow, OverflowError):  # of an integer that 64 bits cannot hold
        return UnencodedSample(sample)
    key = bytes(signature)
    array = _signatures.get(key)
    if array is None:
        array = _signatures[key] = np.frombuffer(key, np.uint8)
    return array, rows


def _encode(value: Any, signature: bytearray) -> Any:
    cls = type(value)
    if cls is torch.Tensor:
        return _encode_tensor(value, signature)
    if cls in _NUMBERS:
        kind, convert = _NUMBERS[cls]
        signature.append(kind)
        return convert(value)
    if cls is str or cls is bytes:
        signature.append(_TEXT)
        return value
    if isinstance(value, np.ndarray):
        if value.dtype not in _ARRAYS:
            raise _NoRow
        signature.append(_ARRAY)
        return value if cls is np.ndarray else np.asarray(value)
    if isinstance(value, np.generic):
        if value.dtype not in _SCALARS:
            raise _NoRow
        signature.append(_SCALAR)
        return value
    return _encode_container(value, cls, signature)


def _encode_container(value: Any, cls: type, signature: bytearray) -> Any:
    if cls is tuple or cls is list:
        if not value:
            raise _NoRow
        signature.append(_TUPLE if cls is tuple else _LIST)
        return tuple(
            [_encode(each, signature) for each in value]
        )  # so that every list in a batch is a column of strings
    if cls is dict:
        if not value:
            raise _NoRow
        signature.append(_DICT)
        return {key: _encode(each, signature) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields") and value:
        signature.append(_NAMED)
        return cls(*[_encode(each, signature) for each in value])
    # default_collate converts torchvision's images to plain tensors.
    if isinstance(value, torch.Tensor) and cls.__module__.startswith("torchvision.tv_tensors"):
        return _encode_tensor(value.as_subclass(torch.Tensor), signature)
    raise _NoRow


def _encode_tensor(value: Any, signature: bytearray) -> Array:
    array = _bits(value)
    if array is None:
        raise _NoRow
    signature.append(_BFLOAT16 if value.dtype == torch.bfloat16 else _TENSOR)
    return array


def _bits(tensor: Any) -> Array | None:
    """Return a tensor's memory as an array; None if it requires a gradient, is on another device, or is not dense.

    Numpy does not have the dtype bfloat16, so such a tensor's array is int16.
    """
    try:
        array: Array = (tensor.view(torch.int16) if tensor.dtype == torch.bfloat16 else tensor).numpy()
    except (TypeError, RuntimeError):
        return None
    return array


def worker_stack(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """Stack tensors as default_collate does in worker processes: the first one determines the dtype.

    Torch's function allocates new shared memory for every batch there. It is not needed here, because the executor
    transfers the batch.
    """
    if batch[0].is_nested or batch[0].layout != torch.strided:
        return torch_collate.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)  # raises the error
    return torch.stack(batch, 0, out=batch[0].new_empty((len(batch), *batch[0].shape)))


# -- at delivery -------------------------------------------------------------------------------------------------------


class RowCollate:
    """Batchify function for samples whose rows differ in layout; see `aioloader.batchify.Stack`.

    Args:
        in_worker: collate as default_collate does in worker processes.
    """

    by_rows = True

    def __init__(self, in_worker: bool) -> None:
        self._in_worker = in_worker

    def __call__(self, samples: list[Any]) -> FinishedBatch:
        """Return the batch of default_collate."""
        return FinishedBatch(self._collated([_decode(sample) for sample in samples]))

    def _collated(self, samples: list[Any]) -> Any:
        how = dict(torch_collate.default_collate_fn_map)
        if self._in_worker and how.get(torch.Tensor) is torch_collate.collate_tensor_fn:
            how[torch.Tensor] = worker_stack
        return torch_collate.collate(samples, collate_fn_map=how)

    def batch(self, batch: Any) -> Any:
        """Convert a batch of rows to the batch that default_collate would have made of the samples."""
        if type(batch) is FinishedBatch:
            return batch.batch
        if type(batch) is list:  # no sample could be encoded
            return self._collated([_decode(sample) for sample in batch])
        signatures, rows = batch
        if (signatures != signatures[0]).any():
            return self._collated(
                [_decode_row(iter(signature.tolist()), rows, row) for row, signature in enumerate(signatures)]
            )
        return _batch(iter(signatures[0].tolist()), rows, False)


def _batch(signature: Iterator[int], value: Any, in_sequence: bool) -> Any:
    kind = next(signature)
    if kind in (_TUPLE, _LIST):
        return [_batch(signature, each, True) for each in value]  # default_collate returns lists for tuples
    if kind == _DICT:
        return {key: _batch(signature, each, False) for key, each in value.items()}
    if kind == _NAMED:
        return type(value)(*[_batch(signature, each, True) for each in value])
    if kind == _TEXT:
        return tuple(value) if in_sequence else value  # as default_collate's zip returns it
    return _to_tensor(value).view(torch.bfloat16) if kind == _BFLOAT16 else _to_tensor(value)


def _decode(sample: Any) -> Any:
    """Decode a sample: return it as the dataset returned it."""
    if type(sample) is UnencodedSample:
        return sample.sample
    signature, rows = sample
    return _decode_row(iter(signature.tolist()), rows, None)


def _decode_row(signature: Iterator[int], value: Any, row: int | None) -> Any:
    """Decode a sample from its own rows, or from the arrays of a batch and the number of its row."""
    kind = next(signature)
    if kind in (_TUPLE, _LIST):
        children = [_decode_row(signature, each, row) for each in value]
        return tuple(children) if kind == _TUPLE else children
    if kind == _DICT:
        return {key: _decode_row(signature, each, row) for key, each in value.items()}
    if kind == _NAMED:
        return type(value)(*[_decode_row(signature, each, row) for each in value])
    leaf = value if row is None else value[row]
    if kind == _TEXT:
        return leaf
    if kind in _PYTHON:
        return _PYTHON[kind](leaf)
    if kind == _SCALAR:
        return np.asarray(leaf)[()]
    array = np.array(leaf)  # a copy, because the row is in the batch's memory
    if kind == _ARRAY:
        return array
    return torch.from_numpy(array).view(torch.bfloat16) if kind == _BFLOAT16 else torch.from_numpy(array)


# -- with a collate function of the caller's ---------------------------------------------------------------------------


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickler that collects tensors and arrays separately, outside of the pickle."""

    def __init__(self, file: Any) -> None:
        super().__init__(file, protocol=5)
        self.arrays: list[Array] = []
        self._seen: dict[int, tuple[Any, Any]] = {}

    def persistent_id(self, value: Any) -> Any:
        if type(value) is not torch.Tensor and type(value) is not np.ndarray:
            return None
        known = self._seen.get(id(value))
        if known is None:
            known = self._seen[id(value)] = (
                self._put_aside(value),
                value,
            )  # a reference, so that its id is not reused
        return known[0]

    def _put_aside(self, value: Any) -> tuple[str, int] | None:
        kind, array = "array", value
        if isinstance(value, torch.Tensor):
            kind, array = "bfloat16" if value.dtype == torch.bfloat16 else "tensor", _bits(value)
        if array is None or array.dtype.hasobject or not array.nbytes:
            return None
        self.arrays.append(np.asarray(array, order="C"))
        return kind, len(self.arrays) - 1


class _Unpickler(pickle.Unpickler):
    def __init__(self, file: Any, arrays: list[Array]) -> None:
        super().__init__(file)
        self._made: dict[Any, Any] = {}
        self._arrays = arrays

    def persistent_load(self, name: Any) -> Any:
        if name not in self._made:
            kind, place = name
            array = self._arrays[place]
            tensor = array if kind == "array" else _to_tensor(array)
            self._made[name] = tensor.view(torch.bfloat16) if kind == "bfloat16" else tensor
        return self._made[name]


def is_passed_draws(collate_fn: Any) -> bool:  # the caller's, of any class
    """Return True if a collate function needs the draws of its batch: one of this project, or one with an ``rng``.

    Torch could not call a function whose `rng` has no default; where it has one, a script may mean something else.
    """
    if not accepts_rng(collate_fn):
        return False
    ours = type(collate_fn).__module__.partition(".")[0] == "aioloader"
    return ours or inspect.signature(collate_fn).parameters["rng"].default is inspect.Parameter.empty


@dataclass(frozen=True)
class Collated:
    """Batchify function that calls the caller's collate function in the worker.

    Attributes:
        collate_fn: takes a list of samples, or one sample if `single`.
        carried: True if the batch is sent to another process: its tensors and arrays, and a pickle of the rest.
        single: True if batches are single samples.
        read: reads the samples of a list of indices, if samples are represented by their indices; or None.
        draws: True if the collate function is passed the draws of its batch, as `rng`.
    """

    collate_fn: Callable[..., Any]
    carried: bool
    single: bool
    read: Callable[[list[int]], Any] | None
    draws: bool

    def __call__(self, samples: list[Any], *, rng: Rng) -> Any:
        """Return the batch in the form that `restore_batch` converts."""
        given = [each.sample if type(each) is UnencodedSample else each for each in samples]
        if self.read is not None:
            given = self.read(given)
        drawn = {"rng": rng} if self.draws else {}
        batch = self.collate_fn(given[0] if self.single else given, **drawn)
        if not self.carried:
            return FinishedBatch(batch)
        file = io.BytesIO()
        pickler = _Pickler(file)
        pickler.dump(batch)
        return pickler.arrays, file.getvalue()


def restore_batch(batch: Any) -> Any:
    """Return the batch that the caller's collate function returned."""
    if type(batch) is FinishedBatch:
        return batch.batch
    arrays, blob = batch
    return _Unpickler(io.BytesIO(blob), arrays).load()
