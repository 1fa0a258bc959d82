"""Tests of packing into object storage."""

from __future__ import annotations

import tempfile
from pathlib import Path
from typing import Any

import pytest

import aioloader
from aioloader.cli import main
from aioloader.errors import RemoteWriteError
from aioloader.tools.pack import pack
from tests.aioloader.remote.conftest import Served, assert_same, epoch

pytestmark = pytest.mark.remote


def test_files_packed_into_s3_equal_files_packed_locally(
    bucket: str, photo_folder: Path, photo_rec: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(tempfile, "tempdir", str(tmp_path))
    report = pack(photo_folder, f"s3://{bucket}/new/set")
    url = f"s3://{bucket}/new/set.rec"
    assert report.urls == (url, *[url[:-3] + suffix for suffix in ("idx", "json", "lst")])
    assert report.nbytes == photo_rec.stat().st_size
    assert_same(epoch(url), epoch(photo_rec))
    assert len(aioloader.RecordFileDataset(url)) == report.records
    assert not list(tmp_path.glob("aioloader-*"))


def test_the_command_packs_into_s3(
    bucket: str, photo_folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["pack", str(photo_folder), f"s3://{bucket}/set 1/photos"]) == 0
    assert f"s3://{bucket}/set 1/photos.rec: " in capsys.readouterr().out


def test_shards_are_packed_into_s3_and_read_by_a_pattern(
    bucket: str, photo_folder: Path, photo_rec: Path
) -> None:
    report = pack(photo_folder, f"s3://{bucket}/many/train", shards=3)
    assert len([url for url in report.urls if url.endswith(".rec")]) == 3
    assert_same(epoch(f"s3://{bucket}/many/train-*.rec", executor="thread"), epoch(photo_rec))
    with pytest.raises(FileNotFoundError):
        aioloader.RecordFileDataset(f"s3://{bucket}/many/test-*.rec")


def test_the_name_of_an_object_is_not_a_pattern(bucket: str, photo_folder: Path, photo_rec: Path) -> None:
    pack(photo_folder, f"s3://{bucket}/odd/train[1].rec")
    assert_same(epoch(f"s3://{bucket}/odd/train[1].rec", executor="thread"), epoch(photo_rec))


def test_a_server_that_takes_nothing_is_reported(nginx: Any, photo_folder: Path) -> None:
    with pytest.raises(RemoteWriteError, match=r"photos\.idx|photos\.lst|photos\.rec"):
        pack(photo_folder, f"http://{nginx.address}/photos")


def test_the_iterator_of_mxnet_takes_urls(served: Served) -> None:
    import aioloader.mxnet as mx

    def batches(path: str) -> list[tuple[Any, Any]]:
        found = mx.io.ImageRecordIter(
            path_imgrec=path, data_shape=(3, 24, 24), batch_size=5, shuffle=True, seed=3, rand_crop=True
        )
        return [(batch.data[0].asnumpy(), batch.label[0].asnumpy()) for batch in found]

    assert_same(batches(served.url), batches(str(served.path)))
