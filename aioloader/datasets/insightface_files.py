"""Detection of sets in InsightFace's layout."""

from __future__ import annotations

import os

import numpy as np

from aioloader.datasets.insightface import REC, InsightFaceDataset
from aioloader.datasets.insightface_property import PROPERTY, read_property
from aioloader.datasets.record_heads import read_heads
from aioloader.errors import LayoutError
from aioloader.storage.urls import path_of

# Enough of the end of an .idx for its last line.
_TAIL_NBYTES = 256


def insightface_file(path: str | os.PathLike[str]) -> str | None:
    """Return the .rec file of a set in InsightFace's layout; None if `path` is not such a set.

    A folder is such a set if it contains train.rec and a `property` file, or train.rec with a header record. A .rec
    file is one if it has such a header, or is named train.rec and next to a `property` file. Only a few bytes are read,
    and the .idx only if these bytes may be a header.

    Args:
        path: a folder or a file; ``~`` is expanded.
    """
    given = path_of(path)
    rec = os.path.join(given, REC) if os.path.isdir(given) else given
    idx = os.path.splitext(rec)[0] + ".idx"
    if not os.path.isfile(rec) or not os.path.isfile(idx):
        return None
    try:
        if os.path.basename(rec) == REC:
            read_property(os.path.join(os.path.dirname(rec), PROPERTY))
            return rec
    except (OSError, LayoutError):
        pass
    try:
        if not read_heads(rec, np.array(_ends(idx), np.int64)).bare.any():
            return None
        return None if InsightFaceDataset(rec).find_header() is None else rec
    except LayoutError:
        return rec  # a corrupt set
    except (OSError, ValueError, EOFError):
        return None  # the error is raised when the file is read


def _ends(idx: str) -> list[int]:
    """Return the offsets on the first and the last line of an .idx, where the header or an identity record is."""
    with open(idx, "rb", buffering=1 << 13) as file:  # a small buffer, since few bytes are needed
        first = file.readline(_TAIL_NBYTES)
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_NBYTES))
        last = file.read(_TAIL_NBYTES).rstrip(b"\n").rpartition(b"\n")[2]
    fields = [line.split(b"\t") for line in (first, last)]
    return [int(field[1]) for field in fields if len(field) == 2 and field[1].strip().isdigit()]
