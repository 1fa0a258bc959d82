"""Whether a path is a set in InsightFace's layout."""

from __future__ import annotations

import os

import numpy as np

from aioloader.datasets.insightface import REC, InsightFaceDataset
from aioloader.datasets.insightface_property import PROPERTY, read_property
from aioloader.datasets.record_heads import read_heads
from aioloader.errors import LayoutError
from aioloader.storage.urls import path_of

__all__ = ("insightface_file",)

# Enough of the end of an .idx for its last line.
_TAIL_NBYTES = 256


def insightface_file(path: str | os.PathLike[str]) -> str | None:
    """The .rec file of a set in InsightFace's layout; None where `path` is none.

    A folder is one if it holds train.rec with a `property` file or a header record; a .rec file, if it has such a
    header, or is named train.rec and lies beside a `property` file. Reads a few bytes, and the .idx only where these
    promise a header.

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
        return rec  # one that is damaged
    except (OSError, ValueError, EOFError):
        return None  # what is wrong with it is told when it is read


def _ends(idx: str) -> list[int]:
    """The offsets on the first and the last line of an .idx: the header stands there, or an identity record."""
    with open(idx, "rb", buffering=1 << 13) as file:  # hardly more than is asked for
        first = file.readline(_TAIL_NBYTES)
        file.seek(max(0, os.fstat(file.fileno()).st_size - _TAIL_NBYTES))
        last = file.read(_TAIL_NBYTES).rstrip(b"\n").rpartition(b"\n")[2]
    fields = [line.split(b"\t") for line in (first, last)]
    return [int(field[1]) for field in fields if len(field) == 2 and field[1].strip().isdigit()]
