"""Fault proxy in separate processes, so that it neither blocks the code under test nor is blocked by it."""

from __future__ import annotations

import json
import subprocess
import sys
from collections import Counter
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any, NamedTuple

from tests.servers.faults import Behaviour, Rule
from tests.servers.ports import Running

_ROOT = Path(__file__).parent.parent.parent


class Counts(NamedTuple):
    """Counts of a proxy since it was made, or since `FaultProxy.restart`.

    Attributes:
        requests: all that arrived.
        repeats: those that were requested before (same method, target and range).
        replies: those forwarded completely, including injected statuses.
        nbytes: bytes of the bodies of successful replies (2xx) that were forwarded completely.
        nbytes_of_parts: bytes of the bodies of incomplete ones.
        cut_off: requests whose client or server disconnected before the complete reply, other than by a rule.
        connections: that clients made.
        peak_in_flight: most requests at a time (the sum over the processes).
        in_flight: requests in progress.
        statuses: replies by status.
        faults: injected faults by kind.
    """

    requests: int
    repeats: int
    replies: int
    nbytes: int
    nbytes_of_parts: int
    cut_off: int
    connections: int
    peak_in_flight: int
    in_flight: int
    statuses: dict[int, int]
    faults: dict[str, int]


class FaultProxy(Running):
    """Proxy in front of an HTTP/1.1 server, with latency and faults; see `tests.servers.faults`.

    Args:
        upstream: "host:port" of the server.
        processes: number of processes that share the port. Counts are sums; limits, attempts and repeats are per
            process.
        uvloop: use uvloop, which must be installed; None: if it is.

    Attributes:
        port: its port on 127.0.0.1; the same after `come_back`.
        address: "127.0.0.1:port".
    """

    def __init__(self, upstream: str, *, processes: int = 1, uvloop: bool | None = None) -> None:
        if uvloop is None:
            import importlib.util

            uvloop = importlib.util.find_spec("uvloop") is not None
        command = [sys.executable, "-m", "tests.servers.proxy", upstream, *["--uvloop"] * uvloop]
        self._processes = [
            subprocess.Popen(
                command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, cwd=_ROOT, text=True, bufsize=1
            )
            for _ in range(processes)
        ]
        self.port = 0
        self.come_back()
        self.address = f"127.0.0.1:{self.port}"

    def _tell(
        self, do: str, processes: Sequence[subprocess.Popen[str]] | None = None, **arguments: Any
    ) -> list[Any]:
        answers = []
        for process in processes or self._processes:
            assert process.stdin is not None
            assert process.stdout is not None
            process.stdin.write(json.dumps({"do": do, **arguments}) + "\n")
            line = process.stdout.readline()
            if not line:
                raise RuntimeError(f"the proxy has ended with exit status {process.wait()}")
            answers.append(json.loads(line))
        return answers

    def behave(
        self, *rules: Rule, latency_s: float = 0.0, jitter_s: float = 0.0, seed: int = 0, restart: bool = True
    ) -> None:
        """Change the behaviour.

        Args:
            rules: the first that applies to a request counts.
            latency_s, jitter_s, seed: see `Behaviour`.
            restart: reset the counts.
        """
        # Each process counts attempts by itself: with one seed, a request would meet its fault in all of them.
        for number, process in enumerate(self._processes):
            behaviour = Behaviour(latency_s, jitter_s, seed * len(self._processes) + number, rules)
            self._tell("behave", [process], behaviour=behaviour.to_json())
        if restart:
            self.restart()

    def restart(self) -> None:
        """Reset the counts; no request is a repeat then."""
        self._tell("restart")

    def counts(self) -> Counts:
        """Return the counts so far."""
        answers = self._tell("counts")
        sums: Counter[str] = Counter()
        statuses: Counter[int] = Counter()
        faults: Counter[str] = Counter()
        for answer in answers:
            statuses.update({int(status): count for status, count in answer.pop("statuses").items()})
            faults.update(answer.pop("faults"))
            sums.update(answer)
        numbers = {name: sums[name] for name in Counts._fields if name not in ("statuses", "faults")}
        return Counts(**numbers, statuses=dict(statuses), faults=dict(faults))

    def log(self) -> list[tuple[str, str, str]]:
        """Return (method, target, header Range) of every request, in the order of arrival per process."""
        return [(method, target, span) for answer in self._tell("log") for method, target, span in answer]

    def go_away(self) -> None:
        """Reset all connections and stop listening: new ones are refused."""
        self._tell("go_away")

    def come_back(self) -> None:
        """Listen again at the same port."""
        for process in self._processes:
            (self.port,) = self._tell("listen", [process], port=self.port)

    @contextmanager
    def away(self) -> Iterator[None]:
        """Return a context in which new connections are refused."""
        self.go_away()
        try:
            yield
        finally:
            self.come_back()

    def close(self) -> None:
        """Stop the processes; may be called twice."""
        for process in self._processes:
            for pipe in (process.stdin, process.stdout):
                assert pipe is not None
                pipe.close()
        for process in self._processes:
            process.wait(60)
