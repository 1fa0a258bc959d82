"""Tests of guarded requests: they name the object's version if the server supports it; else answers are checked."""

from __future__ import annotations

import re
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import Any

import pytest

from aioloader.errors import ObjectChangedError
from aioloader.storage.remote.client import Client
from aioloader.storage.remote.transport import ObjectRange, Response, Transport, Version
from tests.aioloader.remote.conftest import Served

pytestmark = pytest.mark.remote
RANGES = [(37 * n, 100 + n) for n in range(100)]


class Counting(Transport):
    """Server that counts the guarded requests that it answered."""

    guarded_answers = 0

    async def get_guarded(self, url: str, offset: int, length: int, version: Version) -> Response | None:
        answer = await super().get_guarded(url, offset, length, version)
        self.guarded_answers += answer is not None
        return answer


class Heedless(BaseHTTPRequestHandler):
    """Server of ranges that ignores conditions, and has no ranges that are counted from the end."""

    protocol_version = "HTTP/1.1"
    data = bytes(range(256)) * 40
    etag = '"first"'
    at_end = 416

    def do_GET(self) -> None:
        found = re.fullmatch(r"bytes=(\d+)-(\d+)", self.headers["Range"])
        if found is None:
            self.send_error(self.at_end)
            return
        first, last = (int(number) for number in found.groups())
        body = self.data[first : last + 1]
        self.send_response(206)
        self.send_header("ETag", self.etag)
        self.send_header("Last-Modified", "Sun, 01 Nov 2026 00:00:00 GMT")
        self.send_header("Content-Range", f"bytes {first}-{last}/{len(self.data)}")
        self.send_header("Content-Length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *args: Any) -> None:
        pass


@pytest.fixture(params=['"first"', 'W/"first"'], ids=["strong", "weak"])
def heedless(request: pytest.FixtureRequest) -> Iterator[tuple[str, type[Heedless]]]:
    """Return the URL of an object on a server that ignores If-Match, and its handler."""
    handler = type("Handler", (Heedless,), {"etag": request.param})
    with ThreadingHTTPServer(("127.0.0.1", 0), handler) as server:
        thread = threading.Thread(target=server.serve_forever, args=(0.01,))
        thread.start()
        yield f"http://127.0.0.1:{server.server_port}/object", handler
        server.shutdown()
        thread.join()


async def fetch_twice(client: Client, url: str, between: Any = None) -> list[bytes]:
    """Fetch all ranges, and again once the usual latency is known."""
    version = await client.describe(url)
    wanted = [ObjectRange(url, offset, length, version) for offset, length in RANGES]
    await client.get(wanted, 20)
    if between is not None:
        between()
    return await client.get(wanted, 20)


async def test_most_requests_name_the_state_of_the_object(served: Served) -> None:
    transport = Counting()
    client = Client(transport)
    served.proxy.behave()
    found = await fetch_twice(client, served.proxied)
    client.close()
    data = served.path.read_bytes()
    assert found == [data[offset : offset + length] for offset, length in RANGES]
    assert transport.guarded_answers > len(RANGES) / 2
    assert client.counters.requests == served.proxy.counts().requests
    # The bytes of a hedge that lost are not counted.
    uncounted = served.proxy.counts().nbytes - client.counters.nbytes
    assert uncounted >= 0 if client.counters.hedges else uncounted == 0


async def test_an_object_store_heeds_it_too(bucket: str, photo_rec: Any) -> None:
    transport = Counting()
    client = Client(transport)
    found = await fetch_twice(client, f"s3://{bucket}/set 1/{photo_rec.name}")
    client.close()
    data = photo_rec.read_bytes()
    assert found == [data[offset : offset + length] for offset, length in RANGES]
    assert transport.guarded_answers > len(RANGES) / 2


async def test_a_replaced_object_is_reported_with_both_versions(served: Served) -> None:
    client = Client()
    old = served.path.stat().st_size

    def replace() -> None:
        new = served.path.with_suffix(".new")
        new.write_bytes(served.path.read_bytes() + bytes(8))
        new.rename(served.path)

    with pytest.raises(ObjectChangedError, match=rf"it was {old} bytes.*and is {old + 8} bytes"):
        await fetch_twice(client, served.url, replace)
    client.close()


async def test_a_server_that_ignores_the_state_is_not_trusted_with_it(heedless: Any) -> None:
    url, handler = heedless
    transport = Counting()
    client = Client(transport)
    found = await fetch_twice(client, url)
    assert found == [handler.data[offset : offset + length] for offset, length in RANGES]
    assert transport.guarded_answers == 0
    with pytest.raises(ObjectChangedError):
        await fetch_twice(client, url, lambda: setattr(handler, "etag", '"second"'))
    client.close()


@pytest.mark.parametrize("status", [200, 400, 416, 501])
async def test_a_server_without_ranges_at_the_end_is_asked_for_the_first_byte(
    heedless: Any, status: int
) -> None:
    url, handler = heedless
    handler.at_end = status
    client, ends = Client(), dict.fromkeys([url])
    found, failures = await client.describe_all([url], 20, ends)
    client.close()
    assert (found[0].nbytes, failures, ends) == (len(handler.data), {}, {url: None})


async def test_objects_beyond_the_first_few_have_no_guard(served: Served) -> None:
    transport = Transport()
    for number in range(20):
        url = f"{served.url}?{number}"
        version = Version(1, '"state"', None)
        if transport.guarded(url, version) is None:
            assert await transport.try_guard(url, version)
    known = [transport.guarded(f"{served.url}?{number}", version) for number in range(20)]
    transport.close()
    assert known == [True] * 8 + [False] * 12
