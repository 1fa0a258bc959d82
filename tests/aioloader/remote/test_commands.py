"""Tests of commands with URLs in place of paths."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader
import recordio
from aioloader.cli import main
from recordio.__main__ import main as record_main
from tests.aioloader.remote.conftest import Served, assert_same, epoch

pytestmark = pytest.mark.remote


def _json(capsys: pytest.CaptureFixture[str], *words: str) -> tuple[int, Any]:
    code = main([*words, "--json"])
    return code, json.loads(capsys.readouterr().out)


def test_verify_reads_an_object(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    options = ["--decode", "--num-workers", "0"]
    code, there = _json(capsys, "verify", served.url, *options)
    assert code == 0
    _, here = _json(capsys, "verify", str(served.path), *options)
    (there,), (here,) = there["files"], here["files"]
    for facts in (there, here):
        for name in ("path", "index"):
            assert facts.pop(name)
    assert there == here
    assert there["records"] > 20


def test_verify_and_repair_find_the_same_damage_in_remote_files(
    served: Served, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    data = bytearray(served.path.read_bytes())
    second = int(recordio.RecordReader(served.path).offsets[1])
    data[second : second + 4] = b"junk"
    served.path.write_bytes(data)
    there = recordio.verify(served.url)
    assert there.problems == recordio.verify(served.path).problems
    assert there.problems[0].offset == second
    assert main(["verify", served.url]) == 1
    assert f"byte {second}" in capsys.readouterr().err
    assert main(["repair", served.url, str(tmp_path / "there.rec")]) == 1
    assert main(["repair", str(served.path), str(tmp_path / "here.rec")]) == 1
    for suffix in (".rec", ".idx"):
        assert (tmp_path / f"there{suffix}").read_bytes() == (tmp_path / f"here{suffix}").read_bytes()
    assert main(["repair", served.url, "s3://bucket/copy.rec"]) == 2


def test_a_missing_object_is_reported_in_a_line(bucket: str, capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["verify", f"s3://{bucket}/no.rec"], ["inspect", f"s3://{bucket}/no.rec"]):
        assert main(words) == 2
        assert "no.rec" in capsys.readouterr().err.strip().splitlines()[-1]
    assert main(["inspect", f"s3://{bucket}/no/folder"]) == 2


def test_an_index_is_written_next_to_the_object(
    bucket: str, s3_server: Any, photo_rec: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    s3_server.put_file(bucket, "bare.rec", photo_rec)
    url = f"s3://{bucket}/bare.rec"
    assert main(["index", url]) == 0
    assert f"s3://{bucket}/bare.idx: " in capsys.readouterr().out
    assert recordio.Index.open(f"s3://{bucket}/bare.idx").offsets.tolist() == (
        recordio.Index.open(photo_rec.with_suffix(".idx")).offsets.tolist()
    )
    assert_same(epoch(url), epoch(photo_rec))
    assert main(["index", url, "--out", str(tmp_path / "here.idx")]) == 0
    assert (tmp_path / "here.idx").read_text() == photo_rec.with_suffix(".idx").read_text()
    assert main(["index", url, "--out", url]) == 2


def test_inspect_reports_the_same_of_an_object(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    _same_inspection(capsys, str(served.path), served.url)
    served.path.with_suffix(".idx").unlink()
    _same_inspection(capsys, str(served.path), served.url)


def test_inspect_and_verify_report_the_same_of_folders_and_shards(
    bucket: str, s3_server: Any, photo_folder: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for where in (str(tmp_path / "train"), f"s3://{bucket}/many/train"):
        assert main(["pack", str(photo_folder), where, "--shards", "2"]) == 0
    capsys.readouterr()
    _same_inspection(capsys, str(tmp_path), f"s3://{bucket}/many")
    for name in (f"s3://{bucket}/many", f"s3://{bucket}/many/train-*.rec"):
        code, facts = _json(capsys, "verify", name)
        assert code == 0
        assert [Path(each["path"]).name for each in facts["files"]] == [
            f"train-0000{n}-of-00002.rec" for n in range(2)
        ]
    for path in sorted(photo_folder.rglob("*.*")):
        s3_server.put_file(bucket, f"photos/{path.relative_to(photo_folder).as_posix()}", path)
    _same_inspection(capsys, str(photo_folder), f"s3://{bucket}/photos")


def _same_inspection(capsys: pytest.CaptureFixture[str], here: str, there: str) -> None:
    found = []
    for path in (here, there):
        code, facts = _json(capsys, "inspect", path)
        assert code == 0
        assert facts.pop("path") == path
        for shard in facts["details"].get("shards", []):
            shard.pop("path")
        # The decoding speed, and the advice derived from it, differ between measurements.
        for name in ("decode_us", "images_per_s", "crop_us", "kept_crop_us"):
            (facts["images"] or {}).pop(name)
        facts.pop("advice")
        found.append(facts)
    assert found[1] == found[0]


def test_recordio_refuses_schemes_that_are_not_registered(capsys: pytest.CaptureFixture[str]) -> None:
    for words in (["verify", "xyz://bucket/a.rec"], ["index", "xyz://bucket/a.rec"]):
        assert record_main(words) == 2
        (line,) = capsys.readouterr().err.strip().splitlines()
        assert line.startswith("xyz://bucket/a.")


@pytest.mark.parametrize("with_idx", [True, False], ids=["idx", "scan"])
def test_the_viewer_opens_an_object(served: Served, with_idx: bool) -> None:
    from aioloader.tools.view import open_collection

    if not with_idx:
        served.path.with_suffix(".idx").unlink()
    found = []
    for path in (str(served.path), served.url):
        collection = open_collection(path)
        try:
            collection.load()
            labels = collection.label_chunk(0, collection.known)
            found.append((collection.count, [bytes(collection.read(n).body) for n in (0, 3)], labels.first))
        finally:
            collection.close()
    assert found[0][:2] == found[1][:2]
    np.testing.assert_array_equal(found[0][2], found[1][2])


def test_the_viewer_opens_a_folder_of_images(bucket: str, s3_server: Any, photo_folder: Path) -> None:
    from aioloader.tools.view import open_collection

    for path in sorted(photo_folder.rglob("*.*")):
        s3_server.put_file(bucket, f"photos/{path.relative_to(photo_folder).as_posix()}", path)
    found = []
    for where in (str(photo_folder), f"s3://{bucket}/photos"):
        collection = open_collection(where)
        try:
            collection.load()
            found.append((collection.count, collection.key(5), bytes(collection.read(5).body)))
        finally:
            collection.close()
    assert found[0] == found[1]


def test_a_page_of_the_viewer_is_written_of_an_object(served: Served, tmp_path: Path) -> None:
    pytest.importorskip("jinja2", reason="needs jinja2")
    assert main(["view", served.url, "--export", str(tmp_path / "pages"), "--limit", "5"]) == 0
    assert served.url in (tmp_path / "pages" / "index.html").read_text()


def test_names_do_not_contain_signatures(served: Served, capsys: pytest.CaptureFixture[str]) -> None:
    signed = f"{served.url}?X-Signature=secret"
    assert main(["verify", signed]) == 0
    assert main(["inspect", signed]) == 0
    report = capsys.readouterr()
    assert "secret" not in report.out + report.err
    assert len(aioloader.RecordFileDataset(signed)) > 0


@pytest.mark.parametrize("waits", [True, False], ids=["async", "blocking"])
def test_an_index_that_is_denied_is_none(
    bucket: str, s3_server: Any, photo_rec: Path, monkeypatch: pytest.MonkeyPatch, waits: bool, run_on: Any
) -> None:
    from aioloader.storage.remote import configure

    s3_server.make_public(bucket, "set%201/photos.rec")  # and not its .idx
    url = f"s3://{bucket}/set 1/photos.rec"
    configure(f"s3://{bucket}/", skip_signature=True, region="us-east-1")

    async def load() -> list[int]:
        async with recordio.aio.AsyncRecordReader(url) as reader:
            await reader.load()
            return list(reader.offsets)

    try:
        if waits:
            found = run_on(load)
        else:
            with recordio.RecordReader(url) as reader:
                found = list(reader.offsets)
            assert recordio.verify(url).index_path is None
            with pytest.raises(PermissionError):
                recordio.verify(url, url.replace(".rec", ".idx"))
    finally:
        configure(f"s3://{bucket}/")
    assert found == list(recordio.Index.open(photo_rec.with_suffix(".idx")).offsets)


def test_the_crop_index_of_an_object_is_in_the_cache_directory(
    served: Served, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(tmp_path / "cache"))
    code, there = _json(capsys, "index", "--crops", served.url, "--num-workers", "0")
    _, here = _json(capsys, "index", "--crops", str(served.path), "--num-workers", "0")
    (there,), (here,) = there["files"], here["files"]
    assert code == 0
    assert Path(there["crops"]).is_relative_to(tmp_path / "cache")
    assert here["indexed"] > 10
    for name in ("images", "indexed", "refused", "jpeg_nbytes"):
        assert there[name] == here[name]
    crops = aioloader.ImageRecordDataset(served.url).decoder.crops
    assert crops is not None
    assert_same(epoch(served.url), epoch(served.path))
    assert (main(["verify", served.url, "--num-workers", "0"]), capsys.readouterr().err) == (0, "")
