"""Packs images into RecordIO files: those of a folder, of a list, or of a well-known set.

OUT.rec holds the records, OUT.idx their offsets by key, OUT.lst one line "key <tab> label <tab> path" per record, and
OUT.json says what was packed. All are written under other names and renamed when they are complete, so a file named
.rec is never half-written; a packing that was stopped goes on where it was. How: `aioloader.packing`.
"""

from __future__ import annotations

import os
from dataclasses import asdict, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any

from aioloader.foundation.host_limits import available_cores
from aioloader.foundation.version import __version__
from aioloader.loader.options import check_max_errors
from aioloader.packing.encoding import Encoding
from aioloader.packing.errors import PackBusyError, PackError
from aioloader.packing.jpegtran import find_jpegtran
from aioloader.packing.plan import Output, make_plan, other_shards, stem_of
from aioloader.packing.report import Packed, PackReport, is_report
from aioloader.packing.run import SYNC_S, Job, run
from aioloader.packing.sources import (
    EXTENSIONS,
    Source,
    folder_source,
    list_images,
    list_source,
)
from aioloader.packing.uploading import to_urls
from aioloader.transforms import DEFAULT_MAX_PIXELS

if TYPE_CHECKING:
    from collections.abc import Callable

__all__ = (
    "EXTENSIONS",
    "PackBusyError",
    "PackError",
    "PackReport",
    "Packed",
    "library_versions",
    "list_images",
    "pack",
)

_POLICIES = ("raise", "skip", "replace")


