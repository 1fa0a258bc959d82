"""How late the event loop is while a pass is under way."""

from __future__ import annotations

from time import perf_counter
from typing import TYPE_CHECKING

import anyio

if TYPE_CHECKING:
    from aioloader.observability.lag import Lag

__all__ = ("watch_lag",)

# Twenty times a second costs less than a thousandth of a core.
_TICK_S = 0.05


async def watch_lag(lag: Lag) -> None:
    """Enter by how much each tick is missed, until cancelled."""
    while True:
        due = perf_counter() + _TICK_S
        await anyio.sleep(_TICK_S)
        lag.enter(max(0.0, perf_counter() - due), _TICK_S)
