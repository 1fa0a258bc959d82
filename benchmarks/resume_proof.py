"""Resuming on other numbers of ranks after SIGKILL: samples lost, repeated and padded, and draws that changed.

    python -m benchmarks.resume_proof
    python -m benchmarks.resume_proof --contenders aioloader grain --rounds 1

Each rank is a process. All of them take their batches in step, as ranks that reduce gradients do. At a random step they
save their states, take up to two more batches, and are killed; the next world of ranks resumes from these states. One
stop is in a random epoch, the first of two in the first epoch and the second in the other one. Batches before each
state count, and those of the last world.

There are 1,003 samples, which nothing divides, and two epochs. The batch of all ranks is 60 samples in every world, or
that of each rank is 12. Counted are samples of all rounds and epochs:

- once: delivered once in an epoch; lost: never;
- padded: surplus copies in the last step of an epoch; repeated: all other copies;
- in brackets the same for a run on the first number of ranks that is not stopped, where it differs;
- draws kept: samples behind the first stop whose random number is that of this run, of all that it delivered, too;
- uneven steps: those in which only some ranks got a batch; the others would wait forever;
- state: bytes of one rank's as JSON, at most.
"""

from __future__ import annotations

import json
import os
import random
import signal
import socket
import subprocess
import sys
import tempfile
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any

from benchmarks.environments import EnvironmentFailure, default_folder, ensure, needs_of, read_needs
from benchmarks.measurement import run
from benchmarks.resuming import EPOCHS, SAMPLES

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence
    from typing import TextIO

    from benchmarks.figures import Row

ROOT = Path(__file__).resolve().parents[1]
WORLDS = ((2, 2), (4, 3), (3, 5, 2))
CONTENDERS = (
    *("aioloader", "grain", "streaming", "lancedb"),
    *("litdata", "torchdata", "hf_datasets", "webdataset"),
)
_STEP, _RANK = 60, 12
_LIMIT_S = 300
"""Time for an answer of a rank."""


class Contender:
    """Process that imports a contender, and forks each of its ranks.

    Args:
        python: interpreter of the contender.
        name: its name.
        variables: of its environment.
    """

    def __init__(self, python: Path, name: str, variables: Mapping[str, str] = {}) -> None:
        self._folder = tempfile.TemporaryDirectory()
        self._environment = {**os.environ, **variables, "PYTHONPATH": str(ROOT)}
        code = (
            f"import sys; from benchmarks.resuming import {name} as found; "
            "getattr(found, 'prepare', str)(sys.argv[1]); print(*found.VARIANTS, sep=',')"
        )
        begun = subprocess.run(
            [python, "-c", code, self._folder.name],
            cwd=ROOT,
            env=self._environment,
            capture_output=True,
            text=True,
            check=False,
        )
        if begun.returncode:
            raise RuntimeError(begun.stderr.strip().splitlines()[-1])
        self.name, self.variants = name, begun.stdout.rstrip("\n").rpartition("\n")[2].split(",")
        self._control, other = socket.socketpair()
        self._worlds = 0
        with other:
            self._process = subprocess.Popen(
                [python, "-m", "benchmarks.resuming.rank", name, str(other.fileno())],
                cwd=ROOT,
                env=self._environment,
                pass_fds=[other.fileno()],
                stdin=subprocess.DEVNULL,
                stdout=subprocess.DEVNULL,
                stderr=subprocess.DEVNULL,
            )

    def world(self, **arguments: Any) -> World:
        """Return the ranks of a world; `arguments` are those of a ``Rank``."""
        self._worlds += 1
        ranks = []
        for rank in range(arguments["world"]):
            mine, other = socket.socketpair()
            with other:
                socket.send_fds(self._control, [b"+"], [other.fileno()])
            mine.settimeout(_LIMIT_S)
            with mine:
                ranks.append(mine.makefile("rw"))
            whole = {**arguments, "rank": rank, "folder": self._folder.name, "number": self._worlds}
            ranks[-1].write(json.dumps(whole) + "\n")
            ranks[-1].flush()
        return World(ranks)

    def __enter__(self) -> Contender:
        return self

    def __exit__(self, *error: object) -> None:
        self._control.close()
        self._process.wait()
        self._folder.cleanup()


class World:
    """The ranks of one contender, which run until they are killed.

    Args:
        ranks: where their answers are read and questions written.
    """

    def __init__(self, ranks: list[TextIO]) -> None:
        self._ranks = ranks
        self._groups = [int(rank.readline()) for rank in ranks]

    def ask(self, question: str) -> list[Any]:
        """Return the answer of each rank.

        Raises:
            RuntimeError: a rank has failed.
        """
        for rank in self._ranks:
            rank.write(question + "\n")
            rank.flush()
        answers = []
        for rank in self._ranks:
            try:
                answers.append(json.loads(rank.readline() or '{"error": "a rank ended"}'))
            except TimeoutError:
                answers.append({"error": f"no answer for {_LIMIT_S} s"})
            if isinstance(answers[-1], dict) and "error" in answers[-1]:
                raise RuntimeError(answers[-1]["error"])
        return answers

    def __enter__(self) -> World:
        return self

    def __exit__(self, *error: object) -> None:
        # With their worker processes, as the machine or its scheduler would.
        for group in self._groups:
            with suppress(ProcessLookupError):
                os.killpg(group, signal.SIGKILL)
        for rank in self._ranks:
            with suppress(OSError), rank:
                rank.read()  # to the end: now all of them are gone


