"""Items whose samples are made once on a host and kept, so that later epochs read them; see `aioloader.cache_samples`.

For a loader it is a byte dataset. An item that is kept has no bytes to read: a worker finds its sample in the
`SampleFile`. Any other is read and decoded as its own dataset does it, and added to the file by the worker. Once the
file takes no more, these items take the usual path, with crop indexes and early stops.
"""

from __future__ import annotations

import contextlib
import hashlib
import importlib.metadata
import inspect
import io
import operator
import os
import stat
import sys
import threading
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field, replace
from functools import cached_property
from time import perf_counter
from typing import TYPE_CHECKING, Any

import cloudpickle
import numpy as np

from aioloader.abc import ByteDataset, Decoder, FusedDecoder
from aioloader.datasets.decoding import FusedImages
from aioloader.datasets.joined import ItemChain, ItemDecoder
from aioloader.datasets.resolve import resolve
from aioloader.errors import IncompleteItemError
from aioloader.foundation.decodes import KEPT, KEPT_SAMPLE, TO_KEEP, WHOLE
from aioloader.foundation.foreign_generators import ForeignGenerators, reachable
from aioloader.foundation.threads import Threads
from aioloader.foundation.types import WHOLE_FILE, ItemLocation, ReadPlan, Spans, StageTimer
from aioloader.foundation.validation import accepts_rng, parse_nbytes
from aioloader.foundation.version import __version__
from aioloader.rng import Rng, default_rng
from aioloader.storage.cache.samples import MISSING, SampleFile, is_image, new_memory_file
from aioloader.storage.joined import FileNumbers, JoinedByteSource, together
from aioloader.storage.urls import is_url
from aioloader.transforms.base import bind, is_native, is_transform
from aioloader.transforms.fused import flat_chain
from aioloader.transforms.lazy_image import LazyImageReader

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.abc import ByteSource, MapDataset, PositionalSampler
    from aioloader.datasets.resolve import Resolved
    from aioloader.datasets.stage import Stage
    from aioloader.foundation.types import Array, IntArray, StorageStats

_FEW_PATHS = 64
# Files that are looked at at a time, if that takes so long for each.
_LOOKS = 8
_SLOW_LOOK_S = 100e-6
# Of the libraries that make pixels.
_OPENCV = (
    "opencv-python-headless",
    "opencv-python",
    "opencv-contrib-python",
    "opencv-contrib-python-headless",
)
_LIBRARIES = (
    *("numpy", "simplejpeg", "pillow", "torch", "torchvision", "albumentations", "scikit-image", "scipy"),
    *_OPENCV,
)
_GOLDEN = np.uint64(0x9E3779B97F4A7C15)


