"""Options of a loader in tests that run with every executor."""

from __future__ import annotations

from typing import Any

import pytest

# Tests leave threads, and import JAX, which warns of every fork.
OF_FORKS = pytest.mark.filterwarnings("ignore::aioloader.errors.ForkWarning", "ignore:os.fork:RuntimeWarning")


def pool(executor: Any, workers: int) -> dict[str, Any]:
    """Return the options for an executor with a number of workers, which the inline executor does not have."""
    return {"executor": executor} if executor == "inline" else {"executor": executor, "num_workers": workers}
