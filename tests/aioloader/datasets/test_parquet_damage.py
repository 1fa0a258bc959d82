"""Tests of Parquet files that are damaged, forged or badly laid out: named errors, bounded memory, no lost row."""

from __future__ import annotations

import shutil
from collections.abc import Callable
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioloader import DataLoader, ParquetDataset
from aioloader.errors import ParquetError
from aioloader.formats.parquet import footer as parquet_footers
from aioloader.formats.parquet import row_groups
from aioloader.formats.parquet.footer import DECODED, OFFSET, STORED, VALUES, ParquetFooter
from aioloader.sample_index import SampleIndex, index_beside, shard_state, write_index
from tests.aioloader.datasets.batches import faults_of, labels_in
from tests.aioloader.datasets.parquet_files import images, jpeg, write, write_images
from tests.combinations import combinations

pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow (pip install pyarrow)")


@pytest.fixture
def path(tmp_path: Path) -> Path:
    """Write 20 images in row groups of 5."""
    return write_images(tmp_path / "a.parquet", 0, 20)


def read(path: Path, **options: Any) -> tuple[list[int], dict[int, Any]]:
    """Return the labels that a loader delivers in order, and the causes of its errors by index."""
    dataset = ParquetDataset(path, **options)
    with DataLoader(dataset, 4, num_workers=0, on_error="skip") as loader:
        return labels_in(loader), {error.index: error.__cause__ for error in loader.errors}


# --- files ---


@pytest.mark.parametrize("keep", [0, 7, 12, 1000, -1])
def test_a_truncated_file_is_named(path: Path, keep: int) -> None:
    path.write_bytes(path.read_bytes()[:keep])
    with pytest.raises(
        ParquetError, match=r"not a Parquet file, or it was cut off|length of the footer"
    ) as caught:
        len(ParquetDataset(path))
    assert caught.value.path == str(path)


@pytest.mark.parametrize(
    ("tail", "text"),
    [
        (b"\4\0\0\0PARE", "encrypted"),
        (b"\xff\xff\xff\xffPAR1", "the length of the footer is wrong"),
        (b"\0\0\0\0PAR1", "the footer is damaged"),
        (b"\5\0\0\0PAR1", "the footer is damaged"),
        (b"\4\0\0\0PAR2", "not a Parquet file"),
    ],
)
def test_the_fault_of_a_footer_is_named(path: Path, tail: bytes, text: str) -> None:
    path.write_bytes(path.read_bytes()[:-8] + tail)
    with pytest.raises(ParquetError, match=text):
        len(ParquetDataset(path))


def test_a_file_that_is_replaced_meanwhile_is_noticed(path: Path, tmp_path: Path) -> None:
    dataset = ParquetDataset(path)
    assert int(dataset[0][1]) == 0
    write_images(tmp_path / "b.parquet", 5, 20)
    shutil.move(tmp_path / "b.parquet", path)
    with pytest.raises(ParquetError, match="replaced after the dataset had read its footer"):
        dataset[19]


def test_a_file_that_is_missing_meanwhile_is_an_error_of_its_samples(path: Path) -> None:
    other = path.with_name("b.parquet")
    write_images(other, 20, 5)
    dataset = ParquetDataset([path, other])
    assert len(dataset) == 25
    path.unlink()
    with DataLoader(dataset, 4, num_workers=0, on_error="skip") as loader:
        assert labels_in(loader) == list(range(20, 25))
        assert {type(error.__cause__) for error in loader.errors} == {FileNotFoundError}


# --- row groups ---


def forged(monkeypatch: pytest.MonkeyPatch, change: Callable[[ParquetFooter], object]) -> None:
    """Change each footer that is read from now on."""
    parse = parquet_footers.parse_footer

    def parse_footer(*args: Any) -> ParquetFooter:
        footer = parse(*args)
        footer = replace(footer, chunks=footer.chunks.copy(), rows=footer.rows.copy())
        change(footer)
        return footer

    monkeypatch.setattr(parquet_footers, "parse_footer", parse_footer)


@pytest.mark.parametrize(
    ("column", "value"),
    [
        (OFFSET, 0),
        (OFFSET, 1 << 62),
        (STORED, -5),
        (STORED, 7),
        (DECODED, -1),
        (VALUES, -1),
    ],
)
def test_a_forged_place_costs_its_row_group_only(
    path: Path, monkeypatch: pytest.MonkeyPatch, column: int, value: int
) -> None:
    def change(footer: ParquetFooter) -> None:
        footer.chunks[1, 0, column] = value

    forged(monkeypatch, change)
    labels, errors = read(path)
    assert labels == [*range(5), *range(10, 20)]
    assert {type(error) for error in errors.values()} == {ParquetError}
    assert {(error.row_group, error.path) for error in errors.values()} == {(1, str(path))}


