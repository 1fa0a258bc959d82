"""Packing of the images of a folder, a list, a well-known set or shards of other formats into RecordIO files.

OUT.rec contains the records, OUT.idx their offsets by key, OUT.lst a line "key <tab> label <tab> path" per record, and
OUT.json a report. OUT.fields.jsonl has other fields of samples, if they were asked for. All are written under temporary
names and renamed when they are complete, so a file named .rec is never incomplete; an interrupted run can be resumed.
The implementation is in `aioloader.packing`.
"""

from __future__ import annotations

import functools
import os
import tempfile
from dataclasses import KW_ONLY, asdict, dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any, TypeVar, cast

from aioloader.crop_index.layout import record_index
from aioloader.crop_index.writer import check_builder
from aioloader.datasets.fields import field_names
from aioloader.datasets.shard_dataset import ShardDataset
from aioloader.errors import AmbiguousPathError, EmptyDatasetError, UnknownFormatError
from aioloader.formats.base import HEAD_NBYTES, format_of_name
from aioloader.formats.folder.format import FORMAT as IMAGE_FOLDER
from aioloader.formats.foreign import foreign_name
from aioloader.formats.insightface.format import FORMAT as INSIGHTFACE
from aioloader.formats.opening import Recognized, make_dataset, recognize
from aioloader.formats.splits import of_several_splits
from aioloader.foundation.host_limits import available_cores
from aioloader.loader.options import check_max_errors
from aioloader.packing.append import Existing, check_files, continued, existing, number_classes
from aioloader.packing.encoding import Encoding, library_versions
from aioloader.packing.fields_file import fields_place
from aioloader.packing.plan import make_plan, other_shards, stem_of
from aioloader.packing.report import PackBusyError, Packed, PackError, PackReport, is_report
from aioloader.packing.run import SYNC_S, Job, journal_of, run
from aioloader.packing.samples import Samples
from aioloader.packing.sources import (
    Source,
    folder_source,
    list_images,
    list_source,
    set_source,
)
from aioloader.storage.local.descriptors import open_regular
from aioloader.storage.urls import check_writable, is_url, locate, name_of, path_of, redact_url, sibling
from aioloader.transforms.decode import DEFAULT_MAX_PIXELS

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

    from aioloader.abc import Executor

__all__ = (
    "PackBusyError",
    "PackError",
    "PackReport",
    "Packed",
    "library_versions",
    "list_images",
    "pack",
)

_POLICIES = ("raise", "skip", "replace")

F = TypeVar("F", bound="Callable[..., PackReport]")


def _to_urls(pack: F) -> F:
    """Extend a function that packs to a path, so that it also packs to a URL.

    Args:
        pack: takes the source, the output and options.
    """

    plain: Callable[..., PackReport] = pack

    @functools.wraps(pack)
    def packs(source: object, out: str | os.PathLike[str], **options: Any) -> PackReport:
        path = path_of(out)
        if not is_url(path):
            return plain(source, path, **options)
        if options.get("append"):
            raise ValueError(
                "append changes files on this machine: pack into another URL, and read both as one set"
            )
        if options.get("json") is not None:
            raise ValueError("the report of files at a URL is uploaded next to them: leave out json")
        name = name_of(path)
        if not name:
            raise ValueError(f"{path!r} does not end in a file's name")
        locate(path)
        check_writable(path)
        with tempfile.TemporaryDirectory(prefix="aioloader-") as folder:
            report = plain(source, Path(folder, name), **options)
            report.urls = _upload(Path(folder), path)
        return report

    return cast("F", packs)


