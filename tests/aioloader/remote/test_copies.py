"""Tests of copies of objects in local files: complete, of the right version, and made once."""

from __future__ import annotations

import os
import threading
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from aioloader.crop_index import lookup as copies
from aioloader.crop_index.lookup import Copier, ObjectCopy
from aioloader.errors import ObjectMissingError
from aioloader.storage.local.descriptors import open_locked
from aioloader.storage.remote.opening import describe
from aioloader.storage.remote.transport import Version

pytestmark = pytest.mark.remote


class _Made(NamedTuple):
    """Result of a call.

    Attributes:
        error: of the copy, or None.
        requests: that were sent for it.
    """

    error: OSError | ValueError | None
    requests: int


class _Object:
    """Object on a server, and the place of its copy.

    Args:
        folder: that is served.
        proxy: a `tests.servers.fault_proxy.FaultProxy` before it.
        cache: folder of the copy.
    """

    def __init__(self, folder: Path, proxy: Any, cache: Path) -> None:
        self.file = folder / f"{cache.name}.bin"
        self.file.write_bytes(b"OK" + bytes(range(256)) * 100_000)
        self.url = f"http://{proxy.address}/{self.file.name}"
        self.path = cache / "copies" / "one"
        self._proxy = proxy

    def copy(self, version: Version | None = None) -> ObjectCopy:
        """Return the copy of a version; None: of the present one."""
        return ObjectCopy(self.url, version or describe(self.url), self.path)

    def make(self, version: Version | None = None) -> _Made:
        """Make the copy."""
        copy = self.copy(version)
        self._proxy.restart()
        (error,) = Copier("copies", check_begin=_check_begin, check=_check).make([copy])
        return _Made(error, self._proxy.counts().requests)


def _check_begin(block: bytes) -> None:
    if block[:2] != b"OK":
        raise ValueError("it begins otherwise")


def _check(path: Path) -> None:
    data = path.read_bytes()
    if data[-1:] != b"\xff":
        raise ValueError("it ends otherwise")


@pytest.fixture
def there(served_folder: Path, nginx: Any, nginx_proxy: Any, tmp_path: Path) -> Any:
    found = _Object(served_folder, nginx_proxy, tmp_path)
    yield found
    found.file.unlink(missing_ok=True)


def test_a_copy_is_made_once(there: _Object) -> None:
    assert there.make().error is None
    assert there.path.read_bytes() == there.file.read_bytes()
    assert there.make() == (None, 0)
    assert [path.name for path in there.path.parent.iterdir()] == ["one"]


def test_a_copy_that_is_not_valid_is_made_again(there: _Object) -> None:
    there.path.parent.mkdir()
    there.path.write_bytes(b"OK, but cut")
    assert there.make().error is None
    assert there.path.read_bytes() == there.file.read_bytes()


def test_a_copy_of_a_version_that_the_server_does_not_identify_is_made_again(there: _Object) -> None:
    unknown = Version(there.file.stat().st_size, None, None)
    there.make(unknown)
    there.file.write_bytes(there.file.read_bytes()[::-1][:-2] + b"\xff\xff")
    there.file.write_bytes(b"OK" + there.file.read_bytes()[2:])
    assert there.make(unknown).error is None
    assert there.path.read_bytes() == there.file.read_bytes()


@pytest.mark.parametrize("data", [b"no", b"OK", b""], ids=["begin", "end", "empty"])
def test_another_object_leaves_no_file(there: _Object, data: bytes) -> None:
    there.file.write_bytes(data)
    error = there.make().error
    assert isinstance(error, ValueError)
    assert not list(there.path.parent.iterdir())


def test_of_an_object_of_another_kind_only_the_first_blocks_are_fetched(there: _Object) -> None:
    there.file.write_bytes(b"no")
    os.truncate(there.file, 1 << 30)  # a sparse file
    made = there.make()
    assert str(made.error) == "it begins otherwise"
    assert made.requests < 1 + 3 * 8  # of 256


def test_a_missing_object_is_the_error_of_its_copy_only(there: _Object, tmp_path: Path) -> None:
    missing = ObjectCopy(there.url + "x", Version(5, '"a"', None), tmp_path / "copies" / "other")
    copier = Copier("copies", check_begin=_check_begin, check=_check)
    first, second = copier.make([missing, there.copy()])
    assert isinstance(first, ObjectMissingError)
    assert second is None
    assert there.path.exists()


def test_a_copy_leaves_half_of_the_free_space(there: _Object, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(copies, "_MOST_OF_FREE_SPACE", 0.0)
    error = there.make().error
    assert isinstance(error, OSError)
    assert "set AIOLOADER_CACHE_DIR" in str(error)
    assert not list(there.path.parent.iterdir())


def test_a_copy_that_another_process_makes_is_waited_for(there: _Object) -> None:
    there.path.parent.mkdir()
    partial_file = there.path.with_name("one.partial")
    fd = open_locked(partial_file)
    assert fd is not None
    made: list[_Made] = []
    thread = threading.Thread(target=lambda: made.append(there.make()))
    thread.start()
    thread.join(0.3)
    assert thread.is_alive()
    there.path.write_bytes(there.file.read_bytes())
    partial_file.unlink()
    os.close(fd)
    thread.join()
    assert made == [(None, 0)]
    assert [path.name for path in there.path.parent.iterdir()] == ["one"]


def test_a_copy_that_a_killed_process_began_is_begun_again(there: _Object) -> None:
    there.path.parent.mkdir()
    there.path.with_name("one.partial").write_bytes(bytes(1 << 25))
    assert there.make().error is None
    assert there.path.read_bytes() == there.file.read_bytes()


def test_an_interrupted_call_ends_soon_and_leaves_no_file(
    there: _Object, monkeypatch: pytest.MonkeyPatch
) -> None:
    copier = Copier("copies", check_begin=_interrupt, check=_check)
    copy = there.copy()
    with pytest.raises(KeyboardInterrupt):
        copier.make([copy])
    assert not list(there.path.parent.iterdir())


def _interrupt(block: bytes) -> None:
    raise KeyboardInterrupt
