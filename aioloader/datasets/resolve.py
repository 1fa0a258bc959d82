"""Taking a dataset apart for a loader: one index map, the stages in order, and what lies beneath them.

A class of the user's that overrides ``__getitem__`` has a meaning of its own, whatever it inherits: it is not
looked into, and its ``__getitem__`` is called.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any, Literal

import numpy as np

from aioloader.datasets.arrays import ArrayDataset, as_gatherable
from aioloader.datasets.base import Dataset, IndexedView, SimpleDataset, TransformedView
from aioloader.datasets.files import file_nbytes
from aioloader.datasets.iterable import IterableDataset
from aioloader.datasets.stage import Stage
from aioloader.foundation.types import WHOLE_FILE, Array
from aioloader.storage.urls import name_of

if TYPE_CHECKING:
    from aioloader.foundation.types import IntArray

__all__ = ("Resolved", "Stage", "fingerprint", "resolve")

_BYTE_METHODS = ("open_source", "spans", "extras", "facts")
_SAMPLED = 64
_SAMPLED_FILES = 16


@dataclass(frozen=True)
class Resolved:
    """A dataset taken apart.

    Attributes:
        base: the innermost dataset.
        base_kind: "bytes": base is a `ByteDataset`; "gather": it is a `GatherDataset`; "foreign": only its
            ``__getitem__`` is known; "stream": it is an `IterableDataset`.
        remap: int64 (length of the outer dataset,), index to index of the base; None where they are the same.
        stages: what is done to every sample of the base, in order.
    """

    base: Any
    base_kind: Literal["bytes", "gather", "foreign", "stream"]
    remap: IntArray | None
    stages: tuple[Stage, ...]


def resolve(dataset: Any) -> Resolved:
    """Take a dataset apart.

    Args:
        dataset: anything with ``__len__`` and ``__getitem__``.
    """
    if isinstance(dataset, IterableDataset):
        return Resolved(dataset, "stream", None, dataset.stages)
    remap: IntArray | None = None
    stages: list[Stage] = []
    while True:
        if isinstance(dataset, IndexedView) and _inherits_getitem(dataset, IndexedView):
            remap = dataset._indices if remap is None else dataset._indices[remap]
            dataset = dataset._parent
        elif isinstance(dataset, TransformedView) and _inherits_getitem(dataset, TransformedView):
            stages.append(dataset._stage)
            dataset = dataset._parent
        elif (
            isinstance(dataset, SimpleDataset)
            and _inherits_getitem(dataset, SimpleDataset)
            and isinstance(dataset._data, Dataset)
        ):
            dataset = dataset._data
        else:
            break
    kind: Literal["bytes", "gather", "foreign"] = "foreign"
    if _is_byte_dataset(dataset):
        kind = "bytes"
    else:
        gathered = _gatherable(dataset)
        if gathered is not None:
            dataset, kind = gathered, "gather"
    # A foreign dataset's own __getitem__ does this itself.
    own_stage = getattr(dataset, "own_stage", None) if kind != "foreign" else None
    if isinstance(own_stage, Stage):
        stages.append(own_stage)
        if kind == "gather":
            # With stages the items are taken one by one, and this dataset's would be transformed twice.
            dataset = ArrayDataset(*dataset.arrays)
    return Resolved(dataset, kind, remap, tuple(reversed(stages)))


def _inherits_getitem(dataset: Dataset, cls: type[Dataset]) -> bool:
    """Whether `dataset` takes its items as `cls` does: no class derived from it overrides ``__getitem__``."""
    return type(dataset).__getitem__ is cls.__getitem__


def _getitem_fits(cls: type, attribute: str) -> bool:
    """Whether ``__getitem__`` is defined no deeper (no more derived) than `attribute`, so that it knows of it."""
    for base in cls.__mro__:
        if attribute in vars(base):
            return True
        if "__getitem__" in vars(base):
            return False
    return False


def _is_byte_dataset(dataset: Any) -> bool:
    cls = type(dataset)
    if not all(callable(getattr(cls, name, None)) for name in _BYTE_METHODS):
        return False
    return hasattr(cls, "decoder") and _getitem_fits(cls, "decoder")


def _gatherable(dataset: Any) -> Any:
    """`dataset` as a `GatherDataset`, or None."""
    if isinstance(dataset, SimpleDataset) and _inherits_getitem(dataset, SimpleDataset):
        dataset = dataset._data
    if as_gatherable(dataset) is not None:
        return ArrayDataset(dataset)
    cls = type(dataset)
    if not hasattr(cls, "arrays") or not _getitem_fits(cls, "arrays"):
        return None
    arrays = getattr(dataset, "arrays", None)
    if not arrays or not all(
        isinstance(array, np.ndarray) and len(array) == len(dataset) for array in arrays
    ):
        return None
    return dataset


def fingerprint(dataset: Any) -> str:
    """A short hash that tells datasets apart, so that a saved position is not used with another one.

    It covers the length, the class, the order that views give, and a sample of what is cheap to know: offsets
        and keys
    of records, names, labels and sizes of files (without directories and times, so that a copy elsewhere is
    the same), values of arrays. Not covered: transforms, and the items of foreign datasets.

    Args:
        dataset: anything with ``__len__`` and ``__getitem__``.

    Returns:
        16 hexadecimal digits.
    """
    resolved = resolve(dataset)
    base, length = resolved.base, len(resolved.base)
    digest = hashlib.sha256()

    def add(*values: object) -> None:
        digest.update(repr(values).encode("utf-8", "surrogateescape"))

    kind = "list" if resolved.base_kind == "gather" else type(base).__qualname__
    add("1", len(dataset), length, resolved.base_kind, kind)
    if resolved.remap is not None:
        add(resolved.remap[_spread(len(resolved.remap), _SAMPLED)].tolist())
    places = _spread(length, _SAMPLED)
    if resolved.base_kind == "gather":
        for array in base.arrays:
            add(array.shape, array.dtype.str)
            digest.update(np.ascontiguousarray(array[places]).tobytes())
    elif resolved.base_kind == "bytes" and length:
        spans = base.spans(places)
        add(spans.file.tolist(), spans.offset.tolist(), spans.length.tolist())
        extras = base.extras(places)
        add(None if extras is None else extras.tolist())
        facts = [base.facts(int(place)) for place in places]
        add([(str(fact.key), name_of(fact.path or "")) for fact in facts])
        whole = bool((spans.length == WHOLE_FILE).any())
        step = max(1, _SAMPLED // _SAMPLED_FILES) if whole else len(facts)
        size_of = getattr(base, "file_nbytes", None) or (lambda place: file_nbytes(base.facts(place).path))
        add([size_of(int(place)) for place in places[::step]])
    return digest.hexdigest()[:16]


def _spread(length: int, count: int) -> IntArray:
    """Up to `count` places spread over range(length), the first and the last among them."""
    return np.unique(np.linspace(0, length - 1, min(length, count)).astype(np.int64)) if length else _NOWHERE


_NOWHERE: Array = np.empty(0, np.int64)
