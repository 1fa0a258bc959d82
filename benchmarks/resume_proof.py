"""Resuming on other numbers of ranks after SIGKILL: samples lost, repeated and padded, and draws that changed.

    python -m benchmarks.resume_proof --contenders aioloader,grain,torchdata --rounds 3

Each rank is a process. All of them take their batches in step, as ranks that reduce gradients do. At a random step they
save their states, take up to two more batches, and are killed; the next world of ranks resumes from these states. One
stop is in a random epoch, the first of two in the first epoch and the second in the other one. Batches before each
state count, and those of the last world.

There are 1,003 samples, which nothing divides, and two epochs. The batch of all ranks is 60 samples in every world, or
that of each rank is 12. Counted are samples of all rounds and epochs:

- once: delivered once in an epoch; lost: never;
- padded: surplus copies in the last step of an epoch; repeated: all other copies;
- in brackets the same for one run on the first number of ranks that is not stopped, where it differs;
- draws kept: samples behind the first stop whose random number is that of this run, of all that it delivered, too;
- uneven steps: those in which only some ranks got a batch; the others would wait forever;
- state: bytes of one rank's as JSON, at most.
"""

from __future__ import annotations

import json
import os
import random
import subprocess
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.environments import EnvironmentFailure, default_folder, ensure, read_needs
from benchmarks.measurement import run
from benchmarks.resuming import EPOCHS, SAMPLES

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

    from benchmarks.figures import Row

ROOT = Path(__file__).resolve().parents[1]
WORLDS = ((2, 2), (4, 3), (3, 5, 2))
_STEP, _RANK = 60, 12


class World:
    """The ranks of one contender, which run until they are killed.

    Args:
        python: interpreter of the contender.
        name: its name.
        arguments: of each ``Rank``, apart from its number.
    """

    def __init__(self, python: Path, name: str, **arguments: Any) -> None:
        self._ranks = []
        for rank in range(arguments["world"]):
            command = [
                python,
                "-m",
                "benchmarks.resuming.rank",
                name,
                json.dumps({**arguments, "rank": rank}),
            ]
            self._ranks.append(
                subprocess.Popen(
                    command,
                    cwd=ROOT,
                    env={**os.environ, "PYTHONPATH": str(ROOT)},
                    stdin=subprocess.PIPE,
                    stdout=subprocess.PIPE,
                    stderr=subprocess.DEVNULL,
                    text=True,
                )
            )

    def ask(self, question: str) -> list[Any]:
        """Return the answer of each rank.

        Raises:
            RuntimeError: a rank has ended.
        """
        for rank in self._ranks:
            assert rank.stdin is not None
            rank.stdin.write(question + "\n")
            rank.stdin.flush()
        lines = [rank.stdout.readline() for rank in self._ranks if rank.stdout is not None]
        if not all(lines):
            raise RuntimeError("a rank has failed")
        return [json.loads(line) for line in lines]

    def __enter__(self) -> World:
        return self

    def __exit__(self, *error: object) -> None:
        for rank in self._ranks:
            rank.kill()
        for rank in self._ranks:
            rank.communicate()


@dataclass
class Deliveries:
    """Samples that all ranks delivered in both epochs.

    Attributes:
        steps: of each epoch, the ids of each step.
        draws: of each sample of an epoch, (epoch, id), the number that it drew when it first came.
        resumed: samples that came after the first stop.
        uneven: steps in which only some ranks got a batch.
        state: bytes of the largest state.
    """

    steps: list[list[list[int]]] = field(default_factory=lambda: [[] for _ in range(EPOCHS)])
    draws: dict[tuple[int, int], float] = field(default_factory=dict)
    resumed: set[tuple[int, int]] = field(default_factory=set)
    uneven: int = 0
    state: int = 0

    def add(self, batches: list[Any], resumed: bool) -> None:
        """Add the batches of a step: of each rank (epoch, ids, draws), or None."""
        given = [batch for batch in batches if batch is not None]
        self.uneven += len(given) < len(batches)
        for epoch in {epoch for epoch, _, _ in given}:
            self.steps[epoch].append([each for of, ids, _ in given if of == epoch for each in ids])
        for epoch, ids, draws in given:
            for each, draw in zip(ids, draws, strict=True):
                self.draws.setdefault((epoch, each), draw)
                if resumed:
                    self.resumed.add((epoch, each))

    def counts(self) -> Counter[str]:
        """Return how many samples came once, never, again, and again in the last step."""
        found: Counter[str] = Counter()
        for steps in self.steps:
            times = Counter(each for step in steps for each in step)
            last = Counter(steps[-1] if steps else ())
            surplus = {each: count - 1 for each, count in times.items()}
            padded = sum(min(count, last[each]) for each, count in surplus.items())
            found["once"] += sum(count == 1 for count in times.values())
            found["lost"] += SAMPLES - len(times)
            found["repeated"] += sum(surplus.values()) - padded
            found["padded"] += padded
        return found


