"""Two connections of a fault proxy, to a client and to the server, which forward requests and replies."""

from __future__ import annotations

import asyncio
import socket
import struct
from collections.abc import Callable
from typing import TYPE_CHECKING, Any

from tests.servers.faults import Request, Rule, cut_at, draw
from tests.servers.messages import Body, Head, parse_head

if TYPE_CHECKING:
    from tests.servers.proxy import Proxy

_RESET_AT_CLOSE = struct.pack("ii", 1, 0)  # linger for 0 s: closing sends RST
_ERROR = (
    b"HTTP/1.1 %d Injected\r\nContent-Type: application/xml\r\nContent-Length: %d\r\n\r\n"
    b"<?xml version='1.0' encoding='UTF-8'?><Error><Code>SlowDown</Code><Message>injected</Message></Error>"
)


def reset_connection(transport: Any) -> None:
    """Close a connection so that the peer sees a reset."""
    if transport is None or transport.is_closing():
        return
    try:
        transport.get_extra_info("socket").setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, _RESET_AT_CLOSE)
    except OSError:
        pass
    transport.abort()


class Client(asyncio.Protocol):
    """Connection of a client."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.transport: Any = None
        self._held = bytearray()  # bytes that arrived while a request was processed
        self._timer: asyncio.TimerHandle | None = None
        self._task: asyncio.Task[None] | None = None
        self.server: Server | None = None
        self._head: Head | None = None
        self._body: Body | None = None
        self._sent = bytearray()  # the request as it is sent to the server
        self.request: Request | None = None
        self.rule: Rule | None = None

    # -- the request ---------------------------------------------------------------------------------------------------

    def connection_made(self, transport: Any) -> None:
        self.transport = transport
        self._proxy.clients.add(self)
        self._proxy.counts["connections"] += 1

    def data_received(self, data: bytes) -> None:
        self._held += data
        self._go_on()

    def _go_on(self) -> None:
        if self.request is not None or self.transport.is_closing():
            return
        if self._head is None:
            try:
                self._head = parse_head(self._held)
            except ValueError:
                return self.transport.abort()
            if self._head is None:
                return
            del self._held[: len(self._head.raw)]
            self._sent += self._head.raw
            self._body = Body(self._head, None)
        assert self._body is not None
        taken = self._body.take(bytes(self._held))
        self._sent += self._held[:taken]
        del self._held[:taken]
        if self._body.done:
            self._pass_on(self._head)

    def _pass_on(self, head: Head) -> None:
        proxy = self._proxy
        self.request, self.rule = proxy.take_request(head)
        wait = proxy.behaviour.latency_s
        if proxy.behaviour.jitter_s:
            wait += proxy.behaviour.jitter_s * draw(proxy.behaviour.seed, "jitter", self.request)
        if self.rule is not None and self.rule.do == "stall" and self._cut(0) is None:
            wait += self.rule.seconds
            self.rule = None
        if wait > 0:
            self._timer = proxy.loop.call_later(wait, self._ask)
        else:
            self._ask()

    def _cut(self, nbytes: int) -> int | None:
        assert self.rule is not None
        assert self.request is not None
        return cut_at(self._proxy.behaviour, self.rule, self.request, nbytes)

    def _ask(self) -> None:
        self._timer = None
        if self.rule is not None and self.rule.do == "status":
            text = _ERROR % (self.rule.status, len(_ERROR.partition(b"\r\n\r\n")[2]))
            self.transport.write(text)
            self._proxy.statuses[str(self.rule.status)] += 1
            return self.finished(0, True)
        if self.rule is not None and self.rule.do == "reset" and self._cut(0) is None:
            return self.lost(0, reset=True)
        idle = self._proxy.idle
        while idle:
            server = idle.pop()
            if not server.transport.is_closing():
                return self._give(server)
        self._task = self._proxy.loop.create_task(self._connect())
        return None

    async def _connect(self) -> None:
        proxy = self._proxy
        try:
            _, server = await proxy.loop.create_connection(lambda: Server(proxy), *proxy.upstream)
        except OSError:
            self.transport.abort()
            return
        if self.transport.is_closing() or self.request is None:
            server.transport.abort()
        else:
            self._give(server)

    def _give(self, server: Server) -> None:
        self.server = server
        assert self.request is not None
        cut: Callable[[int], int | None] | None = None if self.rule is None else self._cut
        server.serve(self, self.request.method, self.rule, cut)
        server.transport.write(bytes(self._sent))

    def ask_again(self) -> None:
        """Repeat the request on another connection: the server closed an idle one as it was sent."""
        self.server = None
        self._ask()

    # -- the reply -----------------------------------------------------------------------------------------------------

    def finished(self, nbytes: int, stays: bool, *, shortened: bool = False) -> None:
        """Record that the reply, or a shortened one, was forwarded completely."""
        proxy = self._proxy
        proxy.counts["replies"] += not shortened
        proxy.counts["nbytes_of_parts" if shortened else "nbytes"] += nbytes
        assert self._head is not None
        stays &= not self._head.closes
        self._forget()
        if not stays:
            self.transport.close()
        elif self._held:
            self._go_on()

    def lost(self, nbytes: int, *, reset: bool) -> None:
        """Record that the reply ended early, after `passed` forwarded bytes of its body."""
        self._proxy.counts["nbytes_of_parts"] += nbytes
        self._forget()
        if reset:
            reset_connection(self.transport)
        else:
            self.transport.close()

    def _forget(self) -> None:
        if self.request is not None:
            self._proxy.in_flight -= 1
        self.server = self._head = self._body = self.request = self.rule = None
        self._sent.clear()

    def pause_writing(self) -> None:
        if self.server is not None:
            self.server.hold(True)

    def resume_writing(self) -> None:
        if self.server is not None:
            self.server.hold(False)

    def connection_lost(self, error: Exception | None) -> None:
        self._proxy.clients.discard(self)
        if self._timer is not None:
            self._timer.cancel()
        if self._task is not None:
            self._task.cancel()
        server = self.server
        if self.request is not None:
            self._proxy.counts["cut_off"] += 1
            if server is not None:
                self._proxy.counts["nbytes_of_parts"] += server.passed
                server.drop()
        self._forget()


class Server(asyncio.Protocol):
    """Connection to the server."""

    def __init__(self, proxy: Proxy) -> None:
        self._proxy = proxy
        self.transport: Any = None
        self._client: Client | None = None
        self._replied = False
        self._timer: asyncio.TimerHandle | None = None
        self._served = 0

    def connection_made(self, transport: Any) -> None:
        self.transport = transport

    def serve(
        self, client: Client, method: str, rule: Rule | None, cut: Callable[[int], int | None] | None
    ) -> None:
        """Forward the reply to the next request to a client."""
        self._client = client
        self._method = method
        self._rule = rule
        self._find_cut = cut
        self._cut: int | None = None
        self._head: Head | None = None
        self._body: Body | None = None
        self._begun = bytearray()  # a head that is not complete
        self._stalled: bytearray | None = None
        self._held = False
        self.passed = 0
        self._served += 1

    def data_received(self, data: bytes) -> None:
        client = self._client
        if client is None:
            return self.transport.abort()
        if self._head is None:
            self._begun += data
            try:
                head = parse_head(self._begun)
            except ValueError:
                return self.drop_with_client()
            if head is None:
                return None
            if head.first[1].startswith("1"):  # 100 Continue: the body was sent anyway
                rest = bytes(self._begun[len(head.raw) :])
                self._begun = bytearray()
                return self.data_received(rest) if rest else None
            data = bytes(self._begun[len(head.raw) :])
            self._begin(head)
        if self._stalled is not None:
            assert self._body is not None
            self._stalled += data[: self._body.take(data)]
            return None
        return self._pass(data)

    def _begin(self, head: Head) -> None:
        client = self._client
        assert client is not None
        self._head = head
        self._body = Body(head, self._method)
        self._proxy.statuses[head.first[1]] += 1
        raw = head.raw
        if self._find_cut is not None and self._body.nbytes:
            self._cut = self._find_cut(self._body.nbytes)
            assert self._rule is not None
            if self._rule.do == "shorten":
                raw = head.with_length(self._cut or 0)
        client.transport.write(raw)

    def _pass(self, data: bytes) -> None:
        client, body = self._client, self._body
        assert client is not None
        assert body is not None
        taken = body.take(data)
        if taken < len(data):
            data = data[:taken]
        if self._cut is not None and self.passed + len(data) > self._cut:
            return self._act(data)
        self.passed += len(data)
        if data:
            client.transport.write(data)
        if body.done:
            self._finish(self.passed)
        return None

    def _act(self, data: bytes) -> None:
        """Apply the fault that is due within these bytes."""
        client, rule, cut = self._client, self._rule, self._cut
        assert client is not None
        assert rule is not None
        assert cut is not None
        now = data[: max(0, cut - self.passed)]
        client.transport.write(now)
        self.passed += len(now)
        if rule.do == "stall":
            self._cut = None
            self._stalled = bytearray(data[len(now) :])
            self.transport.pause_reading()
            self._timer = self._proxy.loop.call_later(rule.seconds, self._wake)
        elif rule.do == "shorten":
            assert self._body is not None
            if self._body.done:
                self._finish(self.passed, shortened=True)
            # otherwise the rest arrives and is discarded: there is no space before the cut
        else:
            client.lost(self.passed, reset=rule.do == "reset")
            self.drop()

    def _wake(self) -> None:
        self._timer = None
        held, self._stalled = self._stalled, None
        self.transport.resume_reading()
        if held is not None and self._client is not None:
            # The received part of the body is counted already.
            self._client.transport.write(bytes(held))
            self.passed += len(held)
            assert self._body is not None
            if self._body.done:
                self._finish(self.passed)

    def _finish(self, nbytes: int, *, shortened: bool = False) -> None:
        client, head = self._client, self._head
        assert client is not None
        assert head is not None
        self._client = None
        stays = not head.closes
        if stays and not self.transport.is_closing():
            self.hold(False)
            self._proxy.idle.append(self)
        else:
            self.transport.abort()
        wanted = head.first[1].startswith("2")
        client.finished(nbytes if wanted else 0, stays, shortened=shortened)

    def hold(self, held: bool) -> None:
        """Stop reading while the client does not read."""
        if self._held == held or self._stalled is not None or self.transport.is_closing():
            return
        self._held = held
        (self.transport.pause_reading if held else self.transport.resume_reading)()

    def drop(self) -> None:
        """Forget the client, and close."""
        self._client = None
        if self._timer is not None:
            self._timer.cancel()
        self.transport.abort()

    def drop_with_client(self) -> None:
        client = self._client
        self.drop()
        if client is not None:
            client.lost(self.passed, reset=False)

    def connection_lost(self, error: Exception | None) -> None:
        client, self._client = self._client, None
        if self._timer is not None:
            self._timer.cancel()
        if client is None:
            if self in self._proxy.idle:
                self._proxy.idle.remove(self)
            return
        if self._head is None and self._served > 1:
            client.ask_again()
        elif self._head is not None and self._body is not None and self._body.nbytes is None:
            client.finished(self.passed, False)  # a body that ends with its connection
        else:
            client.lost(self.passed, reset=False)
