"""The thread with a loop, whose users may leave at any moment."""

from __future__ import annotations

import gc
import threading
from typing import Any

from aioloader.storage.remote import RemoteByteSource, loop_thread


def test_a_user_that_the_garbage_collector_finds_while_another_comes_can_leave(leftovers: Any) -> None:
    def collect() -> None:
        source: Any = RemoteByteSource(["https://host/train.rec"], whole_files=False)
        source._loop_thread()
        source.itself = source
        del source
        with loop_thread._lock:  # as in the midst of making a user, which takes memory
            gc.collect()
        collected.set()

    collected = threading.Event()
    gc.disable()
    try:
        # A thread of its own, because what goes wrong is that it waits for ever.
        threading.Thread(target=collect, daemon=True).start()
        assert collected.wait(30)
    finally:
        gc.enable()
