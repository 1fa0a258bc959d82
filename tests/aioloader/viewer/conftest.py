"""Fixtures: small sets of every kind, and a running server for each."""

from __future__ import annotations

import queue
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import recordio
from aioloader.tools.draw import draw_folder
from aioloader.tools.pack import pack
from aioloader.tools.view import open_collection
from aioloader.viewer.site import Options
from tests.aioloader.viewer.sample_sets import write_sample_sets
from tests.aioloader.viewer.sets import EVIL, Page, Serve, detection_label, jpeg, write_records


@pytest.fixture(scope="session")
def sets(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Make a folder of sets. Read only: all tests share it."""
    root = tmp_path_factory.mktemp("sets")
    draw_folder(root / "folder", count=30, classes=3, sizes=((60, 80), (80, 60)))
    (root / "folder" / EVIL).mkdir()
    (root / "folder" / EVIL / "<i>.jpg").write_bytes(jpeg(200))
    (root / "folder" / "circle" / "broken.jpg").write_bytes(jpeg(201)[:700])
    plain = write_records(root / "plain.rec", [(float(k % 3), jpeg(k)) for k in range(60)])
    damage = bytearray(plain.read_bytes())
    offsets = recordio.Index.open(root / "plain.idx", cache=False).offsets.tolist()
    damage[offsets[3] : offsets[3] + 4] = bytes(4)
    damage[offsets[7] + 900 : offsets[8] - 40] = bytes(offsets[8] - offsets[7] - 940)
    damage[offsets[9] + 32 : offsets[10] - 8] = bytes(offsets[10] - offsets[9] - 40)
    (root / "damaged.rec").write_bytes(damage)
    (root / "damaged.idx").write_bytes((root / "plain.idx").read_bytes())
    (root / "unindexed.rec").write_bytes(damage)
    boxes = [((1, 0.1, 0.2, 0.5, 0.6),), ((2, 0.3, 0.3, 0.9, 0.8), (4, 0, 0, 0.25, 0.5))]
    write_records(root / "boxes.rec", [(detection_label(*boxes[k % 2]), jpeg(k)) for k in range(6)])
    (root / "shards").mkdir()
    for part in range(3):
        records = [(float(part), jpeg(10 * part + k)) for k in range(5)]
        write_records(root / "shards" / f"train-{part}.rec", records)
    faces = [(np.array([13, 16], np.float32), b"")]
    faces += [(float(k // 4), jpeg(k, 32, 32)) for k in range(12)]
    faces += [(np.array([1 + 4 * k, 5 + 4 * k], np.float32), b"") for k in range(3)]
    (root / "faces").mkdir()
    write_records(root / "faces" / "train.rec", faces)
    (root / "faces" / "property").write_text("3,32,32\n")
    with recordio.RecordWriter(root / "text.rec") as writer:
        writer.write(b"<script>not an image</script>")
    (root / "empty.rec").write_bytes(b"")
    pack(root / "folder", root / "classes.rec", on_error="skip")
    write_sample_sets(root)
    return root


@pytest.fixture
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Use an index cache that no other test has written to."""
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(tmp_path / "cache"))


@pytest.fixture(scope="module")
def servers() -> Iterator[list[Any]]:
    """Return the servers that this process has started; at the end they are stopped, which ends `view`."""
    pytest.importorskip("starlette", reason="`aioloader view` needs pip install 'aioloader[view]'")
    uvicorn = pytest.importorskip("uvicorn", reason="`aioloader view` needs pip install 'aioloader[view]'")
    started: list[Any] = []

    class Noted(uvicorn.Server):
        def __init__(self, config: Any) -> None:
            super().__init__(config)
            started.append(self)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(uvicorn, "Server", Noted)
        yield started
        for server in started:
            server.should_exit = True


@pytest.fixture(scope="module")
def serve(sets: Path, servers: list[Any], tmp_path_factory: pytest.TempPathFactory) -> Iterator[Serve]:
    """Return `serve(name, **options)`: the running page of a set, started once for the same arguments."""
    from aioloader.viewer.app import bound, serve

    running: dict[tuple[Any, ...], Page] = {}
    threads: list[threading.Thread] = []

    def start(name: str | Path, **options: Any) -> Page:
        key = (name, *options.items())
        if key not in running:
            listening = bound(0)
            ready: queue.SimpleQueue[str] = queue.SimpleQueue()
            collection = open_collection(sets / name)
            page = (collection, Options(**options), listening, ready.put)
            threads.append(threading.Thread(target=serve, args=page))
            threads[-1].start()
            running[key] = Page(ready.get(timeout=60))
        return running[key]

    with pytest.MonkeyPatch.context() as patched:
        patched.setenv("AIOLOADER_CACHE_DIR", str(tmp_path_factory.mktemp("cache")))
        yield start
        for server in servers:
            server.should_exit = True
        for thread in threads:
            thread.join(60)
