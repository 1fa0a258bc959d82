"""Members of tars from the indexes of other programs next to them: those of DALI's wds2idx and of webshart."""

from __future__ import annotations

import contextlib
import os
from functools import partial
from typing import TYPE_CHECKING, Final

from aioloader.errors import RemoteReadError
from aioloader.formats.tar_lists import ListFault, compare_members, compared_ranges, listed_members
from aioloader.formats.wds2idx import parse_wds2idx
from aioloader.formats.webshart import parse_webshart
from aioloader.foundation.caller import warn_caller
from aioloader.storage.local.descriptors import open_regular, read_into
from aioloader.storage.urls import beside, redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.formats.tar_members import TarMembers
    from aioloader.storage.remote.transport import Version

_SUFFIXES: Final = (".idx", ".json")
_MOST_NBYTES: Final = 64 << 20
_TIMEOUT_S: Final = 120.0


def members_of_lists(path: str, version: Version | None) -> TarMembers | None:
    """Return the members of a tar by an index of another program next to it; None if there is none that can be used.

    Such an index, ``NAME.idx`` or ``NAME.json`` next to ``NAME.tar``, is used if it is not older than the tar, lists
    all of the file, and some headers of the tar are those in it. One that is damaged, or is that of another tar, is
    ignored with a warning.

    Args:
        path: the tar, or its URL.
        version: of the object if `path` is a URL.

    Raises:
        OSError: the tar cannot be read.
    """
    return _beside_file(path) if version is None else _beside_object(path, version)


def _beside_file(path: str) -> TarMembers | None:
    for suffix in _SUFFIXES:
        place = os.path.splitext(path)[0] + suffix
        try:
            descriptor = open_regular(place)
        except OSError:
            continue
        try:
            described = os.fstat(descriptor)
            status = os.stat(path)
            if described.st_mtime_ns < status.st_mtime_ns or described.st_size > _MOST_NBYTES:
                continue
            data = _read(descriptor, 0, described.st_size)
        finally:
            os.close(descriptor)
        members = _checked(place, data, status.st_size, partial(_read_file, path))
        if members is not None:
            return members
    return None


def _read(descriptor: int, offset: int, nbytes: int) -> bytes:
    data = memoryview(bytearray(nbytes))
    return bytes(data[: read_into(descriptor, data, offset)])


def _read_file(path: str, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
    descriptor = open_regular(path)
    try:
        return [_read(descriptor, offset, nbytes) for offset, nbytes in ranges]
    finally:
        os.close(descriptor)


def _beside_object(url: str, version: Version) -> TarMembers | None:
    from aioloader.storage.remote.client import OPENING_S
    from aioloader.storage.remote.opening import client_and_thread
    from aioloader.storage.remote.transport import ObjectRange

    places = [beside(url, suffix) for suffix in _SUFFIXES]
    with client_and_thread() as (client, thread):

        def read(url: str, version: Version, ranges: Sequence[tuple[int, int]]) -> list[bytes]:
            wanted = [ObjectRange(url, offset, nbytes, version) for offset, nbytes in ranges]
            return list(thread.call(partial(client.get, wanted, _TIMEOUT_S)))

        found, _ = thread.call(partial(client.describe_all, places, OPENING_S))
        for number, described in sorted(found.items()):
            is_older = described.modified and version.modified and described.modified < version.modified
            # Servers that choose an object by the query of a URL have the tar itself here.
            if is_older or described.same(version) or not 0 < described.nbytes <= _MOST_NBYTES:
                continue
            # An index that cannot be read, or is being replaced, is one that does not exist.
            with contextlib.suppress(RemoteReadError):
                (data,) = read(places[number], described, [(0, described.nbytes)])
                place = redact_url(places[number])
                members = _checked(place, data, version.nbytes, partial(read, url, version))
                if members is not None:
                    return members
    return None


def _checked(
    place: str, data: bytes, nbytes: int, read: Callable[[Sequence[tuple[int, int]]], list[bytes]]
) -> TarMembers | None:
    """Return the members in an index.

    Args:
        place: the index.
        data: its bytes.
        nbytes: of the tar.
        read: reads ranges of the tar.
    """
    try:
        listed = parse_wds2idx(data) if place.endswith(".idx") else parse_webshart(data, nbytes)
        members = None if listed is None else listed_members(listed, nbytes)
        if members is not None:
            compare_members(members, nbytes, read(compared_ranges(members, nbytes)))
        return members
    except ListFault as fault:
        warn_caller(
            f"the index {place} is ignored: {fault}. Make it again, or delete it; the tar is scanned instead",
            UserWarning,
        )
        return None