class KeptItems(ByteDataset[Any]):
    """Samples of another dataset as items: what a loader sees of a `CachedSamples`, whose arguments it has."""

    def __init__(
        self, dataset: MapDataset[Any], limit: int | str, folder: str | os.PathLike[str] | None = None
    ) -> None:
        resolved = resolve(dataset) if hasattr(dataset, "__len__") else None
        if resolved is None or resolved.base_kind == "stream":
            raise TypeError(
                f"cache_samples() needs a dataset with __len__ and __getitem__, got {type(dataset).__name__}"
            )
        self.below: MapDataset[Any] = dataset
        self._limit = parse_nbytes(limit, "limit")
        self._folder = None if folder is None else os.path.abspath(os.path.expanduser(os.fspath(folder)))
        self._resolved = resolved
        for stage in resolved.stages:
            if stage.is_async:
                raise TypeError(
                    f"{stage.name} is async, which cache_samples() cannot keep: put it behind cache_samples()"
                )
        refuse_draws(resolved)
        # The file number of items without bytes; above those of all other files.
        self.no_bytes = resolved.files
        self.files = self.no_bytes + 1
        self._stages: tuple[Any, ...] = resolved.stages
        # Made now, so that a fork of this process has it too.
        self._memory = new_memory_file() if self._folder is None else None
        self._opened: tuple[FileWatch, SampleFile] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_opened": self._open(), "_memory": None}

    def _open(self) -> tuple[FileWatch, SampleFile]:
        """Identify the items, and open the file, at first use, which may block.

        Without a lock, which a fork of this process would find locked for ever: two threads may do it twice.

        Raises:
            OSError: the file cannot be opened.
        """
        if self._opened is None:
            versions = ItemVersions.of(self._resolved)
            file = self._open_file(versions)
            self._opened = FileWatch(versions, file), file
        return self._opened

    def _open_file(self, versions: ItemVersions) -> SampleFile:
        identities = versions.identities
        if self._memory is not None:
            return SampleFile.in_memory(self._memory, items=len(identities), limit=self._limit)
        assert self._folder is not None
        if not versions.known:
            return SampleFile.none(self._folder, "the versions of remote objects are not known")
        name, version = identity_of_set(self._resolved, versions)
        return SampleFile.in_folder(
            self._folder, name=name, version=version, identities=identities, limit=self._limit
        )

    @property
    def file(self) -> SampleFile:
        """Return the file of the samples; see `_open`."""
        return self._open()[1]

    @property
    def watch(self) -> FileWatch:
        """Return what looks at the files; see `_open`."""
        return self._open()[0]

    @property
    def _versions(self) -> ItemVersions:
        return self.watch.versions

    @property
    def _in_bytes(self) -> bool:
        return self._resolved.base_kind == "bytes"

    def _items(self, indices: IntArray) -> IntArray:
        remap = self._resolved.remap
        return np.asarray(indices) if remap is None else remap[indices]

    def __len__(self) -> int:
        """Return the number of samples."""
        return len(self.below)

    def __getitem__(self, index: int) -> Any:
        """Return the sample at `index`; negative indices count from the end. Its arrays are the caller's own.

        Raises:
            IndexError: there is no such sample.
            Exception: what the dataset below raises.
        """
        place, length = operator.index(index), len(self)
        if not -length <= place < length:
            raise IndexError(f"index {place} is out of range: this dataset has {length} samples")
        place %= length
        item = int(self._items(np.array([place]))[0])
        watch, items = self.watch, np.array([item])
        watch.look(watch.due(items))
        watch.discard(items)

        def make() -> Any:
            with watch_draws(default_rng(), self._generators, self._resolved.name):
                return self.below[place]

        return self.file.get(item, int(self._versions.identities[item]), make, own=True, own_image=True)

    @cached_property
    def _generators(self) -> ForeignGenerators | None:
        return _generators_of(self._decoder_of_base, self._stages)

    # -- as a byte dataset -------------------------------------------------------------------------------------------

    @property
    def display_name(self) -> str:
        return self._resolved.name

    @property
    def reads_ahead(self) -> bool:
        return self._resolved.reads_ahead

    @cached_property
    def _decoder_of_base(self) -> Decoder[Any]:
        if not self._in_bytes:
            return ItemDecoder(self._resolved.base)
        decoder = self._resolved.decoder
        if decoder.dct_scaling:
            raise ValueError(
                "cache_samples() keeps whole images, and dct_scaling=True decodes smaller ones with other pixels: use "
                "one of the two"
            )
        return decoder

    @property
    def decoder(self) -> KeptDecoder:
        paths = self._versions.paths
        return KeptDecoder(
            self.file,
            self._decoder_of_base,
            self._stages,
            paths=paths if self._in_bytes and len(paths) <= _FEW_PATHS else (),
            name=self._resolved.name,
            no_bytes=self.no_bytes,
        )

    def open_source(self) -> KeptSource:
        source = self._resolved.open_source() if self._in_bytes else None
        return KeptSource(source, self)

    def spans(self, indices: IntArray) -> Spans:
        """Return the spans of the items; those of kept ones are not read, but have the length of what is kept."""
        items = self._items(indices)
        return self._spans(items, ~self.file.kept(items, self._versions.identities[items]))

    def whole_spans(self, indices: IntArray) -> Spans:
        items = self._items(indices)
        return self._spans(items, np.ones(len(items), bool))

    def _spans(self, items: IntArray, missing: Array) -> Spans:
        n = len(items)
        file, offset = np.full(n, self.no_bytes), items.astype(np.int64)
        length = self._versions.nbytes[items]
        places = np.flatnonzero(missing) if self._in_bytes else ()
        if len(places):
            own = self._resolved.base.whole_spans(items[places])
            file[places], offset[places], length[places] = own.file, own.offset, own.length
        return _KeptSpans(file, offset, length, items=items)

    def extras(self, indices: IntArray) -> Array:
        """Return number and identity of each item, whether it has bytes, and its extra in the dataset below."""
        items = self._items(indices)
        own = None
        if self._in_bytes:
            _ = self._decoder_of_base  # it opens a crop index, whose keys are extras
            own = self._resolved.base.extras(items)
        columns: list[Any] = [("item", np.int64), ("identity", np.uint64), ("in_bytes", bool)]
        if own is not None:
            columns.append(("own", own.dtype, own.shape[1:]))
        found = np.zeros(len(items), columns)
        found["item"], found["identity"] = items, self._versions.identities[items]
        found["in_bytes"] = self._in_bytes
        if own is not None:
            found["own"] = own
        return found

    def location(self, index: int) -> ItemLocation:
        item = int(self._items(np.array([index]))[0])
        locate = self._resolved.location
        return ItemLocation(f"item {item}") if locate is None else locate(item)

    def file_nbytes(self, index: int) -> int:
        item = int(self._items(np.array([index]))[0])
        return self._resolved.base.file_nbytes(item) if self._in_bytes else -1

    def shuffle_sampler(self, indices: IntArray | None) -> PositionalSampler | None:
        if not self._in_bytes:
            return None
        remap = self._resolved.remap if indices is None else self._items(indices)
        found: PositionalSampler | None = self._resolved.base.shuffle_sampler(remap)
        return found

    @property
    def index_limit(self) -> int:
        theirs = self._in_bytes and self._resolved.remap is None
        limit: int = self._resolved.base.index_limit if theirs else len(self)
        return limit


