"""Tests of the commands over shards of every format: valid sets, damage, and files of something else."""

from __future__ import annotations

import gzip
import json
import tarfile
from collections.abc import Callable
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

import aioloader
from tests.aioloader.datasets.tars import write_tar
from tests.aioloader.format_sets import FORMATS, MDS, PARQUET, TAR, TFRECORD, Sample, SetFormat
from tests.aioloader.formats import tfrecords
from tests.aioloader.tools.conftest import Run

COUNT = 9


def jpeg(seed: int) -> bytes:
    """Return a JPEG that is large enough for a crop index."""
    noise = np.random.default_rng(seed).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    return bytes(cv2.imencode(".jpg", cv2.resize(noise, (300, 200)))[1])


SAMPLES = [
    Sample(key=f"s{number}", image=jpeg(number), label=number % 4, json={"number": number})
    for number in range(COUNT)
]


@pytest.fixture(params=FORMATS)
def made(request: pytest.FixtureRequest) -> SetFormat:
    found: SetFormat = request.param
    return found


@pytest.fixture
def checked(made: SetFormat) -> None:
    """Skip the checks of a format whose checksums need a package that is not installed."""
    if made is TFRECORD:
        pytest.importorskip("google_crc32c", reason="needs pip install 'aioloader[tfrecord]'")


@pytest.fixture
def folder(made: SetFormat, tmp_path: Path) -> Path:
    """Write a set of three shards with three samples each."""
    return made.write(tmp_path / "set", SAMPLES)


def shards_in(folder: Path) -> list[Path]:
    return sorted(path for path in folder.iterdir() if path.name != "index.json")


def edit(path: Path, change: Callable[[bytearray], Any]) -> None:
    data = bytearray(path.read_bytes())
    change(data)
    path.write_bytes(data)


