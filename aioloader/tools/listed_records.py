"""Packs the images of a list into one RecordIO file, under the ids of the list."""

from __future__ import annotations

from contextlib import closing
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING

import recordio
from aioloader.tools.drafts import published
from aioloader.tools.pack import PackError, encoded_images

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from aioloader.tools.lists import Listed

__all__ = ("ListReport", "pack_list")


@dataclass(slots=True)
class ListReport:
    """What became of a list.

    Attributes:
        rec: the file written.
        records: number of records.
        skipped: (id, path, reason) of images that were left out.
    """

    rec: Path
    records: int = 0
    skipped: list[tuple[int, str, str]] = field(default_factory=list)


def pack_list(
    images: Sequence[Listed],
    paths: Sequence[str],
    rec: str | os.PathLike[str],
    encode: Callable[[bytes], bytes],
    *,
    index: bool = True,
    all_labels: bool = False,
    workers: int = 1,
    on_error: str = "skip",
    tick: Callable[[int], object] | None = None,
) -> ListReport:
    """Write a record for each image, in the order of the list: header (flag, labels, id, 0), then the image's bytes.

    Args:
        images: the list.
        paths: the file of each image.
        rec: the .rec file; what is there is replaced once all is written.
        encode: what is done to the bytes of a file; raises DecodeError where they are no sound image.
        index: write an .idx beside it, with the ids as keys. If not, one that lies there is written anew all the same:
            it would be wrong.
        all_labels: store all labels of an image that has several, flag is then their number; else only the first.
        workers: threads that read and encode.
        on_error: "skip": leave out images that cannot be read or are damaged; "raise": stop at the first.
        tick: called with the number of images done so far, after each.

    Raises:
        PackError, OSError: with "raise", an image is damaged or cannot be read.
        PackError: with "skip", all are.
        OSError: a file cannot be written.

    After an error what stood there before still does.
    """
    place = Path(rec)
    beside = place.with_suffix(".idx")
    indexed = index or beside.exists()
    report = ListReport(place)
    with (
        closing(encoded_images([Path(path) for path in paths], encode, workers)) as encoded,
        published(place, *([beside] if indexed else [])) as drafts,
        recordio.RecordWriter(drafts[0], index=drafts[1] if indexed else False) as writer,
    ):
        for done, (listed, path, image) in enumerate(zip(images, paths, encoded, strict=True), 1):
            if isinstance(image, bytes):
                labels = listed.labels
                label = list(labels) if all_labels and len(labels) > 1 else labels[0]
                payload = recordio.pack(recordio.IRHeader(0, label, listed.key, 0), image)
                writer.write(payload, listed.key if indexed else None)
                report.records += 1
            elif on_error == "raise":
                raise image
            else:
                reason = image.reason if isinstance(image, PackError) else str(image)
                report.skipped.append((listed.key, path, reason))
            if tick is not None:
                tick(done)
        if images and not report.records:
            _, first, reason = report.skipped[0]
            raise PackError(first, f"{reason}; and none of the {len(images)} images could be packed")
    return report
