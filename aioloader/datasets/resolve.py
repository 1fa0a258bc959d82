"""Decomposition of a dataset for a loader: its base, one index map, and the stages in order.

A class of the caller's that overrides ``__getitem__`` is not decomposed, regardless of its bases: its
``__getitem__`` is called.
"""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any, Literal, NamedTuple

import numpy as np

from aioloader.abc import (
    ByteDataset,
    ByteSource,
    Decoder,
    GatherDataset,
    MapDataset,
    StreamDataset,
)
from aioloader.foundation.protocols import has_attribute, has_method, implements
from aioloader.foundation.types import (
    WHOLE_FILE,
    Array,
    IntArray,
    ItemLocation,
    ReadPlan,
    Spans,
)
from aioloader.storage.urls import is_url, name_of

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    import aioloader.abc
    from aioloader.abc import PositionalSampler
    from aioloader.datasets.stage import Stage
    from aioloader.storage.remote.transport import Version

_DTYPES = {int: np.int64, float: np.float64, bool: np.bool_}
_SAMPLED = 64
_SAMPLED_FILES = 16


class GatheredArrays(GatherDataset[Any]):
    """Dataset over arrays of equal length.

    Args:
        arrays: at least one.
        items: the items as transforms receive them, such as a list of Python's numbers; None: the rows of the arrays.
        name: for errors.
        own_stage: see `GatherDataset.own_stage`.
    """

    arrays: tuple[Array, ...] = ()
    display_name = ""
    own_stage: Any = None

    def __init__(
        self,
        arrays: Sequence[Array],
        items: MapDataset[Any] | None = None,
        name: str = "ArrayDataset",
        own_stage: Any = None,
    ) -> None:
        self.arrays = tuple(arrays)
        self.display_name = name
        self.own_stage = own_stage
        self._items = items

    def __len__(self) -> int:
        return len(self.arrays[0])

    def __getitem__(self, index: int) -> Any:
        if self._items is not None:
            return self._items[index]
        rows = tuple([array[index] for array in self.arrays])
        return rows if len(rows) > 1 else rows[0]


def as_gatherable(data: Any) -> Array | None:
    """Return `data` as an array whose rows collate as its elements do; None if there is no such array."""
    if type(data) in (np.ndarray, np.memmap):
        # Text is collated as a list, and a scalar of an array has the host's byte order.
        alien = data.dtype.kind in "SU" or (data.ndim == 1 and not data.dtype.isnative)
        return data if data.ndim and not data.dtype.hasobject and not alien else None
    if type(data) in (list, tuple):
        kinds = set(map(type, data))
        # One type only: the dtype of a batch of mixed numbers depends on its values.
        dtype = _DTYPES.get(kinds.pop()) if len(kinds) == 1 else None
        if dtype is not None:
            array = np.asarray(data)
            return array if array.dtype == dtype else None
    return None


class ViewParts(NamedTuple):
    """One level of a view.

    Attributes:
        parent: the dataset below.
        indices: int64 (n,), its indices in the order of the view; None: all of them in order.
        stage: the stage applied to each sample, or None.
    """

    parent: MapDataset[Any]
    indices: IntArray | None = None
    stage: Stage | None = None


class View:
    """Dataset that may be over another one, and that a loader can decompose then."""

    def view_parts(self) -> ViewParts | None:
        """Return the dataset below and the difference to it; None without one, or if only ``__getitem__`` knows it."""
        return None


class ForeignByteSource(ByteSource):
    """Byte source of the caller's that is not derived from `ByteSource`.

    Args:
        source: has `plan`, `read` and `close`, and may have more of the methods and attributes of a `ByteSource`.
    """

    def __init__(self, source: Any) -> None:
        self._source = source
        for name in (
            "paths",
            "samples_ahead",
            "announced",
            "reads_parts",
            "maps",
            "plan",
            "read",
            "announce",
            "stats",
        ):
            if hasattr(source, name):
                setattr(self, name, getattr(source, name))
        self.blocks = hasattr(source, "plan_blocking") and hasattr(source, "read_blocking")
        self.fetches = self.blocks or hasattr(source, "fetch")

    def close(self) -> None:
        self._source.close()

    def plan_blocking(self, spans: Spans) -> ReadPlan:
        if self.blocks:
            found: ReadPlan = self._source.plan_blocking(spans)
            return found
        found, data = self._source.fetch(spans)
        return replace(found, reads=data)

    def read_blocking(self, plan: ReadPlan, out: memoryview) -> list[tuple[int, BaseException]]:
        if self.blocks:
            failures: list[tuple[int, BaseException]] = self._source.read_blocking(plan, out)
            return failures
        out[: plan.nbytes] = plan.reads[: plan.nbytes]
        return []

    def set_timeout(self, seconds: float) -> None:
        if hasattr(self._source, "timeout"):
            self._source.timeout = seconds

    def mapped(self) -> ByteSource | None:
        found = self._source.mapped() if hasattr(self._source, "mapped") else None
        return None if found is None else ForeignByteSource(found)


