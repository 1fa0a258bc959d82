"""Indexes of tars that DALI's program ``wds2idx`` writes. Pure.

The file is text: ``v1.2 N`` in the first line, and a line for each of the N samples, with extension, offset of the
data, their bytes and name of each member, separated by spaces. Version 1.1 has no names. The source is the
documentation of `nvidia.dali.fn.readers.webdataset`, and the files that the program of DALI 2.4 writes.
"""

from __future__ import annotations

from typing import Final

from aioloader.formats.tar_lists import ListedMember, ListFault

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
    count = _number(head[1], "the number of samples")
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
                ListedMember(name, _number(offset, f"line {number}"), _number(nbytes, f"line {number}"))
            )
    return found


def _number(word: bytes, where: str) -> int:
    if not word.isdigit() or len(word) > _MOST_DIGITS:
        raise ListFault(f"{where}: {word[:40].decode('ascii', 'replace')!r} is not a number")
    return int(word)
