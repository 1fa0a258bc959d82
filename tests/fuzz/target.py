"""Fuzz targets: their table and contract, functions that make, try and reduce inputs, and the inputs that are kept."""

from __future__ import annotations

import ast
import hashlib
import importlib
import json
import os
import resource
import shutil
import signal
import tempfile
import traceback
import weakref
from collections.abc import Callable, Iterator, Sequence
from dataclasses import dataclass, field
from functools import cache
from itertools import islice
from pathlib import Path
from random import Random
from typing import Any, Protocol, TypeAlias

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"
NOWHERE = os.path.join(os.devnull, "none")
"""Path of a folder that cannot be made, so that indexes are not cached."""

TARGETS = {
    "records": ("records:Records", 1500),
    "jpeg": ("jpegs:Jpegs", 200),
    "crops": ("crops:CropFiles", 150),
    "entries": ("entries:Entries", 100),
    "parts": ("parts:Parts", 120),
    "parquet": ("parquet_files:ParquetFiles", 12),
    "index": ("texts:Indexes", 200),
    "files": ("files:Files", 8),
    "lst": ("texts:Lists", 60),
    "header": ("image_records:Headers", 200),
    "sets": ("vision_sets:Sets", 60),
    "arrays": ("arrays:Arrays", 200),
    "images": ("images:Images", 200),
    "resize": ("resizes:Resizes", 200),
    "tables": ("iterators:Tables", 60),
    "boxes": ("iterators:Boxes", 100),
    "mds": ("mds:Mds", 120),
    "tfrecord": ("tfrecord:TFRecord", 120),
    "tar": ("tars:Tars", 60),
    "references": ("references:References", 300),
    "http-responses": ("http_responses:Responses", 100),
    "states": ("states:States", 80),
}
"""Module and class of each target, and the number of new inputs that every run of the tests tries."""
NEEDS = {"parquet": "pyarrow", "http-responses": "h11", "resize": "aioloader._native"}
"""Packages that targets need and an environment may lack."""
MOST_NBYTES = 1 << 26
"""Memory that an input may take."""

Draw: TypeAlias = Callable[[], float]
"""Next random number, 0 <= x < 1: the only source of randomness, so that a seed repeats the same inputs."""


class Finding(AssertionError):
    """Error raised when the code under test breaks a rule; the text names the fault."""


class Target(Protocol):
    """Reader of external bytes, under test."""

    def make(self, draw: Draw) -> bytes:
        """Return a new input: a valid one with some faults."""
        ...

    def check(self, data: bytes) -> bool:
        """Try one input; return whether it was read past its first record or header.

        Raises:
            Finding: a wrong result.
            Exception: an undocumented error of the code under test.
        """
        ...


@dataclass
class Tally:
    """Results of a number of inputs.

    Attributes:
        inputs: how many were tried.
        past: how many were read past their first record or header.
        found: one input for each different finding, as small as it could be made, and the traceback.
    """

    inputs: int = 0
    past: int = 0
    found: dict[str, tuple[bytes, str]] = field(default_factory=dict)


def load(name: str) -> Target:
    """Make the target of a name in the table."""
    module, _, kind = TARGETS[name][0].partition(":")
    target: Target = getattr(importlib.import_module(f"tests.fuzz.{module}"), kind)()
    return target


def corpus_of(name: str) -> list[bytes]:
    """Return the kept inputs of a target, by name of the file."""
    return [path.read_bytes() for path in sorted((CORPUS / name).glob("*.bin"))]


def keep(name: str, data: bytes) -> Path:
    """Put an input into the corpus."""
    path = CORPUS / name / f"found-{hashlib.sha256(data).hexdigest()[:12]}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def new_inputs(target: Target, kept: list[bytes], seed: object) -> Iterator[bytes]:
    """Yield inputs without end: the target's own, and some that are nearly those that were kept."""
    draw = Random(str(seed)).random
    while True:
        if not kept or draw() > 0.03:
            yield target.make(draw)
        else:
            data = bytearray(pick(draw, kept))
            change(data, 0, draw, (bytes(4),))
            yield bytes(data)


def try_inputs(name: str, target: Target, count: int, seed: object) -> Tally:
    """Try a number of new inputs; the seed selects them."""
    tally = Tally()
    for data in islice(new_inputs(target, corpus_of(name), seed), count):
        attempt(target, data, tally)
    return tally


