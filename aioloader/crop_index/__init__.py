"""Crop indexes: files that hold, for each JPEG of a record file or of a folder, its entry (see `aioloader.jpeg`).

An entry belongs to exactly the bytes that it was made from, and carries checksums of both. So these modules only have
to find it; a missing, old, damaged or foreign index costs speed and never changes a pixel.

- `aioloader.crop_index.layout`: layout of the file, keys of images, and where the files of record files and folders are
- `aioloader.crop_index.reader`: one file
- `aioloader.crop_index.writer`: writing one file, resumable
- `aioloader.crop_index.lookup`: the entries of a dataset's items, and copies of files next to remote record files
"""

from __future__ import annotations

AUTO = "auto"
"""Option of datasets: the crop indexes that exist at their usual places."""