# -- which items they are ----------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class ItemVersions:
    """Versions of the items of a base, so that a sample of other data is never taken for theirs.

    Attributes:
        identities: uint64 (items,), of the version of each item's file and its place in it.
        files: int64 (items,), the place of each item's file in `paths`; -1: it has none.
        paths: the local files, and objects.
        stamps: int64 (files, 2), time of the last change in nanoseconds, and bytes, of each local file; else -1.
        nbytes: int64 (items,), bytes of each item; -1: not known, 0: it has none.
        loose: int64 (m,), files of which it is not known which items they make.
        known: no object has an unknown version.
    """

    identities: Array
    files: IntArray
    nbytes: IntArray
    paths: tuple[str, ...]
    stamps: IntArray
    loose: IntArray = field(default_factory=lambda: np.empty(0, np.int64))
    known: bool = True

    @classmethod
    def of(cls, resolved: Resolved) -> ItemVersions:
        """Return the versions of the items of a base; local files are looked at, which may block."""
        n = len(resolved.base)
        if resolved.base_kind == "bytes" and resolved.base.below is not None:
            below = resolve(resolved.base.below)
            return cls.of(below)._at(below.remap)
        if resolved.joined_parts is not None:
            return cls._of_parts([resolve(part) for part in resolved.joined_parts])
        if resolved.base_kind != "bytes":
            nothing = np.zeros(n, np.int64)
            found = nothing.astype(np.uint64), nothing - 1, nothing
            return cls(*found, *_loose_files(resolved.base))
        spans = resolved.base.spans(np.arange(n))
        source = resolved.open_source()
        try:
            paths = tuple(map(str, source.paths))
            stamps = stamps_of(paths)
            words = np.zeros(len(paths), np.uint64)
            versioned = True
            for number, path in enumerate(paths):
                version = source.identity(number)
                versioned = versioned and (version is not None or not is_url(path))
                words[number] = _word(repr(version or (path, stamps[number].tolist())))
        finally:
            source.close()
        numbered = bool(len(paths)) and bool(n) and int(spans.file.max()) < len(paths)
        files = spans.file if numbered else np.full(n, -1)
        start = words[spans.file] if numbered else np.zeros(n, np.uint64)
        extras = _words_of(resolved.base.extras(np.arange(n)), n)
        mixed = _mixed(start, spans.offset, spans.length, *extras.T)
        nbytes = spans.length
        if numbered:
            nbytes = np.where(nbytes == WHOLE_FILE, stamps[files, 1], nbytes)
        if not paths:
            return cls(mixed, files, nbytes, *_loose_files(resolved.base))
        return cls(mixed, files, nbytes, paths, stamps, known=versioned)

    @classmethod
    def _of_parts(cls, parts: list[Resolved]) -> ItemVersions:
        found = [cls.of(part)._at(part.remap) for part in parts]
        starts = np.cumsum([0, *(len(each.paths) for each in found)])
        moved = [
            np.where(each.files < 0, -1, each.files + start)
            for each, start in zip(found, starts, strict=False)
        ]
        return cls(
            np.concatenate([each.identities for each in found]),
            np.concatenate(moved),
            np.concatenate([each.nbytes for each in found]),
            tuple(path for each in found for path in each.paths),
            np.concatenate([each.stamps for each in found]),
            np.concatenate([each.loose + start for each, start in zip(found, starts, strict=False)]),
            all(each.known for each in found),
        )

    def _at(self, remap: IntArray | None) -> ItemVersions:
        """Return those of items at some places, in their order."""
        if remap is None:
            return self
        return replace(
            self,
            identities=self.identities[remap],
            files=self.files[remap],
            nbytes=self.nbytes[remap],
        )