@pytest.mark.parametrize("rows", [4, 6])
def test_a_forged_number_of_rows_is_noticed(path: Path, monkeypatch: pytest.MonkeyPatch, rows: int) -> None:
    def change(footer: ParquetFooter) -> None:
        footer.rows[1] = rows

    forged(monkeypatch, change)
    labels, errors = read(path)
    assert labels == [*range(5), *range(10, 20)]
    assert sorted(errors) == list(range(5, 5 + rows))
    assert {f"expected {rows} rows, found 5" in str(error) for error in errors.values()} == {True}


@pytest.mark.parametrize("rows", [1 << 38, 1 << 33])
def test_an_impossible_number_of_rows_takes_no_memory(
    path: Path, monkeypatch: pytest.MonkeyPatch, rows: int
) -> None:
    def change(footer: ParquetFooter) -> None:
        footer.rows[3] = rows

    forged(monkeypatch, change)
    dataset = ParquetDataset(path)
    if rows > 1 << 35:
        with pytest.raises(ParquetError, match=r"announces a row group of .* bytes"):
            dataset.spans(np.zeros(1, np.int64))
        return
    assert len(dataset) == 15 + rows
    assert int(dataset[14][1]) == 14
    with pytest.raises(ParquetError, match="another number of rows"):
        dataset[20]


