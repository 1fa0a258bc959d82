"""Target: tars, and the indexes that other programs write for them.

An input is the length of an index (uint32, little endian), the index, and a tar. The members are compared with those of
reads of another size, of a scan in parts, and of Python's tarfile.
"""

from __future__ import annotations

import io
import json
import struct
import tarfile
import zlib
from random import Random
from typing import Any

import numpy as np

from aioloader.datasets.fields import field_value
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.formats.tar import scan as tar_scan
from aioloader.formats.tar.fields import TarFieldReader, compact_places
from aioloader.formats.tar.header import BLOCK
from aioloader.formats.tar.index import (
    ListedMember,
    ListFault,
    compare_members,
    compared_ranges,
    listed_members,
    parse_wds2idx,
    parse_webshart,
)
from aioloader.formats.tar.members import EXTENDED, HOLED, IGNORED, PLAIN, TarChain, TarMembers
from aioloader.formats.tar.samples import TarSamples, group_members, samples_of_arrays
from aioloader.foundation.types import ItemLocation
from tests.aioloader.formats.tars import (
    END,
    PATH,
    checked,
    filled,
    follow,
    header,
    member,
    pax,
    pax_record,
    read_sample,
    scan_all,
)
from tests.fuzz.target import Draw, Finding, change, dictionary, pick

_LENGTH = struct.Struct("<I")
# The headers that are compared with a list are all headers of a tar with no more members.
_ALL_COMPARED = 8

PIECES = (
    *dictionary("number"),
    *(b"0", b"7777", b"ustar", b"\xff" * 12),
    bytes(BLOCK),
    END,
    header(b"x.jpg"),
    header(b"x.jpg", 1000),
    header(b"x/", 0, b"5"),
    header(b"x.cls", 0, b"1", link=b"a/0.jpg"),
    header(b"x.json", 700, b"1", link=b"./a/0.cls"),
    pax(pax_record(b"linkpath", b"a/0.jpg")),
    member(b"././@LongLink", b"a/0.cls\0", b"K"),
    member(b"././@LongLink", b"n" * 130 + b".jpg\0", b"L"),
    pax(pax_record(b"path", b"p" * 120 + b".jpg")),
    pax(pax_record(b"size", b"600")),
    pax(pax_record(b"path", b"all.jpg"), kind=b"g"),
)
_FIELDS_CHECKED = 4
_SIZES = dictionary("tar-size")
_KINDS = b"01234567xgXLKSV\0"
_NAMES = dictionary("tar-name")
_FIELDS = ("jpg", "cls;json", "npy", "__key__", "txt")


def seeds() -> list[bytes]:
    """Return valid tars of all formats."""
    npy = io.BytesIO()
    np.save(npy, np.arange(3))
    files = [
        ("a/0.jpg", b"x" * 700),
        ("a/0.cls", b"1"),
        ("a/1.jpg", b""),
        ("a/1.json", b'{"a": [1]}'),
        ("n" * 110 + ".jpg", b"y" * 512),
        ("\xe4.npy", npy.getvalue()),
        ("a/0.txt", b"again"),
        ("a/0.TXT", b"twice"),
    ]
    made = []
    for style in (tarfile.USTAR_FORMAT, tarfile.GNU_FORMAT, tarfile.PAX_FORMAT):
        stream = io.BytesIO()
        with tarfile.open(fileobj=stream, mode="w", format=style, encoding="utf-8") as archive:
            for number, (name, data) in enumerate(files):
                if len(name) > 100 and style == tarfile.USTAR_FORMAT:
                    continue
                info = tarfile.TarInfo(name)
                info.size = len(data)
                info.mtime = 0.5 if style == tarfile.PAX_FORMAT and number == 2 else 0
                archive.addfile(info, io.BytesIO(data))
            for name, target in (("l/0.jpg", "./a/0.jpg"), ("l/0.cls", "a/0.cls"), ("l/0.txt", "l/0.jpg")):
                link = tarfile.TarInfo(name)
                link.type, link.linkname = tarfile.LNKTYPE, target
                archive.addfile(link)
            folder = tarfile.TarInfo("folder")
            folder.type = tarfile.DIRTYPE
            archive.addfile(folder)
        made.append(filled(stream.getvalue().rstrip(b"\0")) + END)
    sparse = bytearray(header(b"s.jpg", 4, b"S", magic=b"ustar  \0"))
    sparse[386:410] = b"%011o\0%011o\0" % (0, 4)
    sparse[482], sparse[483:495] = 1, b"%011o\0" % 4
    made.append(checked(bytes(sparse)) + bytes(BLOCK) + filled(b"data") + member(b"s.cls", b"2") + END)
    made.append(b"".join(header(b"%d.jpg" % n, 3, b"\0", magic=b"") + filled(b"abc") for n in range(9)) + END)
    made.append(b"".join(member(b"%d.jpg" % n, b"a" * 300 * n) for n in range(6)) + END)
    made.append(b"".join(member(b"%d.bin" % n, member(b"in.jpg", b"i") + END) for n in range(5)) + END)
    return made


