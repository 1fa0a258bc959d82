"""moto's S3 server in a separate process."""

from __future__ import annotations

import importlib.util
import subprocess
import sys
import time
import urllib.error
import urllib.request
from pathlib import Path

from tests.servers.ports import Running

# An S3 server that does not check signatures: any credentials work, and for public objects none are needed.
_SERVE = """
import sys
from moto.server import ThreadedMotoServer
server = ThreadedMotoServer(ip_address="127.0.0.1", port=0, verbose=False)
server.start()
print(server.get_host_and_port()[1], flush=True)
sys.stdin.read()
import os
os._exit(0)
"""


def has_moto() -> bool:
    """Return whether moto's server can be started."""
    return all(importlib.util.find_spec(name) is not None for name in ("moto", "flask", "flask_cors"))


class S3(Running):
    """Server without any bucket; stored objects are kept in memory.

    Attributes:
        address: "127.0.0.1:port".
        environment: variables that clients need to reach it.

    Raises:
        RuntimeError: it does not start.
    """

    def __init__(self) -> None:
        self._process = subprocess.Popen(
            [sys.executable, "-c", _SERVE],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=subprocess.DEVNULL,
            text=True,
        )
        assert self._process.stdout is not None
        port = self._process.stdout.readline().strip()
        if not port:
            self.close()
            raise RuntimeError("moto's server does not start")
        self.address = f"127.0.0.1:{port}"

    def environment(self, address: str | None = None) -> dict[str, str]:
        """Return the variables that a client needs to reach it.

        Args:
            address: another "host:port", such as a proxy's.
        """
        return {
            "AWS_ENDPOINT_URL": f"http://{address or self.address}",
            "AWS_ACCESS_KEY_ID": "testing",
            "AWS_SECRET_ACCESS_KEY": "testing",
            "AWS_REGION": "us-east-1",
        }

    def close(self) -> None:
        """Stop it; may be called twice."""
        for pipe in (self._process.stdin, self._process.stdout):
            assert pipe is not None
            pipe.close()
        self._process.wait(60)

    def make_bucket(self, bucket: str) -> None:
        """Make a bucket; its name has three characters or more."""
        self._put(f"/{bucket}", b"")

    def make_public(self, bucket: str, *keys: str) -> None:
        """Let everybody read objects of a bucket; keys are escaped as in a URL."""
        for target in (f"/{bucket}", *(f"/{bucket}/{key}" for key in keys)):
            self._put(f"{target}?acl", b"", {"x-amz-acl": "public-read"})

    def put(self, bucket: str, key: str, data: bytes) -> None:
        """Store an object; an existing one of that name is replaced."""
        self._put(f"/{bucket}/{key}", data)

    def put_file(self, bucket: str, key: str, path: str | Path) -> None:
        """Store a file's bytes."""
        self.put(bucket, key, Path(path).read_bytes())

    def _put(self, path: str, data: bytes, headers: dict[str, str] | None = None) -> None:
        request = urllib.request.Request(
            f"http://{self.address}{path}", data=data, headers=headers or {}, method="PUT"
        )
        request.add_header("Content-Type", "application/octet-stream")
        # The signature names region and service; moto checks only these.
        request.add_header(
            "Authorization",
            "AWS4-HMAC-SHA256 Credential=testing/20200101/us-east-1/s3/aws4_request, SignedHeaders=host, Signature=0",
        )
        deadline = time.monotonic() + 60
        while True:
            try:
                urllib.request.urlopen(request, timeout=60).close()
                return
            except urllib.error.HTTPError:
                raise
            except OSError:
                if time.monotonic() > deadline:
                    raise
                time.sleep(0.05)
