"""Format of lists of images, .lst files."""

from __future__ import annotations

import os
from collections import Counter
from typing import TYPE_CHECKING

from aioloader.formats.base import Format

if TYPE_CHECKING:
    from collections.abc import Sequence

    from aioloader.formats.inspection import Inspection, Options


class ListFormat(Format):
    """Lists of images."""

    name = "image list"
    suffixes = (".lst",)
    has_fields = False

    def recognizes(self, path: str, head: bytes) -> bool:
        """Return True for a name with the suffix, and for a file that begins with a line with TABs."""
        return path.lower().endswith(self.suffixes) or (b"\t" in head and b"\0" not in head)

    def inspect(self, path: str, paths: Sequence[str], options: Options) -> Inspection | None:
        """Describe a .lst file without its images, because their root folder is unknown.

        Raises:
            OSError: it cannot be read.
            ValueError: a line is malformed.
        """
        from aioloader.formats.inspection import Inspection, labels_of
        from aioloader.formats.packed_files import read_list

        if not self.recognizes(path, b""):
            return None
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


FORMAT = ListFormat()