def stamp_of(path: str) -> tuple[int, int]:
    """Return the time of a local file's last change, in nanoseconds, and its bytes; -1 if there is none."""
    with contextlib.suppress(OSError, ValueError):
        status = os.stat(path)
        if stat.S_ISREG(status.st_mode):
            return status.st_mtime_ns, status.st_size
    return -1, -1


def stamps_of(paths: Sequence[str]) -> IntArray:
    """Return the stamps of files, int64 (n, 2), several at a time: a network file system takes a while for each."""
    found = np.empty((len(paths), 2), np.int64)

    def look(place: int) -> None:
        for number in range(place, len(paths), _LOOKS):
            found[number] = stamp_of(paths[number])

    with ThreadPoolExecutor(_LOOKS, "aioloader-look") as pool:
        list(pool.map(look, range(min(len(paths), _LOOKS))))
    return found


def _word(text: str) -> int:
    return int.from_bytes(hashlib.sha256(text.encode("utf-8", "surrogateescape")).digest()[:8], "little")


def _words_of(extras: Array | None, n: int) -> Array:
    """Return extras as words, (n, words); of those with labels only these: keys of a crop index make no sample."""
    if extras is None:
        return np.empty((n, 0), np.uint64)
    values = extras["label"] if "label" in (extras.dtype.names or ()) else extras
    data = np.ascontiguousarray(values).reshape(n, -1).view(np.uint8)
    return np.pad(data, ((0, 0), (0, -data.shape[1] % 8))).view(np.uint64)


def _mixed(start: Array, *columns: IntArray) -> Array:
    """Return 64 bits that depend on all of some columns."""
    found = start.copy()
    with np.errstate(over="ignore"):
        for column in columns:
            found = (found ^ column.astype(np.uint64)) * _GOLDEN
            found ^= found >> np.uint64(29)
    return found


def identity_of_set(resolved: Resolved, versions: ItemVersions) -> tuple[str, str]:
    """Return a name of a set of samples for a folder, and its version.

    The name covers the dataset and the transforms; the version also their files, the decoder, and the versions of the
    libraries that make pixels. Each file of a folder of images has a separate version, see `ItemVersions`.

    Raises:
        TypeError: the dataset, or a transform, cannot be pickled, so that it cannot be recognized again.
    """
    stages: Sequence[Any] = resolved.stages
    fns = [stage.fn for stage in stages]
    below: list[Resolved] = [resolve(part) for part in resolved.joined_parts or ()]
    if resolved.base_kind == "bytes" and resolved.base.below is not None:
        below.append(resolve(resolved.base.below))
    # A dataset of another class, or without files, is recognized by its pickle.
    opaque = not below and len(versions.loose) == len(versions.paths)
    parts: list[Any] = [fns, [stage.first for stage in stages], resolved.given if opaque else None]
    try:
        pickled, mapped = _pickled(parts)
        decoder = "" if opaque or below else repr(resolved.decoder)
    except Exception as error:
        raise TypeError(
            f"cache_samples(folder=...) cannot recognize {resolved.name} or its transforms in a later run, because "
            f"they cannot be pickled ({error}): leave folder=None"
        ) from error
    found = [identity_of_set(each, ItemVersions.of(each)) for each in below]
    paths = [path if is_url(path) else os.path.abspath(path) for path in versions.paths]
    facts = resolved.name, decoder, paths, [name for name, _ in found]
    name = hashlib.sha256(pickled + repr(facts).encode("utf-8", "surrogateescape"))
    few = (
        len(versions.paths) <= _FEW_PATHS
        or len(versions.loose)
        or len(versions.identities) > 4 * len(versions.paths)
    )
    stamps = versions.stamps.tolist() if few else []
    sources = sorted({*map(_source_stamp, reachable([resolved.given, *fns]))})
    libraries = {each: _version_of(each) for each in _LIBRARIES}
    count = len(versions.identities)
    version = repr((__version__, sys.version_info[:2], libraries, stamps, mapped, sources, count, found))
    return name.hexdigest()[:24], version


