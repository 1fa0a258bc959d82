"""Names of record files: shards, patterns and lists."""

from __future__ import annotations

import glob
import os
import re
from typing import TYPE_CHECKING

from aioloader.datasets.brace_patterns import expand_braces, has_braces
from aioloader.storage.urls import can_list, is_hub, is_url, path_of
from recordio import RecordFileNotFoundError

if TYPE_CHECKING:
    from collections.abc import Sequence

_SHARD = re.compile(r"(.*)-(\d{5,})-of-(\d{5,})\.rec", re.DOTALL)


def shard_name(name: str) -> tuple[str, int, int] | None:
    """Parse the name of a shard, NAME-00000-of-00004.rec.

    Args:
        name: name or path of a file.

    Returns:
        name of the set, number of the shard, number of shards; None for any other name.
    """
    found = _SHARD.fullmatch(name)
    return None if found is None else (found[1], int(found[2]), int(found[3]))


def is_pattern(path: str) -> bool:
    """Return True if a path is a pattern (``*``, ``?``, ``[...]``, ``{...}``) and not the name of an existing file.

    Of URLs of HTTP only braces count: ``?`` begins a query there, and a server cannot list its files.

    Raises:
        ValueError: its braces mean too many names; see `expand_braces`.
    """
    if is_url(path):
        return (can_list(path) and glob.has_magic(path)) or has_braces(_split_query(path)[0])
    if not (glob.has_magic(path) or "{" in path) or os.path.exists(path):
        return False
    return glob.has_magic(path) or has_braces(path)


def pinned_paths(paths: Sequence[str]) -> Sequence[str]:
    """Return paths; in URLs of the Hugging Face Hub with the commits that their revisions have now.

    Raises:
        OSError: the Hub does not answer, or there is no such data set.
        ValueError: a URL does not name a data set.
    """
    if not any(map(is_hub, paths)):
        return paths
    from aioloader.storage.remote.opening import pin_urls

    return pin_urls(paths)


def pinned_path(path: str) -> str:
    """Return one path, as `pinned_paths` does."""
    return pinned_paths([path])[0]


def record_files(filename: str | os.PathLike[str] | Sequence[str | os.PathLike[str]]) -> tuple[str, ...]:
    """Return the record files that an argument names.

    Args:
        filename: a file or a URL; or a pattern; or several of these, in that order. Braces (`expand_braces`) name
            files in their order, and each of them must exist. ``*``, ``?`` and ``[...]`` match files, which are sorted
            by name; not over HTTP, which lists none. A local file of exactly that name is not taken for a pattern. The
            existence of URLs without ``*``, ``?`` and ``[...]`` is not checked.

    Returns:
        paths and URLs; those of the Hugging Face Hub with commits as revisions.

    Raises:
        FileNotFoundError: there is no such file, or no file matches the pattern.
        OSError: a store cannot be listed, or the Hub does not answer.
        ValueError: the list of files is empty, a pattern means too many files, or a URL is malformed.
    """
    given = [filename] if isinstance(filename, (str, os.PathLike)) else filename
    paths = [name for each in given for name in _expanded(path_of(each))]
    if not paths:
        raise ValueError("the list of files is empty: pass at least one")
    return tuple(name for path in pinned_paths(paths) for name in _matching(path))


def _expanded(path: str) -> list[str]:
    """Expand the braces of a path."""
    if not is_url(path):
        return [path] if "{" not in path or os.path.exists(path) else expand_braces(path)
    text, query = _split_query(path)
    return [name + query for name in expand_braces(text)]


def _split_query(url: str) -> tuple[str, str]:
    """Split a URL of HTTP before its query, whose braces are ordinary characters; other URLs have none."""
    text, mark, query = (url, "", "") if can_list(url) else url.partition("?")
    return text, mark + query


def _matching(path: str) -> Sequence[str]:
    """Return the files that match a path without braces."""
    if is_url(path):
        if not (can_list(path) and glob.has_magic(path)):
            return [path]
        from aioloader.storage.remote.opening import list_matching

        found = list_matching(path)
    elif os.path.exists(path):
        return [path]
    elif not glob.has_magic(path):
        raise RecordFileNotFoundError(f"there is no file {path!r}", path=path)
    else:
        found = glob.glob(path)
    if not found:
        raise RecordFileNotFoundError(f"no file matches the pattern {path!r}", path=path)
    return sorted(found)
