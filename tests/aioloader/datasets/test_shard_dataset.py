"""Tests of the base class of datasets over shards, with a format of the tests: several shards, labels and errors."""

from __future__ import annotations

import os
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg

import aioloader
from aioloader import DataLoader, SampleError
from aioloader.datasets import shard_dataset
from aioloader.datasets.shard_dataset import NumberKeys, ShardTable
from aioloader.errors import MissingFieldError, SampleFormatError
from recordio.errors import ShortReadError
from tests.aioloader.datasets.toy_shards import ToyDataset, toy_sample, write_shard
from tests.executors import pool

SIZES = (5, 0, 1, 7)


def picture(number: int, size: int = 16) -> bytes:
    data: bytes = simplejpeg.encode_jpeg(np.full((size, size, 3), number, np.uint8))
    return data


@pytest.fixture(autouse=True)
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Keep indexes in a directory of the test."""
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(tmp_path / "user-cache"))
    return tmp_path / "user-cache"


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Write shards of 5, 0, 1 and 7 samples with consecutive labels."""
    paths, number = [], 0
    for shard, size in enumerate(SIZES):
        samples = [toy_sample(picture(number + n), label=number + n) for n in range(size)]
        paths.append(write_shard(tmp_path / f"set-{shard}.toy", samples))
        number += size
    return paths


def test_samples_follow_one_another(shards: list[Path]) -> None:
    for paths in (shards, shards[0].parent / "set-*.toy"):
        dataset = ToyDataset(paths)
        assert len(dataset) == 13
        assert [int(dataset[index][1]) for index in range(13)] == list(range(13))
        image, label = dataset[-1]
        assert (image.shape, image.dtype, int(image[0, 0, 0])) == ((16, 16, 3), np.uint8, 12)
        assert isinstance(label, np.int64)
    location = dataset.location(6)
    assert (location.key, location.path, location.offset) == (
        "0",
        str(shards[3]),
        0,
    )
    assert dataset.location(7).offset == len(toy_sample(picture(6), label=6))
    assert dataset.file_nbytes(12) == os.path.getsize(shards[3])
    again = pickle.loads(pickle.dumps(dataset))
    assert [int(again[index][1]) for index in (0, 5, 12)] == [0, 5, 12]
    with pytest.raises(IndexError):
        dataset[13]


def test_batches_are_those_of_the_samples(shards: list[Path], executor: str, leftovers: object) -> None:
    options: dict[str, Any] = {"batch_size": 4, "shuffle": True, **pool(executor, 2)}
    with DataLoader(ToyDataset(shards), **options) as loader:
        found = np.concatenate([labels for _, labels in loader])
        pixels = np.concatenate([images[:, 0, 0, 0] for images, _ in loader])
        state = loader.state_dict()
    assert sorted(found.tolist()) == list(range(13))
    assert found.tolist() != list(range(13))
    assert sorted(pixels.tolist()) == list(range(13))
    with DataLoader(ToyDataset(shards), **options) as loader:
        loader.load_state_dict(state)
    with DataLoader(ToyDataset(shards[::-1]), **options) as loader:
        with pytest.raises(aioloader.ResumeError):
            loader.load_state_dict(state)


def test_each_shard_is_scanned_once(shards: list[Path], cache: Path) -> None:
    first, second = ToyDataset(shards), ToyDataset(shards)
    assert (len(first), len(second)) == (13, 13)
    assert (first.scans, second.scans) == (4, 0)
    assert len(list((cache / "sample-index").iterdir())) == 4
    write_shard(shards[0], [toy_sample(picture(9), label=9)])
    third = ToyDataset(shards)
    assert (len(third), third.scans) == (9, 1)


def test_the_first_shards_are_a_dataset(shards: list[Path]) -> None:
    dataset = ToyDataset(shards)
    tables = []
    for table in dataset.open_tables():
        tables.append(table)
        part = dataset.first_shards(tables)
        assert len(part) == sum(SIZES[: len(tables)])
        assert part.paths == dataset.paths[: len(tables)]
        assert len(part) == 0 or int(part[-1][1]) == len(part) - 1


