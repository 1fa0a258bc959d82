"""Limit of failed samples: a number of them, or a share (pure)."""

from __future__ import annotations

from aioloader.errors import TooManyErrorsError

# A share is compared from this number of samples on: one failure among the first few says little about the share.
SHARE_AFTER = 1000
_ROUNDING = 1 + 1e-12


def over_budget(
    limit: float | None, total: int, failed: int, samples: int, at_end: bool = False
) -> TooManyErrorsError | None:
    """Return the error if too many samples failed, or None.

    Args:
        limit: ``max_errors``: an integer is a number of samples, a float less than 1 a share of them; None: no limit.
        total: failed samples so far, in all epochs; compared with a limit that is a number.
        failed: failed samples of this epoch.
        samples: samples of this epoch so far, failed ones included.
        at_end: the epoch is over, so that a share is compared after fewer samples too.
    """
    if limit is None:
        return None
    if hasattr(limit, "__index__"):
        return TooManyErrorsError(limit, total) if total > limit else None
    if samples < SHARE_AFTER and not at_end:
        return None
    return TooManyErrorsError(limit, failed, samples) if failed > limit * samples * _ROUNDING else None
