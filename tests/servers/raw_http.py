"""Server of HTTP whose answers are functions that write to the socket: also what no real server sends."""

from __future__ import annotations

import contextlib
import socket
import ssl
import threading
from collections.abc import Callable
from typing import Any

Answer = Callable[[socket.socket, threading.Event], None]


def answer(body: bytes = b"", *, status: int = 200, **headers: object) -> Answer:
    """Return an answer with a status, headers (`_` for `-`; None: left out) and a body."""
    fields = {"Content_Length": len(body), "Connection": "close", **headers}
    lines = [f"{name.replace('_', '-')}: {value}\r\n" for name, value in fields.items() if value is not None]
    head = f"HTTP/1.1 {status} Status\r\n{''.join(lines)}\r\n".encode("latin-1")

    def write(sock: socket.socket, ended: threading.Event) -> None:
        sock.sendall(head + body)

    return write


class RawServer:
    """Server on a free port of 127.0.0.1, in threads. A context manager.

    Args:
        tls: for HTTPS.

    Attributes:
        answers: function that answers, by path. It is passed the socket, and an event that is set when the server ends.
            After it the connection is closed.
        heads: the heads of all requests so far.
        port: where it listens.
    """

    def __init__(self, tls: ssl.SSLContext | None = None) -> None:
        self.answers: dict[str, Answer] = {}
        self.heads: list[str] = []
        self._tls = tls
        self._ended = threading.Event()
        self._sockets: set[socket.socket] = set()
        self._threads: list[threading.Thread] = []
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])

    @property
    def paths(self) -> list[str]:
        """Return the paths of all requests so far."""
        return [head.split(" ", 2)[1] for head in self.heads]

    def url(self, path: str, host: str = "127.0.0.1") -> str:
        """Return the URL of a path."""
        return f"http{'s' if self._tls else ''}://{host}:{self.port}{path}"

    def __enter__(self) -> RawServer:
        self._start(self._accept)
        return self

    def __exit__(self, *error: object) -> None:
        self._ended.set()
        self._shut(self._listener)
        for sock in list(self._sockets):
            self._shut(sock)
        for thread in self._threads:
            thread.join(60)

    @staticmethod
    def _shut(sock: socket.socket) -> None:
        with contextlib.suppress(OSError):
            sock.shutdown(socket.SHUT_RDWR)
        sock.close()

    def _start(self, fn: Callable[..., None], *args: Any) -> None:
        thread = threading.Thread(target=fn, args=args, daemon=True)
        self._threads.append(thread)
        thread.start()

    def _accept(self) -> None:
        while not self._ended.is_set():
            try:
                sock, _ = self._listener.accept()
            except OSError:
                return
            self._sockets.add(sock)
            self._start(self._serve, sock)

    def _serve(self, sock: socket.socket) -> None:
        try:
            if self._tls is not None:
                sock = self._tls.wrap_socket(sock, server_side=True)
                self._sockets.add(sock)
            head = b""
            while b"\r\n\r\n" not in head:
                piece = sock.recv(1 << 16)
                if not piece:
                    return
                head += piece
                if head[:1] == b"\x16":  # the client expects encryption
                    answer(status=400)(sock, self._ended)
                    return
            text = head.decode("latin-1")
            self.heads.append(text)
            path = text.split(" ", 2)[1].partition("?")[0]
            self.answers.get(path, answer(status=404))(sock, self._ended)
        except OSError:  # the client has left
            pass
        finally:
            self._shut(sock)
            self._sockets.discard(sock)
