"""Records of a TFRecord file: their places, by a scan or an index of DALI's tfrecord2idx; and their check."""

from __future__ import annotations

import os
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from aioloader.errors import RemoteReadError, SampleFormatError
from aioloader.formats.tfrecord.example import MessageFault, feature_values, wanted_features
from aioloader.formats.tfrecord.framing import (
    FRAME_NBYTES,
    HEAD,
    HEAD_NBYTES,
    MOST_PAYLOAD,
    FileScan,
    RecordChain,
    check_payload,
    compressed,
    compression_of,
    crc32c_function,
    find_heads,
    head_fault,
    length_crc,
    truncated,
)
from aioloader.foundation.opening import in_this_opening
from aioloader.foundation.types import SpanKind, Spans
from aioloader.sample_index import SampleIndex, open_index
from aioloader.storage.local.descriptors import open_regular, opened_regular
from aioloader.storage.urls import appended, beside, is_url, redact_url

if TYPE_CHECKING:
    from aioloader.foundation.types import IntArray


_MOST_DIGITS: Final = 18
_LINE_NBYTES: Final = 2 * _MOST_DIGITS + 3


def most_nbytes(nbytes: int) -> int:
    """Return the size of the longest index of a file of `nbytes` bytes."""
    return (nbytes // FRAME_NBYTES + 1) * _LINE_NBYTES


def parse_index(text: bytes, nbytes: int) -> IntArray | None:
    """Return the bytes of each record, with head and CRC, int64 (n,); None if the index does not fit a file.

    Args:
        text: of the index.
        nbytes: of the file: the records of the index have to be consecutive, from its first byte to its last.
    """
    if len(text) > most_nbytes(nbytes):
        return None
    words = text.split()
    if not words or len(words) % 2 or max(map(len, words)) > _MOST_DIGITS:
        return None
    if not all(map(bytes.isdigit, words)):
        return None
    columns = np.array(words).astype(np.int64).reshape(-1, 2)
    offset, length = columns[:, 0], columns[:, 1].copy()
    if offset[0] != 0 or (length < FRAME_NBYTES).any() or (length > nbytes).any():
        return None
    ends = np.cumsum(length)
    if (offset[1:] != ends[:-1]).any() or ends[-1] != nbytes:
        return None
    return length


if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from typing import TypeAlias

    from aioloader.foundation.types import IntArray
    from aioloader.storage.remote.opening import Stream
    from aioloader.storage.remote.source import HeldObjects, RemoteByteSource
    from aioloader.storage.remote.transport import Version

    Read: TypeAlias = Callable[[Sequence[tuple[int, int]]], list[memoryview]]

KIND: Final = "tfrecord-1"
_LENGTHS: Final = "length"
# Records that are compared with an index of another program.
_COMPARED: Final = 32


def record_lengths(
    path: str,
    version: Version | None,
    tick: Callable[[int], object] | None = None,
    held: HeldObjects | None = None,
) -> IntArray:
    """Return the bytes of each record of a file, with head and CRC, int64 (n,). Blocking.

    Args:
        path: the file, or its URL.
        version: of the object if `path` is a URL.
        tick: called now and then with the number of bytes up to which the records are known.
        held: gets the bytes of an object that is read whole; None: they are forgotten.

    Raises:
        OSError: the file cannot be read.
        SampleFormatError: it is damaged, truncated or compressed.
    """

    def make() -> SampleIndex:
        return scan_records(path, version, tick, held, partial(_foreign_lengths, path, version))

    nbytes = os.stat(path).st_size if version is None else version.nbytes
    lengths = open_index(path, version, KIND, make).arrays.get(_LENGTHS)
    if lengths is None or not _fits(lengths, nbytes):
        lengths = scan_records(path, version, tick).arrays[_LENGTHS]
    if held is not None:
        held.expect(path, nbytes)
    return lengths


def _fits(lengths: IntArray, nbytes: int) -> bool:
    if lengths.dtype != np.int64 or lengths.ndim != 1:
        return False
    return bool(((lengths >= FRAME_NBYTES) & (lengths <= nbytes)).all()) and int(lengths.sum()) == nbytes


def scan_records(
    path: str,
    version: Version | None,
    tick: Callable[[int], object] | None = None,
    held: HeldObjects | None = None,
    listed: Callable[[], IntArray | None] = lambda: None,
) -> SampleIndex:
    """Scan a file for its records and return their index. Blocking; of large records only the heads are read.

    Args:
        path, version, tick, held: as for `record_lengths`.
        listed: returns the bytes of each record by a list next to the file, for which it is not scanned; None without.

    Raises:
        OSError, SampleFormatError: as for `record_lengths`.
    """
    if version is not None and version.nbytes:
        from aioloader.storage.remote.opening import stream_of_small

        usual = partial(_usual_length, version.nbytes)
        with stream_of_small(path, version, usual, held, listed) as (found, stream):
            if found is not None:
                return _index(found)
            if stream is not None:
                return _scan(path, version.nbytes, partial(_read_of, stream), tick, parallel=False)
    elif (found := listed()) is not None:
        return _index(found)
    with _opened(path, version) as (nbytes, read):
        return _scan(path, nbytes, read, tick, parallel=version is not None)


def _usual_length(nbytes: int, begin: bytes) -> int:
    """Return the mean bytes of the records of which the first bytes of a file have the heads."""
    chain = RecordChain("", nbytes, end=len(begin))
    chain.take(memoryview(begin), 0)
    return chain.at // max(1, len(chain.offsets))


def _read_of(stream: Stream, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
    return [memoryview(part) for part in stream.read_ranges(ranges)]


def _scan(
    path: str, nbytes: int, read: Read, tick: Callable[[int], object] | None, *, parallel: bool
) -> SampleIndex:
    scan = FileScan(redact_url(path), nbytes, parallel=parallel)
    while scan.wants:
        scan.take(read(scan.wants))
        if tick is not None:
            tick(scan.reached)
    return _index(scan.lengths())


def _index(lengths: IntArray) -> SampleIndex:
    return SampleIndex(KIND, {_LENGTHS: lengths})


def _foreign_lengths(path: str, version: Version | None) -> IntArray | None:
    """Return the bytes of each record by the index of DALI's tfrecord2idx; None if there is none that fits the file."""
    places = dict.fromkeys((appended(path, ".idx"), beside(path, ".idx")))
    with _opened(path, version) as (nbytes, read), ThreadPoolExecutor(len(places), "aioloader-list") as pool:
        for text in pool.map(in_this_opening(partial(_text_at, limit=most_nbytes(nbytes))), places):
            lengths = None if text is None else parse_index(text, nbytes)
            if lengths is not None and _heads_fit(lengths, read):
                return lengths
    return None


def _heads_fit(lengths: IntArray, read: Read) -> bool:
    """Compare an index with the heads of some records."""
    offsets = np.cumsum(lengths) - lengths
    rows = np.unique(np.linspace(0, len(lengths) - 1, _COMPARED).astype(np.int64))
    heads = read([(offset, HEAD_NBYTES) for offset in offsets[rows].tolist()])
    return all(
        HEAD.unpack(head) == (length - FRAME_NBYTES, length_crc(length - FRAME_NBYTES))
        for head, length in zip(heads, lengths[rows].tolist(), strict=True)
    )


def _text_at(place: str, limit: int) -> bytes | None:
    """Return the bytes of a file or object; None if it is missing, cannot be opened or has more than `limit` bytes."""
    if not is_url(place):
        try:
            descriptor = open_regular(place)
        except OSError:
            return None
        with os.fdopen(descriptor, "rb") as stream:
            text = stream.read(limit + 1)
        return text if len(text) <= limit else None
    from aioloader.storage.remote.opening import BlockingObject

    try:
        with closing(BlockingObject(place)) as source:
            nbytes = source.size()
            return source.read_ranges([(0, nbytes)])[0] if nbytes <= limit else None
    except FileNotFoundError:
        return None
    except RemoteReadError as error:
        # A missing object is denied, too, to users who may not list the bucket, and to a signature of another object.
        if error.kind != "denied":
            raise
        return None


@contextmanager
def _opened(path: str, version: Version | None) -> Iterator[tuple[int, Read]]:
    """Return a context manager of the size of a file or object, and of a function that reads ranges of it."""
    if version is None:
        with opened_regular(path) as (nbytes, read):
            yield nbytes, lambda ranges: [memoryview(read(*each)) for each in ranges]
        return
    from aioloader.storage.remote.source import RemoteByteSource

    source = RemoteByteSource([path], kind=SpanKind.EXACT, versions=[version])
    try:
        yield version.nbytes, partial(_read_object, source)
    finally:
        source.close()


def _read_object(source: RemoteByteSource, ranges: Sequence[tuple[int, int]]) -> list[memoryview]:
    table = np.array(ranges, np.int64).reshape(-1, 2)
    spans = Spans(np.zeros(len(table), np.int64), table[:, 0].copy(), table[:, 1].copy())
    data, starts = source.fetch_spans(spans)
    return [data[start : start + nbytes] for start, (_, nbytes) in zip(starts.tolist(), ranges, strict=True)]


if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import TypeAlias

    from aioloader.storage.remote.opening import Stream
    from aioloader.storage.remote.transport import Version

    ReadForward: TypeAlias = Callable[[int, int], memoryview]

_SEARCHED_AT_A_TIME: Final = 1 << 20
_TICK_NBYTES: Final = 1 << 20


def check_records(
    path: str, version: Version | None, tick: Callable[[int], object] | None = None
) -> Generator[SampleFormatError, None, int]:
    """Read a file and yield each fault of it. Blocking; one record is in memory at a time.

    Behind a damaged head the check continues at the next bytes that are the head of a record. The key of a fault is the
    number of its record; behind a damaged head it is None, because that number is not known.

    Args:
        path: the file, or its URL.
        version: of the object if `path` is a URL.
        tick: called now and then with the number of bytes read so far.

    Returns:
        the number of records without a fault.

    Raises:
        MissingPackageError: google-crc32c is not installed.
        OSError: the file cannot be read.
    """
    crc32c = crc32c_function()
    name = redact_url(path)
    valid = 0
    number: int | None = 0
    ticked = 0
    with _opened_in_order(path, version) as (nbytes, read):
        at = 0
        try:
            while at < nbytes:
                if tick is not None and at - ticked >= _TICK_NBYTES:
                    ticked = at
                    tick(at)
                key = None if number is None else str(number)
                head = read(at, min(HEAD_NBYTES, nbytes - at))
                fault = _head_fault(head, name, at, nbytes, key)
                if fault is not None:
                    yield fault
                    following = _next_head(read, at + 1, nbytes)
                    if following is None:
                        break
                    at, number = following, None
                    continue
                length, _ = HEAD.unpack(head)
                data = read(at, length + FRAME_NBYTES)
                try:
                    check_payload(data, crc32c, path=name, offset=at, key=key)
                    _check_example(data[HEAD_NBYTES : HEAD_NBYTES + length], name, at, key)
                except SampleFormatError as error:
                    yield error
                else:
                    valid += 1
                at += length + FRAME_NBYTES
                number = None if number is None else number + 1
        except SampleFormatError as shrank:  # of `read`; those of records are yielded above
            yield shrank
            return valid
        if tick is not None:
            tick(nbytes)
    return valid


def _head_fault(
    head: memoryview, path: str, at: int, nbytes: int, key: str | None
) -> SampleFormatError | None:
    if len(head) < HEAD_NBYTES:
        return truncated(path, at, FRAME_NBYTES, len(head), key)
    length, crc = HEAD.unpack(head)
    fault = head_fault(length, crc, path=path, offset=at, key=key, held=nbytes - at)
    if fault is not None and at == 0:
        kind = compression_of(bytes(head))
        if kind is not None:
            return compressed(kind, path)
    return fault


def _check_example(payload: memoryview, path: str, at: int, key: str | None) -> None:
    place = at
    try:
        if len(payload):
            feature_values(payload, wanted_features(None))
            return
        reason = "it is empty"
    except MessageFault as fault:
        reason, place = fault.reason, at + HEAD_NBYTES + fault.at
    raise SampleFormatError(f"the record is no tf.train.Example: {reason}", path=path, offset=place, key=key)


def _next_head(read: ReadForward, at: int, nbytes: int) -> int | None:
    """Return the first place, from one on, of a record that ends inside the file; None if there is none."""
    while nbytes - at >= FRAME_NBYTES:
        data = read(at, min(_SEARCHED_AT_A_TIME, nbytes - at))
        for place in find_heads(np.frombuffer(data, np.uint8), MOST_PAYLOAD).tolist():
            length, _ = HEAD.unpack_from(data, place)
            if at + place + length + FRAME_NBYTES <= nbytes:
                return int(at + place)
        at += len(data) - HEAD_NBYTES + 1
    return None


@contextmanager
def _opened_in_order(path: str, version: Version | None) -> Iterator[tuple[int, ReadForward]]:
    """Return a context manager of the size of a file or object, and of a function that reads forward in it."""
    if version is None:
        with opened_regular(path) as (nbytes, read):
            yield nbytes, lambda offset, nbytes: memoryview(read(offset, nbytes))
        return
    from aioloader.storage.remote.opening import BlockingObject, Stream

    with closing(BlockingObject(path)) as source, closing(Stream(source)) as stream:
        yield stream.size(), partial(_read_in_order, stream)


def _read_in_order(stream: Stream, offset: int, nbytes: int) -> memoryview:
    return memoryview(stream.read_ranges([(offset, nbytes)])[0])
