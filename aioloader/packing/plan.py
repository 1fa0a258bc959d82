"""Which image goes into which file, and where it stands there: arithmetic over a seed. Pure.

Rule: a part of a split is drawn by the seed alone, so it is the same with and without shuffling; each shard of a part
holds a stretch of its order, and the first ones are longer by one where it cannot be divided.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

import numpy as np

from aioloader.datasets.shards import shard_name
from aioloader.packing.lists import split_list
from aioloader.samplers.permutation import permute

if TYPE_CHECKING:
    from collections.abc import Iterable
    from pathlib import Path

    from aioloader.foundation.types import IntArray

__all__ = ("Output", "Plan", "make_plan", "other_shards", "stem_of")

_MOST_SHARDS = 100_000


@dataclass(frozen=True)
class Output:
    """One record file.

    Attributes:
        part: name of the part that it belongs to ("train", ...), or "".
        shard: its number among the shards of the part, or None.
        rec: its place.
        idx, lst: those of its index and its list; None: it has none.
        start, stop: the positions of its images.
    """

    part: str
    shard: int | None
    rec: Path
    idx: Path | None
    lst: Path | None
    start: int
    stop: int

    @property
    def places(self) -> tuple[Path, ...]:
        """The record file and what lies beside it."""
        return tuple(place for place in (self.rec, self.idx, self.lst) if place is not None)


@dataclass(frozen=True)
class Plan:
    """All that is to be written.

    Attributes:
        order: int64 (n,), the number of the image at each position.
        outputs: the files, which cover all positions one after the other.
    """

    order: IntArray
    outputs: tuple[Output, ...]


def stem_of(out: Path) -> Path:
    """The name that files are called by: without ".rec", if it ends so."""
    return out.with_suffix("") if out.suffix == ".rec" else out


def other_shards(outputs: Iterable[Output], names: Iterable[str]) -> list[str]:
    """Shards of the same names, divided into another number of files: a pattern such as OUT-*.rec reads them too.

    Args:
        outputs: the files of a plan.
        names: all that lie in their folder.
    """
    own = {output.rec.name for output in outputs}
    sets = {shard[0] for shard in map(shard_name, own) if shard is not None}
    return sorted(
        name for name in set(names) - own if (shard := shard_name(name)) is not None and shard[0] in sets
    )


def make_plan(
    count: int,
    out: Path,
    *,
    shuffle: bool = False,
    seed: int = 0,
    train_ratio: float | None = None,
    test_ratio: float | None = None,
    parts: dict[str, int] | None = None,
    shards: int | None = None,
    lists: bool = True,
) -> Plan:
    """Divide images among files.

    Args:
        count: number of images, at least 1.
        out: the record file, with or without its ending.
        shuffle: mix them; otherwise each part keeps the order of the source.
        seed: 0 <= seed < 2**64.
        train_ratio, test_ratio: shares for OUT_train and OUT_test; the rest goes to OUT_val. None: no such part is
            asked for, and where the other one is, all the rest goes to OUT_train.
        parts: the images of each part where the source is divided, in the order of its images.
        shards: how many files each part is divided into; None: one, without a number.
        lists: give each file a list.

    Raises:
        ValueError: an argument is not allowed, or a part or a shard would be empty.
    """
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
            raise ValueError("this set is divided by its publishers: leave train_ratio and test_ratio out")
        divided = _split(mixed, train_ratio, test_ratio)
        if not shuffle:
            divided = [(name, np.sort(members)) for name, members in divided]
    outputs: list[Output] = []
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
            outputs.append(Output(name, shard, rec, idx, lst if lists else None, place, stop))
            place = stop
    return Plan(np.concatenate([members for _, members in divided]), tuple(outputs))


def _split(mixed: IntArray, train: float | None, test: float | None) -> list[tuple[str, IntArray]]:
    test = 0.0 if test is None else test
    train = 1.0 - test if train is None else train
    if not (0 < train < 1 and 0 <= test < 1) or train + test > 1 + 1e-9:
        raise ValueError(
            "train_ratio and test_ratio must lie between 0 and 1 and be no more than everything together, got "
            f"{train:g} and {test:g}"
        )
    found = [
        (name[1:], np.array(part, np.int64)) for name, part in split_list(mixed.tolist(), 1, train, test)
    ]
    for name, members in found:
        if not len(members):
            raise ValueError(f"of {len(mixed)} images the part {name} would get none: give other ratios")
    return found
