"""Command `aioloader verify`: find damage in a data set.

Checks of crop indexes and images, as `aioloader verify` runs and prints them.

Part of `aioloader verify` for shards of other formats than RecordIO.
"""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from aioloader.cli.console import Commands, natural

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.datasets.base import Dataset
    from aioloader.datasets.shard_dataset import ShardDataset
    from aioloader.tools.crop_check import CropCheck
    from aioloader.tools.verify import ImageCheck


# Checking the entries of fewer images takes seconds at most, and needs no progress bar.
_MANY_IMAGES = 10_000


def check_entries(check: Callable[..., CropCheck | None], options: argparse.Namespace) -> CropCheck | None:
    """Check a crop index, with a progress bar; return None if there is none.

    Args:
        check: one of the functions of `aioloader.tools.crop_check`, with the data but without options.
        options: of the command.
    """
    from aioloader.cli.console import LateProgress
    from aioloader.crop_index.writer import can_build

    rebuild = options.decode and can_build()
    with LateProgress("checking entries") as progress:
        return check(
            rebuild=rebuild,
            num_workers=options.num_workers,
            # Checksums run without the interpreter's lock; starting processes for each of many files takes longer.
            executor="thread",
            begin=lambda count: progress.begin(count if rebuild or count >= _MANY_IMAGES else 0),
            tick=progress.tick,
        )


def print_entries(checked: CropCheck, path: str, *, decode: bool) -> None:
    """Print the result of checking a crop index.

    Args:
        checked: the result.
        path: the file or folder that it belongs to.
        decode: the caller wanted the entries to be made again.
    """
    from aioloader.cli.console import failure_line

    if checked.fault:
        print(f"{checked.path}: {checked.fault}", file=sys.stderr)
        return
    for error in checked.errors:
        print(failure_line(error, path), file=sys.stderr)
    for count, what in (
        (checked.stale, "entries of other bytes, because the images were changed"),
        (checked.damaged, "damaged entries"),
        (checked.different, "entries that differ from those made again"),
        (checked.missing, "images that are not in the index"),
        (len(checked.errors), "images that could not be read"),
    ):
        if count:
            print(f"{checked.path}: {what}: {count:,}", file=sys.stderr)
    total = checked.entries + checked.stale + checked.damaged + checked.different
    fit = "all fit their images" if checked.entries == total else f"{checked.entries:,} fit their images"
    again = " and equal those made again" if checked.rebuilt else ""
    surplus = f"; {checked.surplus:,} of images that do not exist" if checked.surplus else ""
    print(
        f"{checked.path}: {total:,} entries, {fit}{again}; {checked.refused:,} images can have none{surplus}"
    )
    if decode and not checked.rebuilt:
        print(
            f"{checked.path}: the entries were not made again: this needs numba (pip install 'aioloader[crops]')"
        )
    if checked.stale or checked.different or checked.damaged or checked.missing:
        # Without --remake, entries are kept while size and time of modification of the record file are the same.
        remake = " --remake" if checked.stale or checked.different else ""
        command = f"aioloader index --crops{remake} {shlex.quote(path)}"
        cost = "crops may have wrong pixels" if checked.different else "they cost speed only"
        print(f"{checked.path}: `{command}` makes the others again; until then {cost}")


def print_images(path: str, checked: ImageCheck) -> None:
    """Print the result of decoding the images of a file or folder."""
    from aioloader.cli.console import failure_line

    for error in checked.errors:
        print(failure_line(error, path), file=sys.stderr)
    if checked.images:
        damaged = f"{len(checked.errors):,} of them damaged" if checked.errors else "all valid"
        print(f"{path}: {checked.images:,} images decoded, {damaged}")
    else:
        print(f"{path}: contains no images")


Checked = tuple[int, dict[str, Any]]
"""Exit code, and the report as JSON values."""


