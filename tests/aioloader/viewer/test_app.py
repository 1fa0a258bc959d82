"""Tests of the running page: its content and its refusals, with the real server over a socket."""

from __future__ import annotations

import os
import queue
import re
import signal
import socket
import subprocess
import sys
import threading
import webbrowser
from html import unescape
from pathlib import Path
from typing import Any

import pytest

from aioloader.cli import main
from tests.aioloader.cluster import wait_until
from tests.aioloader.format_sets import FORMATS
from tests.aioloader.viewer.sets import EVIL, ROOT, Page, Serve, jpeg, view_command
from tests.cases import with_cases

pytest.importorskip("starlette", reason="`aioloader view` needs pip install 'aioloader[view]'")
pytest.importorskip("uvicorn", reason="`aioloader view` needs pip install 'aioloader[view]'")
pytest.importorskip("jinja2", reason="`aioloader view` needs pip install 'aioloader[view]'")


@pytest.fixture
def plain(serve: Serve) -> Page:
    return serve("damaged.rec")


def test_a_page_of_records(plain: Page) -> None:
    answer = plain.get("/")
    assert (answer.status, answer.headers["content-type"]) == (200, "text/html; charset=utf-8")
    assert answer.text.count('<li class="tile ') == 48
    assert answer.text.count('<li class="tile damaged"') == 3
    assert "no record head here, the magic number is missing" in answer.text
    assert "<script" not in answer.text
    assert 'href="/?page=2"' in answer.text
    last = plain.get("/?page=2")
    assert last.text.count('<li class="tile ') == 12


@pytest.mark.parametrize("name", ["boxes.rec", *FORMATS])
def test_every_link_of_a_page_leads_somewhere(serve: Serve, name: Any) -> None:
    records = name == "boxes.rec"
    page = serve(name) if records else serve(name.name, per_page=4, size=32)
    seen: set[str] = set()
    wanted = ["/"] if records else ["/", "/?at=3", "/?at=3&view=train"]
    while wanted and len(seen) < 60:
        path = wanted.pop(0)
        if path in seen:
            continue
        seen.add(path)
        answer = page.get(path)
        assert answer.status == 200, path
        if answer.headers["content-type"].startswith("text/html"):
            wanted += [unescape(each) for each in re.findall(r'(?:href|src)="(/[^"]*)"', answer.text)]
    parts = {"draw", "labels"} if records else {"number=", "field="}
    for part in {"thumb", "image", "original", *parts}:
        assert any(part in path for path in seen), part


def test_a_record_by_its_key(plain: Page) -> None:
    text = plain.get("/?key=17").text
    facts = (
        "<dd>17</dd>",
        "<dd>117</dd>",
        "0 (one label)",
        "80 \u00d7 60 pixels",
        "JPEG",
        'href="/?label=2"',
    )
    for words in facts:
        assert words in text
    assert "damaged" in plain.get("/?key=3").text
    assert plain.get("/original/17").body == jpeg(17)


def test_records_by_their_label(plain: Page) -> None:
    text = plain.get("/?label=2").text
    assert re.findall(r"<b>(\d+)</b>", text) == [str(k) for k in range(2, 60, 3)]
    assert "<progress" not in text
    assert re.search(r'href="/\?label=1".*?<td>20</td>', plain.get("/labels").text, re.DOTALL)


def test_boxes_are_drawn_with_their_classes(serve: Serve) -> None:
    text = serve("boxes.rec").get("/?key=1").text
    assert text.count('<rect class="line"') == 2
    assert '<rect class="line" x="24.0" y="18.0" width="48.0" height="30.0"/>' in text
    assert ">4</text>" in text


def test_the_trainers_view(plain: Page) -> None:
    text = plain.get("/?key=17&view=train").text
    draws = re.findall(r'src="(/draw/17[^"]*)"', text)
    assert len(draws) == 8
    pictures = {plain.get(path.replace("&amp;", "&")).body for path in draws}
    assert len(pictures) == 8
    later = plain.get("/?key=17&view=train&epoch=8").text
    assert "epochs 8 to 15" in later
    assert plain.get("/?key=17&view=eval").text.count("/draw/17") == 1
    for path in ("/?at=3&view=train", "/?at=1&view=boxes"):  # a chain that does not fit a record gives way
        answer = plain.get(path)
        assert (answer.status, "/draw/" in answer.text) == (200, False)


def test_names_of_folders_are_escaped(serve: Serve) -> None:
    page = serve("folder")
    queries = (
        "",
        "?label=0",
        "labels",
        "?at=0",
        "?at=0&view=train",
        "?key=%3Cscript%3E",
        "?label=%3Cscript%3E",
    )
    for query in queries:
        text = page.get(f"/{query}").text
        assert "<script" not in text
        assert "<i>" not in text
    assert "&lt;script&gt;alert(&#39;x&#39;)" in page.get("/labels").text
    name = page.get("/?label=" + "".join(f"%{byte:02x}" for byte in EVIL.encode()))
    assert name.text.count('<li class="tile ') == 1


