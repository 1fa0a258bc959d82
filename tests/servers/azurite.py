"""Azurite, Microsoft's emulator of Azure's object storage, in a separate process (npm: azurite)."""

from __future__ import annotations

import base64
import hashlib
import hmac
import re
import shutil
import subprocess
import tempfile
import urllib.request
from email.utils import formatdate
from pathlib import Path
from typing import Any

from tests.servers.ports import Running

# Public: the account that every emulator has.
ACCOUNT = "devstoreaccount1"
KEY = "Eby8vdM02xNOcqFlqUwJPLlmEtlCDXJ1OUzFT50uSRZ6IFsuFq2UVErCz4I6tq/K1SZFPTOtr/KBHBeksoGMGw=="
_API = "2021-12-02"


def find_azurite() -> str | None:
    """Return the path of the program for blobs, or None."""
    return shutil.which("azurite-blob")


class Azurite(Running):
    """Server without any container; it checks signatures, and keeps stored objects in memory.

    Attributes:
        address: "127.0.0.1:port".
        endpoint: URL of the account.

    Raises:
        FileNotFoundError: Azurite is not installed.
        RuntimeError: it does not start.
    """

    def __init__(self) -> None:
        program = find_azurite()
        if program is None:
            raise FileNotFoundError("there is no program azurite-blob (npm install -g azurite)")
        self._folder = tempfile.mkdtemp(prefix="azurite-")
        self._process = subprocess.Popen(
            [
                *(program, "--blobHost", "127.0.0.1", "--blobPort", "0", "--inMemoryPersistence"),
                *("--disableTelemetry", "--skipApiVersionCheck"),
            ],
            cwd=self._folder,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
            text=True,
        )
        assert self._process.stdout is not None
        said = []
        for line in self._process.stdout:
            said.append(line)
            found = re.search(r"listen\w* (?:at|on) http://(127\.0\.0\.1:\d+)", line)
            if found:
                self.address = found.group(1)
                break
        else:
            self.close()
            raise RuntimeError(f"Azurite does not start: {''.join(said)}")
        self.endpoint = f"http://{self.address}/{ACCOUNT}"

    def close(self) -> None:
        """Stop it; may be called twice."""
        self._process.terminate()
        self._process.wait(60)
        if self._process.stdout is not None:
            self._process.stdout.close()
        shutil.rmtree(self._folder, ignore_errors=True)

    def environment(self) -> dict[str, str]:
        """Return the variables that a client needs to reach it."""
        return {
            "AZURE_STORAGE_ACCOUNT_NAME": ACCOUNT,
            "AZURE_STORAGE_ACCOUNT_KEY": KEY,
            "AZURE_STORAGE_ENDPOINT": self.endpoint,
        }

    def connection_string(self) -> str:
        """Return the same in the form of Azure's tools."""
        return f"DefaultEndpointsProtocol=http;AccountName={ACCOUNT};AccountKey={KEY};BlobEndpoint={self.endpoint};"

    def make_bucket(self, name: str) -> None:
        """Make a container."""
        self._put(f"/{name}?restype=container", b"", "restype:container")

    def put_file(self, container: str, path: str, file: str | Path) -> None:
        """Store a file's bytes."""
        self._put(f"/{container}/{path}", Path(file).read_bytes(), None)

    def _put(self, target: str, data: bytes, parameter: str | None) -> None:
        headers: dict[str, Any] = {"x-ms-date": formatdate(usegmt=True), "x-ms-version": _API}
        if parameter is None:
            headers["x-ms-blob-type"] = "BlockBlob"
        length = str(len(data)) if data else ""
        kind = "application/octet-stream"
        resource = f"/{ACCOUNT}/{ACCOUNT}{target.partition('?')[0]}"
        lines = ["PUT", "", "", length, "", kind, "", "", "", "", "", ""]
        lines += [f"{name}:{headers[name]}" for name in sorted(headers)]
        lines += [resource, *([parameter] if parameter else [])]
        signed = hmac.new(base64.b64decode(KEY), "\n".join(lines).encode(), hashlib.sha256).digest()
        headers["Authorization"] = f"SharedKey {ACCOUNT}:{base64.b64encode(signed).decode()}"
        headers["Content-Type"] = kind
        request = urllib.request.Request(f"{self.endpoint}{target}", data=data, headers=headers, method="PUT")
        urllib.request.urlopen(request, timeout=60).close()
