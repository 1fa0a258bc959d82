"""Base class of the datasets whose items are spans of files."""

from __future__ import annotations

import functools
import operator
import os
from copy import copy
from types import MappingProxyType
from typing import TYPE_CHECKING, Any, ParamSpec, TypeVar

import numpy as np

from aioloader.abc import ByteDataset
from aioloader.crop_index.layout import RECORDS, CropFiles
from aioloader.datasets.base import Dataset
from aioloader.datasets.bulk_items import samples_of
from aioloader.errors import EmptyDatasetError, SpanTooShortError
from aioloader.foundation.types import SpanKind, Spans
from aioloader.rng import default_rng
from aioloader.storage.cache.base import Cache, MemoryCache
from aioloader.storage.cache.disk import MEMORY, CacheOptions
from aioloader.storage.cache.kept_answers import AnswersInUse, KeptAnswers, current_answers
from aioloader.storage.cache.source import CachedByteSource, CachedObjectSource
from aioloader.storage.local.source import LocalByteSource
from aioloader.storage.urls import cache_name, redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping, Sequence
    from typing import Self

    from aioloader.abc import ByteSource, Decoder
    from aioloader.datasets.decoding import ImageDecoder
    from aioloader.datasets.stage import Stage
    from aioloader.foundation.types import Array, IntArray
    from aioloader.storage.remote.source import HeldObjects
    from aioloader.storage.remote.transport import Version


P = ParamSpec("P")
T = TypeVar("T")


def opens_offline(fn: Callable[P, T]) -> Callable[P, T]:
    """Let a function with the argument `cache`, a directory, use the answers that are kept if no server is reached.

    A dataset that is made in it uses them too, see `KeptAnswers`.
    """

    @functools.wraps(fn)
    def opened(*args: P.args, **options: P.kwargs) -> T:
        cache = options.get("cache")
        in_directory = isinstance(cache, (str, os.PathLike)) and os.fspath(cache) != MEMORY
        if not in_directory or current_answers.get() is not None:
            return fn(*args, **options)
        with AnswersInUse(KeptAnswers()):
            return fn(*args, **options)

    return opened


