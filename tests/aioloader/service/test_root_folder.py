"""Tests of files inside one folder."""

from __future__ import annotations

import os
import socket
import threading
from pathlib import Path

import pytest

from aioloader.errors import ImageFetchError, ImageNotAllowedError, ImageReferenceError, ImageTooLargeError
from aioloader.service.root_folder import RootFolder, path_of_reference
from tests.aioloader.service.images import RULES
from tests.cases import with_cases


@pytest.fixture
def root(tmp_path: Path) -> Path:
    """Return a folder with files, links and things that are no files; its parent has a file too."""
    (tmp_path / "secret").write_bytes(b"secret")
    (tmp_path / "root-2").mkdir()
    (tmp_path / "root-2" / "secret").write_bytes(b"secret")
    root = tmp_path / "root"
    (root / "inner").mkdir(parents=True)
    (root / "a.jpg").write_bytes(b"0123456789")
    (root / "inner" / "b ä.jpg").write_bytes(b"b")
    (root / "empty").write_bytes(b"")
    (root / "inner" / "link").symlink_to("../a.jpg")
    (root / "absolute").symlink_to(root / "a.jpg")
    (root / "folder").symlink_to("inner")
    (root / "out").symlink_to("../secret")
    (root / "out-folder").symlink_to("..")
    (root / "passwd").symlink_to("/etc/passwd")
    (root / "loop").symlink_to("loop")
    (root / "broken").symlink_to("nothing")
    os.mkfifo(root / "fifo")
    (root / "device").symlink_to("/dev/zero")
    (root / "descriptor").symlink_to("/proc/self/fd/0")
    (root / "closed").write_bytes(b"a")
    (root / "closed").chmod(0)
    here = os.open(root, os.O_RDONLY)
    with socket.socket(socket.AF_UNIX) as sock:
        sock.bind(f"/proc/self/fd/{here}/socket")  # a path may be too long for an address
    os.close(here)
    return root


@with_cases(
    ("path", "data"),
    [
        ("a.jpg", b"0123456789"),
        ("./inner/../a.jpg", b"0123456789"),
        ("inner/b ä.jpg", b"b"),
        ("inner/link", b"0123456789"),
        ("absolute", b"0123456789"),
        ("folder/link", b"0123456789"),
        ("empty", b""),
        ("{root}/a.jpg", b"0123456789"),
        ("{root}/../root/a.jpg", b"0123456789"),
    ],
)
def test_a_file_is_read(root: Path, path: str, data: bytes) -> None:
    found = RootFolder(root, 10).read(path.format(root=root), "it")
    assert bytes(found.data) == data
    assert found.complete
    real = root / ("inner/b ä.jpg" if data == b"b" else "a.jpg" if data else "empty")
    status = real.stat()
    assert found.key == ("path", str(real), status.st_mtime_ns, status.st_ctime_ns, status.st_ino, len(data))


@with_cases("first", [0, 4, 10, 11])
def test_a_beginning_is_read(root: Path, first: int) -> None:
    found = RootFolder(root, 10).read("a.jpg", "it", first)
    assert bytes(found.data) == b"0123456789"[:first]
    assert found.complete == (first >= 10)


@with_cases("path", RULES["paths outside"])
def test_nothing_outside_is_read(root: Path, path: str) -> None:
    with pytest.raises(ImageNotAllowedError) as found:
        RootFolder(root, 10).read(path.format(root=root), "it")
    assert found.value.kind == "path"


@with_cases(
    ("path", "says"),
    [
        ("fifo", "not a regular file"),
        ("inner", "directory"),
        ("nothing", "No such file"),
        ("broken", "No such file"),
        ("a.jpg/b", "Not a directory"),
        ("loop/a", "Not a directory|symbolic links"),
        ("x" * 300, "too long"),
        ("x/" * 3000, "No such file|too long"),
        ("socket", "cannot be read"),
        ("closed", "Permission denied"),
    ],
)
def test_what_is_no_readable_file_is_a_named_error(root: Path, path: str, says: str) -> None:
    if path == "closed" and os.geteuid() == 0:
        pytest.skip("root may read every file")
    with pytest.raises(ImageFetchError, match=says) as found:
        RootFolder(root, 10).read(path, "it")
    assert isinstance(found.value, OSError)
    assert isinstance(found.value.__cause__, OSError)


def test_a_larger_file_is_not_read(root: Path) -> None:
    with pytest.raises(ImageTooLargeError) as found:
        RootFolder(root, 9).read("a.jpg", "it")
    assert (found.value.what, found.value.limit, found.value.found) == ("bytes", 9, 10)


def test_the_root_may_be_a_link_and_relative(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (root.parent / "other").symlink_to("root")
    monkeypatch.chdir(root.parent)
    folder = RootFolder("other", 10)
    monkeypatch.chdir("/")
    for path in ("a.jpg", f"{root.parent}/other/a.jpg", f"{root}/a.jpg"):
        assert bytes(folder.read(path, "it").data) == b"0123456789"


@pytest.mark.parametrize("what", ["file", "folder"])
def test_a_link_that_comes_and_goes_leads_nowhere(root: Path, what: str) -> None:
    place, inside, outside = root / "turn", root / "turning", root / "turning-out"
    if what == "folder":
        inside.mkdir()
    path = "turn" if what == "file" else "turn/secret"
    (root / path.replace("turn", "turning")).write_bytes(b"fine")
    stop = threading.Event()

    def swap() -> None:
        while not stop.is_set():
            os.rename(inside, place)
            os.rename(place, inside)
            os.symlink("../secret" if what == "file" else "..", outside)
            os.rename(outside, place)
            os.unlink(place)

    thread = threading.Thread(target=swap)
    thread.start()
    folder, found = RootFolder(root, 10), set()
    try:
        for _ in range(3000):
            try:
                found.add(bytes(folder.read(path, "it").data))
            except (ImageNotAllowedError, ImageFetchError) as error:
                found.add(type(error).__name__)
    finally:
        stop.set()
        thread.join()
    assert found <= {b"fine", "ImageNotAllowedError", "ImageFetchError"}


@with_cases(("text", "path"), RULES["paths"])
def test_a_reference_has_a_path(text: str, path: str) -> None:
    assert path_of_reference(text) == path


@with_cases("text", [*RULES["texts that are no path"], "a" * 20_000])
def test_a_text_that_is_no_path_is_a_named_error(text: str) -> None:
    with pytest.raises(ImageReferenceError):
        path_of_reference(text)