def _pickled(value: Any) -> tuple[bytes, list[tuple[int, int]]]:
    """Return a pickle that is the same in each run, and the stamps of mapped files that are not in it.

    Cloudpickle marks classes of the script with random numbers.
    """
    pickler = _Pickler(data := io.BytesIO())
    pickler.dump(value)
    pickled = data.getvalue()
    for number in list(getattr(cloudpickle.cloudpickle, "_DYNAMIC_CLASS_TRACKER_BY_ID", ())):
        pickled = pickled.replace(number.encode(), b"")
    return pickled, pickler.stamps


class _Pickler(cloudpickle.Pickler):  # type: ignore[misc]  # of a module without types
    """Pickler to which an array in a mapped file is a place in that file."""

    def __init__(self, file: io.BytesIO) -> None:
        super().__init__(file)
        self.stamps: list[tuple[int, int]] = []

    def reducer_override(self, value: Any) -> Any:
        if isinstance(value, np.ndarray):
            owner: Any = value
            while isinstance(owner, np.ndarray) and not isinstance(owner, np.memmap):
                owner = owner.base
            if owner is not None and owner.filename is not None and owner.mode != "c":
                self.stamps.append(stamp_of(owner.filename))
                begin = value.ctypes.data - np.frombuffer(owner._mmap, np.uint8).ctypes.data
                place = os.fspath(owner.filename), owner.offset, begin, repr(value.dtype)
                return tuple, ((*place, value.shape, value.strides),)
        return super().reducer_override(value)


def _version_of(library: str) -> str | None:
    with contextlib.suppress(importlib.metadata.PackageNotFoundError):
        return importlib.metadata.version(library)
    return None


def _source_stamp(value: Any) -> tuple[int, int]:
    """Return the stamp of the file with the code of a function or an object's class; none for code of libraries."""
    code = value if inspect.isroutine(value) else type(value)
    with contextlib.suppress(TypeError, OSError):
        path = inspect.getsourcefile(code)
        if (
            path is not None
            and "site-packages" not in path
            and not path.startswith(os.path.dirname(os.path.dirname(__file__)))
        ):
            return stamp_of(path)
    return -1, -1


def _loose_files(dataset: Any) -> tuple[tuple[str, ...], IntArray, IntArray]:
    """Return the files that a dataset names, their stamps, and their numbers."""
    named = list(dict.fromkeys(_paths_in(dataset)))
    stamps = stamps_of(named)
    there = np.flatnonzero(stamps[:, 0] >= 0)
    return tuple(named[place] for place in there.tolist()), stamps[there], np.arange(len(there))


def _paths_in(dataset: Any) -> Iterator[str]:
    """Iterate over what may be names of files in the attributes of a dataset of another class, and of datasets there.

    A name in a list, such as ``samples``, may be relative to a folder that is an attribute, such as ``root``.
    """
    waiting, seen = [dataset], {id(None)}
    while waiting:
        each = waiting.pop()
        if id(each) in seen:
            continue
        seen.add(id(each))
        values = list(vars(each).values()) if hasattr(each, "__dict__") else []
        folders = [os.fspath(value) for value in values if isinstance(value, (str, os.PathLike))]
        folders = ["", *filter(os.path.isdir, folders)]
        for value in values:
            elements = value.tolist() if isinstance(value, np.ndarray) and value.dtype.kind in "UO" else value
            for element in elements if isinstance(elements, (list, tuple)) else [elements]:
                first = element[0] if isinstance(element, (list, tuple)) and element else element
                first = first.filename if isinstance(first, np.memmap) else first
                if isinstance(first, (str, os.PathLike)):
                    yield from (os.path.join(folder, first) for folder in folders)
                elif hasattr(type(first), "__getitem__") and hasattr(first, "__dict__"):
                    waiting.append(first)


