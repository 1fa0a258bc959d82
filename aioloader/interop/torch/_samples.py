"""Samples of a torch dataset as rows of a batch, and rows as the batch that torch's default_collate would have made.

In a worker every sample is taken apart into arrays and numbers that have rows, and a *signature* that says what each of
them was. Rows of one signature are the batch already: tensors over them are what default_collate copies together. Where
a sample does not fit the others, or has something without a row, the samples are put together again as they were, and
default_collate decides. So the batches, and the errors, are torch's.

A signature lists what it meets on the way down, containers before what is in them, as uint8 (n,): a row too.
"""

from __future__ import annotations

import io
import pickle
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np
import torch
import torch.utils.data
from torch.utils.data._utils import collate as torch_collate

from aioloader.loader.outputs import torch_leaf

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator

    from aioloader.foundation.types import Array

__all__ = (
    "Collated",
    "Made",
    "Odd",
    "RowCollate",
    "batch_of_whole",
    "take_apart",
    "worker_stack",
)

_TUPLE, _LIST, _DICT, _NAMED, _TENSOR, _BFLOAT16, _ARRAY, _SCALAR, _BOOL, _INT, _FLOAT, _TEXT = range(12)
_SMALLEST, _LARGEST = -(2**63), 2**63 - 1
_NATIVE = [np.dtype(code) for code in "?bBhHiIlLqQefdFD"]
_to_tensor = torch_leaf()


def _tensor_dtype(make: Callable[[Any], Any], value: Any) -> Any:
    try:
        return make(value).dtype
    except (TypeError, ValueError, RuntimeError, OverflowError):
        return None


# Arrays and numpy's scalars whose dtype torch has, and of which default_collate makes a tensor of just that dtype.
_ARRAYS = frozenset(each for each in _NATIVE if isinstance(_to_tensor(np.zeros(1, each)), torch.Tensor))
_SCALARS = frozenset(
    each
    for each in _ARRAYS
    if _tensor_dtype(torch.as_tensor, [np.ones((), each)[()]]) == _to_tensor(np.zeros(1, each)).dtype
)


class _NoRow(Exception):
    """Something in a sample has no row."""


class Odd:
    """A sample that is kept whole."""

    __slots__ = ("sample",)

    def __init__(self, sample: Any) -> None:
        self.sample = sample

    def __reduce__(self) -> tuple[Any, ...]:
        return Odd, (self.sample,)


class Made:
    """A batch that is ready."""

    __slots__ = ("batch",)

    def __init__(self, batch: Any) -> None:
        self.batch = batch


# -- in the worker -----------------------------------------------------------------------------------------------------

_signatures: dict[bytes, Array] = {}


def take_apart(sample: Any) -> Any:
    """(signature, what has rows) of a sample, or the `Odd` sample."""
    signature = bytearray()
    try:
        rows = _apart(sample, signature)
    except _NoRow:
        return Odd(sample)
    key = bytes(signature)
    array = _signatures.get(key)
    if array is None:
        array = _signatures[key] = np.frombuffer(key, np.uint8)
    return array, rows


def _apart(value: Any, signature: bytearray) -> Any:
    cls = type(value)
    if cls is torch.Tensor:
        return _apart_tensor(value, signature)
    if cls is int:
        if not _SMALLEST <= value <= _LARGEST:
            raise _NoRow
        signature.append(_INT)
        return np.int64(value)  # numpy's scalars are known to fit their rows by their type alone
    if cls is float:
        signature.append(_FLOAT)
        return np.float64(value)
    if cls is bool:
        signature.append(_BOOL)
        return np.bool_(value)
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
    return _apart_container(value, cls, signature)


def _apart_container(value: Any, cls: type, signature: bytearray) -> Any:
    if cls is tuple or cls is list:
        if not value:
            raise _NoRow
        signature.append(_TUPLE if cls is tuple else _LIST)
        return tuple(
            [_apart(each, signature) for each in value]
        )  # so that a list in a batch is a column of texts
    if cls is dict:
        if not value:
            raise _NoRow
        signature.append(_DICT)
        return {key: _apart(each, signature) for key, each in value.items()}
    if isinstance(value, tuple) and hasattr(value, "_fields") and value:
        signature.append(_NAMED)
        return cls(*[_apart(each, signature) for each in value])
    # Images of torchvision are tensors that default_collate makes plain ones of.
    if isinstance(value, torch.Tensor) and cls.__module__.startswith("torchvision.tv_tensors"):
        return _apart_tensor(value.as_subclass(torch.Tensor), signature)
    raise _NoRow


def _apart_tensor(value: Any, signature: bytearray) -> Array:
    array = _plain_array(value)
    if array is not None:
        signature.append(_TENSOR)
        return array
    if value.dtype == torch.bfloat16:  # numpy has none: its bits
        array = _plain_array(value.view(torch.int16))
        if array is not None:
            signature.append(_BFLOAT16)
            return array
    raise _NoRow


def _plain_array(tensor: Any) -> Array | None:
    """A tensor's memory as an array; None where it has none, or is more than that (a gradient, another device)."""
    try:
        array: Array = tensor.numpy()
    except (TypeError, RuntimeError):
        return None
    return array


def worker_stack(batch: Any, *, collate_fn_map: Any = None) -> Any:
    """What default_collate does to tensors in worker processes: the first one decides on the dtype of all.

    Torch's own takes fresh shared memory for every batch there; these hand their memory over themselves.
    """
    if batch[0].is_nested or batch[0].layout != torch.strided:
        return torch_collate.collate_tensor_fn(batch, collate_fn_map=collate_fn_map)  # which refuses them
    return torch.stack(batch, 0, out=batch[0].new_empty((len(batch), *batch[0].shape)))


