"""Tests of a remote set in InsightFace's layout."""

from __future__ import annotations

import shutil
import uuid
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from aioloader.datasets import InsightFaceDataset
from aioloader.errors import OfflineWarning
from aioloader.storage.remote import client
from tests.aioloader.datasets.faces import write_set

pytestmark = pytest.mark.remote

LABELS = [0, 0, 0, 1, 1, 2]


def _png(number: int) -> bytes:
    done, data = cv2.imencode(".png", np.full((6, 8, 3), number, np.uint8))
    assert done
    return bytes(data)


@pytest.mark.parametrize("with_property", [True, False])
def test_a_remote_set_of_faces_equals_the_local_one(
    served_folder: Path, nginx: Any, tmp_path: Path, with_property: bool
) -> None:
    folder = write_set(tmp_path / "faces", [_png(number) for number in range(len(LABELS))], LABELS)
    if not with_property:
        (folder / "property").unlink()
    where = served_folder / uuid.uuid4().hex
    shutil.copytree(folder, where)
    url = f"http://{nginx.address}/{where.name}"
    try:
        here = InsightFaceDataset(folder)
        for path in (url, f"{url}/train.rec"):
            there = InsightFaceDataset(path)
            assert len(there) == len(here)
            assert there.labels().tolist() == here.labels().tolist() == LABELS
            assert list(there.identities) == list(here.identities)
            assert there.num_classes == here.num_classes
            np.testing.assert_array_equal(there[4][0], here[4][0])
    finally:
        shutil.rmtree(where)


@pytest.mark.parametrize("with_property", [True, False])
def test_a_full_cache_opens_without_its_server(
    served_folder: Path,
    nginx_proxy: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    with_property: bool,
) -> None:
    monkeypatch.setattr(client, "_UNREACHED_S", 0.2)
    where = write_set(served_folder / uuid.uuid4().hex, [_png(number) for number in range(6)], LABELS)
    if not with_property:
        (where / "property").unlink()

    def read() -> tuple[Any, ...]:
        faces = InsightFaceDataset(f"http://{nginx_proxy.address}/{where.name}", cache=tmp_path)
        return faces.num_classes, list(faces.identities), [int(faces[number][0].sum()) for number in range(6)]

    first = read()
    nginx_proxy.go_away()
    try:
        with pytest.warns(OfflineWarning) as caught:
            assert read() == first
        assert len(caught) == 1
    finally:
        nginx_proxy.come_back()
        shutil.rmtree(where)