def list_of(members: TarMembers, nbytes: int, draw: Draw) -> bytes:
    """Return an index of the members."""
    facts = list(zip(members.names, members.data, members.sizes, strict=True))
    if draw() < 0.5:
        lines = [b"%s %d %d %s" % (name.rpartition(b".")[2], at, size, name) for name, at, size in facts]
        return b"v1.2 %d\n" % len(lines) + b"".join(line + b"\n" for line in lines)
    files = {name.decode("utf-8", "replace"): {"offset": at, "length": size} for name, at, size in facts}
    return json.dumps({"filesize": nbytes, "files": files}).encode()


class Tars:
    """Tars with faults: a fault is named, or all members are those of Python's tarfile."""

    def __init__(self) -> None:
        self._seeds = seeds()
        # So that these small files are scanned in parts, as large ones are.
        self._constants: dict[str, Any] = {
            "_SHARE": 0.5,
            "_SMALL_GAP": 3 * BLOCK,
            "_FIRST_NBYTES": BLOCK,
            "_LEARNED_NBYTES": 2 * BLOCK,
            "_MOST_RUN_NBYTES": 4 * BLOCK,
            "_SEARCH_NBYTES": BLOCK,
            "_LEAST_RUNS": 1,
        }

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        data = bytearray(pick(draw, self._seeds))
        text = b""
        if draw() < 0.15:
            text = list_of(follow(bytes(data)).members, len(data), draw)
            if draw() < 0.8:
                edited = bytearray(text)
                change(edited, 6, draw, (b" ", b"0", b"512", b"\n", b"-", b"null", b'"'))
                text = bytes(edited)
        for _ in range(int(draw() * 4) if text else pick(draw, (1, 1, 2, 3))):
            self._edit(data, draw)
        return _LENGTH.pack(len(text)) + text + bytes(data)

    def _edit(self, data: bytearray, draw: Draw) -> None:
        """Make one change."""
        kind, count = draw(), len(data) // BLOCK
        if kind < 0.1 or not count:
            change(data, 0, draw, PIECES)
            return
        at = int(draw() * count) * BLOCK
        if kind < 0.3:  # blocks are inserted, removed, exchanged
            way, size = int(draw() * 4), (1 + int(draw() * 3)) * BLOCK
            if way == 0:
                data[at:at] = filled(pick(draw, PIECES))
            elif way == 1:
                del data[at : at + size]
            elif way == 2:
                data[at:at] = data[at : at + size]
            else:
                other = int(draw() * count) * BLOCK
                data[at : at + BLOCK], data[other : other + BLOCK] = (
                    data[other : other + BLOCK],
                    data[at : at + BLOCK],
                )
            return
        begins = [at for at in range(0, count * BLOCK, BLOCK) if data[at + 257 : at + 262] == b"ustar"]
        if begins and draw() < 0.9:
            at = pick(draw, begins)
        block = bytearray(data[at : at + BLOCK])
        way = int(draw() * 7)
        if way == 0:
            block[124:136] = pick(draw, _SIZES)
        elif way == 1:
            block[156] = pick(draw, _KINDS)
        elif way == 2:
            block[:100] = pick(draw, _NAMES).ljust(100, b"\0")
        elif way == 3:
            block[257:265] = pick(draw, (b"ustar\x0000", b"ustar  \0", bytes(8)))
        elif way == 4:
            block[345:347] = pick(draw, (b"p\0", b"p/", b"\0\0"))
        elif way == 5:
            block[482] = 1
        else:
            block[int(draw() * BLOCK)] = int(draw() * 256)
        data[at : at + BLOCK] = checked(bytes(block)) if draw() < 0.9 else block

    # -- checks ----------------------------------------------------------------------------------------------------

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        if len(data) < _LENGTH.size:
            return False
        (length,) = _LENGTH.unpack_from(data)
        text, data = data[_LENGTH.size : _LENGTH.size + length], data[_LENGTH.size + length :]
        chain = follow(data, BLOCK)
        for nbytes in (2048, len(data)):
            _check_same(chain, follow(data, nbytes), f"reads of {nbytes} bytes")
        self._check_scan(chain, data)
        _check_members(chain, data)
        if chain.fault is None:
            _check_python(chain.members, data)
            _check_samples(chain.members, data)
        if text:
            _check_list(text, chain, data)
        return chain.fault is None or len(chain.members) > 0

    def _check_scan(self, chain: TarChain, data: bytes) -> None:
        usual = {name: getattr(tar_scan, name) for name in self._constants}
        vars(tar_scan).update(self._constants)
        try:
            scan = tar_scan.TarScan(PATH, len(data), most_lanes=1 + len(data) % 7)
            found = scan_all(scan, lambda at, count: data[at : at + count], Random(len(data)))
        except SampleFormatError as error:
            if chain.fault is None or str(error) != str(chain.fault):
                raise Finding(f"the scan found {error}, and one pass {chain.fault}") from None
        else:
            if found != chain.members or chain.fault is not None:
                raise Finding("the scan found other members than one pass")
        finally:
            vars(tar_scan).update(usual)


