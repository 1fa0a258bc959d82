"""Command `aioloader verify`: find damage in a data set."""

from __future__ import annotations

import argparse
import json
import os
import shlex
import sys
from typing import TYPE_CHECKING, Any

from aioloader.cli.arguments import Commands, natural

if TYPE_CHECKING:
    import recordio
    from aioloader.datasets.base import Dataset
    from aioloader.tools.crop_check import CropCheck
    from aioloader.tools.verify import ImageCheck

# Checking the entries of fewer images takes seconds at most, and needs no progress bar.
_MANY_IMAGES = 10_000

_EXIT_CODES = """\
exit codes:
  0  everything is valid
  1  a file, its index or an image is damaged, or the crop index next to it does not fit its images; each fault is
     reported on standard error
  2  wrong usage, or there is no such file
"""


def add(commands: Commands) -> None:
    """Add the command's parser."""
    verify = commands.add_parser(
        "verify",
        help="check .rec files and their .idx, and with --decode every image",
        description="Read whole record files and report every fault of them and their indexes. The format has no "
        "checksum, so\ndamage inside an image is found only with --decode.",
        epilog=_EXIT_CODES,
        formatter_class=argparse.RawDescriptionHelpFormatter,
    )
    verify.add_argument(
        "files",
        nargs="+",
        metavar="FILE",
        help="a .rec file or its URL, a pattern such as 'train-*.rec', a folder of them, or a folder of images (with "
        "--decode)",
    )
    verify.add_argument(
        "--index", metavar="IDX", help="the .idx of the only file (default: the one next to it)"
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
    from aioloader.crop_index.places import folder_index
    from aioloader.storage.urls import is_url
    from aioloader.tools.paths import is_folder
    from aioloader.tools.verify import find_files
    from recordio.__main__ import run_command

    def run() -> int:
        files = find_files(options.files)
        if options.index is not None and len(files) != 1:
            parser.error("--index can only be used with one file")
        if any(map(is_url, files)):
            from aioloader.storage.remote import register

            register()
        for path in files:
            if is_folder(path) and not options.decode and not os.path.exists(folder_index(path)):
                parser.error(f"{path} is a folder without .rec files; use --decode to check the images in it")
        checked = [_verify(path, options) for path in files]
        code = max(code for code, _ in checked)
        if options.json:
            print(json.dumps({"ok": not code, "files": [facts for _, facts in checked]}, indent=2))
        return code

    return run_command(run)


def _verify(path: str, options: argparse.Namespace) -> tuple[int, dict[str, Any]]:
    """Check one file or folder, and print the faults unless the output is JSON; return exit code and report."""
    from aioloader.cli.progress import LateProgress
    from aioloader.storage.urls import redact_url
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
    checked_index = _check_index(path, None if is_folder(path) else report, options)
    if checked_index is not None:
        facts["crop_index"] = checked_index.facts()
        facts["ok"] = facts["ok"] and checked_index.ok
        code = max(code, int(not checked_index.ok))
        if not options.json:
            _print_index(checked_index, redact_url(path), options)
    if not options.decode:
        return code, facts
    dataset: Dataset = ImageFolder(path) if is_folder(path) else ValidImages(report, path)
    with LateProgress("decoding") as progress:
        progress.begin(len(dataset))
        checked = check(dataset, num_workers=options.num_workers, tick=progress.tick)
    facts |= checked.facts()
    facts["ok"] = facts["ok"] and not checked.errors
    if not options.json:
        _print_images(redact_url(path), checked)
    return max(code, int(bool(checked.errors))), facts


def _check_index(path: str, report: recordio.Report | None, options: argparse.Namespace) -> CropCheck | None:
    """Check the crop index of a record file, of which there is a report, or of a folder; return None without one."""
    from aioloader.cli.progress import LateProgress
    from aioloader.crop_index.building import can_build
    from aioloader.tools.crop_check import check_folder_index, check_record_index

    rebuild = options.decode and can_build()
    with LateProgress("checking entries") as progress:
        checking: dict[str, Any] = {
            "rebuild": rebuild,
            "num_workers": options.num_workers,
            # Checksums run without the interpreter's lock; starting processes for each of many files would take longer.
            "executor": "thread",
            "begin": lambda count: progress.begin(count if rebuild or count >= _MANY_IMAGES else 0),
            "tick": progress.tick,
        }
        if report is None:
            return check_folder_index(path, **checking)
        return check_record_index(path, report, **checking)


def _print_index(checked: CropCheck, path: str, options: argparse.Namespace) -> None:
    from aioloader.cli.failures import failure_line

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
    if options.decode and not checked.rebuilt:
        print(
            f"{checked.path}: the entries were not made again: this needs numba (pip install 'aioloader[crops]')"
        )
    if checked.stale or checked.different or checked.damaged or checked.missing:
        # Without --remake, entries are kept while size and time of modification of the record file are the same.
        remake = " --remake" if checked.stale or checked.different else ""
        command = f"aioloader index --crops{remake} {shlex.quote(path)}"
        cost = "crops may have wrong pixels" if checked.different else "they cost speed only"
        print(f"{checked.path}: `{command}` makes the others again; until then {cost}")


def _print_images(path: str, checked: ImageCheck) -> None:
    from aioloader.cli.failures import failure_line

    for error in checked.errors:
        print(failure_line(error, path), file=sys.stderr)
    if checked.images:
        damaged = f"{len(checked.errors):,} of them damaged" if checked.errors else "all valid"
        print(f"{path}: {checked.images:,} images decoded, {damaged}")
    else:
        print(f"{path}: contains no images")
