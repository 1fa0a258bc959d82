"""Fixtures of the dataset tests: small record files and images."""

import itertools
from collections.abc import Callable, Iterable, Iterator
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import recordio
from tests.aioloader.datasets.faces import LABELS, write_set


@pytest.fixture(scope="session")
def _caches(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Path]:
    """Yield paths that do not exist, one after the other; `tmp_path` would be a folder for each test."""
    folder = tmp_path_factory.mktemp("caches")
    return (folder / str(number) for number in itertools.count())


@pytest.fixture(autouse=True)
def _own_cache(_caches: Iterator[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    """Keep copies of indexes out of the user's cache."""
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(next(_caches)))


def pixels(number: int) -> Any:
    """Return an RGB image that differs by number: uint8 (6, 8, 3)."""
    image = np.zeros((6, 8, 3), np.uint8)
    image[..., 0] = number % 256
    image[..., 1] = 100
    image[2, 3] = (250, 0, number % 256)
    return image


def png(number: int) -> bytes:
    """Return the same image as a PNG, which keeps every value."""
    done, data = cv2.imencode(".png", pixels(number)[..., ::-1])
    assert done
    return data.tobytes()


@pytest.fixture(name="pixels")
def _pixels() -> Callable[[int], Any]:
    """Return ``pixels(number)``: an RGB image that differs by number."""
    return pixels


@pytest.fixture(name="png")
def _png() -> Callable[[int], bytes]:
    """Return ``png(number)``: the same, encoded."""
    return png


Write = Callable[..., str]


@pytest.fixture
def write_rec(tmp_path: Path) -> Write:
    """Return ``write_rec(payloads, keys=..., name=...)``: writes a .rec and, unless keys is None, its .idx."""

    def write(payloads: Iterable[bytes], keys: Any = "count", name: str = "data") -> str:
        path = tmp_path / f"{name}.rec"
        payloads = list(payloads)
        if keys == "count":
            keys = range(len(payloads))
        with recordio.RecordWriter(
            str(path), index=None if keys is None else str(path.with_suffix(".idx"))
        ) as writer:
            for place, payload in enumerate(payloads):
                writer.write(payload, **({} if keys is None else {"key": keys[place]}))
        return str(path)

    return write


@pytest.fixture
def write_images(write_rec: Write) -> Write:
    """Return ``write_images(labels)``: writes a .rec of PNG images with these labels; image i is ``pixels(i)``."""

    def write(labels: Iterable[Any], **options: Any) -> str:
        return write_rec(
            [recordio.pack((0, label, place, 0), png(place)) for place, label in enumerate(labels)], **options
        )

    return write


@pytest.fixture
def faces(tmp_path: Path) -> Callable[..., Path]:
    """Return ``faces(labels=LABELS, **options)``: a set in InsightFace's layout; its image i is ``pixels(i)``."""

    def make(labels: Any = LABELS, name: str = "faces", **options: Any) -> Path:
        return write_set(tmp_path / name, [png(number) for number in range(len(labels))], labels, **options)

    return make


@pytest.fixture
def scans(monkeypatch: pytest.MonkeyPatch) -> list[str]:
    """Return the list of the tars and TFRecord files that are scanned from now on."""
    from aioloader.formats.tar import index
    from aioloader.formats.tfrecord import records

    found: list[str] = []
    scan_tar, scan_records = index._scan_in_order, records._scan

    def counted_tar(chain: Any, *rest: Any) -> Any:
        found.append(chain.path)
        return scan_tar(chain, *rest)

    def counted_records(path: str, *rest: Any, **options: Any) -> Any:
        found.append(path)
        return scan_records(path, *rest, **options)

    monkeypatch.setattr(index, "_scan_in_order", counted_tar)
    monkeypatch.setattr(records, "_scan", counted_records)
    return found
