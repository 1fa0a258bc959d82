"""Tests of the recognition of data sets at URLs."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any
from urllib.parse import quote

import pytest

from aioloader.errors import AmbiguousPathError, ObjectMissingError, UnknownFormatError
from aioloader.formats.folder.format import FORMAT as FOLDER
from aioloader.formats.insightface.format import FORMAT as FACES
from aioloader.formats.mds.format import FORMAT as MDS
from aioloader.formats.opening import recognize
from aioloader.formats.parquet.format import FORMAT as PARQUET
from aioloader.formats.recordio.format import FORMAT as RECORDS
from aioloader.formats.tar.format import FORMAT as TAR
from aioloader.formats.tfrecord.format import FORMAT as TFRECORD
from aioloader.storage.remote.opening import list_level
from tests.aioloader.datasets.test_opening import BYTES, MDS_TEXT
from tests.aioloader.remote.conftest import ServedFolder

pytestmark = pytest.mark.remote


@pytest.fixture
def put(bucket: str, s3_server: Any, tmp_path: Path) -> Any:
    """Return a function that writes objects below a prefix of a bucket, and returns its URL."""

    def put_objects(prefix: str, objects: dict[str, bytes]) -> str:
        for name, data in objects.items():
            path = tmp_path / "object"
            path.write_bytes(data)
            s3_server.put_file(bucket, quote(f"{prefix}/{name}"), path)
        return f"s3://{bucket}/{prefix}"

    return put_objects


def test_one_level_of_a_bucket(put: Any) -> None:
    url = put("level 1", {"b.tar": b"x", "a/0.jpg": b"x", "a/deep/1.jpg": b"x", "b/2.jpg": b"x", "b": b""})
    assert list_level(url) == (["a", "b"], ["b.tar"])
    assert list_level(f"{url}/a/") == (["deep"], ["0.jpg"])
    with pytest.raises(ObjectMissingError):
        list_level(f"{url}/nothing")


def test_data_sets_in_a_bucket(put: Any) -> None:
    shards = put("tars", {f"a-{number}.tar": BYTES[TAR] for number in (1, 0)} | {"README.md": b"x"})
    found = recognize(shards)
    assert (found.format, found.paths) == (TAR, (f"{shards}/a-0.tar", f"{shards}/a-1.tar"))
    assert recognize(f"{shards}/*.tar") == found
    assert recognize(f"{shards}/a-0.tar").paths == (f"{shards}/a-0.tar",)
    numbered = put("records", {"train-00000-of-00001": BYTES[TFRECORD]})
    assert recognize(numbered) == recognize(f"{numbered}/train-00000-of-00001")
    assert recognize(numbered).format is TFRECORD
    assert recognize(put("photos", {"cat/0.jpg": b"x", "dog/0.jpg": b"x"})).format is FOLDER
    mds = put("mds", {"index.json": MDS_TEXT.encode(), "shard.00000.mds": b"x"})
    assert recognize(mds).format is MDS
    assert recognize(f"{mds}/index.json").paths == (f"{mds}/",)
    faces = put("faces", {"train.rec": BYTES[RECORDS], "train.idx": b"0\t0\n", "property": b"1,2,3"})
    assert (recognize(faces).format, recognize(faces).paths) == (FACES, (f"{faces}/train.rec",))
    data = put("hub/data", {"0.parquet": BYTES[PARQUET]})
    assert recognize(data.removesuffix("/data")) == recognize(data)


def test_an_object_without_a_suffix(put: Any) -> None:
    url = put("odd", {"shard": BYTES[TAR], "x.zip": b"PK\x03\x04"})
    assert recognize(f"{url}/shard").format is TAR
    with pytest.raises(UnknownFormatError, match="ZIP archive"):
        recognize(f"{url}/x.zip")
    with pytest.raises(FileNotFoundError):
        recognize(f"{url}/nothing")


def test_splits_of_images_in_a_bucket(put: Any) -> None:
    url = put("nested", dict.fromkeys(("train/cat/0.jpg", "train/dog/0.jpg", "val/cat/0.jpg"), b"x"))
    with pytest.raises(AmbiguousPathError) as caught:
        recognize(url)
    assert caught.value.choices == (f"{url}/train", f"{url}/val")


def test_data_sets_on_the_web(there: ServedFolder) -> None:
    url, folder = there.direct, there.folder
    for name, kind in (("a.tar", TAR), ("b", TFRECORD), ("c.bin", PARQUET)):
        (folder / name).write_bytes(BYTES[kind])
        assert recognize(f"{url}/{name}").format is kind
    assert recognize(f"{url}/a.tar?signature=x").paths == (f"{url}/a.tar?signature=x",)
    with pytest.raises(UnknownFormatError, match="folders cannot be listed over HTTP"):
        recognize(f"{url}/nothing")
    with pytest.raises(FileNotFoundError):
        recognize(f"{url}/nothing.bin")
    (folder / "mds").mkdir()
    (folder / "mds" / "index.json").write_text(json.dumps({"shards": [], "version": 2}))
    for end in ("mds", "mds/", "mds/index.json"):
        found = recognize(f"{url}/{end}")
        assert found.format is MDS
        assert found.paths[0].rstrip("/") == f"{url}/mds"