@dataclass
class Deliveries:
    """Samples that all ranks delivered in both epochs.

    Attributes:
        steps: of each epoch, the ids of each step.
        draws: of each sample of an epoch, (epoch, id), the number that it drew when it first came.
        resumed: the same of those that came after the first stop.
        uneven: steps in which only some ranks got a batch.
        state: bytes of the largest state.
    """

    steps: list[list[list[int]]] = field(default_factory=lambda: [[] for _ in range(EPOCHS)])
    draws: dict[tuple[int, int], float] = field(default_factory=dict)
    resumed: dict[tuple[int, int], float] = field(default_factory=dict)
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
                    self.resumed.setdefault((epoch, each), draw)

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
    contender: Contender,
    variant: str,
    worlds: Sequence[int],
    batches: Sequence[int],
    chance: random.Random,
) -> Deliveries:
    """Run a contender in one world after the other.

    Args:
        contender: the contender.
        variant: one of its variants.
        worlds: numbers of ranks.
        batches: samples of a rank's batch in each world.
        chance: chooses the stops.
    """
    found, states = Deliveries(), None
    epochs = sorted(chance.sample(range(EPOCHS), len(worlds) - 1))
    taken = 0
    for number, (world, batch) in enumerate(zip(worlds, batches, strict=True)):
        with contender.world(variant=variant, world=world, batch=batch, states=states) as ranks:
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


def row_of(
    contender: Contender, variant: str, kept: str, rounds: int, all_worlds: Sequence[Sequence[int]]
) -> Row:
    """Return the row of a variant, with the batch of all ranks kept, or with that of a rank."""
    row: Row = {"contender": f"{contender.name} {variant}".strip(), "batch": kept}
    pairs: list[tuple[float, float]] = []
    runs: list[Deliveries] = []
    for worlds in all_worlds:
        batches = [_RANK if "a rank" in kept else _STEP // world for world in worlds]
        column = " → ".join(map(str, worlds))
        try:
            whole = deliver(contender, variant, worlds[:1], batches[:1], random.Random(0))
            found = [
                deliver(contender, variant, worlds, batches, random.Random(number))
                for number in range(rounds)
            ]
        except RuntimeError as error:
            row[column] = f"refused: {error}"[:200]
            continue
        total, alone = sum((each.counts() for each in found), Counter[str]()), whole.counts()
        cells = []
        for word in ("once", "lost", "repeated", "padded"):
            mine, other = total[word], alone[word] * rounds
            if mine or other:
                cells.append(f"{mine:,} {word}" + (f" ({other:,})" if other != mine else ""))
        row[column] = ", ".join(cells)
        runs += found
        pairs += (
            (draw, whole.draws[key])
            for each in found
            for key, draw in each.resumed.items()
            if key in whole.draws
        )
    row["draws kept"] = f"{sum(mine == other for mine, other in pairs):,} of {len(pairs):,}"
    row["uneven steps"] = sum(each.uneven for each in runs)
    row["state, bytes"] = max((each.state for each in runs), default=0)
    return row


def measure(contenders: Sequence[str] = CONTENDERS, rounds: int = 3, worlds: int = len(WORLDS)) -> list[Row]:
    """Run all contenders.

    Args:
        contenders: their names
        rounds: runs of each row, each with other stops
        worlds: how many of the sequences of worlds
    """
    rows: list[Row] = []
    for name in contenders:
        own = ROOT / "benchmarks" / "resuming" / f"{name}.txt"
        needs = read_needs(own) if own.exists() else needs_of(name)
        try:
            python = ensure(f"resuming-{name}" if own.exists() else name, default_folder(), needs)
            with Contender(python, name, needs.variables) as contender:
                for variant in contender.variants:
                    for kept in (f"{_STEP} of all ranks", f"{_RANK} of a rank"):
                        rows.append(row_of(contender, variant, kept, rounds, WORLDS[:worlds]))
                        print(
                            "\n".join(f"{key}: {value}" for key, value in rows[-1].items()), file=sys.stderr
                        )
        except (EnvironmentFailure, RuntimeError) as error:
            rows.append({"contender": name, "batch": str(error)})
    return rows


if __name__ == "__main__":
    run(measure, contenders=("aioloader",), rounds=1, worlds=2)
