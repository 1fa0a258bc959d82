"""The error of a batch that takes too long. A module of its own, because `multiprocessing` is loaded for it."""

from __future__ import annotations

import multiprocessing

__all__ = ("BatchTimeoutError",)


class BatchTimeoutError(multiprocessing.TimeoutError, TimeoutError):
    """A sample of a batch made no progress for the loader's `timeout`."""
