"""Inspection of a data set: its contents, its decoding speed, and advice to load it faster."""

from __future__ import annotations

import dataclasses
import os
from typing import TYPE_CHECKING, Any

from aioloader.crop_index.writer import can_build
from aioloader.datasets.shards import is_pattern, pinned_path
from aioloader.errors import DecodeError
from aioloader.formats.recordio.dataset import begins_with_a_record
from aioloader.storage.urls import is_url, path_of, redact_url, suffix_of
from aioloader.tools.inspect.advice import advice_for
from aioloader.tools.inspect.files import inspect_array_file, inspect_folder, inspect_image, inspect_list
from aioloader.tools.inspect.records import inspect_records
from aioloader.tools.inspect.report import Inspection, Options
from aioloader.tools.inspect.shards import inspect_shards
from aioloader.tools.paths import record_files_at
from aioloader.tools.shards import open_shards, recognize_shards
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS
from aioloader.transforms.formats import read_header

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = ("Inspection", "inspect")

_BEGINNING = 1 << 16


def inspect(
    path: str | os.PathLike[str],
    *,
    sample: int = 256,
    seconds: float | None = 10.0,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    stage: Callable[[str, int], Callable[[int], Any]] | None = None,
) -> Inspection:
    """Describe a data set from headers and a sample of its images.

    Large files are not read as a whole: only the index and headers of record files, and the images of the sample. A
    record file without an .idx has to be scanned, however.

    Args:
        path: a .rec, .tar, .tfrecord or .parquet file or its URL, a pattern such as "train-*.tar", a folder of such
            files, an MDS folder, a folder with one sub-folder of images per class, a .lst file, an IDX or CIFAR file,
            or an image.
        sample: number of images to decode, evenly spread over the set.
        seconds: approximate time for reading headers; after that an even sample of them is enough. None: read all.
        max_pixels: larger images count as damaged; None for no limit.
        stage: called at the start of a stage with its name and amount of work; returns a function that is called with
            the progress.

    Raises:
        FileNotFoundError: there is no such file or folder.
        OSError: a file cannot be read.
        RecordIOError: an index cannot be read at all.
        ValueError: it is not a data set of a known kind.
    """
    if sample < 1:
        raise ValueError(f"sample must be at least 1, got {sample}")
    name = path_of(path)
    options = Options(sample, seconds, max_pixels, stage or _no_stage)
    found = _inspect(name, options)
    return dataclasses.replace(
        found, path=redact_url(name), advice=list(advice_for(found, numba=can_build()))
    )


def _no_stage(label: str, total: int) -> Callable[[int], Any]:
    return lambda done: None


def _inspect(path: str, options: Options) -> Inspection:
    shards = recognize_shards(path)
    if shards is not None:
        return inspect_shards(path, open_shards(shards), shards.format, options)
    files = record_files_at(path)
    if not files:
        return inspect_folder(pinned_path(path), options)
    if is_url(path) and not is_pattern(path) and suffix_of(path).lower() not in (".rec", ""):
        raise ValueError(
            f"only record files, shards and folders can be inspected remotely, and {redact_url(path)} is none of these"
        )
    ending = os.path.splitext(path)[1].lower()
    if is_url(path) or ending == ".rec" or files != [path] or begins_with_a_record(path):
        return inspect_records(path, files, options)
    if ending == ".lst":
        return inspect_list(path)
    if ending == ".idx":
        raise ValueError(f"{path!r} is an index; give the .rec file that it belongs to")
    found = inspect_array_file(path)
    if found is not None:
        return found
    with open(path, "rb") as file:
        head = file.read(_BEGINNING)
    try:
        read_header(head)
    except DecodeError as error:
        if error.format is None:
            raise ValueError(
                f"{path!r} is not a record file, a .lst file or an image of a known format"
            ) from None
    return inspect_image(path, options.max_pixels)
