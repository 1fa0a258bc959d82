"""Tests of the proof of resuming: it counts what it should, and aioloader's ranks deliver each sample once."""

from __future__ import annotations

import random
import sys
from pathlib import Path

from benchmarks.resume_proof import Contender, Deliveries, deliver, row_of
from benchmarks.resuming import SAMPLES


def test_losses_repetitions_and_padding_are_counted() -> None:
    found = Deliveries()
    for first in range(0, SAMPLES - 3, 100):
        found.add([(0, [*range(first, first + 100)], [0.5] * 100), None], resumed=first > 0)
    found.add([(0, [7, 1000], [0.7, 0.5]), (0, [8, 8], [0.5, 0.5])], resumed=True)
    found.add([(1, [*range(SAMPLES)], [0.5] * SAMPLES), (1, [2], [0.5])], resumed=True)
    assert found.counts() == {"once": 2 * SAMPLES - 5, "lost": 2, "repeated": 0, "padded": 4}
    assert (found.uneven, found.draws[0, 7], len(found.resumed)) == (10, 0.5, 2 * SAMPLES - 102 + 2)
    found.steps[0].insert(0, [5])
    assert found.counts()["repeated"] == 1


def test_killed_ranks_go_on_as_other_ranks_without_a_loss() -> None:
    with Contender(Path(sys.executable), "aioloader") as contender:
        found = deliver(contender, "exact", (3, 2), (20, 12), random.Random(1))
        refused = row_of(contender, "odd", "60 of all ranks", 1, [(2, 2)])
    assert found.counts() == {"once": 2 * SAMPLES, "lost": 0, "repeated": 0, "padded": 0}
    assert found.resumed
    assert found.uneven == 0
    assert refused["2 → 2"].startswith("refused: ")
    assert "'odd'" in refused["2 → 2"]
