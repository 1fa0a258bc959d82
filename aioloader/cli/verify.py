"""Command `aioloader verify`: find damage in a data set."""

from __future__ import annotations

import argparse
import json
import os
from functools import partial
from typing import TYPE_CHECKING, Any

from aioloader.cli.arguments import Commands, natural
from aioloader.cli.check_report import check_entries, print_entries, print_images
from aioloader.cli.verify_shards import verify_shards

if TYPE_CHECKING:
    from aioloader.datasets.base import Dataset

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
    from aioloader.crop_index.places import folder_index
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
    from aioloader.cli.progress import LateProgress
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
