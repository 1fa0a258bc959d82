"""Combinations of test parameters: a few for the quick run, which have every value, and all others marked `slow`."""

from __future__ import annotations

import itertools
from collections import Counter
from collections.abc import Iterable, Mapping
from typing import Any

import pytest


def combinations(*parameters: Iterable[Any] | Mapping[str, Any], together: int = 1) -> list[Any]:
    """Return all combinations of the parameters' values, for `pytest.mark.parametrize`; most of them are `slow`.

    The quick run has the combinations in which every value occurs; with `together=2` every pair of values of two
    parameters occurs, and so on. They are chosen one by one: next is the combination with the most values (pairs) that
    occur in none yet, and among several the one whose values occur least often.

    Args:
        parameters: the values of each parameter, in the order of the names given to `parametrize`. The names of a
            mapping's values become parts of the cases' names; other values need a text that names them. A value that
            is a `pytest.param` with marks gives them to all its combinations, and no other mark is added to these.
        together: how many parameters' values are to occur in every combination, 1 or more.

    Example:
        @pytest.mark.parametrize(("executor", "workers"), combinations(["thread", "process"], [1, 2, 5]))
    """
    lists = [_named(values) for values in parameters]
    every = list(itertools.product(*(range(len(values)) for values in lists)))
    combined = [[lists[which][place] for which, place in enumerate(places)] for places in every]
    unmarked = [
        places for places, each in zip(every, combined, strict=True) if not any(part[2] for part in each)
    ]
    quick = _chosen(unmarked, min(together, len(lists)))
    cases = []
    for places, each in zip(every, combined, strict=True):
        names, values, marks = zip(*each, strict=True)
        own = [*itertools.chain(*marks)] or ([] if places in quick else [pytest.mark.slow])
        cases.append(pytest.param(*values, id="-".join(names), marks=own))
    return cases


def _named(values: Iterable[Any] | Mapping[str, Any]) -> list[tuple[str, Any, tuple[Any, ...]]]:
    """Return name, value and marks of each of a parameter's values."""
    if isinstance(values, Mapping):
        return [(str(name), value, ()) for name, value in values.items()]
    found = []
    for value in values:
        if isinstance(value, type(pytest.param())):
            (plain,) = value.values
            found.append((str(value.id or plain), plain, tuple(value.marks)))
        else:
            found.append((str(value), value, ()))
    return found


def _chosen(every: list[tuple[int, ...]], together: int) -> set[tuple[int, ...]]:
    def parts(places: tuple[int, ...]) -> set[tuple[tuple[int, int], ...]]:
        return set(itertools.combinations(enumerate(places), together))

    missing = set().union(*map(parts, every))
    used: Counter[tuple[int, int]] = Counter()
    chosen: set[tuple[int, ...]] = set()
    while missing:
        best = max(every, key=lambda c: (len(parts(c) & missing), -sum(used[each] for each in enumerate(c))))
        chosen.add(best)
        missing -= parts(best)
        used.update(enumerate(best))
    return chosen
