"""Crop indexes that lie next to remote record files: copies in the user's cache directory, one for each version.

An index that cannot be fetched, is damaged or far too large costs speed, so it is a warning and no error; that there is
none is neither.
"""

from __future__ import annotations

import os
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aioloader.crop_index.layout import HEADER_NBYTES, RECORDS, read_header
from aioloader.crop_index.places import SUFFIX, fetched_index, record_index
from aioloader.crop_index.reader import CropIndex
from aioloader.errors import CropIndexError, CropIndexWarning
from aioloader.foundation.caller import warn_caller
from aioloader.storage.remote.client import OPENING_S
from aioloader.storage.remote.copies import Copier, ObjectCopy
from aioloader.storage.remote.opening import client_and_thread
from aioloader.storage.urls import beside, redact_url

if TYPE_CHECKING:
    from collections.abc import Sequence

# Share of the record file. The largest entries, with a point for each MCU, have an eighth of their JPEG's bytes.
_MOST_SHARE = 1 / 4
_ALWAYS_ALLOWED_NBYTES = 1 << 20
# A missing object is denied, too, to users who may not list the bucket, and to a signature of another object.
_ABSENT = ("missing", "denied")


def fetch_indexes(urls: Sequence[str], record_nbytes: Sequence[int]) -> list[str | None]:
    """Return the path of the crop index of each remote record file; fetch those whose version is not there yet.

    An index that was made in the cache directory (`aioloader index --crops URL`) comes first.

    Args:
        urls: the record files.
        record_nbytes: their sizes.

    Returns:
        one path for each; None where there is no index.

    Warns:
        CropIndexWarning: an index exists and cannot be fetched or stored, is not a crop index, is damaged, or has more
            than a quarter of the bytes of its record file.
    """
    found: list[str | None] = [path if os.path.exists(path) else None for path in map(record_index, urls)]
    absent = [number for number, path in enumerate(found) if path is None]
    if not absent:
        return found
    places = [beside(urls[number], SUFFIX) for number in absent]
    with client_and_thread() as (client, thread):
        versions, failures = thread.call(partial(client.describe_all, places, OPENING_S))
    for _, failure in sorted(failures.items()):
        if failure.kind not in _ABSENT:
            _warn(failure)
    copies: dict[int, ObjectCopy] = {}
    for place, version in sorted(versions.items()):
        number, url = absent[place], places[place]
        if version.nbytes > max(_ALWAYS_ALLOWED_NBYTES, _MOST_SHARE * record_nbytes[number]):
            sizes = f"{version.nbytes:,} bytes, and its record file only {record_nbytes[number]:,}"
            _warn(CropIndexError(f"it has {sizes}", path=redact_url(url)))
            continue
        copies[number] = ObjectCopy(url, version, Path(fetched_index(urls[number], version)))
    copier = Copier("copies of crop indexes", check_begin=_check_begin, check=_check)
    for (number, copy), error in zip(copies.items(), copier.make(list(copies.values())), strict=True):
        if error is None:
            found[number] = str(copy.path)
        elif isinstance(error, OSError):
            _warn(error)
        else:
            reason = error.reason if isinstance(error, CropIndexError) else str(error)
            _warn(CropIndexError(reason, path=redact_url(copy.url)))
    _remove_others([copy.path for number, copy in copies.items() if found[number] is not None])
    return found


def _check_begin(block: bytes) -> None:
    """Raise LayoutFault unless a file that begins so can be a crop index."""
    read_header(block[:HEADER_NBYTES])


def _check(path: Path) -> None:
    """Raise CropIndexError or OSError unless a file is the complete index of a record file."""
    index = CropIndex(str(path))
    index.close()
    index.check_kind(RECORDS)


def _remove_others(paths: Sequence[Path]) -> None:
    """Remove copies of other versions of indexes; the name of a copy ends with its version."""
    if not paths:
        return
    kept = {path.name.partition("-")[0]: path.name for path in paths}
    with suppress(OSError):
        for other in paths[0].parent.glob(f"*-*{SUFFIX}"):
            if kept.get(other.name.partition("-")[0], other.name) != other.name:
                other.unlink()


def _warn(error: OSError | CropIndexError) -> None:
    warn_caller(f"no crop index is used: {error}", CropIndexWarning)
