"""Tests of packing samples of other formats: unchanged bytes, labels, kept fields, order, resuming and errors."""

from __future__ import annotations

import base64
import json
import shutil
from pathlib import Path
from typing import Any, NamedTuple

import numpy as np
import pytest

import recordio
from aioloader import ImageRecordDataset
from aioloader.cli import main
from aioloader.errors import AmbiguousPathError, SampleFormatError, TooManyErrorsError, UnknownFormatError
from aioloader.formats.packed_files import fields_line, read_fields
from aioloader.foundation.types import ItemLocation
from aioloader.packing.samples import label_numbers
from aioloader.tools.inspect import inspect
from aioloader.tools.pack import PackError, PackReport, pack
from tests.aioloader.format_sets import FORMATS, MDS, PARQUET, TAR, TFRECORD, SetFormat, is_readable
from tests.aioloader.packing import sample_sets
from tests.aioloader.packing.sample_sets import (
    COUNT,
    files,
    images,
    label,
    meta,
    stop_at,
    text,
    write,
    write_tar,
    write_tars,
)
from tests.cases import with_cases
from tests.executors import pool


class Packed(NamedTuple):
    """Record of a packed set: key, labels, and the bytes of the image."""

    key: int
    labels: tuple[float, ...]
    image: bytes


@pytest.fixture(scope="module", params=FORMATS)
def samples(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> tuple[SetFormat, Path]:
    """Return a format, and a folder with a set of it."""
    made: SetFormat = request.param
    return made, write(made, tmp_path_factory.mktemp(made.name))


@pytest.fixture(scope="module")
def shards(tmp_path_factory: pytest.TempPathFactory) -> Path:
    return write_tars(tmp_path_factory.mktemp("tars"))


def records(report: PackReport) -> list[Packed]:
    return [
        Packed(header.id, tuple(header.label.tolist() if header.flag else [header.label]), image)
        for file in report.files
        for header, image in sample_sets.records(file.rec)
    ]


def test_images_are_copied_byte_for_byte_with_their_labels(
    samples: tuple[SetFormat, Path], tmp_path: Path
) -> None:
    made, source = samples
    report = pack(source, tmp_path / "out")
    assert records(report) == [
        Packed(number, (float(label(number)),), image) for number, image in enumerate(images())
    ]
    lines = report.lst.read_text().splitlines()
    assert [line.split("\t")[:2] for line in lines] == [
        [str(number), f"{label(number)}.000000"] for number in range(COUNT)
    ]
    assert len({line.split("\t")[2] for line in lines}) == COUNT
    if made.name == "tar":
        assert lines[5] == "5\t2.000000\ttrain-00001-of-00003.tar/0005"
    assert report.labels == {0.0: 4, 1.0: 4, 2.0: 4}
    assert (report.source_nbytes, report.image_nbytes) == (sum(map(len, images())),) * 2
    assert report.json is not None
    described = json.loads(report.json.read_text())["source"]
    assert (described["kind"].lower(), described["path"]) == (made.name, str(source))
    assert described["images"] == COUNT
    assert not list(tmp_path.glob("*.jsonl"))
    assert len(ImageRecordDataset(report.rec)) == COUNT


@pytest.mark.parametrize("source", ["train-*.tar", "train-00001-of-00003.tar"])
def test_patterns_and_files(source: str, shards: Path, tmp_path: Path) -> None:
    found = records(pack(str(shards / source), tmp_path / "out"))
    expected = images() if "*" in source else images()[4:8]
    assert [record.image for record in found] == expected


def test_executors_orders_and_shards_write_the_same_bytes(shards: Path, tmp_path: Path) -> None:
    options: dict[str, Any] = {
        "shuffle": True,
        "seed": 7,
        "shards": 2,
        "train_ratio": 0.75,
        "fields": ("json",),
    }
    expected = pack(shards, tmp_path / "expected" / "out", **options)
    found = pack(shards, tmp_path / "found" / "out", **pool("process", 2), **options)
    for name in [path.name for path in (tmp_path / "expected").iterdir()]:
        assert (tmp_path / "found" / name).read_bytes() == (tmp_path / "expected" / name).read_bytes()
    assert [len(list(read_fields(file.fields))) for file in found.files if file.fields] == [5, 4, 2, 1]
    assert sorted(record.image for record in records(expected)) == sorted(images())


def test_a_crop_index_of_samples(shards: Path, tmp_path: Path) -> None:
    report = pack(shards, tmp_path / "out", crops=True)
    assert report.indexed + sum(report.unindexed.values()) == COUNT
    assert report.files[0].crops is not None
    assert report.files[0].crops.exists()


# -- fields ------------------------------------------------------------------------------------------------------------


def test_fields_are_kept_in_a_line_for_each_record(samples: tuple[SetFormat, Path], tmp_path: Path) -> None:
    made, source = samples
    names = (made.text, made.json, made.data, made.label, made.image)
    report = pack(source, tmp_path / "out", fields=names)
    place = report.files[0].fields
    assert place == tmp_path / "out.fields.jsonl"
    lines = list(read_fields(place))
    assert [line.key for line in lines] == list(range(COUNT))
    assert [line.name for line in lines] == [
        line.split("\t")[2] for line in report.lst.read_text().splitlines()
    ]
    fields = lines[9].fields
    assert tuple(fields) == names
    found_text, found_json, found_bytes, found_label, found_image = fields.values()
    if made is TFRECORD:  # which stores text as bytes
        found_text, found_json = (
            base64.b64decode(value["base64"]).decode() if isinstance(value, dict) else value
            for value in (found_text, found_json)
        )
    if made in (PARQUET, TFRECORD):  # for which JSON is text
        found_json = json.loads(found_json)
    assert (found_text, found_json, found_label) == (text(9), meta(9), label(9))
    assert base64.b64decode(found_bytes["base64"]) == b"\x09"
    assert base64.b64decode(found_image["base64"]) == images()[9]
    # The documented way to read it.
    with open(place) as file:
        assert {line["key"]: line["fields"] for line in map(json.loads, file)}[9] == fields
    assert report.json is not None
    assert json.loads(report.json.read_text())["files"][0]["fields"] == "out.fields.jsonl"
    assert records(report) == records(pack(source, tmp_path / "plain"))


def test_only_the_image_is_needed_without_labels(samples: tuple[SetFormat, Path], tmp_path: Path) -> None:
    made, source = samples
    report = pack(source, tmp_path / "out", no_label=True, fields=(made.text,))
    assert report.labels == {0.0: COUNT}
    assert [record.image for record in records(report)] == images()
    assert list(next(read_fields(tmp_path / "out.fields.jsonl")).fields) == [made.text]


def test_inspect_lists_the_fields_and_compares_the_keys(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    report = pack(shards, tmp_path / "out", fields="txt")
    assert inspect(report.rec).details["fields"] == {"txt": COUNT}
    assert main(["inspect", str(report.rec)]) == 0
    assert "fields       txt 12" in capsys.readouterr().out
    place = tmp_path / "out.fields.jsonl"
    lines = place.read_bytes().splitlines(keepends=True)
    for damaged, message in (
        (lines[:-1], "has 11 lines, and its record file has 12 records"),
        ([lines[1], lines[0], *lines[2:]], "line 1: the key 1 is not that of record 0"),
        ([*lines, lines[-1]], "line 13: the key 11 is not"),
        ([b"{}\n"], "line 1 is damaged"),
        ([lines[0][:-1]], "truncated"),
    ):
        place.write_bytes(b"".join(damaged))
        (found,) = inspect(report.rec).damage
        assert message in found
    place.unlink()
    assert "fields" not in inspect(report.rec).details


def test_a_line_of_other_types_is_damaged(tmp_path: Path) -> None:
    for line in ('{"key":"a","name":"b","fields":{}}', '{"key":1,"name":"b","fields":[]}', "[]", "3"):
        (tmp_path / "a").write_text(line + "\n")
        with pytest.raises(ValueError, match="line 1 is damaged"):
            list(read_fields(tmp_path / "a"))
    (tmp_path / "a").write_bytes(fields_line(5, 'a"\\ü', '{"x":1}'))
    assert list(read_fields(tmp_path / "a")) == [(5, 'a"\\ü', {"x": 1})]


def test_an_earlier_file_of_fields_is_named(
    shards: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    pack(shards, tmp_path / "out", fields="txt")
    report = pack(shards, tmp_path / "out")
    assert report.old_fields == (tmp_path / "out.fields.jsonl",)
    assert main(["pack", str(shards), str(tmp_path / "out")]) == 0
    assert f"still here ({tmp_path}/out.fields.jsonl): delete them" in capsys.readouterr().err


# -- labels ------------------------------------------------------------------------------------------------------------


LOCATION = ItemLocation("key", "a.tar", 512)


@with_cases(
    ("label", "numbers"),
    [
        (np.int64(3), (3.0,)),
        (np.float32(0.1), (float(np.float32(0.1)),)),
        (1 << 24, (float(1 << 24),)),
        (1 << 40, (float(1 << 40),)),
        (np.array([1, 2, 3]), (1.0, 2.0, 3.0)),
        (np.array([0.5]), (0.5,)),
        (float("inf"), (float("inf"),)),
        (True, (1.0,)),
    ],
)
def test_labels_become_numbers(label: Any, numbers: tuple[float, ...]) -> None:
    assert label_numbers(label, LOCATION) == numbers


@with_cases(
    ("label", "message"),
    [
        ((1 << 24) + 1, "16777217, which float32 cannot store exactly"),
        (1e39, r"1e\+39, which is not in the range of float32"),
        (np.zeros((2, 5)), r"the shape \(2, 5\)"),
        (np.zeros(0), r"the shape \(0,\)"),
    ],
)
def test_labels_that_a_record_cannot_store(label: Any, message: str) -> None:
    with pytest.raises(SampleFormatError, match=message) as caught:
        label_numbers(label, LOCATION)
    assert (caught.value.path, caught.value.key, caught.value.offset) == ("a.tar", "key", 512)


def test_a_label_of_another_field(shards: Path, tmp_path: Path) -> None:
    folder = tmp_path / "set"
    write_tar(
        folder / "a.tar",
        {"0.png": images()[0], "0.boxes.json": b"[1, 2.5, 3]", "1.png": images()[1], "1.boxes.json": b"[4]"},
    )
    report = pack(folder, tmp_path / "out", label="boxes.json")
    assert [record.labels for record in records(report)] == [(1.0, 2.5, 3.0), (4.0,)]
    assert report.labels == {4.0: 1}


def test_samples_without_a_label(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    path = write_tar(tmp_path / "a.tar", {"0.jpg": images()[0], "0.txt": b"a cat"})
    with pytest.raises(
        PackError, match=r"a\.tar:0: it has no field 'cls[^']*', but jpg, txt: choose .*--no-label"
    ):
        pack(path, tmp_path / "out")
    with pytest.raises(PackError, match=r"'txt' .* is not a label, but str 'a cat': .*--no-label"):
        pack(path, tmp_path / "out", label="txt")
    assert not list(tmp_path.glob("out*"))
    assert main(["pack", str(path), str(tmp_path / "out"), "--no-label", "--fields", "txt"]) == 0
    assert "1 records of 1 class" in capsys.readouterr().out
    assert [line.fields for line in read_fields(tmp_path / "out.fields.jsonl")] == [{"txt": "a cat"}]


# -- damage, and resuming ----------------------------------------------------------------------------------------------


def _damaged(folder: Path) -> Path:
    """Write a set of 12 samples; the third has no image, the eighth a damaged one."""
    for shard in range(2):
        members = {}
        for number in range(shard * 6, shard * 6 + 6):
            if number != 2:
                members[f"{number}.jpg"] = b"no image" if number == 7 else images()[number]
            members[f"{number}.cls"] = str(number).encode()
        write_tar(folder / f"{shard}.tar", members)
    return folder


def test_damaged_samples_are_left_out_or_replaced(tmp_path: Path) -> None:
    source = _damaged(tmp_path / "set")
    skipped = pack(source, tmp_path / "skipped", encoding="jpg", on_error="skip")
    assert [record.labels[0] for record in records(skipped)] == [0, 1, 3, 4, 5, 6, 8, 9, 10, 11]
    assert [(error.index, Path(str(error.path)).name) for error in skipped.errors] == [
        (2, "0.tar:2"),
        (7, "1.tar:7"),
    ]
    assert skipped.labels == {float(label): 1 for label in (0, 1, 3, 4, 5, 6, 8, 9, 10, 11)}
    replaced = pack(source, tmp_path / "replaced", encoding="jpg", on_error="replace", fields="cls")
    assert [record.labels[0] for record in records(replaced)] == [0, 1, 3, 3, 4, 5, 6, 8, 8, 9, 10, 11]
    lines = list(read_fields(tmp_path / "replaced.fields.jsonl"))
    assert [(line.key, line.fields["cls"]) for line in lines[2:4]] == [(2, 3), (3, 3)]
    with pytest.raises(TooManyErrorsError):
        pack(source, tmp_path / "few", encoding="jpg", on_error="skip", max_errors=1)
    with pytest.raises(PackError, match=r"0\.tar:2"):
        pack(source, tmp_path / "raised", encoding="jpg")


def test_a_truncated_shard_is_an_error(shards: Path, tmp_path: Path) -> None:
    path = tmp_path / "a.tar"
    path.write_bytes((shards / "train-00000-of-00003.tar").read_bytes()[:2000])
    with pytest.raises((ValueError, OSError), match=r"a\.tar"):
        pack(path, tmp_path / "out")
    assert not list(tmp_path.glob("out*"))


@pytest.mark.parametrize(
    ("made", "options"),
    [
        *((made, {"fields": ("data", "text")}) for made in (TAR, PARQUET)),
        (TFRECORD, {"shuffle": True, "shards": 3, "fields": ("data",), "encoding": "png"}),
        (MDS, {"on_error": "replace", "test_ratio": 0.25}),
        (TAR, {"on_error": "replace", "test_ratio": 0.25}),
    ],
    ids=lambda value: value.name if isinstance(value, SetFormat) else None,
)
def test_an_interrupted_packing_goes_on(made: SetFormat, options: dict[str, Any], tmp_path: Path) -> None:
    if not is_readable(made):
        pytest.skip(f"{made.name} needs its extra")
    shards = write(made, tmp_path)
    if "fields" in options:
        parts = {"data": made.data, "text": made.text}
        options = {**options, "fields": tuple(parts[part] for part in options["fields"])}
    pack(shards, tmp_path / "whole" / "set", **options)

    begun = []
    for stop in (3, 8):
        with pytest.raises(KeyboardInterrupt):
            pack(
                shards,
                tmp_path / "parts" / "set",
                sync_s=0,
                tick=stop_at(stop),
                begin=lambda done, count, reason: begun.append((done, reason)),
                **options,
            )
    pack(shards, tmp_path / "parts" / "set", **options)
    assert files(tmp_path / "parts") == files(tmp_path / "whole")
    assert begun == [(0, ""), (3, "")]


def test_a_changed_source_is_packed_from_the_beginning(shards: Path, tmp_path: Path) -> None:
    source = tmp_path / "set"
    shutil.copytree(shards, source)

    with pytest.raises(KeyboardInterrupt):
        pack(source, tmp_path / "out", sync_s=0, tick=stop_at(6))
    write_tars(source, 9)
    begun = []
    pack(source, tmp_path / "out", begin=lambda done, count, reason: begun.append((done, reason)))
    assert begun == [(0, "the images have changed since it was begun")]


# -- record files, and folders -----------------------------------------------------------------------------------------


def test_record_files_are_packed_again(shards: Path, tmp_path: Path) -> None:
    first = pack(shards, tmp_path / "first", shuffle=True, seed=3)
    again = pack(first.rec, tmp_path / "again", shards=2)
    assert [(record.labels, record.image) for record in records(again)] == [
        (record.labels, record.image) for record in records(first)
    ]
    assert again.lst.read_text().splitlines()[0].endswith("\tfirst.rec/0")
    with pytest.raises(TypeError, match="ImageRecordDataset have an image and a label, and no other fields"):
        pack(first.rec, tmp_path / "other", fields="txt")
    with pytest.raises(
        TypeError, match=r"records have no fields with names: label must be None .* or 'auto', got 'x'"
    ):
        pack(first.rec, tmp_path / "other", label="x")


def test_labels_of_records_are_kept_exactly(tmp_path: Path) -> None:
    with recordio.RecordWriter(tmp_path / "a.rec", index=True) as writer:
        for key, label in enumerate((0.0, 0.25, [1.5, 2.0], 3.0)):
            writer.write(recordio.pack(recordio.IRHeader(0, label, key, 0), images()[key]), key)
    report = pack(tmp_path / "a.rec", tmp_path / "b")
    assert [record.labels for record in records(report)] == [(0.0,), (0.25,), (1.5, 2.0), (3.0,)]


def test_the_source_is_not_overwritten(shards: Path, tmp_path: Path) -> None:
    report = pack(shards, tmp_path / "a")
    with pytest.raises(ValueError, match="is a file of the source: choose another name"):
        pack(report.rec, report.rec)
    assert len(records(report)) == COUNT


def test_a_set_of_faces_is_refused(tmp_path: Path) -> None:
    shutil.copy(pack(write_tars(tmp_path / "in"), tmp_path / "x").rec, tmp_path / "train.rec")
    shutil.copy(tmp_path / "x.idx", tmp_path / "train.idx")
    (tmp_path / "property").write_text("3,16,24")
    with pytest.raises(ValueError, match="InsightFace's layout, whose header and identity records"):
        pack(tmp_path / "train.rec", tmp_path / "out")


def test_images_and_shards_in_one_folder(shards: Path, tmp_path: Path) -> None:
    source = tmp_path / "set"
    shutil.copytree(shards, source)
    (source / "cat").mkdir()
    (source / "cat" / "0.jpg").write_bytes(images()[0])
    with pytest.raises(AmbiguousPathError, match=r"train-\*\.tar'; or kind='folder' \(--from folder\)"):
        pack(source, tmp_path / "out")
    assert pack(source, tmp_path / "out", kind="folder").records == 1
    assert pack(str(source / "*.tar"), tmp_path / "out").records == COUNT
    for path in source.glob("*.tar"):
        path.unlink()
    pack(source, source / "out")
    assert pack(source, source / "out").records == 1  # its own output does not count


@pytest.mark.parametrize("suffix", ["jpg", "webp"])  # open_dataset does not read the second
def test_splits_of_images_are_not_packed_as_classes(tmp_path: Path, suffix: str) -> None:
    source = tmp_path / "set"
    for name in ("train/cat", "train/dog", "val/cat"):
        (source / name).mkdir(parents=True)
        (source / name / f"0.{suffix}").write_bytes(images()[0])
    with pytest.raises(AmbiguousPathError, match=r"or kind='folder' \(--from folder\)") as caught:
        pack(source, tmp_path / "out")
    assert caught.value.choices == (f"{source}/train", f"{source}/val")
    assert not list(tmp_path.glob("out*"))
    assert pack(source, tmp_path / "out", kind="folder").classes == ("train", "val")
    assert pack(source / "train", tmp_path / "out").classes == ("cat", "dog")


def test_folders_in_classes_are_packed(tmp_path: Path) -> None:
    source = tmp_path / "set"
    for name in ("train/old", "train/new", "bus/old"):  # two kinds of vehicles
        (source / name).mkdir(parents=True)
        (source / name / "0.jpg").write_bytes(images()[0])
    assert pack(source, tmp_path / "out").classes == ("bus", "train")


def test_a_folder_without_a_data_set(tmp_path: Path) -> None:
    source = tmp_path / "set"
    deep = source / "a" / "b"
    deep.mkdir(parents=True)
    (source / "train.tar.gz").write_bytes(b"\x1f\x8b")
    with pytest.raises(
        UnknownFormatError, match=r"'train\.tar\.gz' in it is compressed as a whole.*decompress"
    ):
        pack(source, tmp_path / "out")
    (deep / "0.jpg").write_bytes(images()[0])
    with pytest.raises(TypeError, match="the source is a folder of images"):
        pack(source, tmp_path / "out", label="x")
    assert not list(tmp_path.glob("out*"))
    assert pack(source, tmp_path / "out").records == 1


@pytest.mark.parametrize(
    ("name", "options", "error", "message"),
    [
        ("a.zip", {}, UnknownFormatError, "ZIP archive"),
        ("nothing", {}, FileNotFoundError, "nothing"),
        ("photos", {"label": "x"}, TypeError, "the source is a folder of images"),
        ("a.lst", {"fields": "x"}, TypeError, "the source is a list"),
        ("photos", {"kind": "folder", "no_label": True}, TypeError, "the source is a folder"),
        ("photos", {"root": "."}, ValueError, "root can only be used with a list"),
        ("train-00000-of-00003.tar", {"fields": ("x", "x")}, ValueError, "each once"),
        ("train-00000-of-00003.tar", {"root": "."}, ValueError, "root can only be used with a list"),
    ],
)
def test_arguments_that_do_not_fit(
    name: str, options: dict[str, Any], error: type[Exception], message: str, shards: Path, tmp_path: Path
) -> None:
    source = tmp_path / "set"
    shutil.copytree(shards, source)
    (source / "a.zip").write_bytes(b"PK\x03\x04")
    (source / "a.lst").write_text("0\t1\tphotos/cat/0.jpg\n")
    (source / "photos" / "cat").mkdir(parents=True)
    (source / "photos" / "cat" / "0.jpg").write_bytes(images()[0])
    with pytest.raises(error, match=message):
        pack(source / name, tmp_path / "out", **options)
    assert not list(tmp_path.glob("out*"))


def test_a_list_may_have_any_name(tmp_path: Path) -> None:
    (tmp_path / "0.jpg").write_bytes(images()[0])
    (tmp_path / "images.txt").write_text("7\t1\t0.jpg\n")
    assert records(pack(tmp_path / "images.txt", tmp_path / "out")) == [Packed(7, (1.0,), images()[0])]
