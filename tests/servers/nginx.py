"""nginx over a folder, on a separate port: a real server of HTTP ranges with ETags.

The sub-folder "private" is served only to clients that send ``Authorization: Bearer open sesame``.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from pathlib import Path

from tests.servers.ports import Running, start_at_free_port

_CONF = """
daemon off;
worker_processes {workers};
pid {scratch}/pid;
error_log stderr crit;
{user}
events {{ worker_connections 4096; }}
http {{
    access_log off;
    sendfile on;
    tcp_nodelay on;
    keepalive_requests 1000000;
    keepalive_timeout 3600s;
    client_body_temp_path {scratch}/client;
    proxy_temp_path {scratch}/proxy;
    fastcgi_temp_path {scratch}/fastcgi;
    uwsgi_temp_path {scratch}/uwsgi;
    scgi_temp_path {scratch}/scgi;
    types {{ image/jpeg jpg; }}
    default_type application/octet-stream;
    server {{
        listen 127.0.0.1:{port} backlog=2048;
        root {root};
        autoindex on;
        max_ranges 64;
        location /private/ {{ if ($http_authorization != "Bearer open sesame") {{ return 401; }} }}
        location /stateless/ {{
            etag off;
            add_header Last-Modified "";
        }}
    }}
}}
"""


def find_nginx() -> str | None:
    """Return the path of the program, or None. Debian installs it in a folder that only root's PATH has."""
    return shutil.which("nginx") or shutil.which("nginx", path="/usr/sbin:/usr/local/sbin")


class Nginx(Running):
    """Server of a folder's current files. Its replies for the folder "stateless" have no ETag and no date.

    Args:
        root: the folder.
        workers: processes.

    Attributes:
        address: "127.0.0.1:port".

    Raises:
        FileNotFoundError: nginx is not installed.
        RuntimeError: it does not start.
    """

    def __init__(self, root: str | os.PathLike[str], *, workers: int = 1) -> None:
        program = find_nginx()
        if program is None:
            raise FileNotFoundError("there is no program nginx (Debian: nginx-light)")
        self._scratch = tempfile.mkdtemp(prefix="nginx-")
        # Started by root it would read the files as another user, who may not enter the folder.
        user = "user root;" if os.geteuid() == 0 else ""
        conf = Path(self._scratch, "nginx.conf")

        def start(port: int) -> subprocess.Popen[str]:
            values = {"workers": workers, "scratch": self._scratch, "user": user}
            conf.write_text(_CONF.format(port=port, root=os.path.abspath(root), **values))
            command = [program, "-p", self._scratch, "-c", str(conf), "-e", "stderr"]
            return subprocess.Popen(command, stderr=subprocess.PIPE, text=True)

        try:
            self._process, port = start_at_free_port(start, "nginx")
        except BaseException:
            shutil.rmtree(self._scratch, ignore_errors=True)
            raise
        self.address = f"127.0.0.1:{port}"

    def close(self) -> None:
        """Stop it; may be called twice."""
        self._process.terminate()
        self._process.wait(60)
        if self._process.stderr is not None:
            self._process.stderr.close()
        shutil.rmtree(self._scratch, ignore_errors=True)
