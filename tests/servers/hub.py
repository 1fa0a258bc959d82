"""Server that answers like the Hugging Face Hub, and another one with the bytes, in threads of this process.

The second server is another origin: large files are redirected to it, with a signature in the query. It refuses
requests with a token, as object storage does, and signatures that have expired.
"""

from __future__ import annotations

import hashlib
import json
import secrets
import threading
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import NamedTuple
from urllib.parse import parse_qs, quote, unquote, urlsplit

_REDIRECTED_NBYTES = 1000
_LONGEST_S = 30.0


class Seen(NamedTuple):
    """Request that a server received.

    Attributes:
        host: "hub" or "cdn".
        target: path and query.
        authorization: header, or None.
        range: header, or None.
    """

    host: str
    target: str
    authorization: str | None
    range: str | None


@dataclass
class Fault:
    """Answer that replaces others.

    Attributes:
        match: text in the target of the requests that it is for.
        status: of the answer; 0: the usual one.
        headers: of the answer.
        times: number of requests.
        after: number of such requests before, which are answered as usual.
        release: the answer waits until it is set.
    """

    match: str
    status: int
    headers: Mapping[str, str] = field(default_factory=dict)
    times: int = 1
    after: int = 0
    release: threading.Event | None = None


@dataclass
class Repository:
    """Data set.

    Attributes:
        commits: files of each commit: path and bytes.
        revisions: commit of each branch, tag and ref.
        gated: only for tokens in `readers`.
        private: as gated, and unknown to others.
        readers: tokens.
    """

    commits: dict[str, dict[str, bytes]] = field(default_factory=dict)
    revisions: dict[str, str] = field(default_factory=dict)
    gated: bool = False
    private: bool = False
    readers: set[str] = field(default_factory=set)

    def commit(self, files: Mapping[str, bytes], revision: str = "main") -> str:
        """Make a commit with these files only, and move a branch to it; return its hash."""
        number = f"{len(self.commits)} {sorted(files)}"
        commit = hashlib.sha1(number.encode()).hexdigest()
        self.commits[commit] = dict(files)
        self.revisions[revision] = commit
        return commit

    def find(self, revision: str) -> str | None:
        """Return the commit of a revision."""
        return revision if revision in self.commits else self.revisions.get(revision)


