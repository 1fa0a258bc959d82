"""Tests of the running page: its content and its refusals, with the real server over a socket."""

from __future__ import annotations

import os
import re
import shutil
import signal
import socket
import subprocess
import sys
from pathlib import Path

import pytest

from tests.aioloader.viewer.sets import EVIL, ROOT, Page, Serve, jpeg, view_command

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


def test_every_link_of_a_page_leads_somewhere(serve: Serve) -> None:
    page = serve("boxes.rec")
    seen = set()
    wanted = ["/"]
    while wanted and len(seen) < 120:
        path = wanted.pop(0)
        if path in seen:
            continue
        seen.add(path)
        answer = page.get(path)
        assert answer.status == 200, path
        if answer.headers["content-type"].startswith("text/html"):
            wanted += [
                each.replace("&amp;", "&") for each in re.findall(r'(?:href|src)="(/[^"]*)"', answer.text)
            ]
    assert {path.split("?")[0].split("/")[1] for path in seen} >= {
        "thumb",
        "image",
        "draw",
        "original",
        "labels",
    }


def test_a_record_by_its_key(plain: Page) -> None:
    text = plain.get("/?key=17").text
    for words in (
        "<dd>17</dd>",
        "<dd>117</dd>",
        "0 (one label)",
        "80 \u00d7 60 pixels",
        "JPEG",
        'href="/?label=2"',
    ):
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


def test_a_chain_that_does_not_fit_a_record_gives_way(plain: Page) -> None:
    for path in ("/?at=3&view=train", "/?at=1&view=boxes"):
        answer = plain.get(path)
        assert (answer.status, "/draw/" in answer.text) == (200, False)


def test_names_of_folders_are_escaped(serve: Serve) -> None:
    page = serve("folder")
    for path in (
        "/",
        "/?label=0",
        "/labels",
        "/?at=0",
        "/?at=0&view=train",
        "/?key=%3Cscript%3E",
        "/?label=%3Cscript%3E",
    ):
        text = page.get(path).text
        assert "<script" not in text
        assert "<i>" not in text
    assert "&lt;script&gt;alert(&#39;x&#39;)" in page.get("/labels").text
    name = page.get("/?label=" + "".join(f"%{byte:02x}" for byte in EVIL.encode()))
    assert name.text.count('<li class="tile ') == 1


def test_names_that_are_not_utf8_are_shown_with_escapes(
    serve: Serve, sets: Path, tmp_path_factory: pytest.TempPathFactory
) -> None:
    root = os.fsencode(tmp_path_factory.mktemp("names")) + b"/caf\xe9"
    os.makedirs(root + b"/\xff\xfe")
    image = min((sets / "folder").rglob("*.jpg"))
    shutil.copy(image, os.fsdecode(root + b"/\xff\xfe/a\xe9.jpg"))
    page = serve(os.fsdecode(root))
    assert "caf\\xe9" in page.get("/").text
    assert "a\\xe9.jpg" in page.get("/?at=0").text
    assert "\\xff\\xfe" in page.get("/labels").text
    for path in ("/?label=0", "/?label=%ff%fe", "/?key=%ff%fe", "/?label=caf%e9"):
        assert page.get(path).status in (200, 404)


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


@pytest.mark.parametrize(
    "path",
    [
        *("/../../etc/passwd", "/%2e%2e/%2e%2e/etc/passwd", "/thumb/../../../etc/passwd", "/etc/passwd"),
        *("/thumb/..%2f..%2fetc%2fpasswd", "/view.css/../../pages.py", "//etc/passwd", "/static/view.css"),
        *("/thumb/%2fetc%2fpasswd", "/thumb/0/", "/thumb/", "/thumb/-1", "/thumb/60", "/thumb/1e3"),
        *("/?page=0", "/?page=-1", "/?page=3", "/?page=99999999999999999999999", "/?page=x", "/?page=1.5"),
        *(
            "/?key=-1",
            "/?key=60",
            "/?key=99999999999999999999999999",
            "/?key=x",
            "/?key=%00",
            "/?key=1&file=7",
        ),
        *(
            "/?key=1&file=-1",
            "/?key=%ff",
            "/?key=..%2f..%2fetc%2fpasswd",
            "/?at=-1",
            "/?at=60",
            "/?at=%D9%A1",
        ),
        *("/?label=nan", "/?label=inf", "/?label=1e400", "/?label=x", "/?label=1&page=9", "/labels?page=2"),
        *("/?at=1&view=custom", "/?at=1&view=train&epoch=-1"),
        *(
            "/draw/1?view=os:system",
            "/draw/1",
            "/draw/3?view=train",
            "/image/3",
            "/original/3",
            "/favicon.ico",
        ),
    ],
)
def test_what_there_is_not_is_404(plain: Page, path: str) -> None:
    answer = plain.get(path)
    assert answer.status == 404
    assert "root:" not in answer.text
    assert "Not found" in answer.text
    assert "<script" not in answer.text


