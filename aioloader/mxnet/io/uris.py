"""Files that an argument such as `data_csv` names."""

from __future__ import annotations

import os
import re

from aioloader.mxnet.base import MXNetError


def files_of(uri: str) -> list[str]:
    """Return the paths of local files, in order.

    Args:
        uri: a path or ``file://`` URL; several, separated by ";"; a folder, which means the non-empty files in it,
            sorted by name; or, if nothing has that name, a folder and a regular expression for names in it. MXNet takes
            the text after a "#" as the name of a cache file; it is ignored here.

    Raises:
        MXNetError: there is no such file.
    """
    found: list[str] = []
    for path in local_paths(uri):
        if os.path.isdir(path):
            files = [os.path.join(path, name) for name in sorted(os.listdir(path))]
            found += [file for file in files if os.path.isfile(file) and os.path.getsize(file)]
        elif os.path.exists(path):
            found.append(path)
        else:
            found += _matching(path)
    if not found:
        raise MXNetError(f"Cannot find any files that matches the URI pattern {uri}")
    return found


def local_paths(uri: str) -> list[str]:
    """Return the parts of such an argument as paths of files, folders and patterns, without blank ones."""
    parts = [part.partition("#")[0].removeprefix("file://") for part in uri.split(";")]
    return [part for part in parts if part.strip()]


def _matching(path: str) -> list[str]:
    folder, pattern = os.path.split(path)
    try:
        names = sorted(os.listdir(folder or "."))
        found = [os.path.join(folder, name) for name in names if re.fullmatch(pattern, name)]
    except (FileNotFoundError, NotADirectoryError, re.error):
        found = []
    if not found:
        raise MXNetError(f"Cannot find any files that matches the URI pattern {path}")
    return found
