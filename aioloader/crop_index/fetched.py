"""Crop indexes that lie next to remote record files: copies in the user's cache directory, one for each version.

Blocking, as opening a dataset is. An index that cannot be fetched costs speed, so it is a warning and no error; that
there is none is neither.
"""

from __future__ import annotations

import os
import threading
import warnings
from concurrent.futures import ThreadPoolExecutor
from contextlib import suppress
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from aioloader.crop_index.places import SUFFIX, fetched_index, record_index
from aioloader.errors import CropIndexWarning
from aioloader.storage.remote.client import OPENING_S
from aioloader.storage.remote.opening import client_and_thread, download
from aioloader.storage.urls import beside, redact_url
from recordio._partial_files import published

if TYPE_CHECKING:
    from collections.abc import Sequence

_FETCHED_AT_A_TIME = 8
# A missing object is denied, too, to users who may not list the bucket, and to a signature of another object.
_ABSENT = ("missing", "denied")
_one_call = threading.Lock()


def fetch_indexes(urls: Sequence[str]) -> list[str | None]:
    """Return the path of the crop index of each remote record file; fetch those whose version is not there yet.

    An index that was made in the cache directory (`aioloader index --crops URL`) comes first.

    Args:
        urls: the record files.

    Returns:
        one path for each; None where there is no index.

    Warns:
        CropIndexWarning: an index exists and cannot be fetched or stored.
    """
    found: list[str | None] = [path if os.path.exists(path) else None for path in map(record_index, urls)]
    absent = [number for number, path in enumerate(found) if path is None]
    if not absent:
        return found
    places = [beside(urls[number], SUFFIX) for number in absent]
    with client_and_thread() as (client, thread):
        versions, failures = thread.call(partial(client.describe_all, places, OPENING_S))
    for place, error in failures.items():
        if error.kind not in _ABSENT:
            _warn(places[place], error)
    paths = {place: fetched_index(urls[absent[place]], version) for place, version in versions.items()}
    with _one_call, ThreadPoolExecutor(_FETCHED_AT_A_TIME, "aioloader-crops") as pool:
        faults = {place: pool.submit(_fetch, places[place], path) for place, path in paths.items()}
    for place, path in paths.items():
        fault = faults[place].result()
        if fault is None:
            found[absent[place]] = path
        else:
            _warn(places[place], fault)
    return found


def _fetch(url: str, path: str) -> OSError | None:
    """Copy an object to a file, unless it exists, and remove the copies of its other versions; return the error."""
    target = Path(path)
    if target.exists():
        return None
    try:
        target.parent.mkdir(parents=True, exist_ok=True)
        with published(target) as (partial_file,):
            download(url, partial_file)
    except OSError as error:
        return error
    # The name of a copy ends with its version.
    for other in target.parent.glob(f"{target.name.partition('-')[0]}-*{SUFFIX}"):
        if other != target:
            with suppress(OSError):
                other.unlink()
    return None


def _warn(url: str, error: OSError) -> None:
    warnings.warn(f"{redact_url(url)}: no crop index is used: {error}", CropIndexWarning, stacklevel=5)