# -- draws -------------------------------------------------------------------------------------------------------------


def refuse_draws(resolved: Resolved) -> None:
    """Refuse a dataset whose samples depend on random numbers, as far as that shows before a sample is made.

    Raises:
        ValueError: a transform draws.
    """
    if resolved.seeds:
        raise ValueError(_drawn(resolved.name))
    image: Any = np.zeros((64, 64, 3), np.uint8)
    stages: Sequence[Any] = resolved.stages
    for stage in stages:
        for part in flat_chain(stage.fn):
            rng = Rng(0)
            rng.seek(0, 0, 0)
            name = getattr(part, "__name__", type(part).__name__)
            if not is_native(part):
                if accepts_rng(part) and not is_transform(part):
                    raise ValueError(_drawn(name))
                continue  # `watch_draws` watches it
            try:
                image = bind(part)(image, rng, None)
            except Exception:
                image = np.zeros(
                    (64, 64, 3), np.uint8
                )  # not for images of this kind: `watch_draws` watches it
            if rng.drew:
                raise ValueError(_drawn(name))


def _drawn(name: str) -> str:
    return (
        f"cache_samples() keeps each sample as it is in the first epoch, and {name} draws random numbers: put "
        f"cache_samples() before it, so that its draws differ from epoch to epoch"
    )


def _generators_of(decoder: Decoder[Any], stages: Sequence[Stage]) -> ForeignGenerators | None:
    """Return the generators that code of the caller may draw from; None without such code."""
    foreign = [stage for stage in stages if not stage.native]
    if not (decoder.foreign or foreign):
        return None
    return ForeignGenerators(0, False, [decoder, *foreign])


@contextlib.contextmanager
def watch_draws(rng: Rng, generators: ForeignGenerators | None, name: str) -> Iterator[None]:
    """Raise ValueError if random numbers are drawn.

    Global generators are watched in the main thread of a process only: other threads may draw at the same time.
    """
    watched = generators is not None and threading.current_thread() is threading.main_thread()
    before = generators.state() if watched and generators is not None else None
    drew = rng.drew
    yield
    if (rng.drew and not drew) or (watched and generators is not None and generators.state() != before):
        raise ValueError(_drawn(name))


# -- in the loader's process -------------------------------------------------------------------------------------------


@dataclass(frozen=True, slots=True)
class _KeptSpans(Spans):
    """Spans with the numbers of their items, int64 (n,)."""

    items: IntArray = field(default_factory=lambda: np.empty(0, np.int64))


class FileWatch:
    """Watch over local files: which have changed since they were identified, so that their samples are to be discarded.

    Those of items are looked at before the items are used, the others in turn: all of them in an epoch. If one of the
    latter has changed, all samples are discarded.

    Args:
        versions: of the items.
        file: the samples.

    Attributes:
        is_slow: looks take long, as in network file systems.
    """

    def __init__(self, versions: ItemVersions, file: SampleFile) -> None:
        self.versions = versions
        self._file = file
        # The last one is that of items without a file.
        self._changed = np.zeros(len(versions.paths) + 1, bool)
        self._looked = 0.0
        self.is_slow = False

    def due(self, items: IntArray) -> IntArray:
        """Return the files to look at before some items are used."""
        versions = self.versions
        loose, begin = versions.loose, int(self._looked)
        found = {*versions.files[items].tolist()} - {-1}
        if len(loose):
            self._looked += len(items) * len(loose) / len(versions.files)
            found.update(loose[np.arange(begin, int(self._looked)) % len(loose)].tolist())
        files = np.array(sorted(found), np.int64)
        due: IntArray = files[(versions.stamps[files, 0] >= 0) & ~self._changed[files]]
        return due

    def look(self, files: IntArray) -> None:
        """Look at files, and warn of those that have changed."""
        fastest = _SLOW_LOOK_S  # any may have waited for a core, or for the interpreter's lock
        for number in files.tolist():
            path, begin = self.versions.paths[number], perf_counter()
            stamp = stamp_of(path)
            fastest = min(fastest, perf_counter() - begin)
            if tuple(self.versions.stamps[number].tolist()) != stamp:
                self._changed[number] = True
                if number in self.versions.loose:
                    self._changed[:] = True
                self._file.warn(f"{path} has changed: samples of changed files are made again in each epoch")
        self.is_slow = len(files) > 0 and fastest >= _SLOW_LOOK_S

    def discard(self, items: IntArray) -> None:
        """Discard the samples of items whose files have changed."""
        if self._changed.any():
            for item in items[self._changed[self.versions.files[items]]].tolist():
                self._file.discard(item)