@_to_urls
def pack(
    source: str | os.PathLike[str],
    out: str | os.PathLike[str],
    *,
    kind: str | None = None,
    root: str | os.PathLike[str] | None = None,
    synsets: Sequence[str] | None = None,
    image: str | None = None,
    label: str | None = None,
    no_label: bool = False,
    fields: str | Sequence[str] = (),
    shuffle: bool = False,
    seed: int = 0,
    train_ratio: float | None = None,
    test_ratio: float | None = None,
    shards: int | None = None,
    append: bool = False,
    encoding: str | None = None,
    pass_through: bool = False,
    resize: int | None = None,
    center_crop: bool = False,
    color: int | None = None,
    quality: int | None = None,
    optimize: bool = False,
    crops: bool = False,
    num_workers: int | None = None,
    executor: str | Executor | None = None,
    on_error: str = "raise",
    max_errors: float | None = None,
    max_pixels: int | None = DEFAULT_MAX_PIXELS,
    json: str | os.PathLike[str] | None = None,
    resume: bool = True,
    sync_s: float = SYNC_S,
    begin: Callable[[int, int, str], object] | None = None,
    tick: Callable[[int], object] | None = None,
) -> PackReport:
    """Pack images; existing files of the same names are replaced when all new ones are complete.

    The bytes of the result depend only on the source and the options, not on the number of workers, the executor, or
    interruptions.

    Args:
        source: folder with one sub-folder per class (see `list_images`); or a .lst file; or anything that
            `aioloader.open_dataset` reads, such as ``train-*.tar`` or the URL of a Parquet file; or, with `kind`, the
            folder with the files of a set. Samples of other formats keep the bytes of their images, and are read while
            they are packed; they get new keys.
        out: the .rec file to write; ".rec" is added if it is missing. The .idx, .lst and .json are written next to it.
            A list that is itself the source is not overwritten. For a URL, all files are written to the system's
            temporary folder and uploaded when they are complete; such a run cannot be resumed.
        kind: "mnist", "fashion-mnist", "cifar10" or "cifar100": both parts of that set, OUT_train and OUT_test.
            "folder": the images of a folder that contains shards of another format, too.
        root: the folder that the paths of a list are relative to; None: the folder of the list.
        synsets: of a folder of images, the names of the classes in the order of their numbers, such as those of the
            training set; None: all folders.
        image, label: names of the fields of the image and its label, for formats whose samples have fields; None: the
            default of the format's class.
        no_label: give every image the label 0, for samples without a label.
        fields: names of other fields that are kept, in OUT.fields.jsonl.
        shuffle: shuffle the records of each part; otherwise they are in the order of the source.
        seed: seed of the shuffled order and of the split, 0 <= seed < 2**64.
        train_ratio, test_ratio: shares of the images for OUT_train and OUT_test, drawn at random; the rest goes to
            OUT_val. If only `train_ratio` is given, the rest goes to OUT_val; if only `test_ratio`, to OUT_train.
        shards: number of files that each part is divided into, OUT-00000-of-00004.rec and so on.
        append: keep the records of OUT.rec, and write the new ones behind them. Their keys go on from the largest one,
            the list is continued, and classes have the labels of the names in the old report; new classes have the
            labels behind. The old file is copied, not decoded, and replaced when the new one is complete.
        encoding: "keep": files unchanged except by other options; "raw": upright RGB pixels that need no decoder
            (`encode_raw`); "jpg", "png", "webp": re-encode every image. None: "keep", and "png" for sets.
        pass_through: store the files' bytes unchecked; cannot be combined with options that change images.
        resize: scale down images whose shorter side is longer than this, in pixels; with "keep" they become JPEGs.
        center_crop: crop to the middle square first; with "keep" images that are not square become JPEGs.
        color: 1: re-encoded images become RGB; 0: every image becomes grey; -1: re-encoded images keep their channels.
            None: 1, and -1 for sets.
        quality: of re-encoded images: JPEG and WebP 1 to 100, PNG 0 to 9. None: 95, and 3 for PNG.
        optimize: compute optimal Huffman tables for re-encoded JPEGs: a few percent smaller, and slower.
        crops: write a crop index next to each record file, OUT.crops, with which loaders decode a crop without the rest
            of the image. Needs numba (extra ``crops``).
        num_workers: number of encoding workers; None: one per core.
        executor: "thread", "process", "inline" or an executor; see `aioloader.DataLoader`. None: threads; if files are
            only copied, without `crops`, and `num_workers` is None, inline, which is faster unless the disk is slow.
        on_error: "raise"; or "skip": leave out and report images that cannot be read or are damaged. Damage is
            detected only if the image is decoded. "replace": write the next valid image of the part once
            more, with its own label, so that there are as many records as images; at the end of a part its first image
            is used.
        max_errors: with "skip" and "replace", largest number of failed images; less than 1: largest share of them,
            checked after 1,000 images and at the end; None: no limit.
        max_pixels: images whose header declares more pixels count as damaged; None for no limit. The datasets have the
            same limit, so that packed images can be read.
        json: path of the report, in the folder of `out`; None: OUT.json.
        resume: resume an interrupted run with the same arguments; False: start over.
        sync_s: seconds between two syncs of the written files to disk; a killed process loses at most this much work.
        begin: called once with the number of images packed before, the number of all images, and the reason why an
            earlier run cannot be resumed, or "".
        tick: called after each image with the number of images packed so far.

    Returns:
        the report.

    Raises:
        FileNotFoundError, NotADirectoryError: there is no such source.
        UnknownFormatError, AmbiguousPathError: the source is of a format that is not read, or a folder with several
            data sets; both are ValueErrors.
        EmptyDatasetError: the files of the source have no samples; the error is a ValueError.
        TypeError: `image`, `label` or `fields` is given, and images of this source have no fields.
        FileExistsError: another file has the name of the report.
        FileNotFoundError: with `append`, there is no such record file, or it has no index.
        MissingPackageError: `crops` needs numba, which is not installed.
        ValueError: the source has no images, or a name cannot be written to a list, or an option is not allowed.
        PackBusyError: another process is packing into the same files.
        PackError: an image is damaged or too large for a record; with "skip" and "replace": all are.
        TooManyErrorsError: more images failed than `max_errors`; its `errors` are the errors of the images.
        OSError: a file cannot be read or written.

    After an error, existing files at `out` are unchanged. After an interrupt or a system error (such as a full disk),
    finished work stays next to it in files that end in ".partial", and the same call resumes from there.
    """
    in_memory = kind is not None and kind != "folder"
    encode = Encoding(
        encoding or ("png" if in_memory else "keep"),
        resize=resize,
        quality=quality,
        max_pixels=max_pixels,
        center_crop=center_crop,
        color=(-1 if in_memory else 1) if color is None else color,
        optimize=optimize,
        pass_through=pass_through,
        crops=crops,
    )
    if crops:
        check_builder()
    if in_memory and encode.name == "keep":
        raise ValueError(
            f"the images of {kind} are not separate files that could be kept: choose another encoding, such as png"
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
        raise ValueError(f"{str(out)!r} does not end in a file's name")
    if os.fspath(out).endswith(("/", os.sep)):
        raise ValueError(f"{str(out)!r} is the name of a folder: add a name for the record file")
    chosen = _Fields(image, label, no_label=no_label, kept=field_names(fields) if fields else ())
    found = _source(source, kind, root, chosen, synsets)
    if synsets is not None and found.kind != "folder":
        raise TypeError(f"synsets number the classes of a folder of images, and the source is {found.kind}")
    order: dict[str, Any] = {"shuffle": shuffle, "seed": seed, "shards": shards}
    order |= {"train_ratio": train_ratio, "test_ratio": test_ratio}
    if append:
        _check_append(found, crops=crops, **order)
    plan = make_plan(len(found), place, parts=found.parts, crops=crops, fields=bool(chosen.kept), **order)
    for output in plan.outputs:
        # A list that is the source itself is not overwritten.
        if found.lst is not None and output.lst is not None and output.lst.exists():
            output.lst = None if output.lst.samefile(found.lst) else output.lst
    places = [each for output in plan.outputs for each in output.places]
    for each in places:
        if each.is_dir():
            raise IsADirectoryError(f"{each} is a folder: choose another name")
        if found.samples is not None and found.samples.overlaps(each):
            raise ValueError(f"{each} is a file of the source: choose another name for the record file")
    report_place = stem.with_name(f"{stem.name}.json") if json is None else Path(json)
    if report_place.resolve().parent != stem.resolve().parent:
        raise ValueError(f"the report {report_place} must be in the folder of {stem.name}")
    if report_place.name in {each.name for each in places}:
        raise ValueError(
            f"{report_place} is the name of another output file: choose another name for the report"
        )
    if report_place.exists() and not is_report(report_place):
        raise FileExistsError(
            f"{report_place} is not a packing report: move it, or choose another name for the report (json=, --report)"
        )
    old: Existing | None = None
    if append:
        (output,) = plan.outputs
        if output.lst is None:
            raise ValueError(
                f"{found.path} is the list of what is in {output.rec}: pass a list of new images"
            )
        old = existing(output, journal_of(stem), found)
        check_files(output, fields=bool(chosen.kept))
        number_classes(found, old, output.rec)
        continued(output, old)
    options = asdict(encode)
    options["encoding"] = options.pop("name")
    if not crops:
        del options["crops"]
    options |= {**order, "on_error": on_error, "max_errors": max_errors}
    if old is not None:
        options["append"] = old.as_option()
    options["root"] = None if root is None else str(root)
    if synsets is not None:
        options["synsets"] = list(synsets)
    if found.samples is not None:
        options |= {"image": image, "label": label, "no_label": no_label, "fields": list(chosen.kept)}
    options["libraries"] = library_versions() if encode.touches_pixels or in_memory else {}
    if executor is None:
        executor = "inline" if encode.copies and not crops and num_workers is None else "thread"
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
    report = PackReport(
        plan.outputs,
        found.classes,
        json=report_place,
        outside=found.outside,
        empty=found.empty,
        left_out=found.left_out,
    )
    run(job, report, begin=begin, tick=tick)
    report.others = tuple(other_shards(plan.outputs, os.listdir(stem.parent)))
    if not crops:
        places = [Path(record_index(os.fspath(output.rec))) for output in plan.outputs]
        report.old_indexes = tuple(place for place in places if place.exists())
    if not chosen.kept:
        places = [fields_place(output.rec) for output in plan.outputs]
        report.old_fields = tuple(place for place in places if place.exists())
    return report


def _check_append(source: Source, *, crops: bool, shards: int | None, **order: Any) -> None:
    """Raise if an option makes another file than one that can be continued.

    Raises:
        ValueError: one does.
    """
    ratios = [name for name in ("train_ratio", "test_ratio") if order[name] is not None]
    if ratios or shards is not None or source.parts:
        what = (
            ratios[0] if ratios else "shards" if shards is not None else f"{source.kind} with its two parts"
        )
        raise ValueError(f"append continues one record file, and {what} makes several: leave one of them out")
    if crops:
        raise ValueError(
            "append cannot continue a crop index: leave out crops, and make it again with `aioloader index --crops` "
            "afterwards"
        )


@dataclass(frozen=True)
class _Fields:
    """Arguments of `pack` about the fields of samples."""

    image: str | None
    label: str | None
    _: KW_ONLY
    no_label: bool
    kept: tuple[str, ...]

    @property
    def options(self) -> dict[str, Any]:
        """Return options for the dataset."""
        names = {"image": self.image, "label": self.label}
        return {name: value for name, value in names.items() if value is not None}

    def refuse(self, what: str) -> None:
        """Raise if an argument was given for a source whose images have no fields.

        Raises:
            TypeError: one was.
        """
        if self.options or self.kept or self.no_label:
            raise TypeError(
                f"image, label, no_label and fields are for samples with fields, and the source is {what}"
            )


def _source(
    source: str | os.PathLike[str],
    kind: str | None,
    root: str | os.PathLike[str] | None,
    fields: _Fields,
    synsets: Sequence[str] | None,
) -> Source:
    name = path_of(source)
    is_list = kind is None and _is_list(name)
    if root is not None and not is_list:
        raise ValueError(f"root can only be used with a list, and {name!r} is not one")
    if is_list:
        fields.refuse("a list")
        if not os.path.exists(name):
            raise FileNotFoundError(f"there is no list {name!r}")
        return list_source(name, root)
    if kind is not None:
        fields.refuse(f"a {kind}" if kind == "folder" else kind)
        return folder_source(name, synsets) if kind == "folder" else set_source(kind, name)
    folder = not is_url(name) and os.path.isdir(name)
    try:
        found = _recognized(name)
    except (UnknownFormatError, AmbiguousPathError) as error:
        if not folder or (isinstance(error, AmbiguousPathError) and not error.nested):
            raise
        return _deep_folder(name, fields, error, synsets)
    if folder and found.format is IMAGE_FOLDER:
        fields.refuse("a folder of images")
        return folder_source(name, synsets)
    if found.format is INSIGHTFACE:
        raise ValueError(
            f"{redact_url(name)!r} is a set in InsightFace's layout, whose header and identity records cannot be "
            "packed again: copy its files"
        )
    dataset = make_dataset(found, fields.options)
    if isinstance(dataset, ShardDataset) and (fields.kept or fields.no_label):
        # Formats with columns read only those that were asked for.
        names = (dataset.image_field, *([] if fields.no_label else [dataset.label_field]), *fields.kept)
        dataset = make_dataset(
            found, {**fields.options, "image": names[0], "fields": tuple(dict.fromkeys(names))}
        )
    if not len(dataset):
        raise EmptyDatasetError(redact_url(name), len(found.paths))
    samples = Samples(dataset, found.paths, labelled=not fields.no_label, fields=fields.kept)
    return Source(found.format.name, redact_url(name), samples=samples, classes=samples.classes)


def _is_list(path: str) -> bool:
    """Return True for a name that ends in .lst, and for a file of lines with TABs whose name shows no other format."""
    if is_url(path) or path.lower().endswith(".lst"):
        return not is_url(path)
    if not os.path.isfile(path) or format_of_name(path) is not None or foreign_name(path) is not None:
        return False
    with os.fdopen(open_regular(path), "rb") as file:
        head = file.read(HEAD_NBYTES)
    return b"\t" in head and b"\0" not in head


def _recognized(path: str) -> Recognized:
    """Return the data set at a path.

    Raises:
        FileNotFoundError, UnknownFormatError, AmbiguousPathError, OSError: as for `pack`.
    """
    try:
        return recognize(path)
    except AmbiguousPathError as error:
        if not error.images:
            raise
        advice = "; or kind='folder' (--from folder) for the images"
        raise AmbiguousPathError(
            error.path, error.choices, error.reason, images=True, advice=advice
        ) from None


def _deep_folder(
    path: str,
    fields: _Fields,
    error: UnknownFormatError | AmbiguousPathError,
    synsets: Sequence[str] | None,
) -> Source:
    """Return the images of a folder that only lie deeper than in its sub-folders.

    Raises:
        UnknownFormatError, AmbiguousPathError: it has none; this is `error`, which describes what it has.
        AmbiguousPathError: its sub-folders are splits, and not classes.
    """
    try:
        found = folder_source(path, synsets)
    except UnknownFormatError:
        raise error from None
    if synsets is None and of_several_splits(found.classes):
        raise AmbiguousPathError(
            path,
            [os.path.join(path, name) for name in found.classes],
            "folders of images of several splits",
            nested=True,
            advice="; or kind='folder' (--from folder) for all images, where each of these folders is one class",
        ) from None
    fields.refuse("a folder of images")
    return found


def _upload(folder: Path, out: str) -> tuple[str, ...]:
    """Upload all files of a folder next to a URL; return their URLs, record files first."""
    from aioloader.storage.remote.stores import delete, upload

    files = sorted(folder.iterdir(), key=lambda path: (path.suffix != ".rec", path.name))
    urls = tuple(sibling(out, path.name) for path in files)
    # Without an .idx a reader scans the file, which is slow but correct; an outdated .idx would be wrong.
    for path, url in zip(files, urls, strict=True):
        if path.suffix == ".idx":
            delete(url)
    for path, url in zip(files, urls, strict=True):
        upload(path, url)
    return urls
