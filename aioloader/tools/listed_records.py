"""Packing of a list's images as by im2rec: the ids become keys, the index is optional, and no report is written."""

from __future__ import annotations

from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING

import numpy as np

from aioloader.packing.plan import Plan
from aioloader.packing.report import Packed, PackReport
from aioloader.packing.run import Job, run
from aioloader.packing.sources import Source
from aioloader.tools.pack import library_versions

if TYPE_CHECKING:
    import os
    from collections.abc import Callable, Sequence

    from aioloader.packing.lists import Listed
    from aioloader.packing.recode import Recode


def pack_list(
    images: Sequence[Listed],
    paths: Sequence[str],
    rec: str | os.PathLike[str],
    encode: Recode,
    *,
    index: bool = True,
    all_labels: bool = False,
    workers: int = 1,
    on_error: str = "skip",
    begin: Callable[[int, int, str], object] | None = None,
    tick: Callable[[int], object] | None = None,
) -> PackReport:
    """Write a record for each image, in the order of the list: header (flag, labels, id, 0), then the image's bytes.

    Args:
        images: the list.
        paths: the file of each image.
        rec: the .rec file; an existing one is replaced when the new one is complete.
        encode: encodes the bytes of a file.
        index: write an .idx next to it, with the ids as keys. An existing .idx is rewritten in any case, because it
            would not match the new records.
        all_labels: store all labels of an image that has several, with their number as the flag; else only the first.
        workers: number of encoding threads.
        on_error: "skip": leave out images that cannot be read or are damaged; "raise": stop at the first.
        begin, tick: see `aioloader.tools.pack.pack`, which also describes the files left by an interrupt.

    Returns:
        the report; the errors' keys are the ids of the images that were left out.

    Raises:
        PackBusyError: another process is packing into the same files.
        PackError, OSError: with "raise", an image is damaged or cannot be read.
        PackError: with "skip", all images failed.
        OSError: a file cannot be written.

    After an error, existing files are unchanged.
    """
    place = Path(rec)
    idx = place.with_suffix(".idx")
    indexed = index or idx.exists()
    file = Packed(place, idx if indexed else None, None, stop=len(images))
    options = {**asdict(encode), "all_labels": all_labels, "on_error": on_error, "index": indexed}
    options["libraries"] = {} if encode.pass_through else library_versions()
    job = Job(
        source=Source("list", str(rec), images, paths),
        plan=Plan(np.arange(len(images), dtype=np.int64), (file,)),
        encode=encode,
        out=place,
        arguments=options,
        workers=workers,
        on_error=on_error,
        all_labels=all_labels,
    )
    return run(job, PackReport((file,), ()), begin=begin, tick=tick)
