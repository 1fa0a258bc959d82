"""Tests that run the blocks of docs/remote.md, with real servers in place of the hosts that it names."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from aioloader.storage.remote import configure
from tests.aioloader.format_sets import TAR, Sample
from tests.aioloader.remote.conftest import Served
from tests.docs.blocks import blocks
from tests.servers.hub import Repository

pytestmark = pytest.mark.remote

PREFIXES = ("s3://", "s3://public-bucket/", "https://")


@pytest.fixture
def options_undone() -> Iterator[None]:
    """Undo the options, which are global to the process."""
    yield
    for prefix in PREFIXES:
        configure(prefix)


def test_the_blocks_of_remote_md(
    bucket: str,
    served: Served,
    s3_server: Any,
    hub: Any,
    photo_folder: Path,
    options_undone: None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    pytest.importorskip("obstore")
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(tmp_path / "cache"))
    for path in sorted(photo_folder.rglob("*.jpg"))[:6]:
        s3_server.put_file(bucket, f"train/{path.parent.name}/{path.name}", path)
    hub.repositories["user/name"] = repository = Repository()
    parts = [served.path, served.path.with_suffix(".idx")]
    repository.commit({f"train-00{n}{part.suffix}": part.read_bytes() for n in range(2) for part in parts})
    # Records in place of Parquet, which needs pyarrow.
    repository.commit({"default/train/0000.rec": served.path.read_bytes()}, "refs/convert/parquet")
    samples = [
        Sample(key=f"{n}", image=path.read_bytes(), label=n)
        for n, path in enumerate(sorted(photo_folder.rglob("*.jpg"))[:4])
    ]
    for number, tar in enumerate(sorted(TAR.write(tmp_path / "tars", samples, shards=2).iterdir())):
        tar.rename(served.path.parent / f"train-{number:03}.tar")
    places = {
        "s3://bucket/train.rec": f"s3://{bucket}/set 1/photos.rec",
        "gs://bucket/train": f"s3://{bucket}/train",  # the same code, and there is no such server here
        "https://host/train.rec": served.url,
        "https://host/train-{000..127}.tar": served.url.rpartition("/")[0] + "/train-{000..001}.tar",
        "/scratch/cache": str(tmp_path / "kept"),
    }
    names: dict[str, Any] = {"__name__": "guide"}
    for block in blocks("remote.md", "python"):
        code = block.code
        for place, other in places.items():
            code = code.replace(place, other)
        exec(compile("\n" * (block.line - 1) + code, block.place, "exec"), names)
        if "loader" in names:
            images, labels = next(iter(names["loader"]))
            assert images.shape == (len(names["dataset"]), 224, 224, 3)
            assert len(labels) == len(images)
            assert len(names["folder"]) == 6
            names["loader"].close()
            del names["loader"]
    with names["batches"] as batches:
        assert sorted(label for _, labels in batches for label in labels.tolist()) == [0, 1, 2, 3]
    assert len(names["shards"]) == 2 * len(names["dataset"])
    assert len(names["converted"]) == len(names["dataset"])
    names.clear()
    gc.collect()
