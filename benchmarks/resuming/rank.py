"""One rank of a contender, in its own process: it answers each line of its standard input with a line of JSON.

    python -m benchmarks.resuming.rank NAME ARGUMENTS

Standard library only, apart from the contender's file.
"""

from __future__ import annotations

import importlib
import json
import os
import sys


def main() -> None:
    """Answer "next" with a batch, null at the end, and "state" with the state."""
    answers = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # contenders print
    rank = importlib.import_module(f"benchmarks.resuming.{sys.argv[1]}").Rank(**json.loads(sys.argv[2]))
    batches = iter(rank)
    for line in sys.stdin:
        answer = rank.state() if line == "state\n" else next(batches, None)
        print(json.dumps(answer), file=answers, flush=True)


if __name__ == "__main__":
    main()