def verify_shards(dataset: ShardDataset, options: argparse.Namespace) -> list[Checked]:
    """Check shards, and print the faults unless the output is JSON.

    Args:
        dataset: over the shards.
        options: of the command.

    Returns:
        the result for each shard.
    """
    from aioloader.tools.shards import openable

    checked = [_structure(dataset, number, options) for number in range(len(dataset.paths))]
    is_empty = all(not code and not facts["samples"] for code, facts in checked)
    fine, reasons = openable(dataset)
    for number in fine:
        checked[number] = _with_outside(dataset.only([number]), checked[number], options)
    if is_empty:
        return [_empty(facts, options) for _, facts in checked]
    for number, reason in reasons.items():
        # A fault that the structure does not show, such as an index without a column that the dataset needs.
        if not checked[number][0]:
            checked[number] = _with_problem(checked[number][1], reason)
            _print_error(reason, options)
    for number in fine:
        checked[number] = _entries(dataset.only([number]), checked[number], options)
    if options.decode and fine:
        for number, found in zip(fine, _images(dataset.only(fine), options), strict=True):
            code, facts = checked[number]
            checked[number] = max(code, found[0]), facts | found[1] | {"ok": facts["ok"] and not found[0]}
    if options.decode:
        for number in reasons:
            text = "its images were not decoded, because its samples cannot be found"
            _print_error(f"{checked[number][1]['path']}: {text}", options)
    return checked


def _structure(dataset: ShardDataset, number: int, options: argparse.Namespace) -> Checked:
    from aioloader.tools.paths import read_progress
    from aioloader.tools.verify import check_shard

    path = dataset.paths[number]
    with read_progress("reading", path) as tick:
        report = check_shard(dataset, number, tick=tick)
    if not options.json:
        for line in report.lines():
            print(line, file=sys.stderr)
        print(report.summary())
    return int(not report.ok), report.facts()


def _with_outside(dataset: ShardDataset, checked: Checked, options: argparse.Namespace) -> Checked:
    """Add the numbers of the members that belong to no sample, in the only shard of a dataset."""
    outside = dataset.members_outside()
    code, facts = checked
    if outside and not options.json:
        words = ", ".join(f"{name} {count:,}" for name, count in outside.items())
        print(f"{facts['path']}: members that belong to no sample: {words}")
    return code, facts | ({"members_outside": outside} if outside else {})


def _empty(facts: dict[str, Any], options: argparse.Namespace) -> Checked:
    """Report a shard of a set that has no sample at all: no loader could deliver anything."""
    reason = "there are no samples in the data set: check how the file was made"
    _print_error(f"{facts['path']}: {reason}", options)
    return _with_problem(facts, reason)


def _with_problem(facts: dict[str, Any], reason: str) -> Checked:
    """Return the result of a shard whose only fault concerns the whole file."""
    problem = dict.fromkeys(("offset", "key", "expected", "found")) | {"message": reason}
    return 1, facts | {"ok": False, "problems": [problem]}


def _entries(dataset: ShardDataset, checked: Checked, options: argparse.Namespace) -> Checked:
    """Check the crop index of the only shard of a dataset."""
    from aioloader.tools.crop_check import check_shard_index

    found = check_entries(partial(check_shard_index, dataset), options)
    if found is None:
        return checked
    code, facts = checked
    if not options.json:
        print_entries(found, facts["path"], decode=options.decode)
    return max(code, int(not found.ok)), facts | {"crop_index": found.facts(), "ok": facts["ok"] and found.ok}


def _images(dataset: ShardDataset, options: argparse.Namespace) -> list[Checked]:
    """Decode all samples; return the result for each shard."""
    from aioloader.cli.console import LateProgress
    from aioloader.storage.urls import redact_url
    from aioloader.tools.verify import check_samples

    with LateProgress("decoding") as progress:
        progress.begin(len(dataset))
        found = check_samples(dataset, num_workers=options.num_workers, tick=progress.tick)
    if not options.json:
        for path, checked in zip(dataset.paths, found, strict=True):
            print_images(redact_url(path), checked)
    return [(int(bool(checked.errors)), checked.facts()) for checked in found]


def _print_error(text: str, options: argparse.Namespace) -> None:
    if not options.json:
        print(text, file=sys.stderr)


_EXIT_CODES = """\
exit codes:
  0  everything is valid
  1  a file, its index or an image is damaged, the crop index next to it does not fit its images, or a set of shards
     has no samples; each fault is reported on standard error
  2  wrong usage, or there is no such file
"""


