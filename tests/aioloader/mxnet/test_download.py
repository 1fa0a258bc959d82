"""Tests of `mx.test_utils.download` from a real server, and from files."""

from __future__ import annotations

import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

import aioloader.mxnet as mx

BODY = b"ten bytes!"


class Server(ThreadingHTTPServer):
    """Server: /good.bin works, /gone.bin fails, /flaky.bin fails first, /short.bin is cut, /odd.bin is garbage."""

    daemon_threads = False
    asked: list[str]


class Answer(BaseHTTPRequestHandler):
    def do_GET(self):
        server = self.server
        assert isinstance(server, Server)
        server.asked.append(self.path)
        name = self.path.partition("?")[0]
        if name == "/odd.bin":
            self.wfile.write(b"this is not HTTP\r\n")
            return
        status = 200
        if name == "/gone.bin":
            status = 404
        if name == "/flaky.bin" and len(server.asked) < 3:
            status = 503
        self.send_response(status)
        self.send_header("Content-Length", str(len(BODY)))
        self.end_headers()
        self.wfile.write(BODY[:3] if name == "/short.bin" else BODY)

    def log_message(self, *args):
        pass


@pytest.fixture
def server(leftovers, monkeypatch):
    monkeypatch.setenv("no_proxy", "*")
    found = Server(("127.0.0.1", 0), Answer)
    found.asked = []
    thread = threading.Thread(target=found.serve_forever, kwargs={"poll_interval": 0.01})
    thread.start()
    yield found
    found.shutdown()
    thread.join()
    found.server_close()


def url_of(server, name):
    return f"http://127.0.0.1:{server.server_port}/{name}"


def test_a_file_is_fetched_once(server, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    assert mx.test_utils.download(url_of(server, "good.bin?v=1")) == "good.bin"
    assert (tmp_path / "good.bin").read_bytes() == BODY
    assert mx.test_utils.download(url_of(server, "good.bin")) == "good.bin"
    assert server.asked == ["/good.bin?v=1"]
    mx.test_utils.download(url_of(server, "good.bin"), overwrite=True)
    assert len(server.asked) == 2


def test_name_and_folder_can_be_given(server, tmp_path):
    folder = tmp_path / "new" / "folder"
    path = mx.test_utils.download(url_of(server, "good.bin"), fname="other.bin", dirname=str(folder))
    assert path == str(folder / "other.bin")
    assert [file.name for file in folder.iterdir()] == ["other.bin"]


def test_a_failing_server_is_asked_again(server, tmp_path):
    path = mx.test_utils.download(url_of(server, "flaky.bin"), dirname=str(tmp_path))
    assert Path(path).read_bytes() == BODY
    assert len(server.asked) == 3


@pytest.mark.parametrize(("name", "tries"), [("gone.bin", 1), ("short.bin", 2), ("odd.bin", 2)])
def test_what_cannot_be_fetched_leaves_nothing(server, tmp_path, name, tries):
    with pytest.raises(mx.MXNetError, match=f"{name} could not be fetched"):
        mx.test_utils.download(url_of(server, name), dirname=str(tmp_path), retries=2)
    assert len(server.asked) == tries
    assert list(tmp_path.iterdir()) == []


def test_files_are_copied(tmp_path):
    source = tmp_path / "a file.bin"
    source.write_bytes(BODY)
    path = mx.test_utils.download(source.as_uri(), dirname=str(tmp_path / "to"))
    assert path == str(tmp_path / "to" / "a file.bin")
    assert Path(path).read_bytes() == BODY
    assert Path(path).stat().st_mode == source.stat().st_mode
    with pytest.raises(mx.MXNetError, match="could not be fetched"):
        mx.test_utils.download((tmp_path / "none").as_uri(), dirname=str(tmp_path / "to"), retries=1)


@pytest.mark.parametrize("url", ["ftp://host/a", "s3://bucket/a", "a.bin"])
def test_other_urls_are_refused(url):
    with pytest.raises(ValueError, match="takes file:, http:, https: URLs"):
        mx.test_utils.download(url)
    with pytest.raises(ValueError, match="names no file"):
        mx.test_utils.download("http://localhost/")


def test_arrays_are_compared():
    one = mx.nd.array([1, 2])
    assert mx.test_utils.same(one, [1, 2])
    assert not mx.test_utils.same(one, [1, 3])
    assert mx.test_utils.almost_equal(one, [1, 2 + 1e-6])
    assert not mx.test_utils.almost_equal(one, [1, 2.1])
    mx.test_utils.assert_almost_equal(one, [1, 2.05], rtol=0.1)
    with pytest.raises(AssertionError, match="Mismatched"):
        mx.test_utils.assert_almost_equal(one, [1, 2.1])
    with pytest.raises(AssertionError):
        mx.test_utils.assert_almost_equal(one, [1, 2 + 1e-6], rtol=0, atol=0)
    mx.test_utils.assert_almost_equal(one, one)
