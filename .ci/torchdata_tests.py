"""Run the tests of torch's and torchdata's loaders, in torchdata's copies, with `aioloader.interop.torch.DataLoader`.

    python .ci/torchdata_tests.py CHECKOUT              # of torchdata, for example of v0.11.0
    python .ci/torchdata_tests.py CHECKOUT --original   # with torchdata's own class, for comparison

Needs torch, torchdata, pytest, parameterized and expecttest. Each test runs in a fork, which is ended after ten
minutes. Prints the tests that do not pass, with the last line of their error, and the counts of each file. It is not
part of `.ci/run`: some of these tests need what differs on purpose; docs/torch.md lists it.
"""

from __future__ import annotations

import argparse
import json
import os
import select
import signal
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from _pytest.runner import runtestprotocol

FILES = ("test_dataloader.py", "test_state_dict.py")
LIMIT_S = 600.0


class Forks:
    """Plugin of pytest that runs each test in a fork, and prints those that do not pass.

    Attributes:
        outcomes: file and outcome of each test.
    """

    def __init__(self) -> None:
        self.outcomes: list[tuple[str, str]] = []

    @pytest.hookimpl(tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> bool:
        """Run a test; see pytest."""
        receiving, sending = os.pipe()
        child = os.fork()
        if child == 0:
            os.setpgid(0, 0)
            os.close(receiving)
            with os.fdopen(sending, "w") as answer:
                answer.write(json.dumps(_outcome(item)) + "\n")
            os._exit(0)
        os.close(sending)
        with os.fdopen(receiving) as answer:
            # A line, because processes that the test started may hold the other end of the pipe.
            ready, _, _ = select.select([answer], [], [], LIMIT_S)
            text = answer.readline() if ready else ""
        outcome, line = json.loads(text) if text else ("hung or died", "")
        try:
            os.killpg(child, signal.SIGKILL)  # processes that it left behind, too
        except ProcessLookupError:
            pass
        os.waitpid(child, 0)
        self.outcomes.append((item.path.name, outcome))
        if outcome not in ("passed", "skipped"):
            print(f"\n{outcome}: {item.path.name}::{item.name}: {line[:160]}", flush=True)
        return True


def _outcome(item: pytest.Item) -> tuple[str, str]:
    """Run a test in this process; return its outcome and the last line of its error."""
    found, line = "passed", ""
    for report in runtestprotocol(item, log=False, nextitem=None):
        if report.failed:
            return "failed", report.longreprtext.strip().splitlines()[-1]
        if report.skipped:
            found, line = (
                "skipped",
                str(report.longrepr[-1] if isinstance(report.longrepr, tuple) else report.longrepr),
            )
    return found, line


def main() -> int:
    """Run from the command line."""
    parser = argparse.ArgumentParser(description=(__doc__ or "").split("\n", 1)[0])
    parser.add_argument("checkout", type=Path, help="folder of torchdata's repository")
    parser.add_argument("--original", action="store_true", help="with torchdata's own class")
    parser.add_argument("-k", default="", help="only the tests that pytest selects by this expression")
    options = parser.parse_args()
    folder = options.checkout / "test" / "stateful_dataloader"
    if not options.original:
        import torchdata.stateful_dataloader

        from aioloader.interop.torch import DataLoader

        module: Any = torchdata.stateful_dataloader
        module.StatefulDataLoader = DataLoader
    forks = Forks()
    words = [str(folder / name) for name in FILES]
    # Their settings are not this project's.
    words += ["-q", "-p", "no:cacheprovider", "-c", os.devnull, "--rootdir", str(folder), "-W", "ignore"]
    status = pytest.main([*words, *(["-k", options.k] if options.k else [])], plugins=[forks])
    for file in FILES:
        counts = Counter(outcome for name, outcome in forks.outcomes if name == file)
        print(
            f"{file}: {counts.total()} tests",
            *(f"{count} {outcome}" for outcome, count in sorted(counts.items())),
            sep=", ",
        )
    return int(
        status in (pytest.ExitCode.USAGE_ERROR, pytest.ExitCode.INTERNAL_ERROR, pytest.ExitCode.INTERRUPTED)
    )


if __name__ == "__main__":
    sys.exit(main())
