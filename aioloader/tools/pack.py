"""Command `aioloader pack`: pack the images of a folder, a list, a well-known set or shards into record files.

OUT contains the records, OUT.idx their offsets by key, OUT.lst a line "key <tab> label <tab> path" per record, and
OUT.json a report. OUT.fields.jsonl has other fields of samples, if they were asked for. All are written under temporary
names and renamed when they are complete, so a record file is never incomplete; an interrupted run can be resumed. The
implementation is in `aioloader.packing`.
"""

from __future__ import annotations

import argparse
import functools
import json
import os
import shlex
import sys
import tempfile
from dataclasses import asdict
from pathlib import Path
from typing import TYPE_CHECKING, Any, Concatenate, ParamSpec, TypeAlias, cast

from aioloader.crop_index.layout import record_index
from aioloader.formats.base import (
    PATTERN,
    RECORD_SUFFIX,
    list_format,
    names_with_fields,
    published_sets,
    usual_formats,
)
from aioloader.formats.packed_files import fields_place, is_report
from aioloader.foundation.host_limits import available_cores
from aioloader.foundation.validation import size_text
from aioloader.packing.append import Existing, check_files, continued, existing, number_classes
from aioloader.packing.encoding import library_versions
from aioloader.packing.options import PackOptions
from aioloader.packing.report import PackBusyError, Packed, PackError, PackReport
from aioloader.packing.run import Job, Plan, can_go_on, journal_of, make_plan, other_shards, stem_of
from aioloader.packing.run import run as run_job
from aioloader.packing.sources import Source, find_source, list_images
from aioloader.storage.urls import check_writable, is_url, locate, name_of, path_of, sibling
from aioloader.tools.console import (
    add_max_pixels,
    arguments,
    error_limit,
    natural,
    positive,
    share,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence

    from aioloader.errors import SampleError
    from aioloader.observability.progress import ProgressBar


__all__ = (
    "PackBusyError",
    "PackError",
    "PackOptions",
    "PackReport",
    "Packed",
    "add_arguments",
    "library_versions",
    "list_images",
    "pack",
    "run",
)

_COLORS = {"color": 1, "colour": 1, "rgb": 1, "gray": 0, "grey": 0, "unchanged": -1}
# Switches of MXNet's im2rec that this command does not have, and what it has instead.
_IM2REC = {
    "--list": "a folder needs no list, and a SRC that ends in .lst is one",
    "--recursive": "every sub-folder is one class, with all that is in it",
    "--chunks": "--shards divides the records",
    "--exts": "all images of the folder are packed",
    "--no-shuffle": "the order is that of the names, unless --shuffle is given",
    "--pack-label": "all labels of a list are packed",
    "--num-thread": "it is --num-workers here",
}
_EPILOG = """\
examples:
  aioloader pack photos out                      one sub-folder per class, bytes unchanged, in sorted order
  aioloader pack photos out --shuffle --resize 256 --shards 8
  aioloader pack photos out --train-ratio 0.9    out_train{suffix} and out_val{suffix}
  aioloader pack train.lst out --root photos     labels and ids from a list
  aioloader pack --from mnist folder out         out_train{suffix} and out_test{suffix}
{of_formats}  aioloader pack more out --append               new photographs behind those of out{suffix}

Run the same command again to resume an interrupted one. For more see the page Packing of the documentation.

exit codes:
  0    done
  1    it failed: an image is damaged, options conflict, a file cannot be written, ...; nothing is replaced
  2    wrong usage, or there is no such source or image
  130  interrupted (Ctrl-C)
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Add the command's arguments and the texts of its help."""
    formats = ", ".join(names_with_fields())
    parser.description = (
        "Pack a folder with one sub-folder per class, the images of a list, or the samples of another "
        f"format ({formats}, {RECORD_SUFFIX}) into OUT{RECORD_SUFFIX}, with OUT.idx, OUT.lst and a report, OUT.json."
    )
    examples = [each.pack_example for each in usual_formats() if each.pack_example]
    parser.epilog = _EPILOG.format(
        suffix=RECORD_SUFFIX, of_formats="".join(f"  aioloader pack {example}\n" for example in examples)
    )
    parser.formatter_class = argparse.RawDescriptionHelpFormatter
    parser.add_argument(
        "source",
        metavar="SRC",
        help=f"the folder; a .lst file; or a file, a pattern such as '{PATTERN}' or a folder of another format, or "
        "the URL of one",
    )
    parser.add_argument(
        "out",
        metavar="OUT",
        help=f"the {RECORD_SUFFIX} file to write, with or without its extension; or its URL",
    )
    _add_source(parser)
    _add_fields(parser, formats)
    _add_order(parser)
    _add_images(parser)
    _add_work(parser)
    for name in _IM2REC:
        parser.add_argument(
            name, action=_Im2recSwitch, nargs="*", dest=argparse.SUPPRESS, help=argparse.SUPPRESS
        )


def _add_source(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("source")
    group.add_argument("--root", metavar="DIR", help="folder of a list's paths (default: the list's folder)")
    group.add_argument(
        "--from",
        dest="kind",
        choices=(*published_sets(), "folder"),
        help="SRC is the folder with the published files of this set; folder: pack its images, although it also "
        "contains shards",
    )
    group.add_argument(
        "--synsets",
        type=_synsets,
        metavar="DIR|NAME,...",
        help="classes of a folder in the order of their numbers: a folder that has them, such as that of the training "
        "set, or their names (default: all sub-folders)",
    )


def _add_fields(parser: argparse.ArgumentParser, formats: str) -> None:
    group = parser.add_argument_group(f"fields of samples ({formats})")
    group.add_argument(
        "--image", metavar="NAME", help="field of the image (default: that of the format's dataset)"
    )
    group.add_argument(
        "--label", metavar="NAME", help="field of the label (default: that of the format's dataset)"
    )
    group.add_argument("--no-label", action="store_true", help="give every image the label 0")
    group.add_argument(
        "--fields",
        type=_names,
        default=(),
        metavar="NAME,...",
        help="other fields to keep, in OUT.fields.jsonl, a line of JSON for each record",
    )


def _add_order(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("order and files")
    group.add_argument("--shuffle", action="store_true", help="shuffle the records of each part")
    group.add_argument(
        "--seed", type=natural, default=0, metavar="N", help="seed of the order and the split (default: 0)"
    )
    group.add_argument(
        "--train-ratio", type=share, metavar="R", help="share for OUT_train; the rest: OUT_val"
    )
    group.add_argument("--test-ratio", type=share, metavar="R", help="share for OUT_test")
    group.add_argument(
        "--shards",
        type=positive,
        metavar="N",
        help=f"divide into N files, OUT-00000-of-0000N{RECORD_SUFFIX} and so on",
    )
    group.add_argument(
        "--append",
        action="store_true",
        help=f"keep the records of OUT{RECORD_SUFFIX} and write the new ones behind them; keys, list and classes go on",
    )


def _add_images(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("images")
    group.add_argument(
        "--encoding",
        type=lambda text: text.removeprefix("."),  # as im2rec has it
        choices=("keep", "raw", "jpg", "png", "webp"),
        help="keep (default): unchanged files unless another option changes them; raw: pixels, read without a "
        "decoder, several times as large; jpg, png, webp: re-encode every image (default of sets: png)",
    )
    group.add_argument("--pass-through", action="store_true", help="store the files' bytes unchecked")
    group.add_argument(
        "--resize",
        type=positive,
        metavar="PIXELS",
        help="scale down images whose shorter side is longer than this; with keep they become JPEGs",
    )
    group.add_argument("--center-crop", action="store_true", help="crop to the middle square first")
    group.add_argument(
        "--color",
        type=_color,
        metavar="1|0|-1",
        help="1 or color (default): re-encoded images become RGB; 0 or gray: every image becomes grey; -1 or "
        "unchanged: keep the channels, alpha too",
    )
    group.add_argument(
        "--quality",
        type=natural,
        metavar="N",
        help="JPEG and WebP 1 to 100 (default: 95), PNG 0 to 9 (default: 3)",
    )
    group.add_argument(
        "--optimize",
        action="store_true",
        help="re-encoded JPEGs become a few percent smaller; slower",
    )
    group.add_argument(
        "--crops",
        action="store_true",
        help="also write OUT.crops, a crop index, with which loaders decode a crop without the rest of the image",
    )
    add_max_pixels(group, "refuse images of more pixels than this, as the datasets do by default")


def _add_work(parser: argparse.ArgumentParser) -> None:
    group = parser.add_argument_group("work")
    group.add_argument(
        "--num-workers", type=positive, metavar="N", help="number of workers (default: one per core)"
    )
    group.add_argument(
        "--executor",
        choices=("thread", "process", "fork", "inline"),
        help="kind of workers (default: thread; inline if files are only copied and --num-workers is not given)",
    )
    group.add_argument(
        "--on-error",
        choices=("raise", "skip", "replace"),
        default="raise",
        help="images that cannot be read or are damaged: raise (default) stops; skip leaves them out, replace writes "
        "the next valid one instead; both report them",
    )
    group.add_argument(
        "--max-errors",
        type=error_limit,
        metavar="N",
        help="largest number of failed images; less than 1: largest share of them",
    )
    group.add_argument("--error-report", metavar="JSON", help="file to write the failures to")
    group.add_argument("--report", dest="json", metavar="JSON", help="name of the report (default: OUT.json)")
    group.add_argument(
        "--no-resume", dest="resume", action="store_false", help="do not resume an interrupted run"
    )


class _Im2recSwitch(argparse.Action):
    """Switch of im2rec: an error that names this command's way, and the program that has im2rec's."""

    def __call__(
        self,
        parser: argparse.ArgumentParser,
        namespace: argparse.Namespace,
        values: object,
        option_string: str | None = None,
    ) -> None:
        del namespace, values
        name = str(option_string)
        parser.error(
            f"{name} is a switch of MXNet's im2rec.py, and this is `aioloader pack SRC OUT`: {_IM2REC[name]}; "
            "`python -m aioloader.tools.im2rec PREFIX ROOT` takes all of im2rec's switches"
        )


def _synsets(text: str) -> tuple[str, ...]:
    if not os.path.isdir(text):
        return _names(text)
    from aioloader.formats.image_files import find_images

    return tuple(find_images(text).classes)


def _names(text: str) -> tuple[str, ...]:
    names = tuple(name.strip() for name in text.split(","))
    if not all(names) or len(set(names)) < len(names):
        raise argparse.ArgumentTypeError(f"{text!r} is not a list of different names, such as json,txt")
    return names


def _color(text: str) -> int:
    try:
        number = _COLORS[text.lower()] if text.lower() in _COLORS else int(text)
    except ValueError:
        number = 2
    if number not in (-1, 0, 1):
        raise argparse.ArgumentTypeError(f"{text!r} is not 1 (color), 0 (gray) or -1 (unchanged)")
    return number


def run(options: argparse.Namespace) -> int:
    """Run the command; return the exit code."""
    from aioloader.errors import TooManyErrorsError
    from aioloader.observability.progress import ProgressBar

    # The names of the other options are those of `PackOptions`.
    given = arguments(options, "error_report", "source", "out")
    bar: ProgressBar | None = None

    def begin(done: int, count: int, reason: str) -> None:
        nonlocal bar
        if reason:
            _note(f"an earlier run cannot be resumed: {reason}")
        if done:
            _note(f"resuming at image {done + 1:,} of {count:,}")
        bar = ProgressBar("packing", count, done=done)

    def tick(done: int) -> None:
        assert bar is not None
        bar.update(done)

    try:
        report = pack(options.source, options.out, **given, begin=begin, tick=tick)
    except TooManyErrorsError as error:
        _write_errors(options.error_report, error.errors)
        raise
    except PackError:
        if bar is not None:
            bar.close()
        if options.on_error == "raise":
            _note("--on-error skip leaves out images that cannot be packed, and reports them")
        raise
    except (KeyboardInterrupt, OSError) as error:
        if bar is not None:
            bar.close()
            _print_hint(error, bar.done, options)
        raise
    finally:
        if bar is not None:
            bar.close()
    _print_report(report, options)
    return 0


def _note(text: str) -> None:
    print(f"aioloader: {text}", file=sys.stderr)


def _print_hint(error: BaseException, done: int, options: argparse.Namespace) -> None:

    if isinstance(error, FileNotFoundError):
        if options.kind is None and list_format().recognizes(options.source, b""):
            text = "paths of a list are relative to --root, by default the list's folder"
            _note(f"{text}; --on-error skip leaves out missing files")
    elif done and can_go_on(options.out):
        _note("run the same command again to resume")


def _print_report(report: PackReport, options: argparse.Namespace) -> None:
    for failed in report.errors:
        done = "left out" if failed.replaced_by is None else "replaced"
        _note(f"{done} {failed.path}: {failed.reason}")
    if report.others:
        _note(
            f"{len(report.others):,} shards of an earlier run are in the same folder ({report.others[0]}, "
            "...), and a pattern matches them too: delete them"
        )
    for part, labels in report.not_in_train.items():
        count = f"{len(labels):,} class{'es' * (len(labels) > 1)}"
        named = ", ".join(_class_name(report, label) for label in labels[:5])
        _note(
            f"{count} of the part {part} have no image in the part train ({named}{', ...' * (len(labels) > 5)}): the "
            "split is drawn from all images, not class by class; try another --seed, or pack a list for each part"
        )
    if report.old_indexes:
        first = report.old_indexes[0]
        dots = " ..." if len(report.old_indexes) > 1 else ""
        _note(
            f"crop indexes of the earlier record files are still here ({first}{dots}): delete them, or make them again "
            f"(`aioloader index --crops {shlex.quote(os.fspath(first.with_suffix(RECORD_SUFFIX)))}{dots}`)"
        )
    if report.old_fields:
        _note(
            f"files of fields of the earlier record files are still here ({report.old_fields[0]}"
            f"{' ...' if len(report.old_fields) > 1 else ''}): delete them, as they belong to other records"
        )
    _write_errors(options.error_report, report.errors)
    counted = sum(report.labels.values()) == report.records  # otherwise some have several labels
    classes = f" of {len(report.labels):,} class{'es' * (len(report.labels) > 1)}" if counted else ""
    where = report.urls[0] if report.urls else str(report.rec)
    amount = f"{report.records:,} records{classes}, {size_text(report.nbytes)}"
    if len(report.files) == 1:
        print(f"{where}: {amount}")
    else:
        # What is in front of the name of the first file: a path's folder, or a URL's.
        folder = where[: -len(report.rec.name) - 1] or "."
        print(f"{len(report.files)} files in {folder}: {amount}")
        for file in report.files[:_MOST_FILES]:
            print(f"{file.rec.name}: {file.records:,} records, {size_text(file.nbytes)}")
        if len(report.files) > _MOST_FILES:
            print(f"and {len(report.files) - _MOST_FILES} more, see {report.json}")
    for line in _details(report):
        print(line)


def _class_name(report: PackReport, label: float) -> str:
    number = int(label)
    return report.classes[number] if 0 <= number < len(report.classes) else str(number)


_MOST_FILES = 12


def _write_errors(path: str | None, errors: Sequence[SampleError]) -> None:
    from aioloader.errors import error_report

    if path is not None:
        with open(path, "w", encoding="utf-8") as file:
            json.dump(error_report(errors), file, indent=2)
            file.write("\n")


def _details(report: PackReport) -> Iterator[str]:
    """Yield a line for each kind of change to the images."""
    if report.cropped:
        yield f"{report.cropped:,} cropped to their middle square"
    if report.resized:
        yield f"{report.resized:,} scaled down"
    if report.image_nbytes != report.source_nbytes:
        change = report.image_nbytes / max(1, report.source_nbytes) - 1
        yield (
            f"images: {size_text(report.source_nbytes)} before, {size_text(report.image_nbytes)} now "
            f"({change:+.1%})"
        )
    if report.indexed:
        yield f"{report.indexed:,} in the crop index, {size_text(report.index_nbytes)}"
    for reason, count in report.unindexed.items():
        yield f"{count:,} not in the crop index: {reason}"
    if report.skipped:
        yield f"{len(report.skipped):,} left out"
    if report.replaced:
        yield f"{report.replaced:,} replaced by the next valid image"
    if report.outside:
        yield f"{report.outside:,} outside the classes' folders, and therefore not packed"
    if report.empty:
        yield f"{len(report.empty):,} classes without images: {', '.join(report.empty[:5])}"
    if report.left_out:
        yield f"not read: {', '.join(f'{count:,} {reason}' for reason, count in report.left_out.items())}"


P = ParamSpec("P")
Path_: TypeAlias = "str | os.PathLike[str]"


def _by_name(
    options: Callable[P, PackOptions],
) -> Callable[
    [Callable[[Path_, Path_, PackOptions], PackReport]], Callable[Concatenate[Path_, Path_, P], PackReport]
]:
    """Return a decorator: the function takes source, output and a bundle of options, and its callers pass each by name.

    Args:
        options: makes the bundle.
    """

    def decorate(
        pack: Callable[[Path_, Path_, PackOptions], PackReport],
    ) -> Callable[Concatenate[Path_, Path_, P], PackReport]:
        def packs(source: Path_, out: Path_, *args: P.args, **kwargs: P.kwargs) -> PackReport:
            return pack(source, out, options(*args, **kwargs))

        functools.update_wrapper(packs, pack)
        # The type system cannot say that source and output may be passed by name, as well as a bundle of options.
        return cast("Callable[Concatenate[Path_, Path_, P], PackReport]", packs)

    return decorate


@_by_name(PackOptions)
def pack(source: Path_, out: Path_, options: PackOptions) -> PackReport:
    """Pack images; existing files of the same names are replaced when all new ones are complete.

    The bytes of the result depend only on the source and the options, not on the number of workers, the executor, or
    interruptions.

    Args:
        source: folder with one sub-folder per class (see `list_images`); or a .lst file; or anything that
            `aioloader.open_dataset` reads, such as a pattern or the URL of a file; or, with `kind`, the
            folder with the files of a set. Samples of other formats keep the bytes of their images, and are read while
            they are packed; they get new keys.
        out: the record file to write; its suffix is added if it is missing. The .idx, .lst and .json are next to it.
            A list that is itself the source is not overwritten. For a URL, all files are written to the system's
            temporary folder and uploaded when they are complete; such a run cannot be resumed.
        options: each by its name, see `PackOptions`.

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
        ValueError: the source has no images, or a name cannot be written to a list, or an option is not allowed.
        PackBusyError: another process is packing into the same files.
        PackError: an image is damaged or too large for a record; with "skip" and "replace": all are.
        TooManyErrorsError: more images failed than `max_errors`; its `errors` are the errors of the images.
        OSError: a file cannot be read or written.

    After an error, existing files at `out` are unchanged. After an interrupt or a system error (such as a full disk),
    finished work stays next to it in files that end in ".partial", and the same call resumes from there.
    """
    path = path_of(out)
    return _pack_to_url(source, path, options) if is_url(path) else _pack(source, path, options)


def _pack(source: Path_, out: Path_, options: PackOptions) -> PackReport:
    place = Path(out)
    stem = stem_of(place)
    if stem.name in ("", ".."):
        raise ValueError(f"{str(out)!r} does not end in a file's name")
    if os.fspath(out).endswith(("/", os.sep)):
        raise ValueError(f"{str(out)!r} is the name of a folder: add a name for the record file")
    found = find_source(source, options)
    if options.append:
        options.check_append(found.kind, divided=bool(found.parts))
    plan = make_plan(len(found), place, options, found.parts)
    _keep_source(plan, found)
    report_place = _report_place(stem, plan, options)
    old = _continued(plan, found, stem, options) if options.append else None
    encode = options.encode
    executor = options.executor
    if executor is None:
        only_copies = encode.copies and not options.crops and options.num_workers is None
        executor = "inline" if only_copies else "thread"
    job = Job(
        source=found,
        plan=plan,
        encode=encode,
        out=stem,
        arguments=_arguments(found, old, options),
        workers=options.num_workers or available_cores(),
        executor=executor,
        on_error=options.on_error,
        max_errors=options.max_errors,
        json=report_place,
        resume=options.resume,
        sync_s=options.sync_s,
    )
    report = PackReport(
        plan.outputs,
        found.classes,
        json=report_place,
        outside=found.outside,
        empty=found.empty,
        left_out=found.left_out,
    )
    run_job(job, report, begin=options.begin, tick=options.tick)
    report.others = tuple(other_shards(plan.outputs, os.listdir(stem.parent)))
    if not options.crops:
        places = [Path(record_index(os.fspath(output.rec))) for output in plan.outputs]
        report.old_indexes = tuple(place for place in places if place.exists())
    if not options.kept:
        places = [fields_place(output.rec) for output in plan.outputs]
        report.old_fields = tuple(place for place in places if place.exists())
    return report


def _pack_to_url(source: Path_, url: str, options: PackOptions) -> PackReport:
    """Pack to a temporary folder, and upload its files next to a URL."""
    if options.append:
        raise ValueError(
            "append changes files on this machine: pack into another URL, and read both as one set"
        )
    if options.json is not None:
        raise ValueError("the report of files at a URL is uploaded next to them: leave out json")
    name = name_of(url)
    if not name:
        raise ValueError(f"{url!r} does not end in a file's name")
    locate(url)
    check_writable(url)
    with tempfile.TemporaryDirectory(prefix="aioloader-") as folder:
        report = _pack(source, Path(folder, name), options)
        report.urls = _upload(Path(folder), url)
    return report


def _keep_source(plan: Plan, found: Source) -> None:
    """Leave out a list that is the source itself, and refuse outputs that would overwrite the source or a folder."""
    for output in plan.outputs:
        if found.lst is not None and output.lst is not None and output.lst.exists():
            output.lst = None if output.lst.samefile(found.lst) else output.lst
    for each in (place for output in plan.outputs for place in output.places):
        if each.is_dir():
            raise IsADirectoryError(f"{each} is a folder: choose another name")
        if found.samples is not None and found.samples.overlaps(each):
            raise ValueError(f"{each} is a file of the source: choose another name for the record file")


def _report_place(stem: Path, plan: Plan, options: PackOptions) -> Path:
    """Return the path of the report.

    Raises:
        ValueError: it is in another folder, or has the name of another output.
        FileExistsError: it is that of another file.
    """
    place = stem.with_name(f"{stem.name}.json") if options.json is None else Path(options.json)
    if place.resolve().parent != stem.resolve().parent:
        raise ValueError(f"the report {place} must be in the folder of {stem.name}")
    if place.name in {each.name for output in plan.outputs for each in output.places}:
        raise ValueError(f"{place} is the name of another output file: choose another name for the report")
    if place.exists() and not is_report(place):
        raise FileExistsError(
            f"{place} is not a packing report: move it, or choose another name for the report (json=, --report)"
        )
    return place


def _continued(plan: Plan, found: Source, stem: Path, options: PackOptions) -> Existing:
    """Make the only output continue its file; return what that has."""
    (output,) = plan.outputs
    if output.lst is None:
        raise ValueError(f"{found.path} is the list of what is in {output.rec}: pass a list of new images")
    old = existing(output, journal_of(stem), found)
    check_files(output, fields=bool(options.kept))
    number_classes(found, old, output.rec)
    continued(output, old)
    return old


def _arguments(found: Source, old: Existing | None, options: PackOptions) -> dict[str, Any]:
    """Return the options that determine the bytes of the result, as JSON values."""
    encode = options.encode
    arguments = asdict(encode)
    arguments["encoding"] = arguments.pop("name")
    if not options.crops:
        del arguments["crops"]
    arguments |= {**options.order, "on_error": options.on_error, "max_errors": options.max_errors}
    if old is not None:
        arguments["append"] = asdict(old)
    arguments["root"] = None if options.root is None else str(options.root)
    if options.synsets is not None:
        arguments["synsets"] = list(options.synsets)
    if found.samples is not None:
        arguments |= {"image": options.image, "label": options.label, "no_label": options.no_label}
        arguments["fields"] = list(options.kept)
    arguments["libraries"] = library_versions() if encode.touches_pixels or options.in_memory else {}
    return arguments


def _upload(folder: Path, out: str) -> tuple[str, ...]:
    """Upload all files of a folder next to a URL; return their URLs, record files first."""
    from aioloader.storage.remote.stores import delete, upload

    files = sorted(folder.iterdir(), key=lambda path: (path.suffix != RECORD_SUFFIX, path.name))
    urls = tuple(sibling(out, path.name) for path in files)
    # Without an .idx a reader scans the file, which is slow but correct; an outdated .idx would be wrong.
    for path, url in zip(files, urls, strict=True):
        if path.suffix == ".idx":
            delete(url)
    for path, url in zip(files, urls, strict=True):
        upload(path, url)
    return urls