def deliver(
    python: Path,
    name: str,
    variant: str,
    worlds: Sequence[int],
    batches: Sequence[int],
    chance: random.Random,
) -> Deliveries:
    """Run a contender in one world after the other.

    Args:
        python: interpreter of the contender.
        name: its name.
        variant: one of its variants.
        worlds: numbers of ranks.
        batches: samples of a rank's batch in each world.
        chance: chooses the stops.
    """
    found, states = Deliveries(), None
    epochs = sorted(chance.sample(range(EPOCHS), len(worlds) - 1))
    taken = 0
    for number, (world, batch) in enumerate(zip(worlds, batches, strict=True)):
        with World(python, name, variant=variant, world=world, batch=batch, states=states) as ranks:
            stop = None
            if number < len(epochs):
                place = (epochs[number] + chance.uniform(0.15, 0.85)) * SAMPLES
                stop = max(1, round((place - taken) / (world * batch)))
                taken += stop * world * batch
            while stop != 0:
                step = ranks.ask("next")
                if step == [None] * world:
                    break
                found.add(step, resumed=number > 0)
                stop = None if stop is None else stop - 1
            if stop == 0:
                states = ranks.ask("state")
                found.state = max(found.state, *(len(json.dumps(state)) for state in states))
                for _ in range(chance.randrange(3)):
                    ranks.ask("next")
    return found


def rows_of(
    python: Path, name: str, variant: str, rounds: int, all_worlds: Sequence[Sequence[int]]
) -> Iterator[Row]:
    """Yield the row of each sequence of worlds, with the batch of all ranks kept, and with that of a rank."""
    for worlds in all_worlds:
        for kept, batches in (
            (f"{_STEP} of all ranks", [_STEP // world for world in worlds]),
            (f"{_RANK} of a rank", [_RANK] * len(worlds)),
        ):
            whole = deliver(python, name, variant, worlds[:1], batches[:1], random.Random(0))
            found = [
                deliver(python, name, variant, worlds, batches, random.Random(number))
                for number in range(rounds)
            ]
            total = sum((each.counts() for each in found), Counter[str]())
            row: Row = {
                "contender": f"{name} {variant}".strip(),
                "ranks": " → ".join(map(str, worlds)),
                "batch": kept,
            }
            for column in ("once", "lost", "repeated", "padded"):
                alone = whole.counts()[column] * rounds
                row[column] = f"{total[column]}" + (f" ({alone})" if alone != total[column] else "")
            pairs = [
                (each.draws[key], whole.draws[key])
                for each in found
                for key in each.resumed & whole.draws.keys()
            ]
            row["draws kept"] = f"{sum(mine == other for mine, other in pairs)} of {len(pairs)}"
            row["uneven steps"] = sum(each.uneven for each in found)
            row["state, bytes"] = max(each.state for each in found)
            yield row


def measure(
    contenders: str = "aioloader,grain,torchdata", rounds: int = 3, worlds: int = len(WORLDS)
) -> list[Row]:
    """Run all contenders.

    Args:
        contenders: their names, with commas between them.
        rounds: runs of each row, each with other stops.
        worlds: how many of the sequences of worlds.
    """
    rows: list[Row] = []
    for name in contenders.split(","):
        needs = read_needs(ROOT / "benchmarks" / "resuming" / f"{name}.txt")
        try:
            python = ensure(f"resuming-{name}", default_folder(), needs)
            code = f"from benchmarks.resuming.{name} import VARIANTS; print(*VARIANTS, sep=',')"
            variants = subprocess.run(
                [python, "-c", code], cwd=ROOT, capture_output=True, text=True, check=True
            )
            for variant in variants.stdout.strip("\n").split(","):
                rows += rows_of(python, name, variant, rounds, WORLDS[:worlds])
        except (EnvironmentFailure, RuntimeError, subprocess.CalledProcessError) as error:
            rows.append({"contender": name, "ranks": str(error)})
    return rows


if __name__ == "__main__":
    run(measure, contenders="aioloader", rounds=1, worlds=2)
