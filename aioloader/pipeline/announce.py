"""Announcing the items of the next batches to a byte source that reads ahead."""

from __future__ import annotations

from collections import deque
from typing import TYPE_CHECKING

from aioloader.abc import AnnouncedByteSource
from aioloader.pipeline.plan import BatchPlan, base_indices

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from aioloader.pipeline.context import PipelineContext


def announced(context: PipelineContext, plans: Iterable[BatchPlan]) -> Iterator[BatchPlan]:
    """Return an iterator over plans; the items of those that follow are announced to the byte source.

    Plans are taken ahead only for a source that reads ahead.

    Args:
        context: the shared parts.
        plans: the batches of an epoch, in order; taking them early has no effect but to compute them earlier.
    """
    source = context.source
    if isinstance(source, AnnouncedByteSource) and source.announced:
        return _announce(context, plans, source)
    return iter(plans)


def _announce(
    context: PipelineContext, plans: Iterable[BatchPlan], source: AnnouncedByteSource
) -> Iterator[BatchPlan]:
    assert context.items.spans is not None
    waiting: deque[BatchPlan] = deque()
    ahead = 0
    for plan in plans:
        source.announce(context.items.spans(base_indices(context.items, plan.indices)))
        waiting.append(plan)
        ahead += len(plan.indices)
        while ahead - len(waiting[0].indices) >= source.announced:
            ahead -= len(waiting[0].indices)
            yield waiting.popleft()
    yield from waiting