# Methods of a byte dataset with the numbers of their arguments: it must have these, and may have those.
_REQUIRED = {"open_source": 0, "spans": 1, "extras": 1, "location": 1}
_OPTIONAL = {"file_nbytes": 1, "partial_reads": 2, "shuffle_sampler": 1}


class ForeignByteDataset(ByteDataset[Any]):
    """Byte dataset of the caller's that is not derived from `ByteDataset`.

    Args:
        dataset: has its methods, see `fits`.
    """

    def __init__(self, dataset: Any) -> None:
        self._dataset = dataset
        for name, arguments in (_REQUIRED | _OPTIONAL).items():
            if has_method(dataset, name, arguments):
                setattr(self, name, getattr(dataset, name))

    @classmethod
    def fits(cls, dataset: Any) -> bool:
        """Return True if a dataset has the methods that a `ByteDataset` must have."""
        return (
            implements(dataset, MapDataset)
            and has_attribute(dataset, "decoder")
            and all(has_method(dataset, name, arguments) for name, arguments in _REQUIRED.items())
        )

    def __len__(self) -> int:
        return len(self._dataset)

    def __getitem__(self, index: int) -> Any:
        return self._dataset[index]

    @property
    def decoder(self) -> Any:
        return self._dataset.decoder

    @property
    def display_name(self) -> str:
        return _name_of(self._dataset)

    @property
    def own_stage(self) -> Any:
        return self._dataset.own_stage if has_attribute(self._dataset, "own_stage") else None

    @property
    def reads_ahead(self) -> bool:
        return _reads_ahead(self._dataset)


@dataclass(frozen=True)
class FunctionDecoder(Decoder[Any]):
    """Decoder of the caller's that is not derived from `Decoder`.

    Attributes:
        function: makes the sample.
    """

    function: Callable[[memoryview, Any, ItemLocation], Any]

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> Any:
        return self.function(data, extra, location)


def decoder_of(dataset: ByteDataset[Any]) -> Decoder[Any]:
    """Return the decoder of a byte dataset; one of another class is adapted."""
    decoder: Any = dataset.decoder
    return decoder if isinstance(decoder, Decoder) else FunctionDecoder(decoder)


def _name_of(dataset: Any) -> str:
    """Return the name of a dataset of any class, for errors."""
    name = dataset.display_name if has_attribute(dataset, "display_name") else None
    return name if isinstance(name, str) else type(dataset).__name__


def _reads_ahead(dataset: Any) -> bool:
    """Return True if several batches of a dataset of any class must be read at a time."""
    return has_attribute(dataset, "reads_ahead") and dataset.reads_ahead is True


