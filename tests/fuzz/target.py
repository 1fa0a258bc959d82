"""Contract of a fuzz target; functions that try, reduce and keep inputs."""

from __future__ import annotations

import hashlib
import resource
import shutil
import tempfile
import traceback
import weakref
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol, TypeAlias

ROOT = Path(__file__).parents[2]
CORPUS = Path(__file__).parent / "corpus"

Draw: TypeAlias = Callable[[], float]
"""Next random number, 0 <= x < 1: the only source of randomness, so that a seed repeats the same inputs."""


class Finding(AssertionError):
    """Error raised when the code under test breaks a rule; the text names the fault."""


class Target(Protocol):
    """Reader of external bytes, under test.

    Attributes:
        past: the outcomes of inputs that passed the first record or header.
    """

    past: frozenset[str]

    def make(self, draw: Draw) -> bytes:
        """Return a new input: a valid one with some faults."""
        ...

    def check(self, data: bytes) -> str:
        """Try one input; return a word for the outcome.

        Raises:
            Finding: a wrong result.
            Exception: an undocumented error of the code under test.
        """
        ...


@dataclass
class Found:
    """Input that shows a fault, and the traceback."""

    data: bytes
    text: str


@dataclass
class Tally:
    """Results of a number of inputs.

    Attributes:
        outcomes: number of inputs by outcome.
        found: one input for each different finding, as small as it could be made.
        seconds: duration, of all processes together.
    """

    outcomes: Counter[str] = field(default_factory=Counter)
    found: dict[str, Found] = field(default_factory=dict)
    seconds: float = 0.0

    @property
    def inputs(self) -> int:
        """Return the number of tried inputs."""
        return sum(self.outcomes.values())

    def share(self, past: frozenset[str]) -> float:
        """Return the share of inputs that had one of these outcomes."""
        return sum(self.outcomes[word] for word in past) / max(1, self.inputs)


def corpus_of(name: str) -> list[Path]:
    """Return the kept inputs of a target, by name of the file."""
    return sorted(path for path in (CORPUS / name).glob("*") if path.suffix == ".bin")


def keep(name: str, data: bytes) -> Path:
    """Put an input into the corpus."""
    path = CORPUS / name / f"found-{hashlib.sha256(data).hexdigest()[:12]}.bin"
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_bytes(data)
    return path


def attempt(target: Target, data: bytes, tally: Tally) -> None:
    """Try one input and record its outcome."""
    try:
        tally.outcomes[target.check(data)] += 1
    except Exception as error:
        tally.outcomes["finding"] += 1
        place = place_of(error)
        if place not in tally.found:
            small = shrink(target, data, place)
            tally.found[place] = Found(small, "".join(traceback.format_exception(error)))


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
