"""How many samples may fail: a number of them, or a share. Pure."""

from __future__ import annotations

from aioloader.errors import TooManyErrorsError

__all__ = ("SHARE_AFTER", "over_budget")

# Samples from which on a share of failed ones is judged: one failure among the first few says nothing.
SHARE_AFTER = 1000
_ROUNDING = 1 + 1e-12


def over_budget(
    limit: float | None, total: int, failed: int, samples: int, at_end: bool = False
) -> TooManyErrorsError | None:
    """The error that too many samples failed, or None.

    Args:
        limit: ``max_errors``: an integer is a number of samples, a float less than 1 a share of them; None: no limit.
        total: samples that failed so far, in all passes; a number is compared with these.
        failed: samples of this pass that failed.
        samples: samples of this pass so far, failed ones included.
        at_end: the pass is over, so that a share is judged however few samples there are.
    """
    if limit is None:
        return None
    if hasattr(limit, "__index__"):
        return TooManyErrorsError(limit, total) if total > limit else None
    if samples < SHARE_AFTER and not at_end:
        return None
    return TooManyErrorsError(limit, failed, samples) if failed > limit * samples * _ROUNDING else None
