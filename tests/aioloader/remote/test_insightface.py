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
def test_a_remote_set_of_faces_equals_the_local_one_and_opens_without_its_server(
    served_folder: Path,
    nginx_proxy: Any,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    with_property: bool,
) -> None:
    monkeypatch.setattr(client, "_UNREACHED_S", 0.2)
    folder = write_set(served_folder / uuid.uuid4().hex, [_png(number) for number in range(6)], LABELS)
    if not with_property:
        (folder / "property").unlink()

    def read(path: Any, **options: Any) -> tuple[Any, ...]:
        faces = InsightFaceDataset(path, **options)
        pixels = [int(faces[number][0].sum()) for number in range(6)]
        return faces.num_classes, list(faces.identities), faces.labels().tolist(), pixels

    url, here = f"http://{nginx_proxy.address}/{folder.name}", read(folder)
    assert here[2] == LABELS
    assert read(url, cache=tmp_path) == read(f"{url}/train.rec") == here
    nginx_proxy.go_away()
    try:
        with pytest.warns(OfflineWarning) as caught:
            assert read(url, cache=tmp_path) == here
        assert len(caught) == 1
    finally:
        nginx_proxy.come_back()
        shutil.rmtree(folder)
