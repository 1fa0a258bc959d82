"""Proxy for HTTP/1.1 that injects faults: `python -m tests.servers.proxy HOST:PORT`, started by `fault_proxy`.

It reads commands as lines of JSON on its standard input, answers each with a line on its standard output, and ends when
its input does. Requests of one connection are processed one after the other.
"""

from __future__ import annotations

import asyncio
import json
import os
import socket
import sys
from collections import Counter, deque
from typing import Any

from tests.servers.connections import Client, Server, reset_connection
from tests.servers.faults import Behaviour, Request, Rule, decide
from tests.servers.messages import Head

_BACKLOG = 2048
_LOG_LIMIT = 200_000


class Proxy:
    """Proxy state shared by all connections: behaviour, counts, idle connections to the server."""

    def __init__(self, loop: asyncio.AbstractEventLoop, upstream: tuple[str, int]) -> None:
        self.loop = loop
        self.upstream = upstream
        self.clients: set[Client] = set()
        self.idle: deque[Server] = deque()
        self.behaviour = Behaviour()
        self._listener: asyncio.Server | None = None
        self.restart()

    def restart(self) -> None:
        """Reset the counts."""
        self.counts: Counter[str] = Counter()
        self.statuses: Counter[str] = Counter()
        self.faults: Counter[str] = Counter()
        self.attempts: Counter[tuple[str, str, str]] = Counter()
        self.used = [0] * len(self.behaviour.rules)
        self.log: list[tuple[str, str, str]] = []
        self.in_flight = self.peak = 0

    async def listen(self, port: int) -> int:
        sock = socket.socket(socket.AF_INET, socket.SOCK_STREAM)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        sock.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEPORT, 1)
        sock.bind(("127.0.0.1", port))
        self._listener = await self.loop.create_server(lambda: Client(self), sock=sock, backlog=_BACKLOG)
        return int(sock.getsockname()[1])

    async def go_away(self) -> None:
        if self._listener is not None:
            listener, self._listener = self._listener, None
            listener.close()
            for client in list(self.clients):
                reset_connection(client.transport)
            await listener.wait_closed()

    def take_request(self, head: Head) -> tuple[Request, Rule | None]:
        method, target, _ = head.first
        span = head.fields.get("range", "")
        key = (method, target, span)
        self.attempts[key] += 1
        request = Request(method, target, span, self.attempts[key])
        self.counts["requests"] += 1
        self.counts["repeats"] += request.attempt > 1
        if len(self.log) < _LOG_LIMIT:
            self.log.append(key)
        self.in_flight += 1
        self.peak = max(self.peak, self.in_flight)
        number = decide(self.behaviour, request, self.used)
        if number is None:
            return request, None
        self.used[number] += 1
        rule = self.behaviour.rules[number]
        self.faults[rule.do] += 1
        return request, rule

    def told(self) -> dict[str, Any]:
        """Return the counts as plain data."""
        return {
            **self.counts,
            "statuses": dict(self.statuses),
            "faults": dict(self.faults),
            "in_flight": self.in_flight,
            "peak_in_flight": self.peak,
        }

    async def obey(self, command: dict[str, Any]) -> Any:
        do = command["do"]
        if do == "counts":
            return self.told()
        if do == "log":
            return self.log
        if do == "restart":
            return self.restart()
        if do == "behave":
            self.behaviour = Behaviour.from_json(command["behaviour"])
            self.used = [0] * len(self.behaviour.rules)
            return None
        if do == "listen":
            return await self.listen(command["port"])
        if do == "go_away":
            return await self.go_away()
        raise ValueError(f"unknown command {do!r}")


async def _main(upstream: tuple[str, int]) -> None:
    loop = asyncio.get_running_loop()
    proxy = Proxy(loop, upstream)
    commands = asyncio.StreamReader(limit=1 << 24)
    await loop.connect_read_pipe(lambda: asyncio.StreamReaderProtocol(commands), sys.stdin.buffer)
    while line := await commands.readline():
        answer = await proxy.obey(json.loads(line))
        sys.stdout.write(json.dumps(answer) + "\n")
        sys.stdout.flush()
    os._exit(0)  # connections may still be open; do not wait for them


def main() -> None:
    """Run from the command line."""
    host, _, port = sys.argv[1].rpartition(":")
    run: Any = asyncio.run
    if "--uvloop" in sys.argv:
        import uvloop

        run = uvloop.run
    run(_main((host, int(port))))


if __name__ == "__main__":
    main()
