"""Start of programs that listen on a free port of this machine."""

from __future__ import annotations

import socket
import subprocess
import time
from collections.abc import Callable
from typing import Self

_START_S = 60.0
_TRIES = 5


class Running:
    """Server that is closed where its `with` block ends."""

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """Stop it; may be called twice."""
        raise NotImplementedError


def start_at_free_port(
    start: Callable[[int], subprocess.Popen[str]], name: str
) -> tuple[subprocess.Popen[str], int]:
    """Start a program that listens, and wait until it accepts connections.

    Args:
        start: starts it, to listen on a port of 127.0.0.1. Its standard error, if that is a pipe, is part of the
            error if it exits. Then `start` is called again with another port: the first may be in use by now.
        name: of the program, for the error.

    Returns:
        The process, and its port.

    Raises:
        RuntimeError: it exits repeatedly, or does not listen within a minute.
    """
    for tried in range(1, _TRIES + 1):
        with socket.socket() as sock:
            sock.bind(("127.0.0.1", 0))
            port = int(sock.getsockname()[1])
        process = start(port)
        try:
            if _listens(port, process):
                return process, port
            said = process.stderr.read() if process.stderr is not None else f"exit status {process.wait()}"
            if tried == _TRIES:
                raise RuntimeError(f"{name} does not start: {said}")
        except BaseException:
            process.kill()
            process.wait()
            raise
        finally:
            if process.poll() is not None and process.stderr is not None:
                process.stderr.close()
    raise AssertionError("unreachable")


def _listens(port: int, process: subprocess.Popen[str]) -> bool:
    """Wait until a connection is accepted; return whether that happened before the end of the process."""
    deadline = time.monotonic() + _START_S
    while process.poll() is None:
        try:
            socket.create_connection(("127.0.0.1", port), 1).close()
        except OSError:
            if time.monotonic() > deadline:
                raise RuntimeError(f"nobody listens at port {port} after {_START_S:g} s") from None
            time.sleep(0.01)
        else:
            return True
    return False
