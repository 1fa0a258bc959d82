"""Lists of the members of a tar that other programs wrote. Pure: the caller reads.

A list is used only if its members fill the tar without a gap, up to the blocks of zeros at its end: then none is
missing. In front of each member is its header, or a PAX header and its header, the same for all: Python's tarfile, and
so WebDataset, writes a PAX header for each time of modification with a fraction. Lists of tars with directories, links
or other extended headers are not complete. The headers of some members are compared with the list, too, because the tar
may have been written again since then.
"""

from __future__ import annotations

import asyncio
import contextlib
import json
import os
from functools import partial
from typing import TYPE_CHECKING, Any, Final, NamedTuple

from aioloader.errors import RemoteReadError
from aioloader.formats.tar.header import BLOCK, padded
from aioloader.formats.tar.members import PLAIN, TarChain, TarMembers
from aioloader.formats.tar.samples import TarSamples, group_members, samples_of_arrays
from aioloader.formats.tar.scan import TarLane, TarScan
from aioloader.foundation.stacks import warn_caller
from aioloader.sample_index import SampleIndex, open_index
from aioloader.storage.local.descriptors import open_regular, opened_regular, read_into
from aioloader.storage.urls import beside, redact_url

if TYPE_CHECKING:
    from collections.abc import Callable, Iterable, Sequence

    from aioloader.storage.remote.client import Client
    from aioloader.storage.remote.source import HeldObjects
    from aioloader.storage.remote.transport import Version


def follow(scan: TarScan, url: str, version: Version, tick: Callable[[int], object] | None = None) -> None:
    """Read what a scan wants, until nothing is left. Blocking.

    Ctrl-C and errors end all requests before the call returns.

    Args:
        scan: the scan; it is called in one thread.
        url: the object.
        version: of the object; another one is an error.
        tick: called after each answer with the number of bytes of the object that are known.

    Raises:
        RemoteReadError: the object cannot be read.
        ObjectChangedError: it was replaced.
    """
    from aioloader.storage.remote.opening import client_and_thread

    with client_and_thread() as (client, thread):
        thread.call(partial(_follow, client, scan, url, version, tick))


async def _follow(
    client: Client, scan: TarScan, url: str, version: Version, tick: Callable[[int], object] | None
) -> None:
    from aioloader.storage.remote.transport import ObjectRange

    async def run(lane: TarLane) -> None:
        while wanted := lane.wants:
            ranges = [ObjectRange(url, offset, length, version) for offset, length in wanted]
            lane.take(await client.get(ranges, _TIMEOUT_S))
            if tick is not None:
                tick(scan.reached)
        for further in scan.settle():
            tasks.create_task(run(further))

    try:
        async with asyncio.TaskGroup() as tasks:
            for lane in scan.begin():
                tasks.create_task(run(lane))
    except BaseExceptionGroup as failures:
        raise failures.exceptions[0] from None


_HEADS: Final = (BLOCK, 3 * BLOCK)
_COMPARED: Final = 8
_MOST_TAIL_NBYTES: Final = (1 << 20) + BLOCK


class ListFault(ValueError):
    """Error raised for a list that is damaged, or is not that of the tar; its text is the reason."""


class ListedMember(NamedTuple):
    """Member of a tar in a list.

    Attributes:
        name: of the member.
        data: offset of its data.
        size: bytes of its data.
    """

    name: bytes
    data: int
    size: int


def listed_members(listed: Sequence[ListedMember], nbytes: int) -> TarMembers | None:
    """Return the members in a list, in the order of the file; None if the list is not complete.

    Args:
        listed: in any order.
        nbytes: of the tar.

    Raises:
        ListFault: members are outside of the file, overlap or do not begin at a block.
    """
    members = TarMembers()
    at, head = 0, min((member.data for member in listed), default=0)
    is_complete = head in _HEADS
    for name, data, size in sorted(listed, key=lambda member: member.data):
        if data % BLOCK or data - BLOCK < at or size < 0 or data + size > nbytes:
            raise ListFault(
                f"the {size} bytes at {data} cannot be a member: the tar has {nbytes} bytes, and the member before "
                f"ends at {at}"
            )
        is_complete = is_complete and data - head == at
        members.add(name, data - head, data, size, PLAIN)
        at = data + padded(size)
    return members if is_complete and 0 < nbytes - at <= _MOST_TAIL_NBYTES else None


def compared_ranges(members: TarMembers, nbytes: int) -> list[tuple[int, int]]:
    """Return offset and length of the ranges of a tar to compare with a list: headers of some members, and the end.

    Args:
        members: in the list, one or more.
        nbytes: of the tar.
    """
    end = _end(members)
    heads = [
        (members.begins[row], members.data[row] - members.begins[row]) for row in _compared_rows(members)
    ]
    return [*heads, (end, nbytes - end)]


