"""Lists of the members of a tar that other programs wrote. Pure: the caller reads.

A list is used only if its members fill the tar without a gap, up to the blocks of zeros at its end: then none is
missing. In front of each member is its header, or a PAX header and its header, the same for all: Python's tarfile, and
so WebDataset, writes a PAX header for each time of modification with a fraction. Lists of tars with directories, links
or other extended headers are not complete. The headers of some members are compared with the list, too, because the tar
may have been written again since then.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

from aioloader.formats.tar import BLOCK, padded
from aioloader.formats.tar_members import PLAIN, TarChain, TarMembers

if TYPE_CHECKING:
    from collections.abc import Sequence

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