class KeptSource(JoinedByteSource):
    """Byte source of the items that are not kept; it also finds out which files have changed since they were.

    Args:
        source: of the dataset below; None if its items have no bytes.
        dataset: the dataset.
    """

    def __init__(self, source: ByteSource | None, dataset: KeptItems) -> None:
        super().__init__([source, None], FileNumbers([0, dataset.no_bytes]))
        self._no_bytes = dataset.no_bytes
        self._file = dataset.file
        self._watch = dataset.watch
        self._threads = Threads(_LOOKS, "aioloader-kept")

    async def plan(self, spans: Spans) -> ReadPlan:
        items = self._of_batch(spans)
        due = self._watch.due(items)
        if len(due):
            parts = np.array_split(due, min(len(due), _LOOKS if self._watch.is_slow else 1))
            await together([self._threads.run] * len(parts), [(self._watch.look, part) for part in parts])
        self._watch.discard(items)
        return self._with_lost(await super().plan(spans), spans)

    def plan_blocking(self, spans: Spans) -> ReadPlan:
        items = self._of_batch(spans)
        self._watch.look(self._watch.due(items))
        self._watch.discard(items)
        return self._with_lost(super().plan_blocking(spans), spans)

    def _with_lost(self, reads: ReadPlan, spans: Spans) -> ReadPlan:
        """Return a plan with room for items whose kept samples turn out to be lost: nothing of these is read yet."""
        away = (spans.file == self._no_bytes) & (spans.length != 0)
        return replace(reads, partial=away) if away.any() else reads

    def _of_batch(self, spans: Spans) -> IntArray:
        """Return the items of a batch; in a joined dataset the kept ones; nothing for items that are read again."""
        return spans.items if isinstance(spans, _KeptSpans) else spans.offset[spans.file == self._no_bytes]

    def stats(self) -> StorageStats:
        return replace(
            super().stats(),
            kept_samples=self._file.count,
            kept_items=self._file.items,
            kept_bytes=self._file.nbytes,
            kept_full=self._file.full,
            kept_failed=self._file.failed,
        )

    def mapped(self) -> JoinedByteSource | None:
        found = super().mapped()
        if found is None:
            return None
        # What checks the files stays in front of the parts, which map theirs now.
        self._sources, self._opened, self.maps = found._sources, found._opened, found.maps
        return self

    def close(self) -> None:
        self._threads.close()
        super().close()


# -- in a worker -------------------------------------------------------------------------------------------------------


@dataclass(frozen=True, eq=False)
class KeptDecoder(Decoder[Any]):
    """Decoder that finds the kept sample of an item, or makes it and keeps it.

    Attributes:
        file: the samples.
        base: makes an item of the dataset below.
        stages: the transforms between it and the kept sample.
        paths: the files, if they are few, for errors.
        name: of the dataset, for errors.
        no_bytes: see `KeptItems`.
        own: the caller gets all arrays, and may write to them.
    """

    file: SampleFile
    base: Decoder[Any]
    stages: tuple[Stage, ...]
    paths: tuple[str, ...]
    name: str
    no_bytes: int
    own: bool = False

    @property
    def foreign(self) -> bool:
        return self.base.foreign or not all(stage.native for stage in self.stages)

    def __call__(self, data: memoryview, extra: Any, location: ItemLocation) -> Any:
        """Return a sample whose arrays are the caller's own."""
        fused = self.fuse(())
        return fused(data, extra, location, rng=default_rng(), out=None, trace=StageTimer(), file=None)

    def fuse(self, stages: Sequence[Stage]) -> FusedKept:
        """Return the decoder with the stages that take the image."""
        return FusedKept(self, stages)


