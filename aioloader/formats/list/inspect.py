"""Inspection of lists of images."""

from __future__ import annotations

import os
from collections import Counter

from aioloader.formats.inspection import Inspection, labels_of
from aioloader.formats.list.dataset import read_list


def inspect_list(path: str) -> Inspection:
    """Inspect a .lst file without its images, because their root folder is unknown.

    Raises:
        OSError: it cannot be read.
        ValueError: a line is malformed.
    """
    entries = read_list(path)
    count = len(entries.paths)
    rows = [labels for _, labels, _ in entries.rows()]
    widths = Counter(map(len, rows))
    labels = Counter(float(labels[0]) for labels in rows if len(labels) == 1)
    endings = Counter(os.path.splitext(name)[1].lower() for name in entries.paths)
    repeated = count - len(set(entries.keys or ()))
    damage = [f"{repeated:,} lines repeat an id"] if repeated else []
    return Inspection(
        path,
        "image list",
        1,
        os.path.getsize(path),
        count,
        images_in_all=count,
        labels=labels_of(labels),
        label_widths=dict(widths.most_common()),
        details={"endings": dict(endings.most_common())},
        damage=damage,
    )
