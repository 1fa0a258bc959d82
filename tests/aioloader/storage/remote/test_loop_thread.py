"""Tests of the thread with an event loop, whose users may leave at any moment."""

from __future__ import annotations

import asyncio
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


def test_closing_one_user_ends_its_calls_and_no_others(leftovers: Any) -> None:
    begun = threading.Event()
    errors: list[BaseException] = []

    async def wait() -> None:
        begun.set()
        await asyncio.sleep(600)

    async def answer() -> str:
        return "answer"

    def call() -> None:
        try:
            leaving.call(wait)
        except RuntimeError as error:
            errors.append(error)

    leaving, staying = loop_thread.LoopThread(), loop_thread.LoopThread()
    thread = threading.Thread(target=call, daemon=True)
    thread.start()
    assert begun.wait(30)
    leaving.close()
    thread.join(30)
    assert not thread.is_alive()
    assert "was closed" in str(errors[0])
    assert staying.call(answer) == "answer"
    staying.close()


def test_threads_that_use_a_source_at_the_same_time_share_one_loop(leftovers: Any) -> None:
    source = RemoteByteSource(["https://host/train.rec"], kind=SpanKind.RECORD)
    together = threading.Barrier(8)
    used: list[object] = []

    def use() -> None:
        together.wait(30)
        used.append(source._shared_thread())

    threads = [threading.Thread(target=use) for _ in range(8)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(30)
    assert len(set(map(id, used))) == 1
    source.close()
