"""Ranks of a contender: a process that imports it once and forks each rank.

    python -m benchmarks.resuming.rank NAME SOCKET

Each message to the socket carries the socket of a new rank, which is in a process group with its workers alone. It
writes its process number, reads its arguments, and answers each line with a line of JSON. Standard library only, apart
from the contender's file.
"""

from __future__ import annotations

import importlib
import json
import os
import socket
import sys
from contextlib import suppress
from typing import Any


def main() -> None:
    """Fork a rank for each message, until the other end of the socket is closed."""
    contender = importlib.import_module(f"benchmarks.resuming.{sys.argv[1]}")
    control = socket.socket(fileno=int(sys.argv[2]))
    while places := socket.recv_fds(control, 1, 1)[1]:
        if os.fork() == 0:
            try:
                os.setsid()
                answer(contender, socket.socket(fileno=places[0]))
            finally:
                os._exit(0)
        os.close(places[0])
        with suppress(ChildProcessError):
            while os.waitpid(-1, os.WNOHANG)[0]:
                pass


def answer(contender: Any, place: socket.socket) -> None:
    """Answer "next" with a batch, null at the end, and "state" with the state; a rank that fails says how."""
    lines = place.makefile("rw")
    print(os.getpid(), file=lines, flush=True)
    try:
        rank = contender.Rank(**json.loads(lines.readline()))
        batches = iter(rank)
        for line in lines:
            found = rank.state() if line == "state\n" else next(batches, None)
            print(json.dumps(found), file=lines, flush=True)
    except Exception as error:
        # Of an error in a worker, the last line is the error itself.
        text = str(error).strip().splitlines()[-1:]
        print(json.dumps({"error": ": ".join([type(error).__name__, *text])}), file=lines, flush=True)
        lines.read()


if __name__ == "__main__":
    main()
