"""Tests of the thread with an event loop, whose users may leave at any moment."""

from __future__ import annotations

import gc
import threading
from typing import Any

from aioloader.foundation.types import SpanKind
from aioloader.storage.remote import RemoteByteSource, loop_thread


def test_a_user_that_the_garbage_collector_finds_while_another_comes_can_leave(leftovers: Any) -> None:
    def collect() -> None:
        source: Any = RemoteByteSource(["https://host/train.rec"], kind=SpanKind.RECORD)
        source._shared_thread()
        source.itself = source
        del source
        with loop_thread._lock:  # as while a user is created, which allocates memory
            gc.collect()
        collected.set()

    collected = threading.Event()
    gc.disable()
    try:
        # A separate thread, because the failure would be an endless wait.
        threading.Thread(target=collect, daemon=True).start()
        assert collected.wait(30)
    finally:
        gc.enable()
