"""Test of batches that cannot be sent to workers: they fail with the error, and keep no memory."""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

from aioloader import AsyncDataLoader
from aioloader.datasets import ArrayDataset
from aioloader.executors.process.handle import ProcessHandle

if TYPE_CHECKING:
    from collections.abc import Callable


# The first chunks are sent where their batch is begun, later ones when an answer has made room.
@pytest.mark.parametrize("number", [3, 4, 5])
async def test_a_batch_that_cannot_be_sent_fails_and_keeps_no_memory(
    number: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    send: Callable[..., Any] = ProcessHandle.send
    calls = 0

    def send_or_fail(*arguments: Any) -> None:
        nonlocal calls
        calls += 1
        if calls == number:
            raise ValueError("not today")
        send(*arguments)

    monkeypatch.setattr(ProcessHandle, "send", send_or_fail)
    data = ArrayDataset(np.zeros((64, 1000)), np.arange(64)).transform_first(np.copy)
    async with AsyncDataLoader(data, 8, num_workers=1, prefetch=8) as loader:
        with pytest.raises(ValueError, match="not today"):
            async for batch in loader:
                del batch
        assert len([labels async for _, labels in loader]) == 8
        assert loader.stats().memory_bytes == 0
