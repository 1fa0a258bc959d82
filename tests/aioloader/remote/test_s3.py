"""Record files in S3, with the environment that Amazon's own tools read."""

from __future__ import annotations

import os
import uuid
from pathlib import Path
from typing import Any

import pytest

import aioloader
from tests.aioloader.remote.conftest import assert_same, epoch

pytestmark = pytest.mark.remote


@pytest.fixture
def bucket(s3_server: Any, photo_rec: Path, monkeypatch: pytest.MonkeyPatch) -> str:
    """Name of a bucket with photos.rec and its index in the folder "set 1"."""
    for name in [name for name in os.environ if name.startswith("AWS_")]:
        monkeypatch.delenv(name)
    for name, value in s3_server.environment().items():
        monkeypatch.setenv(name, value)
    name = f"b{uuid.uuid4().hex}"
    s3_server.make_bucket(name)
    for path in (photo_rec, photo_rec.with_suffix(".idx")):
        s3_server.put_file(name, f"set%201/{path.name}", path)
    return name


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_a_loader_over_s3_gives_the_same_batches(bucket: str, photo_rec: Path, executor: str) -> None:
    expected = epoch(photo_rec)
    assert_same(epoch(f"s3://{bucket}/set 1/photos.rec", executor=executor, num_workers=2), expected)


def test_an_object_that_is_not_there(bucket: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"s3://.*nothing\.rec"):
        aioloader.ImageRecordDataset(f"s3://{bucket}/nothing.rec")