@dataclass(frozen=True)
class Resolved:
    """A decomposed dataset.

    Attributes:
        base: the innermost dataset; of bytes or arrays, adapted if it is of another class.
        base_kind: "bytes": base is a `ByteDataset`; "gather": it is a `GatherDataset`; "foreign": only its
            ``__getitem__`` is known; "stream": it is an `IterableDataset`.
        remap: int64 (length of the outer dataset,), index to index of the base; None where they are the same.
        stages: the stages applied to every sample of the base, in order.
        given: the innermost dataset as the caller made it.
    """

    base: Any
    base_kind: Literal["bytes", "gather", "foreign", "stream"]
    remap: IntArray | None
    stages: tuple[aioloader.abc.Stage, ...]
    given: Any

    @property
    def name(self) -> str:
        """Return the name of the base, for errors."""
        name: str = _name_of(self.base) if self.base_kind == "foreign" else self.base.display_name
        return name

    @property
    def reads_ahead(self) -> bool:
        """Return True if several batches must be read at a time, even without workers."""
        if self.base_kind == "foreign":
            return _reads_ahead(self.base)
        return self.base_kind == "bytes" and self.base.reads_ahead

    @property
    def seeds(self) -> bool:
        """Return True if the base seeds random generators in a worker, before each sample."""
        return self.base_kind == "foreign" and has_method(self.base, "seed_generators", 3)

    @property
    def joined_parts(self) -> Sequence[MapDataset[Any]] | None:
        """Return the datasets that the base has one behind the other; None if its items are its own."""
        parts: Sequence[MapDataset[Any]] | None = (
            self.base.joined_parts if self.base_kind == "bytes" else None
        )
        return parts

    @property
    def files(self) -> int:
        """Return `ByteDataset.files` of a base of any kind."""
        return self.base.files if self.base_kind == "bytes" else ByteDataset.files

    @property
    def decoder(self) -> Decoder[Any]:
        """Return the decoder of a base of bytes; one of another class is adapted."""
        return decoder_of(self.base)

    @property
    def location(self) -> Callable[[int], ItemLocation] | None:
        """Return the function that returns where an item is; None if the base has none."""
        known = self.base_kind == "bytes" or (
            self.base_kind == "foreign" and has_method(self.base, "location", 1)
        )
        return self.base.location if known else None

    def open_source(self) -> ByteSource:
        """Return a separate byte source of a base of bytes; one of another class is adapted."""
        source: Any = self.base.open_source()
        return source if isinstance(source, ByteSource) else ForeignByteSource(source)


def resolve(dataset: Any) -> Resolved:  # of any class
    """Separate a dataset into its base, an index map and the stages.

    Args:
        dataset: any object with ``__len__`` and ``__getitem__``, or an `IterableDataset`.
    """
    if isinstance(dataset, StreamDataset):
        return Resolved(dataset, "stream", None, dataset.stages, dataset)
    remap: IntArray | None = None
    stages: list[aioloader.abc.Stage] = []
    while isinstance(dataset, View):
        parts = dataset.view_parts()
        if parts is None:
            break
        if parts.indices is not None:
            remap = parts.indices if remap is None else parts.indices[remap]
        if parts.stage is not None:
            stages.append(parts.stage)
        dataset = parts.parent
    kind: Literal["bytes", "gather", "foreign"] = "foreign"
    base: Any = dataset
    own_stage = None  # a foreign dataset's own __getitem__ applies its stage itself
    own = isinstance(dataset, ByteDataset)
    if getitem_fits(type(dataset), "decoder") and (own or ForeignByteDataset.fits(dataset)):
        kind = "bytes"
        base = dataset if own else ForeignByteDataset(dataset)
        own_stage = base.own_stage
    elif (found := gathered(dataset)) is not None:
        kind, base, own_stage = "gather", found, found.own_stage
        if own_stage is not None:
            # With stages the items are taken one by one, and this dataset would transform them twice.
            base = GatheredArrays(found.arrays)
    if own_stage is not None:
        stages.append(own_stage)
    return Resolved(base, kind, remap, tuple(reversed(stages)), dataset)


def getitem_fits(cls: type, attribute: str) -> bool:
    """Return True if `cls` has `attribute`, and defines ``__getitem__`` in no class more derived than it."""
    for base in cls.__mro__:
        if attribute in vars(base):
            return True
        if "__getitem__" in vars(base):
            return False
    return False


def gathered(dataset: MapDataset[Any]) -> GatherDataset[Any] | None:
    """Return `dataset` as a `GatherDataset`, or None."""
    array = as_gatherable(dataset)
    if array is not None:
        return GatheredArrays((array,), items=dataset)
    if not getitem_fits(type(dataset), "arrays"):
        return None
    # The property raises AttributeError if there is nothing to gather. Perhaps it is of a class of the caller that
    # means something else by the name.
    arrays: Any = getattr(dataset, "arrays", None)
    if not (isinstance(arrays, (tuple, list)) and arrays and implements(dataset, MapDataset)):
        return None
    if not all(isinstance(each, np.ndarray) and len(each) == len(dataset) for each in arrays):
        return None
    (owner,) = [base for base in type(dataset).__mro__ if "arrays" in vars(base)][:1]
    ours = owner.__module__.partition(".")[0] == __name__.partition(".")[0]
    if not (ours or _rows_are_items(dataset, arrays)):
        return None
    if isinstance(dataset, GatherDataset):
        return dataset
    own_stage = getattr(dataset, "own_stage", None)
    return GatheredArrays(arrays, items=dataset, name=_name_of(dataset), own_stage=own_stage)


