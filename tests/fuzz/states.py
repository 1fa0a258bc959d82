"""Target: checkpoint states as JSON. The first byte of an input selects the kind of loader."""

from __future__ import annotations

import json
import warnings
from typing import Any

import numpy as np

from aioloader import ArrayDataset, DataLoader, ResumeError
from tests.fuzz.target import Draw, Finding, odd_values, pick

_ITEMS = 10
_FREE = ("epoch", "consumed", "carry")
_FIELDS = ("version", "order_version", "unit", "length", "fingerprint", "seed", "x", *_FREE)


class _Iterated:
    """Sampler without access by position."""

    def __iter__(self) -> Any:
        return iter(range(_ITEMS))

    def __len__(self) -> int:
        return _ITEMS


def _loader(kind: int) -> DataLoader[Any]:
    dataset = ArrayDataset(np.arange(_ITEMS))
    options: dict[str, Any] = (
        {"batch_size": 3, "shuffle": True},
        {"batch_size": 4, "shuffle": True, "last_batch": "rollover"},
        {"batch_size": 4, "sampler": _Iterated(), "last_batch": "rollover"},
        {"batch_size": 2, "shard": (1, 3)},
        {"batch_sampler": [[0, 1], [2], [3, 4, 5]]},
        {"batch_size": 3, "sampler": _Iterated(), "last_batch": "rollover", "shard": (0, 2)},
    )[kind]
    return DataLoader(dataset, num_workers=0, **options)


class States:
    """States of loaders of ten numbers."""

    _KINDS = 6

    def __init__(self) -> None:
        self._states = []
        for kind in range(self._KINDS):
            for taken in (0, 1, 2, 3):
                loader = _loader(kind)
                for _ in range(2 if taken == 3 else 1):
                    for _ in zip(range(taken), loader, strict=False):
                        pass
                self._states.append((kind, loader.state_dict()))
            list(loader)
            self._states.append((kind, loader.state_dict()))

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        kind, state = pick(draw, self._states)
        state = dict(state)
        for _ in range(int(draw() * 3) + 1):
            state[pick(draw, _FREE if draw() < 0.85 else _FIELDS)] = pick(draw, odd_values())
        if draw() < 0.05:
            state.pop(pick(draw, _FIELDS), None)
        return bytes((kind,)) + json.dumps(state).encode()

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        try:
            state = json.loads(data[1:])
        except (ValueError, RecursionError):
            return False
        loader = _loader(data[0] % self._KINDS)
        try:
            loader.load_state_dict(state)
        except ResumeError as error:
            return error.field in (*_FREE, "seed")
        before = loader.state_dict()
        if any(before[name] != state[name] for name in ("epoch", "consumed")):
            raise Finding(f"the state {state} became {before}")
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")
            count = len(loader)
            batches = [batch for _, batch in zip(range(4), loader, strict=False)]
        if count < 4 and len(batches) != count:
            raise Finding(f"{len(batches)} batches, {count} announced")
        for batch in batches:
            if not ((batch >= 0) & (batch < _ITEMS)).all():
                raise Finding(f"there are no such samples: {batch}")
        json.dumps(loader.state_dict())
        return True
