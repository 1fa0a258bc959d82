"""Options of a loader in tests that run with every executor."""

from __future__ import annotations

from typing import Any


def pool(executor: Any, workers: int) -> dict[str, Any]:
    """Return the options for an executor with a number of workers, which the inline executor does not have."""
    return {"executor": executor} if executor == "inline" else {"executor": executor, "num_workers": workers}