def _rows_are_items(dataset: MapDataset[Any], arrays: Sequence[Array]) -> bool:
    """Return True if the first, the middle and the last item of a dataset are the rows of its arrays."""
    for index in {0, len(dataset) // 2, len(dataset) - 1} if len(dataset) else ():
        try:
            item = dataset[index]
        except Exception:
            return False  # it comes again, as the error of this sample
        items = item if isinstance(item, tuple) else (item,)
        rows = [array[index] for array in arrays]
        if len(items) != len(rows) or not all(map(np.array_equal, items, rows)):
            return False
    return True


def shuffle_sampler(dataset: MapDataset[Any]) -> aioloader.abc.PositionalSampler | None:
    """Return the order of shuffled epochs that the base of a dataset proposes for it; None for a full shuffle.

    A class of the caller's that overrides ``__getitem__`` is shuffled fully, because its samples may be any.
    """
    resolved = resolve(dataset)
    if resolved.base_kind != "bytes":
        return None
    found: PositionalSampler | None = resolved.base.shuffle_sampler(resolved.remap)
    return found


def fingerprint(dataset: MapDataset[Any]) -> str:
    """Return a short hash that distinguishes datasets, so that a saved position is not used with another one.

    It covers the length, the class, the order of views, and a sample of properties that are cheap to read: offsets
    and keys of records, names, labels and sizes of files (without directories and times, so that a copy elsewhere
    has the same hash), values of arrays. It does not cover transforms and the items of foreign datasets.

    Args:
        dataset: any object with ``__len__`` and ``__getitem__``.

    Returns:
        16 hexadecimal digits.
    """
    resolved = resolve(dataset)
    while resolved.base_kind == "bytes" and resolved.base.below is not None:
        below = resolve(resolved.base.below)  # samples that are kept are those of the dataset itself
        remap = below.remap if resolved.remap is None else resolved.remap
        if below.remap is not None and resolved.remap is not None:
            remap = below.remap[resolved.remap]
        resolved = replace(below, remap=remap)
    base, length = resolved.base, len(resolved.base)
    count = length if resolved.remap is None else len(resolved.remap)
    digest = hashlib.sha256()

    def add(*values: object) -> None:
        digest.update(repr(values).encode("utf-8", "surrogateescape"))

    kind = "list" if resolved.base_kind == "gather" else type(resolved.given).__qualname__
    add("1", count, length, resolved.base_kind, kind)
    if resolved.remap is not None:
        add(resolved.remap[_spread(len(resolved.remap), _SAMPLED)].tolist())
    places = _spread(length, _SAMPLED)
    if resolved.joined_parts is not None:
        add([fingerprint(part) for part in resolved.joined_parts])
    elif resolved.base_kind == "gather":
        for array in base.arrays:
            add(array.shape, array.dtype.str)
            digest.update(np.ascontiguousarray(array[places]).tobytes())
    elif resolved.base_kind == "bytes" and length:
        spans = base.spans(places)
        add(spans.file.tolist(), spans.offset.tolist(), spans.length.tolist())
        extras = base.extras(places)
        if extras is not None and "label" in (extras.dtype.names or ()):
            # Labels with keys of a crop index; the index does not change the dataset.
            extras = extras["label"]
        add(None if extras is None else extras.tolist())
        locations = [base.location(int(place)) for place in places]
        add([(str(location.key), name_of(location.path or "")) for location in locations])
        whole = bool((spans.length == WHOLE_FILE).any())
        step = max(1, _SAMPLED // _SAMPLED_FILES) if whole else len(locations)
        add([base.file_nbytes(n) for n in places[::step].tolist()])
    return digest.hexdigest()[:16]


def _spread(length: int, count: int) -> IntArray:
    """Return up to `count` places spread over range(length), including the first and the last."""
    return np.unique(np.linspace(0, length - 1, min(length, count)).astype(np.int64)) if length else _NOWHERE


_NOWHERE: Array = np.empty(0, np.int64)


def version_at(path: str) -> Version | None:
    """Return the current version of an object, or None if the path is not a URL.

    Raises:
        OSError: there is no such object, or the request fails.
    """
    if not is_url(path):
        return None
    from aioloader.storage.remote.opening import describe

    return describe(path)