@to_urls
def pack(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    kind: str | None = None,
    root: str | os.PathLike[str] | None = None,
    shuffle: bool = False,
    seed: int = 0,
    train_ratio: float | None = None,
    test_ratio: float | None = None,
    shards: int | None = None,
    encoding: str | None = None,
    pass_through: bool = False,
    tile: bool = False,
    resize: int | None = None,
    center_crop: bool = False,
    color: int | None = None,
    quality: int | None = None,
    optimize: bool = False,
    num_workers: int | None = None,
    executor: Any = None,
    on_error: str = "raise",
    max_errors: float | None = None,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    json: str | os.PathLike[str] | None = None,
    resume: bool = True,
    sync_s: float = SYNC_S,
    begin: Callable[[int, int, str], object] | None = None,
    tick: Callable[[int], object] | None = None,
) -> PackReport:
    """Pack images; existing files of these names are replaced when all is written.

    The bytes of the result depend on the source and the options alone, not on the number of workers, the executor, or
    whether the packing was stopped in between.

    Args:
        source: folder with one sub-folder per class (see `list_images`); or a .lst file; or, with `kind`, the folder
            with the files of a set.
        out: the .rec file to write; ".rec" is added if it is missing. The .idx, .lst and .json lie beside it. A list
            that is the source itself is left as it is. Where it is a URL all files are written to the system's
            temporary folder, and uploaded when they are complete; nothing goes on that was stopped before.
        kind: "mnist", "fashion-mnist", "cifar10" or "cifar100": both parts of that set, OUT_train and OUT_test.
        root: the folder that the paths of a list are relative to; None: the one that it lies in.
        shuffle: mix the records of each part; otherwise they stand in the order of the source.
        seed: of the shuffled order and of the split, 0 <= seed < 2**64.
        train_ratio, test_ratio: shares of the images that go into OUT_train and OUT_test, drawn at random; the rest
            goes into OUT_val. With one of them alone: `train_ratio` leaves its rest to OUT_val, `test_ratio` to
            OUT_train.
        shards: divide each of these into so many files, OUT-00000-of-00004.rec and so on.
        encoding: "keep": files as they are, but for what other options ask for; "raw": pixels that need no decoder,
            upright RGB (`encode_raw`); "jpg", "png", "webp": every image anew. None: "keep", and "png" for sets.
        pass_through: the files' bytes, not even looked at; goes with no option that changes images.
        tile: make JPEGs tiled ones, from which a crop is decoded without the rest; no pixel changes. Needs jpegtran.
        resize: make images smaller whose shorter side is longer than this, in pixels; with "keep" they become JPEGs.
        center_crop: cut out the middle square before; with "keep" those that are not square become JPEGs.
        color: 1: what is encoded anew becomes RGB; 0: every image becomes grey; -1: what is encoded anew keeps its
            channels. None: 1, and -1 for sets.
        quality: of images that are encoded anew: JPEG and WebP 1 to 100, PNG 0 to 9. None: 95, and 3 for PNG.
        optimize: give JPEGs that are encoded anew Huffman tables of their own: a few percent smaller, and slower.
        num_workers: how many encode at a time; None: one per core.
        executor: where: "thread", "process", "inline" or an executor; see `aioloader.DataLoader`. None: in threads;
            where files are only copied and no `num_workers` is given, inline, which is faster while the disk is.
        on_error: "raise", or "skip": leave an image out that cannot be read or is damaged, and report it. Damage is
            noticed only where the image is decoded or tiled. "replace": the next image of its part that is sound stands
            twice, with its own label, so that the number of records is that of the images; behind the last one the
            first.
        max_errors: with "skip" and "replace", how many images may fail; less than 1: which share of them, judged after
            1,000 images and at the end; None: any number.
        max_pixels: images of more pixels than this, by their header, count as damaged; None for no limit. The datasets
            have the same limit, so that what is packed can be read.
        json: where the report goes, in the folder of `out`; None: OUT.json.
        resume: go on where the same packing was stopped before; False: start anew.
        sync_s: seconds between two moments at which what was written is made safe; a process that is killed loses so
            much work.
        begin: called once: images done before, images in all, and why what an earlier packing left is of no use, or "".
        tick: called with the number of images done so far, after each.

    Returns:
        what was packed.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such source.
        FileExistsError: there is another file where the report belongs.
        ValueError: the source has no images, or names that no list can hold; or an option is not allowed.
        ProgramNotFoundError: `tile` without jpegtran.
        PackBusyError: another process is packing into the same files.
        PackError: an image is damaged, or too large for a record; with "skip" and "replace", all are.
        TooManyErrorsError: more images failed than `max_errors`; its `errors` has them.
        OSError: a file cannot be read or written.

    After an error what stood at `out` before still does. After an interrupt, or an error of the system (a full disk),
    what was done stays beside it in files that end in ".partial", and the same call goes on from there.
    """
    in_memory = kind is not None
    encode = Encoding(
        encoding or ("png" if in_memory else "keep"),
        tile,
        resize,
        quality,
        find_jpegtran() if tile else None,
        max_pixels,
        center_crop,
        (-1 if in_memory else 1) if color is None else color,
        optimize,
        pass_through,
    )
    if in_memory and encode.name == "keep":
        raise ValueError(
            f"the images of {kind} are in no files that could be kept: encoding must be png, raw, ..."
        )
    if on_error not in _POLICIES:
        raise ValueError(f"on_error must be 'raise', 'skip' or 'replace', got {on_error!r}")
    check_max_errors(max_errors)
    if num_workers is not None and num_workers < 1:
        raise ValueError(f"num_workers must be at least 1, or None, got {num_workers!r}")
    if not sync_s >= 0:
        raise ValueError(f"sync_s must be at least 0 seconds, got {sync_s!r}")
    place = Path(out)
    stem = stem_of(place)
    if stem.name in ("", ".."):
        raise ValueError(f"{str(out)!r} is no name of a file")
    if os.fspath(out).endswith(("/", os.sep)):
        raise ValueError(f"{str(out)!r} is the name of a folder: add one for the record file")
    found = _source(source, kind, root)
    plan = make_plan(
        len(found.items),
        place,
        shuffle=shuffle,
        seed=seed,
        train_ratio=train_ratio,
        test_ratio=test_ratio,
        parts=found.parts,
        shards=shards,
    )
    plan = replace(plan, outputs=tuple(_sparing(output, found.lst) for output in plan.outputs))
    for each in (place for output in plan.outputs for place in output.places):
        if each.is_dir():
            raise IsADirectoryError(f"{each} is a folder: give another name")
    report_place = stem.with_name(f"{stem.name}.json") if json is None else Path(json)
    if report_place.resolve().parent != stem.resolve().parent:
        raise ValueError(f"the report {report_place} must lie in the folder of {stem.name}")
    if report_place.name in {place.name for output in plan.outputs for place in output.places}:
        raise ValueError(f"{report_place} is the name of a file that is packed: give the report another one")
    if report_place.exists() and not is_report(report_place):
        raise FileExistsError(
            f"{report_place} is no report of a packing: move it, or give the report another name (json=, --report)"
        )
    options = asdict(encode)
    options["encoding"], options["tile"] = options.pop("name"), bool(options.pop("jpegtran"))
    options |= {"shuffle": shuffle, "seed": seed, "train_ratio": train_ratio, "test_ratio": test_ratio}
    options |= {"shards": shards, "on_error": on_error, "max_errors": max_errors}
    options["root"] = None if root is None else str(root)
    options["libraries"] = library_versions() if encode.touches_pixels or in_memory else {}
    if executor is None:
        executor = "inline" if encode.copies and num_workers is None else "thread"
    job = Job(
        source=found,
        plan=plan,
        encode=encode,
        out=stem,
        arguments=options,
        workers=num_workers or available_cores(),
        executor=executor,
        on_error=on_error,
        max_errors=max_errors,
        json=report_place,
        resume=resume,
        sync_s=sync_s,
    )
    report = PackReport((), found.classes, json=report_place, outside=found.outside, empty=found.empty)
    run(job, report, begin=begin, tick=tick)
    report.others = tuple(other_shards(plan.outputs, os.listdir(stem.parent)))
    return report


def _source(source: str | os.PathLike[str], kind: str | None, root: str | os.PathLike[str] | None) -> Source:
    place = Path(source)
    if kind is not None:
        from aioloader.packing.sets import set_source

        if root is not None:
            raise ValueError("root belongs to a list")
        return set_source(kind, place)
    if place.is_dir():
        if root is not None:
            raise ValueError(f"root belongs to a list, but {str(place)!r} is a folder")
        return folder_source(source)
    if place.suffix == ".rec":
        raise ValueError(f"{str(place)!r} is packed already: a source is a folder of images, or a .lst file")
    if not place.exists():
        raise FileNotFoundError(f"there is no folder and no list {str(place)!r}")
    return list_source(source, root)


def _sparing(output: Output, lst: Path | None) -> Output:
    """The same without its list where that is the source itself: it is not to be written over."""
    if lst is None or output.lst is None or not output.lst.exists() or not output.lst.samefile(lst):
        return output
    return replace(output, lst=None)


def library_versions() -> dict[str, str]:
    """What decodes and encodes; another version may give other bytes."""
    import importlib.metadata

    import cv2

    return {
        "aioloader": __version__,
        "opencv": cv2.__version__,
        "simplejpeg": importlib.metadata.version("simplejpeg"),
    }
