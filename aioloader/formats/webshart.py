"""Indexes of tars that the program webshart writes, and others of that layout. Pure.

The file is JSON: an object with ``files``, and ``filesize``, the size of the tar. ``files`` is an object with an entry
for each name, or a list of entries with ``path``, ``filename`` or ``fname``; an entry has ``offset``, that of the data,
and ``length`` or ``size``. The source is webshart's documentation, and the files that its version 0.4 writes.
"""

from __future__ import annotations

import json
from typing import TYPE_CHECKING, Any, Final

from aioloader.formats.tar_lists import ListedMember, ListFault

if TYPE_CHECKING:
    from collections.abc import Iterable

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
        ListedMember(_name(name), _number(entry, ("offset",)), _number(entry, _SIZES))
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


def _number(entry: dict[str, Any], names: Iterable[str]) -> int:
    value = _value(entry, names)
    if type(value) is not int or not 0 <= value <= _MOST:
        raise ListFault(f"{str(value)[:40]!r} is not an offset or a number of bytes")
    return value