class FusedKept(FusedDecoder[Any]):
    """Decoder of kept samples with the stages that take the image; see `FusedDecoder`.

    Args:
        decoder: finds and makes the samples.
        stages: all stages of the loader.
    """

    def __init__(self, decoder: KeptDecoder, stages: Sequence[Stage]) -> None:
        self._decoder = decoder
        self._file = decoder.file
        self._generators = _generators_of(decoder.base, decoder.stages)
        reader = LazyImageReader()
        taken: list[Any] = list(stages)
        self._images = {
            alone: FusedImages(reader, taken, parse=_unparsed, alone=alone) for alone in (False, True)
        }
        self.stages = self._images[False].stages
        self.leaves = self._images[False].leaves
        self._then = tuple(stages[: self.stages])
        # Code of the caller may write to what it gets, but for an image that stages of this package replace before.
        self._own = decoder.own or not all(stage.native for stage in stages)
        self._own_image = self._own and not (self._then and all(stage.looked for stage in self._then))
        base, below = decoder.base, len(decoder.stages)
        self._kept = ItemChain(base, base.fuse(decoder.stages), decoder.stages, below, self.leaves)
        direct = base.fuse((*decoder.stages, *stages))
        self._direct = ItemChain(base, direct, (*decoder.stages, *self._then), below, self.leaves)

    def __call__(
        self,
        data: memoryview,
        extra: Any,
        location: ItemLocation,
        *,
        rng: Rng,
        out: Array | list[Array] | None,
        trace: StageTimer,
        file: int | None = None,
    ) -> Any:
        begin = perf_counter()
        item, identity = int(extra["item"]), int(extra["identity"])
        sample = self._file.find(item, identity, own=self._own, own_image=self._own_image)
        if sample is not MISSING:
            trace.decodes[KEPT][KEPT_SAMPLE] += 1
            trace.decode_s += perf_counter() - begin
            return self._transform(sample, location, rng, out, trace)
        if not len(data) and extra["in_bytes"] and (file is None or file >= self._decoder.no_bytes):
            self._file.discard(item)  # so that the loader does not take it for kept again
            raise IncompleteItemError("its kept sample can no longer be used")
        own = extra["own"] if "own" in extra.dtype.names else None if extra["in_bytes"] else item
        if location.path is None and file is not None and file < len(self._decoder.paths):
            location = ItemLocation(location.key, self._decoder.paths[file], location.offset)
        decoder = self._decoder
        given = data, own, location
        if not self._file.adds(item):
            return self._direct.make(given, rng, out, trace, file)

        def make() -> Any:
            uncropped, trace.uncropped = trace.uncropped, 0
            try:
                with watch_draws(rng, self._generators, decoder.name):
                    return self._kept.make(given, rng, None, trace, file)
            finally:
                if trace.uncropped:
                    trace.decodes[WHOLE][TO_KEEP] += trace.uncropped
                trace.uncropped = uncropped

        sample = self._file.get(item, identity, make, own=self._own, own_image=self._own_image)
        return self._transform(sample, location, rng, out, trace)

    def _transform(self, sample: Any, location: ItemLocation, rng: Rng, out: Any, trace: StageTimer) -> Any:
        """Apply the stages that take the image to a sample that may be kept, and is not to be altered."""
        alone = type(sample) is not tuple
        image: Any = sample if alone else sample[0] if sample else None
        if not self._then:
            return sample
        if is_image(image) and image.shape[2] in (1, 3) and all(stage.looked for stage in self._then):
            parsed = (image, *(() if alone else sample[1:]))
            return self._images[alone].make(parsed, None, location, rng=rng, out=out, trace=trace)
        if self._own and not self._own_image and is_image(image):
            sample = image.copy() if alone else (image.copy(), *sample[1:])
        for step, stage in enumerate(self._then):
            begin = perf_counter()
            trace.stage = f"transform:{stage.name}"
            sample = stage.apply(sample, rng)
            trace.transforms[step] += perf_counter() - begin
        return sample


def _unparsed(data: memoryview, extra: Any, location: ItemLocation) -> tuple[Any, ...]:
    raise NotImplementedError  # kept samples are there already