def test_what_is_no_image_is_never_shown_as_a_page(serve: Serve) -> None:
    page = serve("text.rec")
    assert "29 bytes without the header" in page.get("/").text
    answer = page.get("/original/0")
    assert answer.body == b"<script>not an image</script>"
    assert answer.headers["content-type"] == "application/octet-stream"
    assert answer.headers["content-disposition"].startswith("attachment")
    assert answer.headers["x-content-type-options"] == "nosniff"
    assert page.get("/thumb/0").status == 404


def test_an_empty_file_says_so(serve: Serve) -> None:
    answer = serve("empty.rec").get("/")
    assert (answer.status, "This dataset has no records" in answer.text) == (200, True)
    assert serve("empty.rec").get("/labels").status == 200
    assert serve("empty.rec").get("/?label=1").status == 200


MISSING = """
    /../../etc/passwd /%2e%2e/%2e%2e/etc/passwd /thumb/../../../etc/passwd /etc/passwd
    /thumb/..%2f..%2fetc%2fpasswd /view.css/../../pages.py //etc/passwd /static/view.css
    /thumb/%2fetc%2fpasswd /thumb/0/ /thumb/ /thumb/-1 /thumb/60 /thumb/1e3
    /?page=0 /?page=-1 /?page=3 /?page=99999999999999999999999 /?page=x /?page=1.5
    /?key=-1 /?key=60 /?key=99999999999999999999999999 /?key=x /?key=%00 /?key=1&file=7
    /?key=1&file=-1 /?key=%ff /?key=..%2f..%2fetc%2fpasswd /?at=-1 /?at=60 /?at=%D9%A1
    /?label=nan /?label=inf /?label=1e400 /?label=x /?label=%ff%fe /?label=1&page=9 /labels?page=2
    /?at=1&view=custom /?at=1&view=train&epoch=-1
    /draw/1?view=os:system /draw/1 /draw/3?view=train /image/3 /original/3 /favicon.ico
"""
# Of a set of samples with fields.
MISSING_FIELDS = """
    /image/1?number=9 /image/1?number=-1 /image/1?number=x /image/60?number=0 /image/1?number=
    /original/1?field=6 /original/1?field=-1 /original/1?field=jpg /original/1?field=..%2f
    /original/60?field=0 /?key=..%2f..%2fetc%2fpasswd /?key=%ff /?key=17.jpg /?at=60
"""


@with_cases(
    ("name", "path"),
    [
        *(("damaged.rec", path) for path in MISSING.split()),
        *(("mds", path) for path in MISSING_FIELDS.split()),
    ],
)
def test_what_there_is_not_is_404(serve: Serve, name: str, path: str) -> None:
    answer = serve(name).get(path)
    assert answer.status == 404
    assert "root:" not in answer.text
    assert "Not found" in answer.text
    assert "<script" not in answer.text


@with_cases("path", ["/", "/nothing", "/thumb/1", "/view.css", "/original/1"])
def test_only_reading_is_allowed(plain: Page, path: str) -> None:
    for method in ("POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"):
        answer = plain.get(path, method)
        assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_head_is_answered_without_a_body(plain: Page) -> None:
    answer = plain.get("/", "HEAD")
    assert (answer.status, answer.body) == (200, b"")


@with_cases(
    ("host", "status"),
    [
        ("127.0.0.1:{port}", 200),
        ("localhost:{port}", 200),
        ("LOCALHOST:{port}", 200),
        ("[::1]:{port}", 200),
        ("evil.example", 403),
        ("evil.example:{port}", 403),
        ("127.0.0.1.evil.example:{port}", 403),
        ("localhost", 403),
        ("127.0.0.1:1", 403),
        ("127.0.0.1:{port}@evil.example", 403),
        ("user@127.0.0.1:{port}", 403),
        ("0.0.0.0:{port}", 403),
    ],
)
def test_other_hosts_are_refused(plain: Page, host: str, status: int) -> None:
    for path in ("/", "/thumb/1", "/nothing"):
        answer = plain.get(path, Host=host.format(port=plain.port))
        assert answer.status == (404 if path == "/nothing" and status == 200 else status)


