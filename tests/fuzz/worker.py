"""Process of a fuzz run: `python -m tests.fuzz.worker TARGET INPUTS SEED SECONDS BOARD`, started by `runner`."""

from __future__ import annotations

import gc
import json
import os
import resource
import sys
import time
import warnings
from random import Random

from tests.fuzz.runner import BOARD_BYTES, HEAD, board_of
from tests.fuzz.target import Found, Tally, Target, attempt
from tests.fuzz.targets import TARGETS, load

NOWHERE = os.path.join(os.devnull, "none")
"""Path of a folder that cannot be made, so that indexes are not cached."""

_TELL_S = 2.0
_ROOM = BOARD_BYTES - HEAD.size


def try_inputs(
    target: Target, inputs: int, seed: str, seconds: float, board: memoryview | None = None
) -> Tally:
    """Make inputs and try them.

    Args:
        target: the target.
        inputs: number of inputs.
        seed: selects the inputs.
        seconds: time limit.
        board: receives the number of each input, and the input itself, before it is tried.
    """
    tally = Tally()
    draw = Random(seed).random
    begin = told = time.monotonic()
    for number in range(1, inputs + 1):
        data = target.make(draw)
        if board is not None:
            length = min(len(data), _ROOM)
            board[HEAD.size : HEAD.size + length] = data[:length]
            HEAD.pack_into(board, 0, number, length)
        attempt(target, data, tally)
        if number & 63 == 0 and board is not None:
            now = time.monotonic()
            if now - begin > seconds:
                break
            if now - told > _TELL_S:
                told = now
                _tell(tally, tally.found)
    return tally


def _tell(tally: Tally, found: dict[str, Found], done: bool = False) -> None:
    told = {place: {"data": one.data.hex(), "text": one.text} for place, one in found.items()}
    print(json.dumps({"outcomes": tally.outcomes, "found": told, "done": done}), flush=True)


def main() -> None:
    """Run from the command line."""
    where, inputs, seed, seconds, descriptor = sys.argv[1:]
    os.environ["AIOLOADER_CACHE_DIR"] = NOWHERE
    target = load(where)
    warnings.simplefilter("error")
    if where in TARGETS and TARGETS[where].more_memory:
        with open("/proc/self/statm") as file:
            held = int(file.read().split()[0]) * resource.getpagesize()
        most = held + TARGETS[where].more_memory
        resource.setrlimit(resource.RLIMIT_AS, (most, most))
    gc.collect()
    gc.freeze()
    board = memoryview(board_of(int(descriptor)))
    tally = try_inputs(target, int(inputs), seed, float(seconds), board)
    _tell(tally, tally.found, done=True)


if __name__ == "__main__":
    main()
