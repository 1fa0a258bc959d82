"""Cache of blocks in memory: the block used least recently is dropped first. From any thread.

A block is loaded by the thread that needs it first; others that need it meanwhile wait for that one. So a block is
never loaded twice at a time, and a thread that waits always waits for one that is at work.
"""

from __future__ import annotations

import os
import threading
from collections import OrderedDict
from typing import TYPE_CHECKING

from aioloader.errors import SampleFormatError

if TYPE_CHECKING:
    from collections.abc import Callable

    from aioloader.storage.blocks.block import Block

# Damaged blocks that are remembered, so that each of their samples does not load them again.
_MOST_FAULTY = 1024


class _Load:
    """Load of one block in progress."""

    __slots__ = ("block", "done", "error")

    def __init__(self) -> None:
        self.done = threading.Event()
        self.block: Block | None = None
        self.error: BaseException | None = None


class BlockCache:
    """Blocks by their numbers, up to a number of bytes.

    Args:
        load: reads a block; called in the thread that needs it, for several blocks at a time.
        estimate: returns about how many bytes a block will take.
        limit_nbytes: most bytes of all blocks together, those that are being loaded included. A block that is larger is
            loaded while no other is, and is not kept.

    Attributes:
        limit_nbytes: as given.
    """

    def __init__(
        self, load: Callable[[int], Block], estimate: Callable[[int], int], *, limit_nbytes: int
    ) -> None:
        self._load = load
        self._estimate = estimate
        self.limit_nbytes = limit_nbytes
        self._faulty: OrderedDict[int, SampleFormatError] = OrderedDict()
        self._reset()

    def _reset(self) -> None:
        """Begin without any block: a fork has none of the threads that load some."""
        self._pid = os.getpid()
        self._changed = threading.Condition()
        self._blocks: OrderedDict[int, Block] = OrderedDict()
        self._loads: dict[int, _Load] = {}
        self._kept_nbytes = 0
        self._loading_nbytes = 0

    @property
    def kept_nbytes(self) -> int:
        """Return the bytes of the blocks in the cache."""
        return self._kept_nbytes

    def holds(self, number: int) -> bool:
        """Return whether a block is in the cache, or is being loaded."""
        return number in self._blocks or number in self._loads

    def peek(self, number: int) -> Block | None:
        """Return a block if it is in the cache; never waits."""
        with self._changed:
            block = None if self._pid != os.getpid() else self._blocks.get(number)
            if block is not None:
                self._blocks.move_to_end(number)
            return block

    def get(self, number: int) -> Block:
        """Return a block; load it, or wait for the thread that loads it, if it is not in the cache.

        Raises:
            Exception: the error of loading it. A `SampleFormatError` is remembered, and the block not read again.
        """
        if self._pid != os.getpid():
            self._reset()
        while True:
            with self._changed:
                block = self._blocks.get(number)
                if block is not None:
                    self._blocks.move_to_end(number)
                    return block
                if number in self._faulty:
                    raise self._faulty[number].with_traceback(None)
                load = self._loads.get(number)
                mine = load is None
                if load is None:
                    load = self._loads[number] = _Load()
            if mine:
                self._run(number, load)
            else:
                load.done.wait()
            if load.block is not None:
                return load.block
            assert load.error is not None
            # A thread that was interrupted while it loaded the block (Ctrl-C) has not loaded it for the others.
            if mine or isinstance(load.error, Exception):
                raise load.error

    def _run(self, number: int, load: _Load) -> None:
        """Load a block and put it into the cache; an error becomes that of all who wait for it."""
        nbytes = 0
        try:
            nbytes = self._reserve(number)
            load.block = self._load(number)
        except BaseException as error:
            load.error = error
        finally:
            with self._changed:
                self._loading_nbytes -= nbytes
                if load.block is not None and load.block.nbytes <= self.limit_nbytes:
                    self._blocks[number] = load.block
                    self._kept_nbytes += load.block.nbytes
                    self._drop(self.limit_nbytes - self._loading_nbytes)
                if isinstance(load.error, SampleFormatError):
                    self._remember(number, load.error)
                del self._loads[number]
                self._changed.notify_all()
            load.done.set()

    def _remember(self, number: int, error: SampleFormatError) -> None:
        """Keep the error of a damaged block, without the frames that hold its bytes."""
        error.__cause__ = error.__context__ = error.__traceback__ = None
        self._faulty[number] = error
        if len(self._faulty) > _MOST_FAULTY:
            self._faulty.popitem(last=False)

    def _reserve(self, number: int) -> int:
        """Wait until there is room for a block; return the bytes that are reserved for it."""
        nbytes = min(self._estimate(number), self.limit_nbytes)
        with self._changed:
            # The others are at work, and end.
            while self._loading_nbytes and self._loading_nbytes + nbytes > self.limit_nbytes:
                self._changed.wait()
            self._loading_nbytes += nbytes
            self._drop(self.limit_nbytes - self._loading_nbytes)
        return nbytes

    def _drop(self, limit: int) -> None:
        """Drop blocks until those that are left have at most `limit` bytes."""
        while self._blocks and self._kept_nbytes > limit:
            _, block = self._blocks.popitem(last=False)
            self._kept_nbytes -= block.nbytes

    def clear(self) -> None:
        """Drop all blocks."""
        with self._changed:
            self._drop(0)