@pytest.mark.parametrize("path", ["/", "/nothing", "/thumb/1", "/view.css", "/original/1"])
@pytest.mark.parametrize("method", ["POST", "PUT", "DELETE", "OPTIONS", "PATCH", "TRACE"])
def test_only_reading_is_allowed(plain: Page, path: str, method: str) -> None:
    answer = plain.get(path, method)
    assert (answer.status, answer.headers["allow"]) == (405, "GET, HEAD")


def test_head_is_answered_without_a_body(plain: Page) -> None:
    answer = plain.get("/", "HEAD")
    assert (answer.status, answer.body) == (200, b"")


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
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


@pytest.mark.parametrize(
    "path", ["/", "/nothing", "/thumb/1", "/original/1", "/view.css", "/icon.svg", "/labels"]
)
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
    assert (answer.headers["content-type"], answer.headers["cache-control"]) == (
        "image/png",
        "private, max-age=86400",
    )
    again = plain.get(path, If_None_Match=answer.headers["etag"])
    assert (again.status, again.body) == (304, b"")
    assert plain.get("/thumb/5").headers["cache-control"] == "private, no-cache"
    assert plain.get("/thumb/5?v=other").headers["cache-control"] == "private, no-cache"


def test_the_users_transform_is_run(serve: Serve, tmp_path: Path) -> None:
    page = serve("plain.rec", "--transform", "aioloader.transforms:ToTensor")
    text = page.get("/?key=1&view=custom").text
    assert "float32 3 \u00d7 60 \u00d7 80, channels first" in text


def run(*words: str | Path) -> subprocess.CompletedProcess[str]:
    return subprocess.run(
        view_command(*words), capture_output=True, text=True, cwd=ROOT, timeout=60, check=False
    )


def test_a_port_in_use_is_an_error(sets: Path) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        done = run(sets / "plain.rec", "--no-browser", "--port", str(taken.getsockname()[1]))
    assert (done.returncode, done.stdout) == (1, "")
    assert "is in use; choose another one with --port" in done.stderr
    assert done.stderr.count("\n") == 1


@pytest.mark.parametrize("stop", [signal.SIGINT, signal.SIGTERM])
def test_it_ends_at_a_signal(sets: Path, stop: signal.Signals) -> None:
    words = view_command(sets / "plain.rec", "--no-browser", "--port", "0")
    process = subprocess.Popen(words, stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True, cwd=ROOT)
    assert process.stdout is not None
    address = process.stdout.readline()
    assert re.fullmatch(r"http://127\.0\.0\.1:\d+/\n", address)
    # A browser holds its connection open.
    with socket.create_connection(("127.0.0.1", int(address.rstrip("/\n").rpartition(":")[2])), timeout=10):
        process.send_signal(stop)
        out, messages = process.communicate(timeout=20)
    assert process.returncode == (0 if stop == signal.SIGINT else -signal.SIGTERM)
    assert out == ""
    assert "Traceback" not in messages


def test_without_the_extra_the_error_names_it(sets: Path, tmp_path: Path) -> None:
    hidden = "import sys; sys.modules['starlette'] = None; sys.modules['uvicorn'] = None\n"
    code = f"{hidden}from aioloader.cli import main\nsys.exit(main(['view', {str(sets / 'plain.rec')!r}]))"
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, cwd=ROOT, check=False)
    assert (done.returncode, done.stdout) == (1, "")
    assert "needs starlette, uvicorn: pip install 'aioloader[view]'" in done.stderr


def test_the_browser_is_opened_unless_it_is_not_wanted(sets: Path, tmp_path: Path) -> None:
    mark = tmp_path / "opened"
    code = f"""
import sys, threading, webbrowser
webbrowser.open = lambda address: open({str(mark)!r}, "w").write(address)
from aioloader.cli import main
sys.exit(main(['view', {str(sets / "plain.rec")!r}, '--port', '0']))
"""
    process = subprocess.Popen(
        [sys.executable, "-c", code], stdout=subprocess.PIPE, text=True, cwd=ROOT, env=os.environ
    )
    assert process.stdout is not None
    address = process.stdout.readline().strip()
    port = int(address.rstrip("/").rpartition(":")[2])
    assert Page(address, port).get("/").status == 200
    process.send_signal(signal.SIGINT)
    process.communicate(timeout=20)
    assert mark.read_text() == address