def _check_same(chain: TarChain, other: TarChain, what: str) -> None:
    if chain.members != other.members or str(chain.fault) != str(other.fault):
        raise Finding(f"{what} found other members: {chain.fault}; {other.fault}")


def _check_members(chain: TarChain, data: bytes) -> None:
    fault, at = chain.fault, 0
    if fault is not None and (
        fault.path != PATH or fault.offset is None or not 0 <= fault.offset <= len(data)
    ):
        raise Finding("the error does not name the place")
    for name, begin, place, size, state in zip(*chain.members.columns, strict=True):
        if begin < at or place < begin + BLOCK or (state not in IGNORED and place + size > len(data)):
            raise Finding(f"the member {name!r} is outside of the file, or inside of another")
        at = place


def _check_python(members: TarMembers, data: bytes) -> None:
    """Compare the members with those of tarfile, where it reads the file by the same rules."""
    if any(b"\0" in name for name in members.names):
        raise Finding("a name contains a zero byte")
    found = []
    try:
        with tarfile.open(fileobj=io.BytesIO(data), encoding="utf-8", errors="surrogateescape") as archive:
            for each in archive:
                if each.isreg():
                    name = each.name.encode("utf-8", "surrogateescape")
                    found.append(ListedMember(name, each.offset_data, each.size))
    except (tarfile.TarError, ValueError, OverflowError, EOFError):
        return
    ours = [each for each in zip(*members.columns, strict=True) if each[-1] in {PLAIN, EXTENDED}]
    # It takes the file "" in the folder "a", of an old tar, for a file, and a long name that is empty for a name.
    nameless = {each.data for each in found if each.name[-1:] in {b"", b"/"}}
    nameless |= {each[2] for each in ours if each[0][-1:] in {b"", b"/"}}
    ours = [each for each in ours if each[2] not in nameless]
    found = [each for each in found if each.data not in nameless]
    if HOLED in members.states:
        return
    for (name, _, place, size, state), theirs in zip(ours, found, strict=False):
        # It reads a long name of GNU tar to the end of the block, and not only as many bytes as the header says; and
        # it takes the place of the prefix for one in the headers of GNU tar and of old tars, too.
        same = theirs.name.startswith(name) if state == EXTENDED else theirs.name == name
        if not same and data[place - BLOCK + 257 : place - BLOCK + 263] != b"ustar\0":
            same = theirs.name.endswith(b"/" + name)
        if not same or (theirs.data, theirs.size) != (place, size):
            raise Finding(f"tarfile finds {theirs}, and this {name!r} of {size} bytes at {place}")
    if len(found) > len(ours):
        raise Finding(f"tarfile finds {found[len(ours)]}, and this no more")
    if len(found) < len(ours):
        low, high = (ours[len(found) - 1][1] if found else -1), ours[len(found)][1]
        places = zip(members.begins, members.data, strict=True)
        if all(_are_headers(data, begin, place) for begin, place in places if low < begin <= high):
            raise Finding(f"tarfile does not find {ours[len(found)]}")