def compare_members(members: TarMembers, nbytes: int, parts: Sequence[bytes]) -> None:
    """Compare a list with the tar.

    Args:
        members: in the list.
        nbytes: of the tar.
        parts: the bytes of `compared_ranges`.

    Raises:
        ListFault: a member is another one than in the list, or more members follow.
    """
    for row, head in zip(_compared_rows(members), parts, strict=False):
        begin = members.begins[row]
        wanted = tuple(column[row] for column in members.columns)
        chain = TarChain("", nbytes, begin, begin + 1)
        if len(head) == members.data[row] - begin:
            chain.take(head, begin)
        chain.check()
        if chain.fault is not None or list(zip(*chain.members.columns, strict=True)) != [wanted]:
            raise ListFault(
                f"there is no header of {_shown(members.names[row])}, {members.sizes[row]} bytes, at {begin}"
                + (f": {chain.fault.reason}" if chain.fault is not None else _instead(chain.members))
            )
    chain = TarChain("", nbytes, _end(members))
    chain.take(parts[-1], chain.at)
    if not chain.ended or len(chain.members):
        raise ListFault(f"the tar does not end at {_end(members)}, where the last member in the list does")


def _compared_rows(members: TarMembers) -> list[int]:
    """Return the numbers of some members: pairs of neighbours, spread over the file."""
    last = len(members) - 1
    rows = {number * last // (_COMPARED - 1) for number in range(_COMPARED)}
    return sorted(rows | {min(row + 1, last) for row in rows})


def _end(members: TarMembers) -> int:
    return members.data[-1] + padded(members.sizes[-1])


def _instead(found: TarMembers) -> str:
    return f", but of {_shown(found.names[0])}, {found.sizes[0]} bytes" if len(found) else ""


def _shown(name: bytes) -> str:
    return repr(name[:200].decode("utf-8", "replace"))


_VERSION: Final = b"v1.2"
_WORDS: Final = 4
_MOST_DIGITS: Final = 18
_MOST_HEAD: Final = 64


def parse_wds2idx(data: bytes) -> list[ListedMember] | None:
    """Return the members in an index; None for a file of another kind, or one of version 1.1.

    Args:
        data: the file.

    Raises:
        ListFault: it is damaged, or a name contains spaces, or characters that tar writes in another way.
    """
    head = data[:_MOST_HEAD].partition(b"\n")[0].split(b" ")
    if len(head) != 2 or head[0] != _VERSION:
        return None
    count = _listed_number(head[1], "the number of samples")
    lines = data.split(b"\n")
    if lines[-1] or len(lines) != count + 2:
        raise ListFault(
            f"it has {len(lines) - 2} lines, and {count} according to the first: it was truncated"
        )
    found: list[ListedMember] = []
    for number, line in enumerate(lines[1:-1], 2):
        words = line.split(b" ")
        if len(words) % _WORDS:
            raise ListFault(f"line {number} is malformed, or a name in it contains a space")
        for place in range(0, len(words), _WORDS):
            extension, offset, nbytes, name = words[place : place + _WORDS]
            if b"\\" in name:
                raise ListFault(f"a name in line {number} has an escape sequence")
            if not name.endswith(extension) or not name:
                raise ListFault(f"line {number} is malformed: a name does not end with its extension")
            found.append(
                ListedMember(
                    name, _listed_number(offset, f"line {number}"), _listed_number(nbytes, f"line {number}")
                )
            )
    return found


def _listed_number(word: bytes, where: str) -> int:
    if not word.isdigit() or len(word) > _MOST_DIGITS:
        raise ListFault(f"{where}: {word[:40].decode('ascii', 'replace')!r} is not a number")
    return int(word)


_NAMES: Final = ("path", "filename", "fname")
_SIZES: Final = ("length", "size")
_MOST: Final = 1 << 60
# What is written where a name is not UTF-8.
_REPLACED: Final = "\ufffd"


def parse_webshart(data: bytes, nbytes: int) -> list[ListedMember] | None:
    """Return the members in an index; None for a file of another kind.

    Args:
        data: the file.
        nbytes: of the tar.

    Raises:
        ListFault: it is damaged, or that of a tar of another size.
    """
    # Any program may have written a file of this name: only one with these words can be an index.
    if data.lstrip()[:1] != b"{" or b'"files"' not in data or b'"offset"' not in data:
        return None
    try:
        described = json.loads(data)
    except (ValueError, RecursionError) as error:
        raise ListFault(f"it is not JSON: {error}") from None
    if not isinstance(described, dict) or not isinstance(described.get("files"), dict | list):
        return None
    total = described.get("filesize", 0)
    if total not in (0, nbytes):
        raise ListFault(f"it is that of a tar of {str(total)[:40]} bytes, and the tar has {nbytes}")
    return [
        ListedMember(_name(name), _number_of(entry, ("offset",)), _number_of(entry, _SIZES))
        for name, entry in _entries(described["files"])
    ]


def _entries(files: dict[str, Any] | list[Any]) -> Iterable[tuple[Any, dict[str, Any]]]:
    pairs = files.items() if isinstance(files, dict) else ((None, entry) for entry in files)
    for name, entry in pairs:
        if not isinstance(entry, dict):
            raise ListFault("an entry is not an object")
        yield _value(entry, _NAMES) if name is None else name, entry


def _value(entry: dict[str, Any], names: Iterable[str]) -> Any:
    return next((entry[name] for name in names if name in entry), None)


def _name(name: Any) -> bytes:
    if not isinstance(name, str) or not name or _REPLACED in name:
        raise ListFault(f"{str(name)[:40]!r} is not the name of a member")
    try:
        return name.encode()
    except UnicodeEncodeError:
        raise ListFault("a name is not UTF-8") from None


def _number_of(entry: dict[str, Any], names: Iterable[str]) -> int:
    value = _value(entry, names)
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ListFault(f"{str(value)[:40]!r} is not an offset or a number of bytes")
    return value


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
    with opened_regular(path) as (_, read):
        return [read(*each) for each in ranges]


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


# Earlier kinds lack the places of the data of hard links.
KIND: Final = "tar-4"
# The header of a label behind an image, its data and the next header.
_LEAST_READ_NBYTES: Final = 2048
_MOST_READ_NBYTES: Final = 256 << 10
# Copying a gap of this size takes about as long as another read.
_SMALL_GAP: Final = 8 << 10
_TICK_NBYTES: Final = 64 << 20


def tar_samples(
    path: str,
    version: Version | None,
    tick: Callable[[int], object] | None = None,
    held: HeldObjects | None = None,
) -> TarSamples:
    """Return the samples of a tar. Blocking.

    Args:
        path: the file, or its URL.
        version: of the object if `path` is a URL.
        tick: called now and then with the number of bytes whose samples are known, if there is no index.
        held: gets the bytes of an object that is read whole; None: they are forgotten.

    Raises:
        OSError: the file cannot be read.
        SampleFormatError: it is damaged, truncated or compressed.
    """

    def make() -> SampleIndex:
        return _index(tar_members(path, version, tick, held, partial(members_of_lists, path, version)))

    index = open_index(path, version, KIND, make)
    # The checksum of the index shows damage, not that another program wrote something else.
    samples = samples_of_arrays(index.arrays) or group_members(tar_members(path, version, tick))
    if held is not None:
        held.expect(path, int(samples.length.sum()))
    return samples


def scan_tar(path: str, version: Version | None, tick: Callable[[int], object] | None = None) -> SampleIndex:
    """Scan a tar for its samples and return their index. Blocking.

    Args:
        path, version, tick: as for `tar_samples`.

    Raises:
        OSError, SampleFormatError: as for `tar_samples`.
    """
    return _index(tar_members(path, version, tick))


def _index(members: TarMembers) -> SampleIndex:
    return SampleIndex(KIND, group_members(members)._asdict())


def tar_members(
    path: str,
    version: Version | None,
    tick: Callable[[int], object] | None = None,
    held: HeldObjects | None = None,
    listed: Callable[[], TarMembers | None] = lambda: None,
) -> TarMembers:
    """Scan a tar and return its members. Blocking.

    Only headers are read, except of an object with members so small that reading their data is cheaper than another
    request (`stream_of_small`).

    Args:
        path, version, tick, held: as for `tar_samples`.
        listed: returns the members by a list next to the tar, for which it is not scanned; None without one.

    Raises:
        OSError, SampleFormatError: as for `tar_samples`.
    """
    if version is None:
        members = listed()
        if members is not None:
            return members
        with opened_regular(path) as (size, read):
            return _scan_in_order(TarChain(path, size), read, tick)

    scan = TarScan(redact_url(path), version.nbytes)
    if version.nbytes:
        from aioloader.storage.remote.opening import stream_of_small

        with stream_of_small(path, version, scan.take_first, held, listed) as (members, stream):
            if members is not None:
                return members
            if stream is not None:
                return _scan_in_order(TarChain(stream.path, version.nbytes), stream.read, tick)
    follow(scan, path, version, tick)
    return scan.members()


def _scan_in_order(
    chain: TarChain, read: Callable[[int, int], bytes], tick: Callable[[int], object] | None
) -> TarMembers:
    usual, ticked = _LEAST_READ_NBYTES, 0
    while not chain.done:
        begin = chain.at
        nbytes = min(max(chain.needs, usual), chain.nbytes - begin)
        chain.take(read(begin, nbytes), begin)
        # Of small members, much is read at once.
        is_near = chain.at - begin - nbytes < _SMALL_GAP
        usual = min(2 * usual, _MOST_READ_NBYTES) if is_near else _LEAST_READ_NBYTES
        if tick is not None and chain.at - ticked >= _TICK_NBYTES:
            ticked = chain.at
            tick(ticked)
    chain.check()
    if chain.fault is not None:
        raise chain.fault
    return chain.members