def test_a_row_group_announced_too_large_is_read_in_slices(
    path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def change(footer: ParquetFooter) -> None:
        footer.chunks[2, 0, DECODED] = 1 << 50

    forged(monkeypatch, change)
    assert len(ParquetDataset(path)._table) == 3 + 5
    assert read(path) == (list(range(20)), {})


def _first_page(path: Path, leaf: int) -> int:
    import pyarrow.parquet as pq

    chunk = pq.read_metadata(path).row_group(0).column(leaf)
    return int(chunk.dictionary_page_offset or chunk.data_page_offset)


def test_a_page_that_announces_more_than_the_footer_is_refused(tmp_path: Path) -> None:
    rows = [b"\0" * 300_000] * 8
    path = write(
        tmp_path / "a.parquet", {"x": rows}, features=None, group=8, compression="zstd", use_dictionary=False
    )
    data = bytearray(path.read_bytes())
    at = _first_page(path, 0)
    assert (
        data[at : at + 3] == b"\x15\0\x15"
    )  # a data page, and its bytes after decompression: four bytes of a number
    assert [byte >> 7 for byte in data[at + 3 : at + 7]] == [1, 1, 1, 0]
    data[at + 3 : at + 7] = b"\xfe\xff\xff\x7f"
    path.write_bytes(data)
    with pytest.raises(ParquetError, match="row group 0: the pages of the column 'x' announce other sizes"):
        ParquetDataset(path, fields="x")[0]


def test_values_that_repeat_a_dictionary_have_a_limit(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    # A file of some kB whose rows have 64 MB.
    path = write(
        tmp_path / "a.parquet",
        {"x": pa.array([b"\0" * 1_000_000] * 64)},
        features=None,
        group=64,
        compression="zstd",
        dictionary_pagesize_limit=1 << 22,
    )
    assert path.stat().st_size < 100_000
    sizes: list[int] = []
    monkeypatch.setattr(row_groups, "_MOST_NBYTES", 32 << 20)
    monkeypatch.setattr(row_groups, "_MOST_BATCH_NBYTES", 8 << 20)
    convert = row_groups.column_bytes

    def column_bytes(array: Any, *args: Any) -> Any:
        sizes.append(array.nbytes)
        return convert(array, *args)

    monkeypatch.setattr(row_groups, "column_bytes", column_bytes)
    with pytest.raises(ParquetError, match="takes more than 32 MiB in memory, and its footer announces 0"):
        ParquetDataset(path, fields="x")[0]
    assert max(sizes) < 10 << 20
    assert sum(sizes) < 50 << 20


def test_a_damaged_row_group_is_read_once(path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    data = bytearray(path.read_bytes())
    at = _first_page(path, 0)
    data[at : at + 40] = b"\xff" * 40
    path.write_bytes(data)
    reads: list[int] = []
    whole = row_groups.RowGroupReader._whole
    monkeypatch.setattr(
        row_groups.RowGroupReader,
        "_whole",
        lambda self, *args: reads.append(args[1][0]) or whole(self, *args),
    )
    labels, errors = read(path)
    assert labels == list(range(5, 20))
    assert sorted(errors) == list(range(5))
    assert sorted(reads) == [0, 1, 2, 3]


# --- large row groups ---


@pytest.fixture
def sliced(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    """Write 60 images in row groups of 30, which are read in slices of about 7 rows."""
    path = write_images(tmp_path / "a.parquet", 0, 60, group=30, use_dictionary=False)
    monkeypatch.setattr(parquet_footers, "LARGEST_GROUP_NBYTES", 1000)
    monkeypatch.setattr(parquet_footers, "SLICE_NBYTES", 4000)
    monkeypatch.setattr(row_groups, "_BATCH_NBYTES", 3000)
    return path


def test_a_large_row_group_is_read_in_slices(sliced: Path) -> None:
    dataset = ParquetDataset(sliced)
    blocks = dataset._table
    assert len(blocks) >= 6
    assert blocks.rows.max() < 15
    assert blocks.rows.sum() == 60
    for index in (0, 1, 29, 30, 59, 3, 44):
        image, label = dataset[index]
        assert (abs(int(image.mean()) - index) <= 1, int(label)) == (True, index)
    assert dataset.labels().tolist() == list(range(60))
    assert dataset.location(33).key == 33


@pytest.mark.parametrize("shuffle", [False, True])
def test_slices_of_a_row_group_are_read_in_one_pass(
    sliced: Path, shuffle: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    passes: list[int] = []
    new = row_groups.RowGroupReader._new_cursor
    monkeypatch.setattr(
        row_groups.RowGroupReader,
        "_new_cursor",
        lambda self, *args: passes.append(args[1]) or new(self, *args),
    )
    with DataLoader(ParquetDataset(sliced, shuffle_blocks=2), 5, shuffle=shuffle, num_workers=0) as loader:
        assert sorted(labels_in(loader)) == list(range(60))
    # Around the ring of a shuffled epoch one of them is begun again.
    assert len(passes) <= (4 if shuffle else 2)


# --- unusual writers ---


@pytest.mark.parametrize(
    ("compression", "version"), combinations(["none", "snappy", "gzip", "zstd", "lz4"], ["1.0", "2.0"])
)
def test_every_compression_is_read(tmp_path: Path, compression: str, version: str) -> None:
    path = write_images(tmp_path / "a.parquet", 0, 12, compression=compression, data_page_version=version)
    assert read(path) == (list(range(12)), {})


@pytest.mark.parametrize(
    "options", [{"data_page_size": 100}, {"use_dictionary": False}, {"write_page_index": True}]
)
def test_other_layouts_of_pages_are_read(tmp_path: Path, options: dict[str, Any]) -> None:
    path = write_images(tmp_path / "a.parquet", 0, 40, group=17, **options)
    assert read(path) == (list(range(40)), {})


def test_columns_with_similar_names_are_kept_apart(tmp_path: Path) -> None:
    columns = {"image": images(range(3)), "image2": ["a"] * 3, "image.bytes": [1, 2, 3], "label": [7, 8, 9]}
    path = write(tmp_path / "a.parquet", columns)
    assert read(path) == ([7, 8, 9], {})
    assert ParquetDataset(path, fields=("image.bytes", "image2"))[1] == {"image.bytes": 2, "image2": "a"}


def test_a_column_that_exists_twice_is_refused(tmp_path: Path) -> None:
    import pyarrow.parquet as pq

    both = pa.Table.from_arrays(
        [images(range(2)), pa.array([1, 2]), pa.array([3, 4])], ["image", "label", "label"]
    )
    pq.write_table(both, tmp_path / "a.parquet")
    with pytest.raises(ParquetError, match="there are 2 columns 'label'"):
        ParquetDataset(tmp_path / "a.parquet")[0]


# --- checks of whole files ---


def test_a_file_without_its_end_has_one_fault(path: Path) -> None:
    len(ParquetDataset(path))  # the footer is kept in an index now, and must not be used
    path.write_bytes(path.read_bytes()[:-9])
    (fault,), valid = faults_of(ParquetDataset(path))
    assert (fault.path, valid) == (str(path), 0)


def test_a_changed_byte_is_found_by_the_checksum_of_its_page(tmp_path: Path) -> None:
    path = write_images(tmp_path / "a.parquet", 0, 20, write_page_checksum=True, compression="none")
    data = bytearray(path.read_bytes())
    at = data.index(jpeg(7)) + 100  # in the second row group
    data[at] ^= 1
    path.write_bytes(data)
    (fault,), valid = faults_of(ParquetDataset(path))
    assert (fault.row_group, valid) == (1, 15)
    assert read(path)[0] == list(range(20))  # a loader does not compare checksums


def test_rows_without_an_image_are_faults(tmp_path: Path) -> None:
    column = pa.array([{"bytes": jpeg(0), "path": None}, None, {"bytes": None, "path": "x.jpg"}])
    path = write(tmp_path / "a.parquet", {"image": column, "label": [1, 2, 3]})
    faults, valid = faults_of(ParquetDataset(path))
    assert ([fault.row for fault in faults], valid) == ([1, 2], 1)


@pytest.mark.parametrize("rows", [-1, 1 << 62])
def test_an_index_with_impossible_rows_is_not_used(path: Path, rows: int) -> None:
    footer = parquet_footers.read_footer(str(path), None)
    forged_rows = replace(footer, rows=np.full_like(footer.rows, rows))
    state = shard_state(str(path))
    assert state is not None
    write_index(index_beside(str(path)), SampleIndex("parquet-1", forged_rows.arrays()), state)
    assert read(path) == (list(range(20)), {})
