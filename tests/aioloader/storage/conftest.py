"""Fixtures: files to read from."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest


@pytest.fixture
def content() -> bytes:
    return np.random.RandomState(0).bytes(200_000)


@pytest.fixture
def path(tmp_path: Path, content: bytes) -> str:
    file = tmp_path / "data.rec"
    file.write_bytes(content)
    return str(file)


@pytest.fixture
def files(tmp_path: Path) -> list[str]:
    paths = []
    for number, size in enumerate([10, 0, 5000]):
        file = tmp_path / f"{number}.jpg"
        file.write_bytes(bytes([65 + number]) * size)
        paths.append(str(file))
    return paths