class FileDataset(Dataset, ByteDataset[Any]):
    """Base class of the byte datasets on local files and objects in object storage.

    A loader reads the bytes itself, many items at a time; ``dataset[i]`` reads one item, blocking, and decodes it with
    the same decoder, so its byte source `fetches`. The dataset can be pickled; the copy opens its files again when it
    needs them.

    Args:
        cache, cache_limit: place and size of the cache of bytes read; see `CacheOptions`.
    """

    def __init__(
        self, cache: str | os.PathLike[str] | None = None, cache_limit: int | str | None = None
    ) -> None:
        self._source: ByteSource | None = None
        self._own_stage: Stage | None = None
        self._cache_options = CacheOptions(cache, cache_limit)
        self._answers = current_answers.get()
        self._memory: MemoryCache | None = None
        self._refuses_empty: tuple[str, int] | None = None

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_source": None, "_memory": None}

    def _asking(self) -> AnswersInUse:
        """Return a context for requests about the dataset's objects, see `opens_offline`."""
        return AnswersInUse(self._answers)

    def _open_cache(self) -> Cache | None:
        """Return the cache of one byte source, which closes it; None without a cache.

        A cache in memory belongs to the dataset and is shared by its byte sources.

        Raises:
            OSError: the directory of the cache cannot be created or written to.
        """
        if not self._cache_options.in_memory:
            return self._cache_options.open_directory()
        if self._memory is None:
            self._memory = MemoryCache(self._cache_options.limit_nbytes)
        return self._memory

    def _open_files(
        self,
        paths: Sequence[str],
        *,
        remote: bool,
        kind: SpanKind,
        name: str,
        versions: Sequence[Version | None] | None = None,
        direct: bool = False,
        held: HeldObjects | None = None,
    ) -> ByteSource:
        """Return a source of files or objects; behind the cache, if there is one.

        Args:
            paths: of the files, or URLs of the objects.
            remote: they are URLs.
            kind: of the items' spans.
            name: name of the files in the cache: a path or URL.
            versions: of the objects; see `RemoteByteSource`.
            direct: see `LocalByteSource`.
            held: see `RemoteByteSource`.
        """
        cache = self._open_cache()
        if remote:
            from aioloader.storage.remote.source import RemoteByteSource

            with self._asking():
                objects = RemoteByteSource(paths, kind=kind, versions=versions, held=held)
            if cache is None:
                return objects
            # Without the signature of a URL, which changes.
            return CachedObjectSource(objects, cache, cache_name(name), kind)
        files = LocalByteSource(paths, kind=kind, direct=direct)
        return files if cache is None else CachedByteSource(files, cache, name)

    @property
    def own_stage(self) -> Stage | None:
        """Return the stage of the argument `transform`, which runs before all other stages; None without one."""
        return self._own_stage

    def refuse_empty(self, paths: Sequence[str]) -> Self:
        """Return a copy whose length is an `EmptyDatasetError` if it has no samples.

        Files are opened when the length is first needed, so the error is raised there, and not by this method.

        Args:
            paths: the files, for the error.
        """
        found = copy(self)
        found._refuses_empty = redact_url(paths[0]), len(paths)
        return found

    def _counted(self, count: int) -> int:
        """Return the number of samples.

        Raises:
            EmptyDatasetError: there are none, and the dataset refuses that.
        """
        if not count and self._refuses_empty is not None:
            raise EmptyDatasetError(*self._refuses_empty)
        return count

    # -- for the commands; a format overrides what it has ------------------------------------------------------------

    left_out: Mapping[str, int] = MappingProxyType({})
    """Number of entries of the folder that are not read, by reason."""

    def as_shards(self) -> Any:
        """Return the same samples as a `ShardDataset`, which reads their named fields; None: they have none."""
        return None

    def crop_files(self) -> CropFiles:
        """Return the files that have crop indexes: none."""
        return CropFiles(RECORDS, ())

    def crop_keys(self, indices: IntArray) -> tuple[IntArray, Array]:
        """Return the number of the file of each item in `crop_files`, and the item's key in the index of that file.

        Args:
            indices: int64 (n,), of the items.
        """
        raise NotImplementedError

    def image_decoder(self) -> ImageDecoder:
        """Return a decoder that finds the encoded image of an item without its label."""
        raise NotImplementedError

    def openable(self) -> tuple[list[int], dict[int, str]]:
        """Find out which files can be opened.

        Returns:
            the numbers of the files whose items can be found, and the reasons why those of the others cannot; a reason
            begins with the name of the file.
        """
        return list(range(len(self.crop_files().paths))), {}

    def only(self, numbers: Sequence[int]) -> Self:
        """Return the dataset of some of the files, without crop indexes; this one if all can be opened."""
        return self

    def __getitem__(self, index: int) -> Any:
        """Return the sample at `index`; negative indices count from the end.

        Raises:
            IndexError: there is no such sample.
            OSError: its file cannot be read.
            ValueError: its bytes are corrupt.
        """
        sample = self._item(self._place(index), self.decoder)
        stage = self.own_stage
        return sample if stage is None else stage.apply(sample, default_rng())

    def _place(self, index: int) -> int:
        """Return an index as one from the start; see `__getitem__`."""
        place, length = operator.index(index), len(self)
        if not -length <= place < length:
            raise IndexError(
                f"index {place} is out of range: this {type(self).__name__} has {length} samples"
            )
        return place % length

    def _item(self, place: int, decoder: Decoder[Any]) -> Any:
        """Return the item at a place as a decoder returns it, without the stage; see `__getitem__`."""
        indices = np.array([place], dtype=np.int64)
        if self._source is None:
            self._source = self.open_source()
        spans = self.spans(indices)
        try:
            plan, data = self._source.fetch(spans)
        except SpanTooShortError as short:
            plan, data = self._source.fetch(Spans(spans.file, spans.offset, np.array([short.needed])))
        extras = self.extras(indices)
        start = int(plan.start[0])
        return decoder(
            data[start : start + int(plan.length[0])].toreadonly(),
            None if extras is None else extras[0],
            self.location(place),
        )

    def __getitems__(self, indices: Sequence[int]) -> list[Any]:
        """Return ``[self[i] for i in indices]``, but faster; torch's loader calls it for each batch."""
        return samples_of(self, indices, owner=FileDataset)