@pytest.mark.parametrize(("most", "nbytes"), [(4096, 64 << 20), (2, 64 << 20), (4096, 1)])
def test_labels_are_read_in_bounded_parts(
    shards: list[Path], most: int, nbytes: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(shard_dataset, "_LABELS_AT_A_TIME", most)
    monkeypatch.setattr(shard_dataset, "_MOST_LABEL_NBYTES", nbytes)
    labels = ToyDataset(shards).labels()
    assert (labels.tolist(), labels.dtype) == (list(range(13)), np.int64)
    assert ToyDataset(shards, label_dtype="float32").labels().dtype == np.float32


def test_labels_have_the_shape_of_the_samples_labels(tmp_path: Path) -> None:
    vectors = write_shard(tmp_path / "a.toy", [toy_sample(label=[n, 0.5]) for n in range(3)])
    labels = ToyDataset(vectors).labels()
    assert (labels.tolist(), labels.dtype) == ([[0, 0.5], [1, 0.5], [2, 0.5]], np.float32)
    empty = ToyDataset(write_shard(tmp_path / "b.toy", []))
    assert (len(empty), len(empty.labels()), empty.labels().dtype) == (0, 0, np.int64)
    mixed = ToyDataset(write_shard(tmp_path / "c.toy", [toy_sample(label=[1]), toy_sample(label=[1, 2])]))
    with pytest.raises(ValueError, match="inhomogeneous"):
        mixed.labels()


def test_errors_of_labels_are_those_of_their_samples(tmp_path: Path) -> None:
    samples = [toy_sample(label=1), toy_sample(other=2), toy_sample(label="three"), toy_sample(label=4)]
    dataset = ToyDataset(write_shard(tmp_path / "a.toy", samples))
    source = dataset.open_source()
    found = dataset.labels_at(np.arange(4), source)
    assert (found[0], found[3]) == (1, 4)
    assert isinstance(found[1], MissingFieldError)
    assert (found[1].field, found[1].found, found[1].key) == ("label", ("other",), "1")
    assert isinstance(found[2], SampleFormatError)
    assert "'three'" in str(found[2])
    source.close()
    with pytest.raises(MissingFieldError):
        dataset.labels()


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_a_missing_field_is_named_with_those_that_exist(tmp_path: Path, executor: str) -> None:
    path = write_shard(tmp_path / "a.toy", [toy_sample(picture(0), cls=0), toy_sample(picture(1), label=1)])
    workers = 0 if executor == "inline" else 1
    with DataLoader(ToyDataset(path), 2, **pool(executor, workers), on_error="skip") as loader:
        assert [labels.tolist() for _, labels in loader] == [[1]]
        (error,) = loader.errors
    cause = error.__cause__
    assert isinstance(cause, MissingFieldError)
    assert (cause.field, set(cause.found), cause.path) == ("label", {"cls", "image"}, str(path))
    assert (error.key, error.path, error.offset, error.stage) == ("0", str(path), 0, "decode")
    assert "pass the names of yours as image=" in str(cause)


def test_samples_are_dicts_of_the_fields_asked_for(tmp_path: Path) -> None:
    sample = toy_sample(
        picture(7),
        **{
            "a.json": '{"x": [1, null]}',
            "b.txt": "\xc3\xbc",
            "c.cls": " 12\n",
            "d.bin": "\x00\xff",
            "e": [1, 2],
        },
    )
    path = write_shard(tmp_path / "a.toy", [sample])
    names = ("e", "image", "a.json", "b.txt", "c.cls", "d.bin")
    found = ToyDataset(path, fields=names)[0]
    assert tuple(found) == names
    assert (found["image"].shape, int(found["image"][0, 0, 0])) == ((16, 16, 3), 7)
    assert found["a.json"] == {"x": [1, None]}
    assert (found["b.txt"], found["c.cls"], found["d.bin"], found["e"]) == ("ü", 12, b"\0\xff", [1, 2])
    assert type(found["c.cls"]) is np.int64
    assert ToyDataset(path, fields="b.txt")[0] == {"b.txt": "ü"}
    grey = ToyDataset(path, fields=["image"], flag=0)[0]["image"]
    assert grey.shape == (16, 16, 1)
    with pytest.raises(MissingFieldError, match="no field 'nothing'"):
        ToyDataset(path, fields=["image", "nothing"])[0]


def test_a_shard_that_is_truncated_while_it_is_read_loses_only_what_is_cut(
    shards: list[Path], executor: str, leftovers: object
) -> None:
    dataset = ToyDataset(shards)
    offset = dataset.location(10).offset
    assert offset is not None
    with DataLoader(
        dataset,
        2,
        executor=executor,
        num_workers=0 if executor == "inline" else 1,
        on_error="skip",
        prefetch=1,
    ) as loader:
        batches = iter(loader)
        found = next(batches)[1].tolist()
        os.truncate(shards[3], offset + 20)
        for _, labels in batches:
            found += labels.tolist()
        errors = list(loader.errors)
    assert found == list(range(10))
    assert [error.index for error in errors] == [10, 11, 12]
    for error in errors:
        cause = error.__cause__
        assert isinstance(cause, ShortReadError)
        assert (cause.path, cause.offset) == (str(shards[3]), error.offset)
        assert (cause.expected, cause.found) == (
            int(dataset.spans(np.array([error.index])).length[0]),
            20 if error.index == 10 else 0,
        )


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_a_shard_that_is_replaced_while_it_is_read_stays_the_one_that_was_opened(
    shards: list[Path], executor: str, tmp_path: Path
) -> None:
    dataset = ToyDataset(shards[3])
    with DataLoader(
        dataset, 2, executor=executor, num_workers=0 if executor == "inline" else 1, prefetch=1
    ) as loader:
        batches = iter(loader)
        found = next(batches)[1].tolist()
        os.replace(write_shard(tmp_path / "new", [toy_sample(picture(99), label=99)] * 9), shards[3])
        found += [int(label) for _, labels in batches for label in labels]
    assert found == list(range(6, 13))


def test_a_deleted_shard_is_an_error_of_its_samples(shards: list[Path]) -> None:
    dataset = ToyDataset(shards)
    assert len(dataset) == 13
    shards[3].unlink()
    with DataLoader(dataset, 3, num_workers=0, on_error="skip") as loader:
        assert [int(label) for _, labels in loader for label in labels] == list(range(6))
        assert [type(error.__cause__) for error in loader.errors] == [FileNotFoundError] * 7
    with DataLoader(dataset, 3, num_workers=0) as loader, pytest.raises(SampleError) as caught:
        list(loader)
    assert caught.value.path == str(shards[3])


def test_a_sample_behind_its_shard_is_refused_before_it_is_read() -> None:
    for offset, length in ((0, 101), (100, 1), (-1, 5), (5, -1), (2**62, 2**62), (2**63 - 1, 2**63 - 1)):
        with pytest.raises(SampleFormatError, match="ends behind the file") as caught:
            ShardTable(
                path="https://user:secret@host/a.toy?signature=x",
                nbytes=100,
                offset=np.array([0, offset]),
                length=np.array([100, length]),
                keys=NumberKeys(),
            )
        assert "secret" not in str(caught.value)
        assert "signature" not in str(caught.value)
        assert (caught.value.key, caught.value.offset) == ("1", offset)
        assert "aioloader index" in str(caught.value)


def test_options_are_refused_before_a_shard_is_read(shards: list[Path]) -> None:
    for options, text in (
        ({"flag": 2}, "flag"),
        ({"exif": "maybe"}, "exif"),
        ({"max_pixels": 0}, "max_pixels"),
        ({"label_dtype": "datetime64[s]"}, "label_dtype"),
        ({"fields": ()}, "fields must name at least one"),
        ({"fields": ("a", "a")}, "each once"),
    ):
        with pytest.raises(ValueError, match=text):
            ToyDataset(shards, **options)
    with pytest.raises(TypeError, match="must be str"):
        ToyDataset(shards, fields=(1,))
    with pytest.raises(ValueError, match="cannot mix local files and URLs"):
        ToyDataset([shards[0], "https://127.0.0.1:1/a.toy"])
    with pytest.raises(FileNotFoundError):
        ToyDataset(shards[0].with_name("none-*.toy"))


def test_progress_is_that_of_all_shards(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr("aioloader.sample_index.store._SOON_S", 0.0)
    paths = [write_shard(tmp_path / f"{n}.toy", [toy_sample(bytes(1 << 20), label=n)]) for n in range(3)]
    dataset = ToyDataset(paths)
    tables = dataset.open_tables()
    next(tables)
    assert len(pickle.loads(pickle.dumps(dataset))) == 3  # in the middle of it
    assert len(list(tables)) == 2
    assert "index of shards: 100% 3/3" in capsys.readouterr().err
