"""Command `aioloader verify`: find damage in a data set."""

from __future__ import annotations

import argparse
import json
import os
import sys
from contextlib import nullcontext
from typing import TYPE_CHECKING, Any

from aioloader.cli.arguments import Commands, natural

if TYPE_CHECKING:
    from aioloader.datasets.base import Dataset
    from aioloader.tools.crop_check import CropCheck
    from aioloader.tools.verify import ImageCheck

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
    verify.add_argument("--decode", action="store_true", help="decode every image, and check its label")
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
    from aioloader.observability.progress import ProgressBar
    from aioloader.storage.urls import redact_url
    from aioloader.tools.crop_check import check_folder_index, check_record_index
    from aioloader.tools.paths import is_folder, read_progress
    from aioloader.tools.verify import ImageFolder, ValidImages, check
    from recordio import verify
    from recordio.__main__ import print_report

    code, facts = 0, {"path": redact_url(path), "ok": True}
    # Checksums run without the interpreter's lock; starting processes for each of many files would take longer.
    checking: dict[str, Any] = {"num_workers": options.num_workers, "executor": "thread"}
    if is_folder(path):
        checked_index = check_folder_index(path, **checking)
    else:
        with read_progress("reading", path) as tick:
            report = verify(path, options.index, tick=tick)
        facts = report.facts()
        code = int(not report.ok) if options.json else print_report(report, as_json=False)
        checked_index = check_record_index(path, report, **checking)
    if checked_index is not None:
        facts["crop_index"] = checked_index.facts()
        facts["ok"] = facts["ok"] and checked_index.ok
        code = max(code, int(not checked_index.ok))
        if not options.json:
            _print_index(checked_index)
    if not options.decode:
        return code, facts
    dataset: Dataset = ImageFolder(path) if is_folder(path) else ValidImages(report, path)
    with ProgressBar("decoding", len(dataset)) if len(dataset) else nullcontext() as bar:
        tick = None if bar is None else bar.update
        checked = check(dataset, num_workers=options.num_workers, tick=tick)
    facts |= checked.facts()
    facts["ok"] = facts["ok"] and not checked.errors
    if not options.json:
        _print_images(redact_url(path), checked)
    return max(code, int(bool(checked.errors))), facts


def _print_index(checked: CropCheck) -> None:
    if checked.fault:
        print(f"{checked.path}: {checked.fault}", file=sys.stderr)
        return
    for count, what in (
        (checked.stale, "entries belong to other bytes: the images were changed"),
        (checked.damaged, "entries are damaged"),
        (checked.missing, "images are not in the index"),
    ):
        if count:
            print(f"{checked.path}: {count:,} {what}", file=sys.stderr)
    total = checked.entries + checked.stale + checked.damaged
    fit = "all fit their images" if checked.ok else f"{checked.entries:,} fit their images"
    print(f"{checked.path}: {total:,} entries, {fit}; {checked.refused:,} images can have none")
    if not checked.ok:
        print(
            f"{checked.path}: `aioloader index --crops` makes the others again; until then they cost speed only"
        )


def _print_images(path: str, checked: ImageCheck) -> None:
    for error in checked.errors:
        place = error.path or path
        if error.offset is not None:
            key = "no key" if error.key is None else f"key {error.key!r}"
            place += f": byte {error.offset}, {key}"
        print(f"{place}: {error.reason}", file=sys.stderr)
    if checked.images:
        damaged = f"{len(checked.errors):,} of them damaged" if checked.errors else "all valid"
        print(f"{path}: {checked.images:,} images decoded, {damaged}")
    else:
        print(f"{path}: contains no images")
