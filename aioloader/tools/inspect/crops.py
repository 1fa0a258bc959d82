"""Crop indexes of a data set, and the images that could have an entry."""

from __future__ import annotations

import os
from typing import TYPE_CHECKING, Any

from aioloader.crop_index.places import folder_index, record_index, shard_index
from aioloader.crop_index.reader import CropIndex
from aioloader.errors import CropIndexError
from aioloader.jpeg import read_frame
from aioloader.tools.inspect.report import CropIndexes

if TYPE_CHECKING:
    from collections.abc import Sequence

# Smaller images are not worth an entry.
_LEAST_NBYTES = 8192


def crop_indexes(
    paths: Sequence[str], *, is_folder: bool = False, is_record_file: bool = True
) -> CropIndexes:
    """Examine the crop indexes at their usual places.

    Args:
        paths: the record files, the shards of another format, or one folder, or their URLs.
        is_folder: it is a folder.
        is_record_file: if they are files, they are RecordIO files.
    """
    usual = folder_index if is_folder else record_index if is_record_file else shard_index
    files = images = entries = nbytes = jpeg_nbytes = 0
    faults = []
    for path in paths:
        place = usual(path)
        try:
            index = CropIndex(place)
            refused = sum(index.refused().values())
        except FileNotFoundError:
            continue
        except (OSError, CropIndexError) as error:
            faults.append(f"the crop index cannot be used: {error}")
            continue
        index.close()
        files += 1
        images += len(index)
        entries += len(index) - refused
        nbytes += os.path.getsize(place)
        jpeg_nbytes += index.header.jpeg_nbytes
    return CropIndexes(files, images, entries, nbytes, jpeg_nbytes, faults)


def may_be_indexed(data: Any) -> bool:
    """Return whether a JPEG can probably have an entry, by its headers and its size.

    Args:
        data: the file; bytes, or a memoryview of bytes.
    """
    frame = read_frame(data)
    return (
        frame is not None and len(data) >= _LEAST_NBYTES and frame.restart_interval % frame.mcus_per_row == 0
    )
