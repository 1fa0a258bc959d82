"""Chain of the members of a tar, found by their headers alone. Pure: the caller reads.

A header begins where the data of the member before it end, so headers are found one after the other.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Final

from aioloader.errors import SampleFormatError
from aioloader.formats.tar.header import (
    BLOCK,
    DEVICES,
    DIRECTORY,
    GLOBAL,
    HARD_LINK,
    LONG_LINK,
    LONG_NAME,
    MOST_EXTENDED_NBYTES,
    PAX,
    REGULAR,
    SPARSE,
    SYMBOLIC_LINK,
    WITHOUT_DATA,
    ZEROS,
    HeaderFault,
    TarHeader,
    compression_of,
    link_name,
    padded,
    parse_header,
    parse_pax,
    plain_names,
    sparse_continues,
)

if TYPE_CHECKING:
    from collections.abc import Iterable

PLAIN: Final = 0
"""State of a member whose name and size are in its header."""
EXTENDED: Final = 1
"""State of a member whose name or size is in an extended header."""
HOLED: Final = 2
"""State of a sparse file: its data are stored without its holes."""
FOLDER: Final = 3
"""State of a directory."""
LINKED: Final = 5
"""State of a hard link whose data were not found: they are those of another member."""
SYMLINKED: Final = 6
"""State of a symbolic link."""
SPECIAL: Final = 7
"""State of a device or a pipe."""
UNKNOWN: Final = 8
"""State of a member of an unknown type."""
IGNORED: Final = frozenset((FOLDER, SYMLINKED, SPECIAL, UNKNOWN))
"""States of the members that belong to no sample, regardless of their names."""

_CHECKED_AT_A_TIME: Final = 512
_MOST_EXTENDED: Final = 64
_MOST_SPARSE_NBYTES: Final = 1 << 20
# Programs fill the last record of an archive with zeros, usually of 10,240 bytes, at most of 1 MiB: another archive
# would begin behind them. Of most files a few blocks are left here.
_TAIL_NBYTES: Final = (1 << 20) + BLOCK


@dataclass
class TarMembers:
    """Members of a tar, in the order of the file.

    Attributes:
        names: of each member, with the extended headers applied.
        begins: offset of the first header of each, extended ones included.
        data: offset of the data of each.
        sizes: bytes of the data of each.
        states: `PLAIN`, `EXTENDED`, `HOLED`, `LINKED` or one of `IGNORED`.
        links: name that each hard link refers to, by the number of the link.
    """

    names: list[bytes] = field(default_factory=list)
    begins: list[int] = field(default_factory=list)
    data: list[int] = field(default_factory=list)
    sizes: list[int] = field(default_factory=list)
    states: list[int] = field(default_factory=list)
    links: dict[int, bytes] = field(default_factory=dict)

    def __len__(self) -> int:
        return len(self.begins)

    @property
    def columns(self) -> Iterable[list[bytes] | list[int]]:
        """Return all columns, one element for each member."""
        return self.names, self.begins, self.data, self.sizes, self.states

    def add(self, name: bytes, begin: int, data: int, size: int, state: int) -> None:
        """Add a member."""
        self.names.append(name)
        self.begins.append(begin)
        self.data.append(data)
        self.sizes.append(size)
        self.states.append(state)

    def join(self, other: TarMembers, first: int = 0) -> None:
        """Add the members of another part of the file, from number `first` on."""
        shift = len(self) - first
        self.links.update((number + shift, link) for number, link in other.links.items() if number >= first)
        self.names += other.names[first:]
        self.begins += other.begins[first:]
        self.data += other.data[first:]
        self.sizes += other.sizes[first:]
        self.states += other.states[first:]


@dataclass
class _Extended:
    """Extended headers in front of a member.

    Attributes:
        begin: offset of the first.
        count, nbytes: their number, and the bytes of their data.
        name, size, sparse, link: what they say; None where they say nothing. Of several, the first counts, as in
            Python's tarfile.
    """

    begin: int
    count: int = 0
    nbytes: int = 0
    name: bytes | None = None
    size: int | None = None
    sparse: bool = False
    link: bytes | None = None


class TarChain:
    """Consecutive members of a tar.

    Args:
        path: of the file, for errors.
        nbytes: of the file.
        begin: offset of the first header.
        end: headers from this offset on are not followed; None: the end of the file.

    Attributes:
        members: the members so far; complete when `check` was called, or at the end.
        at: offset of the next header.
        needs: bytes from there on that the next step needs.
        ended: the end of the archive was found.
        fault: why the chain ends before `end`; the members before it are valid.
    """

    def __init__(self, path: str, nbytes: int, begin: int = 0, end: int | None = None) -> None:
        self.path = path
        self.nbytes = nbytes
        self.at = begin
        self.end = nbytes if end is None else end
        self.needs = BLOCK
        self.members = TarMembers()
        self.ended = False
        self.fault: SampleFormatError | None = None
        self._extended: _Extended | None = None
        # The last plain members, whose headers have not been checked: many are checked at a time.
        self._begins: list[int] = []
        self._sizes: list[int] = []
        self._blocks: list[bytes] = []
        self._look_for_end()

    @property
    def done(self) -> bool:
        """Return whether the chain has reached its end, or a fault."""
        return self.ended or self.fault is not None or (self.at >= self.end and self._extended is None)

    def take(self, data: bytes, begin: int) -> None:
        """Follow the headers in some bytes of the file, as far as they contain them.

        Args:
            data: bytes of the file, at least `needs` from `at` on.
            begin: their offset in the file; a multiple of 512.
        """
        at, last = self.at - begin, len(data) - BLOCK
        end, most = self.end - begin, self.nbytes - begin
        begins, sizes, blocks = self._begins, self._sizes, self._blocks
        while at <= last and (at < end or self._extended is not None):
            # The usual header, without extended ones: all else of it is checked later.
            if data[at + 156] == 48 and self._extended is None:
                try:
                    size = int(data[at + 124 : at + 136].rstrip(b"\0 "), 8)
                except ValueError:
                    size = -1
                behind = at + BLOCK + (size + 511 & -512)
                if size >= 0 and behind <= most:
                    begins.append(at + begin)
                    sizes.append(size)
                    blocks.append(data[at : at + BLOCK])
                    at = behind
                    if len(begins) >= _CHECKED_AT_A_TIME:
                        self.check()
                        if self.fault is not None:
                            return
                    continue
            self.check()
            if self.fault is not None:
                return
            self.at = at + begin
            if not self._step(data, at) or self.ended or self.fault is not None:
                return
            at = self.at - begin
        self.at = at + begin
        self._look_for_end()
        if self.done:
            self.check()

    def join(self, later: TarChain, first: int) -> None:
        """Go on with the members of another chain of the same file from number `first` on, which begins here."""
        self.members.join(later.members, first)
        self.at, self.end, self.needs = later.at, later.end, later.needs
        self.ended, self.fault = later.ended, later.fault

    def check(self) -> None:
        """Check the headers of the last plain members, and add these members."""
        begins, sizes, blocks = self._begins[:], self._sizes[:], self._blocks[:]
        self._begins.clear()
        self._sizes.clear()
        self._blocks.clear()
        names = plain_names(b"".join(blocks)) if len(blocks) > 4 else [None] * len(blocks)
        for place, name in enumerate(names):
            begin, size = begins[place], sizes[place]
            if name is None:
                header = self._parsed(blocks[place], begin)
                if header is None:
                    return
                if header.size != size:
                    self._fail("the size in the header is not a number", begin)
                    return
                name = header.name
            self.members.add(name, begin, begin + BLOCK, size, PLAIN)

    def _parsed(self, block: bytes, begin: int) -> TarHeader | None:
        """Return the header of a member; None if it is a fault, which is noted."""
        try:
            return parse_header(block)
        except HeaderFault as fault:
            self._fail_header(fault, block, begin)
            return None

    # -- all other headers -------------------------------------------------------------------------------------------

    def _step(self, data: bytes, place: int) -> bool:
        """Follow the header at `at`; return False if more bytes are needed, or at a fault.

        Args:
            data: bytes of the file.
            place: where in them the header begins.
        """
        block = data[place : place + BLOCK]
        if block == ZEROS:
            return self._end(data, place)
        header = self._parsed(block, self.at)
        if header is None:
            return False
        kind = header.kind
        if kind in PAX or kind in (GLOBAL, LONG_NAME, LONG_LINK):
            return self._extend(header, data, place)
        before = self._extended or _Extended(self.at)
        size = header.size if before.size is None else before.size
        name, sparse = before.name, before.sparse
        begin = self.at + BLOCK
        if kind == SPARSE:
            nbytes = self._sparse_map(data, place)
            if not nbytes:
                return False
            begin, sparse = self.at + nbytes, True
        behind = begin + (0 if kind in WITHOUT_DATA else padded(size))
        if behind > self.nbytes:
            self._cut_short(name or header.name, self.at, behind)
            return False
        if kind in REGULAR or kind == SPARSE:
            extended = name is not None or before.size is not None
            state = HOLED if sparse else EXTENDED if extended else PLAIN
        elif kind == HARD_LINK:
            state, size = LINKED, 0
            # An extended header would replace the size of the file.
            if before.size is None and not before.sparse:
                self.members.links[len(self.members)] = before.link or link_name(block)
        else:
            state = _ignored_state(kind)
        self.members.add(name or header.name, before.begin, begin, size, state)
        self._extended = None
        self._go_on(behind)
        return True

    def _go_on(self, at: int) -> None:
        self.at = at
        self.needs = BLOCK
        self._look_for_end()

    def _need(self, nbytes: int) -> bool:
        """Ask for more bytes from `at` on, and return False; a fault if they lie behind the end of the file."""
        if self.at + nbytes > self.nbytes:
            self._cut_short(None, self.at, self.at + nbytes)
        self.needs = nbytes
        return False

    def _extend(self, header: TarHeader, data: bytes, place: int) -> bool:
        """Read an extended header."""
        before = self._extended or _Extended(self.at)
        if before.nbytes + header.size > MOST_EXTENDED_NBYTES or before.count >= _MOST_EXTENDED:
            self._fail(
                "the extended headers of a member are too long",
                self.at,
                expected=f"at most {MOST_EXTENDED_NBYTES} bytes in {_MOST_EXTENDED} headers",
                found=f"{before.nbytes + header.size} bytes in {before.count + 1}",
            )
            return False
        whole = BLOCK + padded(header.size)
        if len(data) - place < whole:
            return self._need(whole)
        content = data[place + BLOCK : place + BLOCK + header.size]
        if header.kind == LONG_NAME:
            before.name = before.name or content.partition(b"\0")[0]
        elif header.kind == LONG_LINK:
            before.link = before.link or content.partition(b"\0")[0]
        else:
            try:
                records = parse_pax(content)
            except HeaderFault as fault:
                self._fail_header(fault, b"", self.at)
                return False
            if header.kind != GLOBAL:
                before.name = before.name or records.path
                before.size = records.size if before.size is None else before.size
                before.sparse = before.sparse or records.sparse
                before.link = before.link or records.link
            elif (records.path, records.size, records.link) != (None, None, None):
                self._fail(
                    "a global header has a name or a size for all members behind it, which is not supported: extract "
                    "the tar and pack the files again",
                    self.at,
                )
                return False
        before.count += 1
        before.nbytes += header.size
        self._extended = before
        self._go_on(self.at + whole)
        return True

    def _sparse_map(self, data: bytes, place: int) -> int:
        """Return the bytes of the header of a sparse file and of its map; 0 if more bytes are needed, or at a fault."""
        nbytes, first = BLOCK, True
        while sparse_continues(data[place + nbytes - BLOCK : place + nbytes], first=first):
            nbytes, first = nbytes + BLOCK, False
            if nbytes > _MOST_SPARSE_NBYTES:
                self._fail("the map of a sparse file is too long", self.at)
                return 0
            if len(data) - place < nbytes:
                # More than the next block, so that a long map is not read again for each block.
                self._need(max(nbytes, min(2 * nbytes, self.nbytes - self.at)))
                return 0
        return nbytes

    # -- the end -----------------------------------------------------------------------------------------------------

    def _end(self, data: bytes, place: int) -> bool:
        """Check what lies behind the first block of zeros."""
        if self._extended is not None:
            self._fail("the archive ends behind an extended header, which has no member", self.at)
            return False
        tail = min(self.nbytes - self.at, _TAIL_NBYTES)
        if len(data) - place < tail:
            return self._need(tail)
        for step in range(BLOCK, tail - BLOCK + 1, BLOCK):
            block = data[place + step : place + step + BLOCK]
            if block != ZEROS and _is_header(block):
                self._fail(
                    "another archive, or a member, follows behind the end of the archive; several tars that were "
                    "written into one file have to be merged with `tar --concatenate`, or extracted with "
                    "`tar --ignore-zeros` and packed again",
                    self.at + step,
                    expected="nothing",
                    found="a header",
                )
                return False
        if self.nbytes - self.at > tail:
            self._fail(
                "the archive ends here, long before the file does: the file is incomplete, such as a download that was "
                "interrupted, so copy it again; if it is complete, cut it with `truncate`" + self._behind(),
                self.at,
                expected=f"at most {tail} bytes of zeros",
                found=f"{self.nbytes - self.at} bytes",
            )
            return False
        self.ended = True
        return True

    def _look_for_end(self) -> None:
        """Note a fault if the file ends where a header has to be."""
        rest = self.nbytes - self.at
        if rest >= BLOCK or self.ended or self.fault is not None:
            return
        self.check()
        if self.fault is not None:
            return
        if not self.nbytes:
            self._fail("the file is empty; check how it was made or copied", 0)
        elif not rest and self._extended is None:
            self._fail(
                "the file ends without the blocks of zeros that end an archive: it was truncated, or its writer was "
                "not closed. Copy or write it again; if it is complete, add them with "
                "`head -c 1024 /dev/zero >> FILE`" + self._behind(),
                self.at,
                expected=f"{2 * BLOCK} bytes of zeros",
                found="the end of the file",
            )
        else:
            self._cut_short(None, self.at, self.at + BLOCK)

    # -- faults --------------------------------------------------------------------------------------------------------

    def _cut_short(self, name: bytes | None, at: int, behind: int) -> None:
        """Note that the file ends inside a member, whose data would end at `behind`."""
        what = "a header" if name is None else f"the member {_shown(name)}"
        self._fail(
            f"the file ends inside {what}: it was truncated, so copy or write it again"
            + (self._behind() if name is None else ""),
            at,
            name=name,
            expected=f"{behind} bytes",
            found=f"{self.nbytes} bytes",
        )

    def _fail_header(self, fault: HeaderFault, block: bytes, at: int) -> None:
        if at == 0:
            compression = compression_of(block)
            if compression is not None:
                program, command = compression
                self._fail(
                    f"the file is compressed as a whole ({program}), so that no sample can be read without all "
                    f"samples before it: decompress it once with `{command} FILE`. Images in it are compressed already",
                    0,
                )
                return
            self._fail(f"this is not a tar file: {fault}", 0, expected=fault.expected, found=fault.found)
            return
        self._fail(
            f"there is no header of a member here: {fault}{self._behind()}. The file is damaged: copy or write it "
            "again; `aioloader verify FILE` lists every fault",
            at,
            expected=fault.expected,
            found=fault.found,
        )

    def _behind(self) -> str:
        """Return the words for the last valid member."""
        names = self.members.names
        return f" (behind the member {_shown(names[-1])})" if names else ""

    def _fail(
        self,
        reason: str,
        at: int,
        *,
        name: bytes | None = None,
        expected: str | None = None,
        found: str | None = None,
    ) -> None:
        self.at = at
        self.fault = SampleFormatError(
            reason,
            path=self.path,
            offset=at,
            key=None if name is None else name.decode("utf-8", "surrogateescape"),
            expected=expected,
            found=found,
        )


_MOST_SHOWN: Final = 200


def _ignored_state(kind: int) -> int:
    if kind in DEVICES:
        return SPECIAL
    return {DIRECTORY: FOLDER, SYMBOLIC_LINK: SYMLINKED}.get(kind, UNKNOWN)


def _is_header(block: bytes) -> bool:
    try:
        parse_header(block)
    except HeaderFault:
        return False
    return True


def _shown(name: bytes) -> str:
    text = name.decode("utf-8", "surrogateescape")
    return repr(text if len(text) <= _MOST_SHOWN else f"{text[:_MOST_SHOWN]}...")
