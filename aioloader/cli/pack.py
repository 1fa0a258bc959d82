"""Command `aioloader pack`: pack images into .rec files."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from typing import TYPE_CHECKING

from aioloader.cli.console import Commands, add_max_pixels, error_limit, natural, positive, share, size_text

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from aioloader.errors import SampleError
    from aioloader.observability.progress import ProgressBar
    from aioloader.tools.pack import PackReport

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
_EXAMPLES = """\
examples:
  aioloader pack photos out                      one sub-folder per class, bytes unchanged, in sorted order
  aioloader pack photos out --shuffle --resize 256 --shards 8
  aioloader pack photos out --train-ratio 0.9    out_train.rec and out_val.rec
  aioloader pack train.lst out --root photos     labels and ids from a list
  aioloader pack --from mnist folder out         out_train.rec and out_test.rec
  aioloader pack 'train-*.tar' out --fields json,txt    images of WebDataset, unchanged, and out.fields.jsonl
  aioloader pack train.parquet out --image img --label fine_label
  aioloader pack more out --append               new photographs behind those of out.rec

Run the same command again to resume an interrupted one. For more see the page Packing of the documentation.

exit codes:
  0    done
  1    it failed: an image is damaged, options conflict, a file cannot be written, ...; nothing is replaced
  2    wrong usage, or there is no such source or image
  130  interrupted (Ctrl-C)
"""


def add(commands: Commands) -> None:
    """Add the command's parser."""
    pack = commands.add_parser(
        "pack",
        help="pack images into .rec files",
        description="Pack a folder with one sub-folder per class, the images of a list, or the samples of another "
        "format (tar, TFRecord, Parquet, MDS, .rec) into OUT.rec, with OUT.idx, OUT.lst and a report, OUT.json.",
        epilog=_EXAMPLES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    pack.add_argument(
        "source",
        metavar="SRC",
        help="the folder; a .lst file; or a file, a pattern such as 'train-*.tar' or a folder of another format, or "
        "the URL of one",
    )
    pack.add_argument(
        "out", metavar="OUT", help="the .rec file to write, with or without its extension; or its URL"
    )
    pack.set_defaults(command=_run)
    group = pack.add_argument_group("source")
    group.add_argument("--root", metavar="DIR", help="folder of a list's paths (default: the list's folder)")
    group.add_argument(
        "--from",
        dest="kind",
        choices=("mnist", "fashion-mnist", "cifar10", "cifar100", "folder"),
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
    group = pack.add_argument_group("fields of samples (tar, TFRecord, Parquet, MDS)")
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
    group = pack.add_argument_group("order and files")
    group.add_argument("--shuffle", action="store_true", help="shuffle the records of each part")
    group.add_argument(
        "--seed", type=natural, default=0, metavar="N", help="seed of the order and the split (default: 0)"
    )
    group.add_argument(
        "--train-ratio", type=share, metavar="R", help="share for OUT_train; the rest: OUT_val"
    )
    group.add_argument("--test-ratio", type=share, metavar="R", help="share for OUT_test")
    group.add_argument(
        "--shards", type=positive, metavar="N", help="divide into N files, OUT-00000-of-0000N.rec and so on"
    )
    group.add_argument(
        "--append",
        action="store_true",
        help="keep the records of OUT.rec and write the new ones behind them; keys, list and classes go on",
    )
    group = pack.add_argument_group("images")
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
    group = pack.add_argument_group("work")
    group.add_argument(
        "--num-workers", type=positive, metavar="N", help="number of workers (default: one per core)"
    )
    group.add_argument(
        "--executor",
        choices=("thread", "process", "inline"),
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
    for name in _IM2REC:
        pack.add_argument(
            name, action=_Im2recSwitch, nargs="*", dest=argparse.SUPPRESS, help=argparse.SUPPRESS
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
    from aioloader.formats.folder.files import find_images

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


def _run(options: argparse.Namespace) -> int:
    from aioloader.errors import TooManyErrorsError
    from aioloader.observability.progress import ProgressBar
    from aioloader.packing.report import PackError
    from aioloader.tools.pack import pack

    # The names of the other options are those of the parameters of `pack`.
    arguments = {
        name: value for name, value in vars(options).items() if name not in ("command", "error_report")
    }
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
        report = pack(**arguments, begin=begin, tick=tick)
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
    from aioloader.packing.run import can_go_on

    if isinstance(error, FileNotFoundError):
        if options.kind is None and options.source.lower().endswith(".lst"):
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
            f"(`aioloader index --crops {shlex.quote(os.fspath(first.with_suffix('.rec')))}{dots}`)"
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
