"""Assignment of images to files and positions, computed from a seed. Pure.

Rule: the seed alone determines the parts of a split, so they are the same with and without shuffling. Each shard of a
part has a contiguous range of its order; where the images do not divide evenly, the first shards have one more.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aioloader.formats.base import RECORD_SUFFIX
from aioloader.formats.packed_files import fields_place
from aioloader.formats.shards import shard_name
from aioloader.packing.lists import split_bounds
from aioloader.packing.report import Packed
from aioloader.samplers.epoch_order import permute

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from aioloader.foundation.types import IntArray
    from aioloader.packing.options import PackOptions

_MOST_SHARDS = 100_000


@dataclass(frozen=True)
class Plan:
    """Files to be written, and the order of the images in them.

    Attributes:
        order: int64 (n,), number of the image at each position.
        outputs: the files, whose ranges cover all positions in order.
    """

    order: IntArray
    outputs: tuple[Packed, ...]


def stem_of(out: Path) -> Path:
    """Return the path without the suffix of record files; the names of all files begin with it."""
    return out.with_suffix("") if out.suffix == RECORD_SUFFIX else out


def other_shards(outputs: Iterable[Packed], names: Iterable[str]) -> list[str]:
    """Find shards of the same set with another number of shards: a pattern such as OUT-* matches them too.

    Args:
        outputs: the files of a plan.
        names: names of all files in their folder.
    """
    own = {output.rec.name for output in outputs}
    sets = {shard[0] for shard in map(shard_name, own) if shard is not None}
    return sorted(
        name for name in set(names) - own if (shard := shard_name(name)) is not None and shard[0] in sets
    )


def make_plan(count: int, out: Path, options: PackOptions, parts: dict[str, int] | None = None) -> Plan:
    """Divide images among files.

    Args:
        count: number of images, at least 1.
        out: the record file, with or without its extension.
        options: the order, the parts and the shards, and which files each has.
        parts: number of images of each part where the source is already divided, in the order of its images.

    Raises:
        ValueError: an argument is not allowed, or a part or a shard would be empty.
    """
    shards, seed, shuffle = options.shards, options.seed, options.shuffle
    train_ratio, test_ratio = options.train_ratio, options.test_ratio
    if shards is not None and not 1 <= shards <= _MOST_SHARDS:
        raise ValueError(f"shards must lie between 1 and {_MOST_SHARDS:,}, got {shards}")
    mixed = permute(seed, 0, count, 0, count)
    if train_ratio is None and test_ratio is None:
        numbers = np.arange(count, dtype=np.int64)
        ends = np.cumsum(list(parts.values())) if parts else [count]
        divided = list(zip(parts or [""], np.split(numbers, ends[:-1]), strict=True))
        if shuffle:
            divided = [
                (name, members[permute(seed, 0, len(members), 0, len(members))]) for name, members in divided
            ]
    else:
        if parts:
            raise ValueError(
                "this set has published train and test parts: leave out train_ratio and test_ratio"
            )
        divided = _split(mixed, train_ratio, test_ratio)
        if not shuffle:
            divided = [(name, np.sort(members)) for name, members in divided]
    outputs: list[Packed] = []
    place = 0
    stem = stem_of(out)
    for name, members in divided:
        for number in range(shards or 1):
            share, longer = divmod(len(members), shards or 1)
            stop = place + share + (number < longer)
            if stop == place:
                of = f"the part {name}" if name else "the source"
                raise ValueError(f"{of} has {len(members)} images, too few for {shards or 1} shards")
            ending = "" if shards is None else f"-{number:05}-of-{shards:05}"
            base = f"{stem.name}{'_' if name else ''}{name}{ending}"
            rec, idx, lst = (stem.with_name(f"{base}.{suffix}") for suffix in ("rec", "idx", "lst"))
            shard = None if shards is None else number
            index = stem.with_name(f"{base}.crops") if options.crops else None
            outputs.append(
                Packed(
                    rec,
                    idx,
                    lst,
                    part=name,
                    shard=shard,
                    start=place,
                    stop=stop,
                    crops=index,
                    fields=fields_place(rec) if options.kept else None,
                )
            )
            place = stop
    return Plan(np.concatenate([members for _, members in divided]), tuple(outputs))


def _split(mixed: IntArray, train: float | None, test: float | None) -> list[tuple[str, IntArray]]:
    test = 0.0 if test is None else test
    train = 1.0 - test if train is None else train
    if not (0 < train < 1 and 0 <= test < 1) or train + test > 1 + 1e-9:
        raise ValueError(
            "train_ratio and test_ratio must be between 0 and 1 and their sum at most 1, got "
            f"{train:g} and {test:g}"
        )
    found = [(name[1:], mixed[start:stop]) for name, start, stop in split_bounds(len(mixed), 1, train, test)]
    for name, members in found:
        if not len(members):
            raise ValueError(f"the part {name} would get none of {len(mixed)} images: choose other ratios")
    return found
