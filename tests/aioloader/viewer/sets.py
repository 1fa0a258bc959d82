"""Records and a client for the tests of the viewer."""

from __future__ import annotations

import functools
import http.client
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from typing import NamedTuple

import numpy as np
import simplejpeg

import recordio
from aioloader.tools.draw import draw_image

ROOT = Path(__file__).parents[3]
EVIL = "<script>alert('x')<b> Greater Swiss Mountain dog"


@functools.cache
def jpeg(number: int, height: int = 60, width: int = 80) -> bytes:
    """Return a drawn image."""
    encoded: bytes = simplejpeg.encode_jpeg(draw_image(number, height=height, width=width), 85)
    return encoded


def write_records(path: Path, records: list[tuple[object, bytes]], first_key: int = 0) -> Path:
    """Write a .rec with its .idx: (label, body) of each record; ids are keys + 100."""
    with recordio.RecordWriter(path, path.with_suffix(".idx")) as writer:
        for key, (label, body) in enumerate(records, first_key):
            writer.write(recordio.pack(recordio.IRHeader(0, label, key + 100, 7), body), key)
    return path


def detection_label(*objects: tuple[float, float, float, float, float]) -> np.ndarray:
    """Return the flat label of some objects: class, left, top, right, bottom."""
    return np.array([2, 5, *np.ravel(objects)], np.float32)


class Answer(NamedTuple):
    """Response of a server."""

    status: int
    headers: Mapping[str, str]
    body: bytes

    @property
    def text(self) -> str:
        return self.body.decode()


class Page(NamedTuple):
    """Running `aioloader view`."""

    address: str

    @property
    def port(self) -> int:
        return int(self.address.rstrip("/").rpartition(":")[2])

    def get(self, path: str = "/", method: str = "GET", **headers: str) -> Answer:
        """Request a path, which is sent unchanged; repeat while the response says that records are being found.

        Header names: underscores become dashes; Host is replaced.
        """
        for _ in range(20):
            answer = self._ask(path, method, headers)
            if answer.status != 503:
                break
        return answer

    def _ask(self, path: str, method: str, headers: Mapping[str, str]) -> Answer:
        connection = http.client.HTTPConnection("127.0.0.1", self.port, timeout=30)
        try:
            connection.putrequest(method, path, skip_host="Host" in headers, skip_accept_encoding=True)
            for name, value in headers.items():
                connection.putheader(name.replace("_", "-"), value)
            connection.endheaders()
            answer = connection.getresponse()
            return Answer(answer.status, {k.lower(): v for k, v in answer.getheaders()}, answer.read())
        finally:
            connection.close()


Serve = Callable[..., Page]


def view_command(*words: str | Path) -> list[str]:
    return [sys.executable, "-m", "aioloader", "view", *map(str, words)]
