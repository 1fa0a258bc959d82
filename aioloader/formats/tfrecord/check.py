"""Check of a whole TFRecord file: the heads and the CRCs of its records, and the examples in them."""

from __future__ import annotations

from contextlib import closing, contextmanager
from functools import partial
from typing import TYPE_CHECKING, Final

import numpy as np

from aioloader.errors import SampleFormatError
from aioloader.formats.tfrecord.example import MessageFault, feature_values, wanted_features
from aioloader.formats.tfrecord.framing import (
    FRAME_NBYTES,
    HEAD,
    HEAD_NBYTES,
    MOST_PAYLOAD,
    check_payload,
    compressed,
    compression_of,
    crc32c_function,
    find_heads,
    head_fault,
    truncated,
)
from aioloader.storage.local.descriptors import opened_regular
from aioloader.storage.urls import redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator
    from typing import TypeAlias

    from aioloader.storage.remote.openers import Stream
    from aioloader.storage.remote.transport import Version

    Read: TypeAlias = Callable[[int, int], memoryview]

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
    with _opened(path, version) as (nbytes, read):
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


def _next_head(read: Read, at: int, nbytes: int) -> int | None:
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
def _opened(path: str, version: Version | None) -> Iterator[tuple[int, Read]]:
    """Return a context manager of the size of a file or object, and of a function that reads forward in it."""
    if version is None:
        with opened_regular(path) as file:
            yield file
        return
    from aioloader.storage.remote.openers import BlockingObject, Stream

    with closing(BlockingObject(path)) as source, closing(Stream(source)) as stream:
        yield stream.size(), partial(_read_object, stream)


def _read_object(stream: Stream, offset: int, nbytes: int) -> memoryview:
    return memoryview(stream.read_ranges([(offset, nbytes)])[0])