def add(commands: Commands) -> None:
    """Add the command's parser."""
    verify = commands.add_parser(
        "verify",
        help="check the files of a data set, and with --decode every image",
        description="Read whole files and report every fault of them and their indexes. Most formats have no "
        "checksum of the\ncontents, so damage inside an image is found only with --decode.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verify.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a file of any format or its URL, a pattern of files, a folder of them, or a folder of images (with "
        "--decode)",
    )
    verify.add_argument("--image", metavar="NAME", help="field of the image, where samples have fields")
    verify.add_argument("--label", metavar="NAME", help="field of the label")
    verify.add_argument(
        "--index", metavar="IDX", help="the .idx of the only .rec file (default: the one next to it)"
    )
    verify.add_argument(
        "--decode",
        action="store_true",
        help="decode every image, and check its label; make the entries of a crop index again, and compare them "
        "(needs numba)",
    )
    verify.add_argument(
        "--num-workers",
        type=natural,
        metavar="N",
        help="number of decoding processes; without it one per core; 0: none",
    )
    verify.add_argument("--json", action="store_true", help="print the report as JSON")
    verify.set_defaults(command=lambda options: _run(options, verify))


def _run(options: argparse.Namespace, parser: argparse.ArgumentParser) -> int:
    from aioloader.crop_index.layout import folder_index
    from aioloader.formats.base import format_of_name
    from aioloader.formats.opening import format_at, recognize
    from aioloader.formats.recordio.format import FORMAT as RECORDIO
    from aioloader.storage.urls import name_of
    from aioloader.tools.paths import is_folder
    from aioloader.tools.shards import shard_sets
    from aioloader.tools.verify import find_files
    from recordio.__main__ import run_command

    def run() -> int:
        sets, words = shard_sets(options.files, image=options.image, label=options.label)
        files = find_files(words)
        if options.index is not None and (len(files) != 1 or sets):
            parser.error("--index can only be used with one .rec file")
        for path in files:
            if not is_folder(path) and format_of_name(name_of(path)) is not RECORDIO:
                format_at(path)  # an error that names the known formats if it is of none of them
            if is_folder(path) and not options.decode and not os.path.exists(folder_index(path)):
                recognize(path)  # an error that describes the folder if there are no images in it
                parser.error(f"{path} is a folder of images; use --decode to check them")
        checked = [each for dataset in sets for each in verify_shards(dataset, options)]
        checked += [_verify(path, options) for path in files]
        code = max((code for code, _ in checked), default=0)
        if options.json:
            print(json.dumps({"ok": not code, "files": [facts for _, facts in checked]}, indent=2))
        return code

    return run_command(run)


def _verify(path: str, options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Check one file or folder, and print the faults unless the output is JSON; return exit code and report."""
    from aioloader.cli.console import LateProgress
    from aioloader.formats.opening import recognize
    from aioloader.storage.urls import redact_url
    from aioloader.tools.crop_check import check_folder_index, check_record_index
    from aioloader.tools.paths import is_folder, read_progress
    from aioloader.tools.verify import ImageFolder, ValidImages, check
    from recordio import verify
    from recordio.__main__ import print_report

    code, facts = 0, {"path": redact_url(path), "ok": True}
    if not is_folder(path):
        with read_progress("reading", path) as tick:
            report = verify(path, options.index, tick=tick)
        facts = report.facts()
        code = int(not report.ok) if options.json else print_report(report, as_json=False)
    find = partial(check_folder_index, path) if is_folder(path) else partial(check_record_index, path, report)
    checked_index = check_entries(find, options)
    if checked_index is not None:
        facts["crop_index"] = checked_index.facts()
        facts["ok"] = facts["ok"] and checked_index.ok
        code = max(code, int(not checked_index.ok))
        if not options.json:
            print_entries(checked_index, redact_url(path), decode=options.decode)
    if not options.decode:
        return code, facts
    dataset: Dataset = ImageFolder(path) if is_folder(path) else ValidImages(report, path)
    if isinstance(dataset, ImageFolder):
        if not len(dataset):
            recognize(path)  # an error that describes the folder
        facts["not_read"] = dataset.left_out
        if dataset.left_out and not options.json:
            counts = ", ".join(f"{count:,} {reason}" for reason, count in dataset.left_out.items())
            print(f"{redact_url(path)}: not read: {counts}")
    with LateProgress("decoding") as progress:
        progress.begin(len(dataset))
        checked = check(dataset, num_workers=options.num_workers, tick=progress.tick)
    facts |= checked.facts()
    facts["ok"] = facts["ok"] and not checked.errors
    if not options.json:
        print_images(redact_url(path), checked)
    return max(code, int(bool(checked.errors))), facts