class _Answer(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes = b""


class Hub:
    """Both servers.

    Attributes:
        endpoint: for HF_ENDPOINT.
        repositories: by "USER/NAME".
        renamed: new names of data sets.
        tokens: that are valid.
        seen: all requests, in order.
        faults: the first that matches a request counts.
        page_length: entries of a page of a listing.
        signature_uses: number of requests that a signature is valid for; None: all.
    """

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._servers = [_serve(self.answer_hub), _serve(self.answer_cdn)]
        self.endpoint, self.cdn = (f"http://127.0.0.1:{server.server_port}" for server in self._servers)
        self.reset()

    def reset(self) -> None:
        """Forget everything."""
        self.repositories: dict[str, Repository] = {}
        self.renamed: dict[str, str] = {}
        self.tokens: set[str] = set()
        self.seen: list[Seen] = []
        self.faults: list[Fault] = []
        self.page_length = 1000
        self.signature_uses: int | None = None
        self._uses: dict[str, int] = {}
        self._blobs: dict[str, bytes] = {}

    def __enter__(self) -> Hub:
        return self

    def __exit__(self, *exc: object) -> None:
        for server in self._servers:
            server.shutdown()
            server.server_close()

    # -- for tests -------------------------------------------------------------------------------------------------

    def expire(self) -> None:
        """Let all signatures expire."""
        with self._lock:
            self._uses = dict.fromkeys(self._uses, 0)

    @property
    def signatures(self) -> list[str]:
        """Return all signatures that were made."""
        return list(self._uses)

    def targets(self, host: str, part: str = "") -> list[str]:
        """Return the targets of requests to a host that contain a text."""
        return [each.target for each in self.seen if each.host == host and part in each.target]

    # -- the Hub ---------------------------------------------------------------------------------------------------

    def answer_hub(self, target: str, headers: Mapping[str, str]) -> _Answer:
        """Answer a request to the Hub's own host."""
        fault = self._note("hub", target, headers)
        if fault is not None:
            return fault
        parts = [unquote(part) for part in urlsplit(target).path.strip("/").split("/")]
        api = parts[0] == "api"
        if api and parts[1] == "resolve-cache":
            return self._file(parts[3], parts[4], parts[5], "/".join(parts[6:]), headers, cached=True)
        kind, user, name, verb, revision, *path = parts[1:] if api else parts
        assert kind == "datasets"
        if f"{user}/{name}" in self.renamed:
            return _Answer(
                307, {"Location": target.replace(f"{user}/{name}", self.renamed[f"{user}/{name}"])}
            )
        if verb == "resolve":
            return self._file(user, name, revision, "/".join(path), headers)
        refused, repository, commit = self._look_up(user, name, revision, headers)
        if refused is not None:
            return refused
        assert repository is not None
        assert commit is not None
        if verb == "revision":
            described = {"_id": "0", "id": f"{user}/{name}", "sha": commit}
            if urlsplit(target).query == "expand=sha":
                return _json(described)
            siblings = [{"rfilename": each} for each in repository.commits[commit]]
            return _json({**described, "private": repository.private, "siblings": siblings})
        assert verb == "tree"
        return self._tree(target, repository.commits[commit], "/".join(path))

    def _look_up(
        self, user: str, name: str, revision: str, headers: Mapping[str, str]
    ) -> tuple[_Answer | None, Repository | None, str | None]:
        repository = self.repositories.get(f"{user}/{name}")
        token = headers.get("Authorization", "").removeprefix("Bearer ")
        if token and token not in self.tokens:
            return _refuse(401, "", "Invalid credentials in Authorization header"), None, None
        if repository is None or (repository.private and token not in repository.readers):
            return _refuse(404 if token else 401, "RepoNotFound", "Repository not found"), None, None
        if repository.gated and token not in repository.readers:
            text = f"Access to dataset {user}/{name} is restricted."
            return _refuse(403 if token else 401, "GatedRepo", text), None, None
        commit = repository.find(revision)
        if commit is None:
            return _refuse(404, "RevisionNotFound", "Invalid rev id"), None, None
        return None, repository, commit

    def _tree(self, target: str, files: Mapping[str, bytes], folder: str) -> _Answer:
        options = parse_qs(urlsplit(target).query)
        assert options["expand"] == ["false"]
        recursive = options["recursive"] == ["true"]
        prefix = f"{folder}/" if folder else ""
        inside = [path for path in sorted(files) if path.startswith(prefix)]
        if folder and not inside:
            return _refuse(404, "EntryNotFound", f"{folder} does not exist")
        entries: dict[str, dict[str, object]] = {}
        for path in inside:
            name, slash, _ = path.removeprefix(prefix).partition("/")
            if slash:
                at = prefix + name
                entries.setdefault(at, {"type": "directory", "oid": "0" * 40, "size": 0, "path": at})
            if not slash or recursive:
                data = files[path]
                entry: dict[str, object] = {
                    "type": "file",
                    "oid": _sha1(data),
                    "size": len(data),
                    "path": path,
                }
                if len(data) > _REDIRECTED_NBYTES:
                    entry["lfs"] = {"oid": _sha256(data), "size": len(data), "pointerSize": 134}
                entries[path] = entry
        begin = int(options.get("cursor", ["0"])[0])
        page = list(entries.values())[begin : begin + self.page_length]
        answer = _json(page)
        if begin + self.page_length < len(entries):
            # With the address of the Hub that a mirror would send.
            bare = urlsplit(target)._replace(
                query=f"expand=false&recursive={options['recursive'][0]}&limit=9"
            )
            following = f"https://huggingface.co{bare.geturl()}&cursor={begin + self.page_length}"
            answer.headers["Link"] = f'<{following}>; rel="next"'
        return answer

    def _file(
        self,
        user: str,
        name: str,
        revision: str,
        path: str,
        headers: Mapping[str, str],
        *,
        cached: bool = False,
    ) -> _Answer:
        refused, repository, commit = self._look_up(user, name, revision, headers)
        if refused is not None:
            return refused
        assert repository is not None
        assert commit is not None
        data = repository.commits[commit].get(path)
        if data is None:
            return _refuse(404, "EntryNotFound", "Entry not found")
        found = {"X-Repo-Commit": commit}
        if len(data) > _REDIRECTED_NBYTES:
            blob, signature = _sha256(data), secrets.token_hex(16)
            with self._lock:
                self._blobs[blob] = data
                self._uses[signature] = 1 << 60 if self.signature_uses is None else self.signature_uses
            found["X-Linked-Size"] = str(len(data))
            found["X-Linked-ETag"] = f'"{blob}"'
            found["ETag"] = f'"{_sha1(signature.encode())}"'
            found["Location"] = f"{self.cdn}/xet/{blob}?X-Amz-Expires=3600&X-Amz-Signature={signature}"
            return _Answer(302, found)
        if not cached:
            found["Location"] = (
                f"/api/resolve-cache/datasets/{user}/{name}/{commit}/{quote(path)}?etag=%22{_sha1(data)}%22"
            )
            return _Answer(307, found)
        return _ranged(data, headers, {**found, "ETag": f'"{_sha1(data)}"'})

    # -- the other host --------------------------------------------------------------------------------------------

    def answer_cdn(self, target: str, headers: Mapping[str, str]) -> _Answer:
        """Answer a request to the host with the bytes."""
        fault = self._note("cdn", target, headers)
        if fault is not None:
            return fault
        if "Authorization" in headers:
            return _Answer(400, {}, b"<Error><Message>Only one auth mechanism allowed</Message></Error>")
        parts = urlsplit(target)
        signature = parse_qs(parts.query).get("X-Amz-Signature", [""])[0]
        with self._lock:
            left = self._uses.get(signature, 0)
            if left > 0:
                self._uses[signature] = left - 1
        if left <= 0:
            body = f"<Error><Code>AccessDenied</Code><Message>Request has expired</Message><Q>{target}</Q></Error>"
            return _Answer(403, {"Content-Type": "application/xml"}, body.encode())
        blob = parts.path.rpartition("/")[2]
        return _ranged(self._blobs[blob], headers, {"ETag": f'"xet-{blob[:8]}"'})

    def _note(self, host: str, target: str, headers: Mapping[str, str]) -> _Answer | None:
        with self._lock:
            self.seen.append(Seen(host, target, headers.get("Authorization"), headers.get("Range")))
            found = next((fault for fault in self.faults if fault.times > 0 and fault.match in target), None)
            if found is None:
                return None
            if found.after:
                found.after -= 1
                return None
            found.times -= 1
        if found.release is not None:
            found.release.wait(_LONGEST_S)
        return _Answer(found.status, dict(found.headers)) if found.status else None


def _sha1(data: bytes) -> str:
    return hashlib.sha1(b"blob %d\0" % len(data) + data).hexdigest()


def _sha256(data: bytes) -> str:
    return hashlib.sha256(data).hexdigest()


def _json(value: object) -> _Answer:
    return _Answer(200, {"Content-Type": "application/json"}, json.dumps(value).encode())


def _refuse(status: int, code: str, message: str) -> _Answer:
    headers = {"X-Error-Message": message}
    if code:
        headers["X-Error-Code"] = code
    return _Answer(status, headers, json.dumps({"error": message}).encode())


def _ranged(data: bytes, headers: Mapping[str, str], found: dict[str, str]) -> _Answer:
    span = headers.get("Range")
    if span is None:
        return _Answer(200, found, data)
    first, _, last = span.removeprefix("bytes=").partition("-")
    begin, end = int(first), min(int(last or len(data) - 1), len(data) - 1)
    if begin >= len(data):
        return _Answer(416, {**found, "Content-Range": f"bytes */{len(data)}"})
    return _Answer(206, {**found, "Content-Range": f"bytes {begin}-{end}/{len(data)}"}, data[begin : end + 1])


def _serve(answer: Callable[[str, Mapping[str, str]], _Answer]) -> ThreadingHTTPServer:
    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"
        wbufsize = -1  # head and body in one packet
        disable_nagle_algorithm = True

        def log_message(self, *args: object) -> None:
            pass

        def do_GET(self) -> None:
            try:
                found = answer(self.path, self.headers)
            except Exception as error:
                found = _Answer(418, {"X-Error-Message": f"a fault of the test server: {error!r}"})
            self.send_response(found.status)
            for name, value in found.headers.items():
                self.send_header(name, value)
            self.send_header("Content-Length", str(len(found.body)))
            self.end_headers()
            self.wfile.write(found.body)
            self.wfile.flush()

    class Server(ThreadingHTTPServer):
        daemon_threads = True
        block_on_close = False
        request_queue_size = 512

        def handle_error(self, request: object, client_address: object) -> None:
            pass  # clients may close connections at any time

    server = Server(("127.0.0.1", 0), Handler)
    threading.Thread(target=server.serve_forever, kwargs={"poll_interval": 0.05}, daemon=True).start()
    return server
