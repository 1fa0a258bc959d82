"""Tests of the base class of datasets over shards, with a format of the tests: shards, labels, keys and errors."""

from __future__ import annotations

import os
import pickle
from pathlib import Path

import numpy as np
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st

from aioloader import DataLoader, SampleError
from aioloader.datasets import shard_dataset
from aioloader.datasets.shard_tables import KeyTable, NumberKeys, ShardTable, TextKeys
from aioloader.errors import MissingFieldError, SampleFormatError
from recordio.errors import ShortReadError
from tests.aioloader.datasets.batches import labels_in
from tests.aioloader.datasets.toy_shards import ToyDataset, toy_sample, write_shard
from tests.cases import with_cases
from tests.executors import pool

SIZES = (5, 0, 1, 7)


def picture(number: int, size: int = 16) -> bytes:
    data: bytes = simplejpeg.encode_jpeg(np.full((size, size, 3), number, np.uint8))
    return data


@pytest.fixture
def shards(tmp_path: Path) -> list[Path]:
    """Write shards of 5, 0, 1 and 7 samples with consecutive labels."""
    paths, number = [], 0
    for shard, size in enumerate(SIZES):
        samples = [toy_sample(picture(number + n), label=number + n) for n in range(size)]
        paths.append(write_shard(tmp_path / f"set-{shard}.toy", samples))
        number += size
    return paths


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


def test_a_missing_field_is_named_with_those_that_exist(tmp_path: Path) -> None:
    path = write_shard(tmp_path / "a.toy", [toy_sample(picture(0), cls=0), toy_sample(picture(1), label=1)])
    with DataLoader(ToyDataset(path), 2, **pool("process", 1), on_error="skip") as loader:
        assert labels_in(loader) == [1]
        (error,) = loader.errors
    cause = error.__cause__
    assert isinstance(cause, MissingFieldError)
    assert (cause.field, set(cause.found), cause.path) == ("label", {"cls", "image"}, str(path))
    assert (error.key, error.path, error.offset, error.stage) == ("0", str(path), 0, "decode")
    assert "pass the names of yours as image=" in str(cause)


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_a_shard_that_is_truncated_while_it_is_read_loses_only_what_is_cut(
    shards: list[Path], executor: str
) -> None:
    dataset = ToyDataset(shards)
    offset = dataset.location(10).offset
    assert offset is not None
    with DataLoader(dataset, 2, **pool(executor, 1), on_error="skip", prefetch=1) as loader:
        batches = iter(loader)
        found = next(batches)[1].tolist()
        os.truncate(shards[3], offset + 20)
        found += labels_in(batches)
        errors = list(loader.errors)
    assert found == list(range(10))
    assert [error.index for error in errors] == [10, 11, 12]
    for error in errors:
        cause = error.__cause__
        assert isinstance(cause, ShortReadError)
        assert (cause.path, cause.offset) == (str(shards[3]), error.offset)
        length = int(dataset.spans(np.array([error.index])).length[0])
        assert (cause.expected, cause.found) == (length, 20 if error.index == 10 else 0)


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_a_shard_that_is_replaced_while_it_is_read_stays_the_one_that_was_opened(
    shards: list[Path], executor: str, tmp_path: Path
) -> None:
    with DataLoader(ToyDataset(shards[3]), 2, **pool(executor, 1), prefetch=1) as loader:
        batches = iter(loader)
        found = next(batches)[1].tolist()
        os.replace(write_shard(tmp_path / "new", [toy_sample(picture(99), label=99)] * 9), shards[3])
        assert found + labels_in(batches) == list(range(6, 13))


def test_a_deleted_shard_is_an_error_of_its_samples(shards: list[Path]) -> None:
    dataset = ToyDataset(shards)
    assert len(dataset) == 13
    shards[3].unlink()
    with DataLoader(dataset, 3, num_workers=0, on_error="skip") as loader:
        assert labels_in(loader) == list(range(6))
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
    monkeypatch.setattr("aioloader.sample_index._SOON_S", 0.0)
    paths = [write_shard(tmp_path / f"{n}.toy", [toy_sample(bytes(1 << 20), label=n)]) for n in range(3)]
    dataset = ToyDataset(paths)
    tables = dataset.open_tables()
    next(tables)
    assert len(pickle.loads(pickle.dumps(dataset))) == 3  # in the middle of it
    assert len(list(tables)) == 2
    assert "index of shards: 100% 3/3" in capsys.readouterr().err


# -- keys --------------------------------------------------------------------------------------------------------------


def text_keys(keys: list[bytes]) -> TextKeys:
    ends = np.cumsum([len(key) for key in keys], dtype=np.int64)
    return TextKeys(np.frombuffer(b"".join(keys), np.uint8), ends)


def table(keys: KeyTable, count: int) -> ShardTable:
    zeros = np.zeros(count, np.int64)
    return ShardTable(path="a.tar", nbytes=0, offset=zeros, length=zeros, keys=keys)


@given(st.lists(st.binary(max_size=4), min_size=1, max_size=30))
def test_every_text_is_found_at_its_first_row(keys: list[bytes]) -> None:
    made = text_keys(keys)
    for row, key in enumerate(keys):
        assert made.row_of(made.key_at(row)) == keys.index(key)


@pytest.mark.parametrize("key", ["", "a", "abcd", "ab\0", "\ud800", "\u00e9"])
def test_a_text_that_no_sample_has_is_not_found(key: str) -> None:
    assert text_keys([b"abc", b"abd", b"ab", b"\xff"]).row_of(key) is None


@pytest.mark.parametrize("ends", [[-5, 3], [3, 900], [3, 1], [2**62, 2**62 + 3]])
def test_ends_outside_the_text_match_nothing_else(ends: list[int]) -> None:
    keys = TextKeys(np.frombuffer(b"abcabc", np.uint8), np.array(ends, np.int64))
    assert keys.row_of("xyz") is None


@with_cases(
    ("key", "row"),
    [*(("0", 0), ("12", 12), ("99", 99)), *((key, None) for key in ("100", "-1", "+1", "01", "", "\u0661"))],
)
def test_numbers_are_found_as_they_are_written(key: str, row: int | None) -> None:
    assert table(NumberKeys(), 100).row_of(key) == row


def test_a_number_of_many_digits_is_not_parsed() -> None:
    assert table(NumberKeys(), 100).row_of("9" * 5000) is None
