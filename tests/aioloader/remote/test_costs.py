"""Tests of `image_costs` on records and images on servers."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

import aioloader
from tests.aioloader.remote.conftest import Served

pytestmark = pytest.mark.remote


def area(height: int, width: int) -> int:
    return 10_000 * height + width


def test_records(served: Served, leftovers: Any) -> None:
    here, there = aioloader.ImageRecordDataset(served.path), aioloader.ImageRecordDataset(served.url)
    expected = aioloader.image_costs(here, area)
    assert aioloader.image_costs(there, area).tolist() == expected.tolist()
    part = there.take(9).shard(3, 2)
    assert aioloader.image_costs(part, area).tolist() == expected[6:9].tolist()


def test_folders(bucket: str, s3_server: Any, photo_folder: Path, leftovers: Any) -> None:
    for path in sorted(photo_folder.rglob("*.*")):
        s3_server.put_file(bucket, f"images/{path.relative_to(photo_folder).as_posix()}", path)
    here = aioloader.ImageFolderDataset(photo_folder)
    there = aioloader.ImageFolderDataset(f"s3://{bucket}/images")
    assert aioloader.image_costs(there, area).tolist() == aioloader.image_costs(here, area).tolist()