def attempt(target: Target, data: bytes, tally: Tally) -> None:
    """Try one input and record its outcome."""
    tally.inputs += 1
    before = most_memory()
    try:
        tally.past += target.check(data)
        if (taken := most_memory() - before) > MOST_NBYTES:
            raise Finding(f"{taken} bytes of memory were taken for it")
    except Exception as error:
        signal.setitimer(signal.ITIMER_REAL, 0)  # reducing an input takes longer than trying it
        if (place := place_of(error)) not in tally.found:
            small = data if isinstance(error, TimeoutError) else shrink(target, data, place)
            tally.found[place] = small, "".join(traceback.format_exception(error))


def place_of(error: BaseException) -> str:
    """Return kind and place of an error: two errors with the same are one finding."""
    frames = [f for f in traceback.extract_tb(error.__traceback__) if f.filename.startswith(str(ROOT))]
    where = "" if not frames else f" at {Path(frames[-1].filename).relative_to(ROOT)}:{frames[-1].lineno}"
    return f"{type(error).__name__}{where}"


def shrink(target: Target, data: bytes, place: str, tries: int = 2000) -> bytes:
    """Remove all bytes that the finding does not need; for a few seconds at most."""
    step = len(data) // 2
    while step and tries > 0:
        at = 0
        while at < len(data) and tries > 0:
            tries -= 1
            smaller = data[:at] + data[at + step :]
            try:
                target.check(smaller)
            except Exception as error:
                if place_of(error) == place:
                    data = smaller
                    continue
            at += step
        step //= 2
    return data


def scratch_folder(owner: object) -> Path:
    """Return a new folder that is removed with its owner."""
    folder = tempfile.mkdtemp(prefix="fuzz-")
    weakref.finalize(owner, shutil.rmtree, folder, True)
    return Path(folder)


def most_memory() -> int:
    """Return the peak memory of this process in bytes (Linux)."""
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss << 10


# -- changes to bytes, independent of their meaning; fast, because millions of inputs are made with them --------------

TELLING = bytes(
    (0, 1, 2, 3, 4, 7, 8, 9, 10, 13, 16, 32, 45, 48, 57, 64, 96, 127, 128, 160, 192, 224, 254, 255)
)
"""Bytes with special meaning: borders of ranges, flags, separators, digits."""


def dictionary(name: str) -> tuple[bytes, ...]:
    """Return the pieces of inputs in a dictionary: one in quotes in each line, as in those of libFuzzer and AFL."""
    lines = Path(__file__).with_name("dictionaries").joinpath(f"{name}.dict").read_text("ascii").splitlines()
    return tuple(ast.literal_eval(f"b{line}") for line in lines if line.startswith('"'))


@cache
def odd_values() -> list[Any]:
    """Return values of JSON that few places of a description may have."""
    text = Path(__file__).with_name("dictionaries").joinpath("values.json").read_text("ascii")
    found: list[Any] = json.loads(text)
    return found


def pick(draw: Draw, choices: Sequence[Any]) -> Any:
    """Return one of them."""
    return choices[int(draw() * len(choices))]


def change(data: bytearray, low: int, draw: Draw, pieces: Sequence[bytes]) -> None:
    """Make one change in place.

    Args:
        data: altered.
        low: first place of changes, if the data are longer.
        draw: the random generator.
        pieces: bytes that may be inserted.
    """
    size = len(data)
    if size <= low:
        low = 0
        if not size:
            data += pick(draw, pieces)
            return
    at = low + int(draw() * (size - low))
    kind = int(draw() * 8)
    if kind == 0:
        data[at] ^= 1 << int(draw() * 8)
    elif kind == 1:
        data[at] = int(draw() * 256)
    elif kind == 2:
        data[at] = TELLING[int(draw() * len(TELLING))]
    elif kind == 3:
        del data[at:]
    elif kind == 4:
        del data[at : at + 1 + int(draw() * 9)]
    elif kind == 5:
        data[at:at] = pick(draw, pieces)
    elif kind == 6:
        data[at:at] = data[at : at + 1 + int(draw() * 40)]
    else:  # a stretch is removed, or duplicated
        data[at:] = data[low + int(draw() * (size - low)) :]


def change_number(data: bytearray, at: int, nbytes: int, draw: Draw) -> None:
    """Set a number: to its limits, near its old value, near the size of the data, or to anything."""
    most = (1 << 8 * nbytes) - 1
    old = int.from_bytes(data[at : at + nbytes], "little")
    near = (old + 1, old - 1, old + 8, old * 2, old ^ 8, len(data), len(data) - old)
    new = min(
        max(pick(draw, (0, 1, 255, most, most >> 1, most // 2 + 1, *near, int(draw() * most))), 0), most
    )
    data[at : at + nbytes] = new.to_bytes(nbytes, "little")
