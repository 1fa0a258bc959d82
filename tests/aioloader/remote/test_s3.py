"""Tests of record files in S3, with the environment variables of Amazon's tools."""

from __future__ import annotations

from pathlib import Path

import pytest

import aioloader
from tests.aioloader.remote.conftest import assert_same, epoch
from tests.executors import pool

pytestmark = pytest.mark.remote


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_a_loader_over_s3_gives_the_same_batches(bucket: str, photo_rec: Path, executor: str) -> None:
    expected = epoch(photo_rec)
    assert_same(epoch(f"s3://{bucket}/set 1/photos.rec", **pool(executor, 2)), expected)


def test_an_object_that_is_not_there(bucket: str) -> None:
    with pytest.raises(FileNotFoundError, match=r"s3://.*nothing\.rec"):
        aioloader.ImageRecordDataset(f"s3://{bucket}/nothing.rec")
