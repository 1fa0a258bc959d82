"""Part of `aioloader verify` for shards of other formats than RecordIO."""

from __future__ import annotations

import sys
from functools import partial
from typing import TYPE_CHECKING, Any

from aioloader.cli.check_report import check_entries, print_entries, print_images

if TYPE_CHECKING:
    import argparse

    from aioloader.datasets.shard_dataset import ShardDataset

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
    from aioloader.tools.shard_check import check_shard

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
    from aioloader.cli.progress import LateProgress
    from aioloader.storage.urls import redact_url
    from aioloader.tools.shard_check import check_samples

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