# -- at delivery -------------------------------------------------------------------------------------------------------


class RowCollate:
    """Collates the batches whose samples do not all have rows of one layout; see `aioloader.batchify.Stack`.

    Args:
        in_worker: as default_collate does it in worker processes.
    """

    by_rows = True

    def __init__(self, in_worker: bool) -> None:
        self._in_worker = in_worker

    def __call__(self, samples: list[Any]) -> Made:
        """The batch that default_collate makes."""
        return Made(self._collated([_together(sample) for sample in samples]))

    def _collated(self, samples: list[Any]) -> Any:
        how = dict(torch_collate.default_collate_fn_map)
        if self._in_worker and how.get(torch.Tensor) is torch_collate.collate_tensor_fn:
            how[torch.Tensor] = worker_stack
        return torch_collate.collate(samples, collate_fn_map=how)

    def batch(self, batch: Any) -> Any:
        """The batch that default_collate would have made of the samples of a batch of rows."""
        if type(batch) is Made:
            return batch.batch
        if type(batch) is list:  # all are odd
            return self._collated([_together(sample) for sample in batch])
        signatures, rows = batch
        if (signatures != signatures[0]).any():
            return self._collated(
                [_at_row(iter(signature.tolist()), rows, row) for row, signature in enumerate(signatures)]
            )
        return _batch(iter(signatures[0].tolist()), rows, False)


def _batch(signature: Iterator[int], value: Any, in_sequence: bool) -> Any:
    kind = next(signature)
    if kind in (_TUPLE, _LIST):
        return [_batch(signature, each, True) for each in value]  # default_collate gives lists for tuples
    if kind == _DICT:
        return {key: _batch(signature, each, False) for key, each in value.items()}
    if kind == _NAMED:
        return type(value)(*[_batch(signature, each, True) for each in value])
    if kind == _TEXT:
        return tuple(value) if in_sequence else value  # as it comes out of default_collate's zip
    return _to_tensor(value).view(torch.bfloat16) if kind == _BFLOAT16 else _to_tensor(value)


def _together(sample: Any) -> Any:
    """A sample as the dataset gave it."""
    if type(sample) is Odd:
        return sample.sample
    signature, rows = sample
    return _at_row(iter(signature.tolist()), rows, None)


def _at_row(signature: Iterator[int], value: Any, row: int | None) -> Any:
    """What a sample was, of its arrays, or of those of a batch and its row in them."""
    kind = next(signature)
    if kind in (_TUPLE, _LIST):
        children = [_at_row(signature, each, row) for each in value]
        return tuple(children) if kind == _TUPLE else children
    if kind == _DICT:
        return {key: _at_row(signature, each, row) for key, each in value.items()}
    if kind == _NAMED:
        return type(value)(*[_at_row(signature, each, row) for each in value])
    leaf = value if row is None else value[row]
    if kind == _TEXT:
        return leaf
    if kind in (_INT, _FLOAT, _BOOL):
        return (int, float, bool)[(_INT, _FLOAT, _BOOL).index(kind)](leaf)
    if kind == _SCALAR:
        return np.asarray(leaf)[()]
    array = np.array(leaf)  # rows are not the sample's
    if kind == _ARRAY:
        return array
    return torch.from_numpy(array).view(torch.bfloat16) if kind == _BFLOAT16 else torch.from_numpy(array)


# -- with a collate function of the caller's ---------------------------------------------------------------------------


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # cloudpickle has no types
    """Pickles all but tensors and arrays, which it puts aside."""

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
            )  # kept, so that its id stays its own
        return known[0]

    def _put_aside(self, value: Any) -> tuple[str, int] | None:
        kind, array = "array", value
        if isinstance(value, torch.Tensor):
            kind, array = "tensor", _plain_array(value)
            if array is None and value.dtype == torch.bfloat16:
                kind, array = "bfloat16", _plain_array(value.view(torch.int16))
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


class Collated:
    """Runs the caller's collate function where the samples are made.

    Args:
        collate_fn: takes a list of samples; a sample where `single`.
        carried: what it gives goes to another process: its tensors and arrays apart, and a pickle of the rest.
        single: batches are single samples.
        read: gives the samples of a list of indices, where a sample that comes here is its index; or None.
    """

    def __init__(
        self,
        collate_fn: Callable[[Any], Any],
        carried: bool,
        single: bool,
        read: Callable[[list[int]], Any] | None = None,
    ) -> None:
        self._collate_fn = collate_fn
        self._carried = carried
        self._single = single
        self._read = read

    def __call__(self, samples: list[Any]) -> Any:
        """The batch, as `batch_of_whole` takes it."""
        given = [each.sample if type(each) is Odd else each for each in samples]
        if self._read is not None:
            given = self._read(given)
        batch = self._collate_fn(given[0] if self._single else given)
        if not self._carried:
            return Made(batch)
        file = io.BytesIO()
        pickler = _Pickler(file)
        pickler.dump(batch)
        return pickler.arrays, file.getvalue()


def batch_of_whole(batch: Any) -> Any:
    """What the caller's collate function gave."""
    if type(batch) is Made:
        return batch.batch
    arrays, blob = batch
    return _Unpickler(io.BytesIO(blob), arrays).load()