def _are_headers(data: bytes, *places: int) -> bool:
    """Return whether tarfile accepts the first and the last header of a member: it ends at one that it does not.

    Args:
        data: the tar.
        places: offset of the first header, and of the data.
    """
    begin, end = places
    try:
        tarfile.TarInfo.frombuf(data[begin : begin + BLOCK], "utf-8", "surrogateescape")
        tarfile.TarInfo.frombuf(data[end - BLOCK : end], "utf-8", "surrogateescape")
    except tarfile.HeaderError:
        return False
    return True


def _check_samples(members: TarMembers, data: bytes) -> None:
    samples = group_members(members)
    again = samples_of_arrays(samples._asdict())
    if again is None:
        raise Finding("the arrays contradict each other")
    if len(samples) and (samples.offset + samples.length > len(data)).any():
        raise Finding("a sample ends behind the file")
    # Takes more time than all else together.
    if zlib.crc32(data) % _FIELDS_CHECKED == 0:
        _check_fields(samples, data)


def _check_fields(samples: TarSamples, data: bytes) -> None:
    """Compare the fields that the index places with those that the headers of the sample have."""
    by_index = TarFieldReader(_FIELDS)
    by_headers = TarFieldReader(())
    extras = compact_places(samples, by_index.groups)
    low = 0
    for row in range(len(samples)):
        high = int(samples.key_ends[row])
        key = samples.key_text[low:high].tobytes().decode("utf-8", "surrogateescape")
        low = high
        span = read_sample(samples, row, data)
        location = ItemLocation(key, PATH, int(samples.offset[row]))
        for field in _FIELDS:
            one = _value(by_index, span, extras[row], location, field)
            other = _value(by_headers, span, None, location, field)
            if field == "__key__" and one != repr(key):
                raise Finding("the key is another one")
            if one != other:
                raise Finding(f"the field {field!r} is {one} by the index, and {other} by the headers")


def _value(reader: TarFieldReader, span: memoryview, extra: Any, location: ItemLocation, field: str) -> str:
    try:
        (value,) = reader.read(span, extra, location, (field,))
        if isinstance(value, memoryview):
            value = bytes(value)
            field_value(memoryview(value), reader.kind(field), field, location)
        return repr(value)
    except (SampleFormatError, MissingFieldError) as error:
        if (error.path, error.key) != (location.path, location.key):
            raise Finding("the error does not name the sample") from None
        return str(error)


def _check_list(text: bytes, chain: TarChain, data: bytes) -> None:
    """Check that a list is not taken, or its members are those of the tar."""
    try:
        listed = parse_wds2idx(text) if text[:1] == b"v" else parse_webshart(text, len(data))
        members = None if listed is None else listed_members(listed, len(data))
        if members is None:
            return
        ranges = compared_ranges(members, len(data))
        compare_members(members, len(data), [data[at : at + nbytes] for at, nbytes in ranges])
    except ListFault as fault:
        if not str(fault):
            raise Finding("the fault is not named") from None
        return
    if len(members) <= _ALL_COMPARED and (members != chain.members or chain.fault is not None):
        raise Finding("the members in the list are not those of the tar")