@with_cases(
    ("site", "dest", "status"),
    [
        *(("none", "document", 200), ("same-origin", "image", 200), ("cross-site", "document", 200)),
        *(("cross-site", "image", 403), ("same-site", "image", 403), ("cross-site", "iframe", 403)),
        ("cross-site", "", 403),
    ],
)
def test_pages_elsewhere_embed_nothing(plain: Page, site: str, dest: str, status: int) -> None:
    for path in ("/", "/thumb/1", "/thumb/999"):
        answer = plain.get(path, Sec_Fetch_Site=site, Sec_Fetch_Dest=dest)
        assert answer.status == (404 if path == "/thumb/999" and status == 200 else status)


def test_a_request_without_a_host_or_with_two_is_refused(plain: Page) -> None:
    for hosts in (b"", b"Host: localhost:%d\r\nHost: evil.example\r\n" % plain.port):
        with socket.create_connection(("127.0.0.1", plain.port), timeout=10) as connection:
            connection.sendall(b"GET / HTTP/1.0\r\n" + hosts + b"\r\n")
            answer = connection.makefile("rb").readline()
        assert answer.split()[1] == b"400"


@with_cases("path", ["/", "/nothing", "/thumb/1", "/original/1", "/view.css", "/icon.svg", "/labels"])
def test_every_answer_has_its_headers(plain: Page, path: str) -> None:
    for headers in ({}, {"Host": "evil.example"}):
        answer = plain.get(path, **headers)
        policy = answer.headers["content-security-policy"]
        assert "default-src 'none'" in policy
        assert "unsafe" not in policy
        assert answer.headers["x-content-type-options"] == "nosniff"
        assert answer.headers["cross-origin-resource-policy"] == "same-origin"
        assert "access-control-allow-origin" not in answer.headers


def test_images_are_kept_by_the_browser_for_this_session_only(plain: Page) -> None:
    text = plain.get("/").text
    (path,) = re.findall(r'src="(/thumb/5\?[^"]*)"', text)
    answer = plain.get(path)
    kept = answer.headers["content-type"], answer.headers["cache-control"]
    assert kept == ("image/png", "private, max-age=86400")
    again = plain.get(path, If_None_Match=answer.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert plain.get("/thumb/5").headers["cache-control"] == "private, no-cache"
    assert plain.get("/thumb/5?v=other").headers["cache-control"] == "private, no-cache"


# -- the command -----------------------------------------------------------------------------------------------------


def test_a_port_in_use_is_an_error(sets: Path, capsys: pytest.CaptureFixture[str]) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        assert main(["view", str(sets / "plain.rec"), "--no-browser", "--port", port]) == 1
    out, messages = capsys.readouterr()
    assert out == ""
    assert "is in use; choose another one with --port" in messages
    assert messages.count("\n") == 1


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_at_a_signal(sets: Path, tmp_path: Path, stop: signal.Signals) -> None:
    options = [
        "--no-browser",
        "--port",
        "0",
        "--per-page",
        "4",
        "--transform",
        "aioloader.transforms:ToTensor",
    ]
    process = subprocess.Popen(
        view_command(sets / "plain.rec", *options),
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        cwd=ROOT,
        env={**os.environ, "AIOLOADER_CACHE_DIR": str(tmp_path)},
    )
    assert process.stdout is not None
    address = process.stdout.readline()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\n", address)
    page = Page(address.rstrip("\n"))
    assert page.get("/").text.count('<li class="tile ') == 4
    assert "float32 3 \u00d7 60 \u00d7 80, channels first" in page.get("/?key=1&view=custom").text
    # A browser holds its connection open.
    with socket.create_connection(("127.0.0.1", page.port), timeout=10):
        process.send_signal(stop)
        out, messages = process.communicate(timeout=20)
    assert process.returncode == (0 if stop == signal.SIGINT else -signal.SIGTERM)
    assert out == ""
    assert "Traceback" not in messages


def test_without_the_extra_the_error_names_it(
    sets: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("starlette", "uvicorn"):
        monkeypatch.setitem(sys.modules, name, None)
    assert main(["view", str(sets / "plain.rec")]) == 1
    out, messages = capsys.readouterr()
    assert out == ""
    assert "needs starlette, uvicorn: pip install 'aioloader[view]'" in messages


def test_the_browser_is_opened_unless_it_is_not_wanted(
    sets: Path, servers: list[Any], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    opened: queue.SimpleQueue[str] = queue.SimpleQueue()
    monkeypatch.setattr(webbrowser, "open", opened.put)
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(tmp_path))
    words = ["view", str(sets / "plain.rec"), "--port", "0"]
    for more in (["--no-browser"], []):
        before = len(servers)
        running = threading.Thread(target=main, args=([*words, *more],))
        running.start()
        wait_until(lambda before=before: len(servers) > before and servers[-1].started)
        if not more:
            assert Page(opened.get(timeout=60)).get("/").status == 200
        servers[-1].should_exit = True
        running.join(60)
    assert opened.empty()