def halve(data: bytearray) -> None:
    del data[len(data) // 2 :]


def facts_of(run: Run, *words: Any) -> tuple[int, list[dict[str, Any]]]:
    """Run `verify --json`; return the exit code, and the report on each file."""
    code, out, err = run("verify", "--json", "--num-workers", 0, *words)
    assert err == ""
    found = json.loads(out)
    assert found["ok"] is (code == 0)
    return code, found["files"]


# -- verify ------------------------------------------------------------------------------------------------------------


@pytest.mark.usefixtures("checked")
def test_a_set_without_a_fault_is_valid(folder: Path, run: Run) -> None:
    code, files = facts_of(run, "--decode", folder)
    assert code == 0
    assert [(each["path"], each["samples"], each["images"], each["problems"]) for each in files] == [
        (str(path), 3, 3, []) for path in shards_in(folder)
    ]
    code, out, err = run("verify", folder)
    assert (code, err) == (0, "")
    assert [line.rpartition(", ")[2] for line in out.splitlines()] == ["valid"] * 3


@pytest.mark.parametrize("with_sample", [True, False])
def test_members_of_tars_that_belong_to_no_sample_are_counted(
    tmp_path: Path, run: Run, with_sample: bool
) -> None:
    path = tmp_path / "a.tar"
    with tarfile.open(path, "w") as tar:
        for name, kind in (
            ("folder", tarfile.DIRTYPE),
            ("folder/README", tarfile.REGTYPE),
            ("folder/1.jpg", tarfile.SYMTYPE),
            ("folder/._1.jpg", tarfile.REGTYPE),
            ("pipe.jpg", tarfile.FIFOTYPE),
            *([("1.cls", tarfile.REGTYPE)] if with_sample else []),
        ):
            member = tarfile.TarInfo(name)
            member.type, member.linkname = kind, "x.jpg"
            tar.addfile(member)
    wanted = {"files": 2, "symbolic links": 1, "devices and pipes": 1}
    code, (facts,) = facts_of(run, path)
    assert (code, facts["samples"], facts["members_outside"]) == (
        int(not with_sample),
        int(with_sample),
        wanted,
    )
    words = "files 2, symbolic links 1, devices and pipes 1"
    assert f"{path}: members that belong to no sample: {words}\n" in run("verify", path)[1]
    _, out, _ = run("inspect", "--json", path)
    assert json.loads(out)["details"]["members_outside"] == wanted
    assert words in run("inspect", path)[1]


def test_hard_links_of_a_tar_are_files_for_every_command(tmp_path: Path, run: Run) -> None:
    files = {
        f"s{n}.{name}": data for n in range(4) for name, data in (("jpg", jpeg(n % 2)), ("cls", b"%d" % n))
    }
    links = {"s2.jpg": "s0.jpg", "s3.jpg": "./s1.jpg", "s3.cls": "s1.cls"}
    files["s3.cls"] = files["s1.cls"]
    plain, linked = tmp_path / "plain", tmp_path / "linked"
    found = {}
    for folder, some in ((plain, {}), (linked, links)):
        folder.mkdir()
        path = write_tar(folder / "a.tar", [(name, some.get(name, data)) for name, data in files.items()])
        code, (facts,) = facts_of(run, "--decode", folder)
        assert (code, facts["samples"], facts["images"], facts["problems"]) == (0, 4, 4, [])
        assert "members_outside" not in facts
        facts = json.loads(run("inspect", "--json", folder)[1])
        assert run("pack", path, folder / "a.rec", "--encoding", "keep")[0] == 0
        assert run("index", path)[0] == 0
        code, out, _ = run("index", "--crops", "--num-workers", 0, "--json", folder / "a.tar")
        (crops,) = json.loads(out)["files"]
        assert (code, crops["images"], crops["indexed"]) == (0, 4, 4)
        chain = aioloader.transforms.RandomResizedCrop(24, scale=(0.05, 0.3))
        dataset = aioloader.open_dataset(path)
        with aioloader.DataLoader(dataset.transform_first(chain), 4, seed=1, num_workers=0) as loader:
            ((images, labels),) = [(images.copy(), labels.tolist()) for images, labels in loader]
        for name in ("decode_us", "images_per_s", "crop_us", "kept_crop_us"):
            del facts["images"][name]
        described = {name: facts[name] for name in ("sizes", "fields", "images", "labels", "damage")}
        found[folder] = described, (folder / "a.rec").read_bytes(), images.tolist(), labels
    assert found[linked] == found[plain]
    assert found[plain][-1] == [0, 1, 2, 1]
    assert (linked / "a.tar").stat().st_size < (plain / "a.tar").stat().st_size


@pytest.mark.usefixtures("checked")
def test_a_truncated_shard_is_reported_and_the_others_are_checked(folder: Path, run: Run) -> None:
    first, second, third = shards_in(folder)
    edit(second, halve)
    code, files = facts_of(run, "--decode", folder)
    assert code == 1
    assert [each["ok"] for each in files] == [True, False, True]
    assert files[1]["samples"] < 3
    assert len(files[1]["problems"]) == 1
    assert [files[number]["images"] for number in (0, 2)] == [3, 3]
    code, out, err = run("verify", "--decode", "--num-workers", 0, folder)
    assert code == 1
    assert f"{second}: {files[1]['samples']} samples" in out
    lines = [line for line in err.splitlines() if str(second) in line]
    # The second line says that its images were not decoded. The name of the file is in each line once.
    assert len(lines) == 2
    assert all(line.startswith(str(second)) and line.count(str(second)) == 1 for line in lines)
    assert str(first) not in err
    assert str(third) not in err


@pytest.mark.usefixtures("checked")
def test_damage_to_bytes_is_found(made: SetFormat, folder: Path, run: Run) -> None:
    path = shards_in(folder)[1]

    def flip(data: bytearray) -> None:
        # The marker of the image, in which there is no checksum but that of a TFRecord.
        place = data.find(jpeg(4))
        assert place > 0
        data[place : place + 20] = bytes(20)

    edit(path, flip)
    code, files = facts_of(run, folder)
    by_structure = made is TFRECORD
    assert code == int(by_structure)
    assert len(files[1]["problems"]) == int(by_structure)
    if by_structure:
        assert files[1]["problems"][0]["key"] == "1"
    code, files = facts_of(run, "--decode", folder)
    assert code == 1
    (error,) = files[1]["image_errors"]
    assert files[1]["images"] == 3
    assert error["path"] == str(path)
    assert str(error["key"]) in ("1", "s4")
    code, _, err = run("verify", "--decode", "--num-workers", 0, folder)
    assert code == 1
    (line,) = [line for line in err.splitlines() if f"key {error['key']!r}" in line]
    assert line.count(str(path)) == 1


@pytest.mark.parametrize("made", [param for param in FORMATS if param.values[0] in (TAR, TFRECORD, PARQUET)])
@pytest.mark.usefixtures("checked")
def test_an_edited_head_is_found(made: SetFormat, folder: Path, run: Run) -> None:
    def flip(data: bytearray) -> None:
        data[4] ^= 0x41

    edit(shards_in(folder)[0], flip)
    code, files = facts_of(run, folder)
    assert code == 1
    assert [len(each["problems"]) for each in files] == [1, 0, 0]
    assert files[0]["problems"][0]["message"]


@pytest.mark.usefixtures("checked")
def test_an_empty_file_is_a_fault_except_of_records(made: SetFormat, folder: Path, run: Run) -> None:
    shards_in(folder)[2].write_bytes(b"")
    code, files = facts_of(run, "--decode", folder)
    # A TFRecord file without records has no bytes.
    assert [each["ok"] for each in files] == [True, True, made is TFRECORD]
    assert code == int(made is not TFRECORD)
    assert files[2]["samples"] == 0


@pytest.mark.usefixtures("checked")
@pytest.mark.parametrize("made", [param for param in FORMATS if param.values[0] in (TAR, TFRECORD)])
@pytest.mark.parametrize("decode", [[], ["--decode"]], ids=["structure", "decoded"])
def test_a_set_without_samples_is_reported(
    made: SetFormat, tmp_path: Path, decode: list[str], run: Run
) -> None:
    path = tmp_path / f"a.{made.name}"
    path.write_bytes(bytes(10240) if made is TAR else b"")
    code, (facts,) = facts_of(run, *decode, path)
    assert (code, facts["samples"], facts["ok"]) == (1, 0, False)
    assert "no samples" in facts["problems"][0]["message"]
    code, out, err = run("verify", *decode, path)
    assert code == 1
    assert "valid, but empty" in out
    assert err.startswith(f"{path}: there are no samples")
    for words in (["bench", path], ["pack", path, tmp_path / "out.rec"]):
        code, _, err = run(*words)
        assert code == 1
        assert f"there are no samples in '{path}': check how the files were made" in err
    assert run("inspect", path)[0] == 0


def test_several_images_among_single_ones_are_reported(tmp_path: Path, run: Run) -> None:
    pytest.importorskip("google_crc32c", reason="needs pip install 'aioloader[tfrecord]'")

    def example(*images: bytes) -> bytes:
        return tfrecords.example(
            {"image/encoded": tfrecords.bytes_list(*images), "image/class/label": tfrecords.int64_list(1)}
        )

    path = tfrecords.write_records(tmp_path / "a.tfrecord", [example(jpeg(1)), example(jpeg(2), jpeg(3))])
    code, (facts,) = facts_of(run, "--decode", path)
    assert code == 1
    (error,) = facts["image_errors"]
    assert error["key"] == "1"
    assert "has not one image" in error["reason"]
    assert "2 images" in error["reason"]
    with aioloader.images(path, 16, 2, blocking=True, num_workers=0) as loader:
        with pytest.raises(aioloader.SampleError):
            list(loader)
    # A set of lists of images is read with fields=(...), and is as it should be.
    tfrecords.write_records(path, [example(jpeg(1), jpeg(2))] * 2)
    code, (facts,) = facts_of(run, "--decode", path)
    assert (code, facts["images"]) == (0, 4)


@pytest.mark.parametrize("name", ["a.bin", "without-a-suffix"])
def test_an_unknown_file_is_not_taken_for_records(tmp_path: Path, name: str, run: Run) -> None:
    path = tmp_path / name
    path.write_bytes(b"anything" * 200)
    code, out, err = run("verify", path)
    assert (code, out) == (1, "")
    assert "unknown format" in err
    assert "RecordIO files (.rec)" in err
    # A damaged record file is one by its name.
    assert "magic number" in run("verify", path.rename(tmp_path / "a.rec"))[2]


def test_a_field_that_is_not_in_all_samples_is_reported(tmp_path: Path, run: Run) -> None:
    samples = [*SAMPLES[:2], Sample(key="last", image=jpeg(1))]
    folder = TAR.write(tmp_path / "set", samples, shards=1)
    code, (facts,) = facts_of(run, "--decode", folder)
    assert code == 1
    (error,) = facts["image_errors"]
    assert (error["key"], "cls" in error["reason"]) == ("last", True)
    # Without a label in any sample, none is missing.
    folder = TAR.write(tmp_path / "other", [Sample(key="a", image=jpeg(1), json={"a": 1})], shards=1)
    assert facts_of(run, "--decode", folder)[0] == 0


def test_a_missing_shard_is_a_fault_of_the_set(tmp_path: Path, run: Run) -> None:
    folder = MDS.write(tmp_path / "set", SAMPLES)
    shards_in(folder)[1].unlink()
    code, files = facts_of(run, "--decode", folder)
    assert (code, [each["ok"] for each in files]) == (1, [True, False, True])
    assert "missing" in files[1]["problems"][0]["message"]
    code, out, _ = run("inspect", "--json", folder)
    found = json.loads(out)
    assert (code, found["records"], len(found["damage"])) == (0, 6, 1)
    code, _, err = run("index", "--crops", "--num-workers", 0, folder)
    assert code == 1
    assert err.startswith(f"{folder / 'shard.00001.mds'}: No such file")


@pytest.mark.parametrize("command", ["verify", "inspect", "index"])
def test_files_that_are_something_else_are_named(tmp_path: Path, run: Run, command: str) -> None:
    folder = TAR.write(tmp_path / "set", SAMPLES, shards=1)
    (tar,) = shards_in(folder)
    packed = tmp_path / "a.tar.gz"
    packed.write_bytes(gzip.compress(tar.read_bytes()))
    renamed = tmp_path / "b.tar"
    renamed.write_bytes(packed.read_bytes())
    shard = shards_in(MDS.write(tmp_path / "mds", SAMPLES))[0]
    for path, text in ((packed, "gunzip"), (renamed, "gunzip"), (shard, "index.json")):
        code, out, err = run(command, path)
        assert (code, out) == (1, "")
        assert text in err
    anything = tmp_path / "without-a-suffix"
    anything.write_bytes(tar.read_bytes())
    assert run(command, anything)[0] == 0


# -- inspect -----------------------------------------------------------------------------------------------------------


def test_a_set_is_described(made: SetFormat, folder: Path, run: Run) -> None:
    code, out, _ = run("inspect", "--json", folder)
    found = json.loads(out)
    assert (code, found["files"], found["records"], found["damage"]) == (0, 3, COUNT, [])
    details = found["details"]
    fields = {each["name"]: each for each in found["fields"]}
    assert set(fields) == {made.image, made.label, made.json}
    assert (fields[made.image]["kind"], fields[made.image]["samples"]) == ("image", COUNT)
    assert (details["image_field"], details["label_field"]) == (made.image, made.label)
    assert details["keys"] == (["s0", "s8"] if made is TAR else [])
    assert found["images"]["formats"] == {"jpeg": COUNT}
    code, out, _ = run("inspect", folder)
    assert code == 0
    assert f"  {'label field':12} {made.label}\n" in out


def test_a_set_of_which_no_shard_can_be_opened_is_not_described(
    made: SetFormat, folder: Path, run: Run
) -> None:
    for path in shards_in(folder):
        edit(path, lambda data: data.__delitem__(slice(30, None)))
    for words in ([folder], [shards_in(folder)[0]] if made is not MDS else [folder]):
        code, out, _ = run("inspect", *words)
        assert code == 1
        assert "no samples can be read, " in out
        assert str(shards_in(folder)[0]) in out.partition("damage")[2]
        assert "aioloader verify --decode" in out
        assert "aioloader index" not in out
        assert "on_error" not in out


def test_damage_is_described_once(folder: Path, run: Run) -> None:
    edit(shards_in(folder)[0], halve)
    code, out, _ = run("inspect", "--json", folder)
    found = json.loads(out)
    assert (code, found["records"]) == (0, 6)
    (damage,) = found["damage"]
    assert damage.count(str(shards_in(folder)[0])) == 1


# -- index -------------------------------------------------------------------------------------------------------------


def test_indexes_are_written_where_they_are_needed(made: SetFormat, folder: Path, run: Run) -> None:
    shards = shards_in(folder)
    code, out, _ = run("index", folder)
    assert code == 0
    if made in (MDS, PARQUET):
        assert f"{shards[0]} and 2 other files: no index is needed" in out
        assert shards_in(folder) == shards
        edit(shards[1], halve)
        code, out, err = run("index", folder)
        if made is PARQUET:
            assert code == 1
            assert err.startswith(f"{shards[1]}, byte ")
            assert f"{shards[0]} and 1 other file: no index is needed" in out
        else:  # its shards are not opened
            assert code == 0
        return
    assert [line.partition(":")[0] for line in out.splitlines()] == [f"{path}.samples" for path in shards]
    assert run("index", folder)[1].count("fits") == 3
    edit(shards[1], halve)
    code, out, err = run("index", folder)
    assert (code, out.count("fits")) == (1, 2)
    assert err.splitlines()[-1].startswith(str(shards[1]))


@pytest.mark.usefixtures("checked")
def test_crop_indexes_have_every_image_of_the_shards_that_can_be_read(
    made: SetFormat, folder: Path, run: Run
) -> None:
    shards = shards_in(folder)
    words = ("index", "--crops", "--num-workers", 0, "--json", folder)
    code, out, _ = run(*words)
    assert code == 0
    assert [(each["crops"], each["images"], each["indexed"]) for each in json.loads(out)["files"]] == [
        (f"{path}.crops", 3, 3) for path in shards
    ]
    dataset = made.open(folder)
    assert len(dataset[4]) == 2
    code, files = facts_of(run, "--decode", folder)
    assert code == 0
    assert [each["crop_index"]["entries"] for each in files] == [3, 3, 3]
    assert [each["kept"] for each in json.loads(run(*words)[1])["files"]] == [3, 3, 3]
    edit(shards[0], halve)
    code, out, _ = run(*words)
    files = json.loads(out)["files"]
    assert (code, [bool(each["fault"]) for each in files]) == (1, [True, False, False])
    assert [each["indexed"] for each in files] == [0, 3, 3]
