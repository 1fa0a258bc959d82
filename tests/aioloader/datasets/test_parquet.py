"""Tests of `ParquetDataset`: samples, columns, labels, batches in every executor, shuffling, resuming and views."""

from __future__ import annotations

import datetime
import os
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioloader import DataLoader, ParquetDataset
from aioloader.datasets.resolve import shuffle_sampler
from aioloader.errors import ParquetError, ResumeError
from aioloader.samplers import BlockShuffleSampler, RandomSampler
from tests.aioloader.datasets.batches import batches_of, labels_in
from tests.aioloader.datasets.parquet_files import CLASSES, images, jpeg, write, write_images
from tests.cases import with_cases
from tests.executors import pool

pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow (pip install pyarrow)")

PYARROW = int(pa.__version__.partition(".")[0])
SIZES = (23, 0, 4, 33)
COUNT = sum(SIZES)


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Write files of 23, 0, 4 and 33 images in row groups of 5, labels and grey values 0 to 59."""
    folder = tmp_path_factory.mktemp("parquet")
    paths, first = [], 0
    for number, size in enumerate(SIZES):
        paths.append(write_images(folder / f"train-{number:05}-of-00004.parquet", first, size))
        first += size
    return paths


# --- samples ---


def test_rows_of_the_files_follow_one_another(files: list[Path]) -> None:
    dataset = ParquetDataset(str(files[0].parent / "train-*.parquet"))
    assert dataset.paths == tuple(map(str, files))
    assert len(dataset) == COUNT
    for index in (0, 4, 5, 22, 23, 26, 27, 59):
        image, label = dataset[index]
        assert ((image.shape, image.dtype), int(label)) == (((16, 16, 3), np.uint8), index)
        assert abs(int(image.mean()) - index) <= 1
    assert dataset.labels().tolist() == list(range(COUNT))
    assert dataset.synsets == list(CLASSES)


def test_the_key_is_the_row_in_its_file(files: list[Path]) -> None:
    dataset = ParquetDataset(files)
    place = dataset.location(34)
    assert (place.key, place.path) == (7, str(files[3]))
    assert place.offset is None  # no bytes are those of one row


def test_footers_are_read_once(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    assert len(ParquetDataset(files)) == COUNT
    from aioloader.formats.parquet import footer as parquet_footers

    monkeypatch.setattr(parquet_footers, "parse_footer", None)
    dataset = ParquetDataset(files)
    assert int(dataset[31][1]) == 31


def test_a_replaced_file_has_a_new_footer(tmp_path: Path) -> None:
    path = write_images(tmp_path / "a.parquet", 0, 10)
    assert len(ParquetDataset(path)) == 10
    write_images(path, 5, 20)
    dataset = ParquetDataset(path)
    assert len(dataset) == 20
    assert int(dataset[19][1]) == 24


# --- columns ---


def one(path: Path, values: Any, **options: Any) -> Any:
    """Return the first values of a column `x`, as `ParquetDataset` returns them."""
    path /= f"{len(os.listdir(path))}.parquet"
    dataset = ParquetDataset(write(path, {"x": values}, features=None), fields="x", **options)
    return [dataset[index]["x"] for index in range(len(dataset))]


NUMBERS = [f"{kind}{bits}" for kind in ("int", "uint", "float") for bits in (8, 16, 32, 64)]
NUMBERS.remove("float8")


@with_cases("dtype", [*NUMBERS, "bool_"])
def test_numbers_are_numpy_scalars(tmp_path: Path, dtype: str) -> None:
    kind = pa.from_numpy_dtype(np.dtype(dtype))
    found = one(tmp_path, pa.array(np.array([1, 0, 1, 0, 1, 1, 1], dtype), kind))
    assert [type(value) for value in found] == [getattr(np, dtype)] * 7
    assert [int(value) for value in found] == [1, 0, 1, 0, 1, 1, 1]
    rows = [None, None, True, None, False, None] if dtype == "bool_" else [None, None, 1, None, 0, None]
    assert one(tmp_path, pa.array(rows, kind)) == rows


def test_a_null_in_a_list_of_whole_numbers_is_an_error_of_its_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"x": pa.array([[1], [2, None], [3]])}, features=None)
    dataset = ParquetDataset(path, fields="x")
    assert dataset[2]["x"].tolist() == [3]
    with pytest.raises(ParquetError, match="row group 0, row 1: the list in the column 'x' contains a null"):
        dataset[1]


NOON = datetime.datetime(2024, 2, 29, 12, 30, 1, 5000)


def plain(value: Any) -> Any:
    return value.tolist() if isinstance(value, np.ndarray | np.generic) else value


@with_cases(
    ("kinds", "rows", "types"),
    [
        ([pa.list_(pa.float32()), pa.large_list(pa.float32())], [[1.0, 1.5], [], [2.5]], {np.ndarray}),
        ([pa.list_(pa.float32(), 2)], [[1.0, 1.5], [0.0, 2.5]], {np.ndarray}),
        ([pa.list_(pa.bool_())], [[True], [False, True, True], []], {np.ndarray}),
        (
            [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())],
            ["a", "", "äöü", "a", "long " * 50],
            {str},
        ),
        ([pa.binary(), pa.large_binary(), pa.binary(3)], [b"abc", b"def", b"\0\1\2"], {bytes}),
        ([pa.timestamp("us"), pa.timestamp("ms", tz="UTC")], [NOON], {np.datetime64}),
        ([pa.date32()], [NOON.date()], {np.datetime64}),
        ([pa.duration("ms")], [datetime.timedelta(seconds=2)], {np.timedelta64}),
        (
            [None],
            [
                {"boxes": [[1.0, 2.0], [3.0]], "names": ["a", None], "raw": b"x", "more": {"when": NOON}},
                {"boxes": [], "names": None, "raw": None, "more": {"when": None}},
            ],
            {dict},
        ),
        ([None], [["a", "b"], []], {list}),
        ([pa.null()], [None, None], {type(None)}),
    ],
)
def test_values_of_every_type(tmp_path: Path, kinds: Any, rows: Any, types: Any) -> None:
    for kind in kinds:
        found = one(tmp_path, pa.array(rows, kind))
        assert ([plain(value) for value in found], {type(value) for value in found}) == (rows, types)
        # PyArrow before 26 cannot read a null list of fixed size: "Expected all lists to be of size=2".
        if PYARROW >= 26 or not pa.types.is_fixed_size_list(kind):
            assert one(tmp_path, pa.array([*rows[:1], None], kind))[1] is None
    assert np.isnan(one(tmp_path, pa.array([[1.0, None]], pa.list_(pa.float64())))[0]).tolist() == [
        False,
        True,
    ]


def test_fields_are_a_dict(tmp_path: Path) -> None:
    columns = {"text": ["a", "b"], "picture": images([3, 4]), "label": [7, 8], "raw": [jpeg(5), jpeg(6)]}
    path = write(tmp_path / "a.parquet", columns, features={"picture": {"_type": "Image"}})
    sample = ParquetDataset(path, fields=("picture", "text", "raw"))[1]
    assert list(sample) == ["picture", "text", "raw"]
    assert sample["picture"].shape == (16, 16, 3)
    assert (sample["text"], sample["raw"]) == ("b", jpeg(6))
    whole = ParquetDataset(path, image="picture", label="text").with_all_fields()[1]
    assert {"picture", "text", "raw"} <= whole.keys()
    assert whole["text"] == sample["text"]
    named = ParquetDataset(path, fields=("raw", "picture"), image=("raw",), flag=0)[0]
    assert [value.shape for value in named.values()] == [(16, 16, 1), (16, 16, 1)]


def test_a_list_of_images_is_a_list_of_arrays(tmp_path: Path) -> None:
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows = [[{"bytes": jpeg(n), "path": None} for n in range(count)] for count in (2, 0, 3)]
    path = tmp_path / "a.parquet"
    features = {"views": {"_type": "Sequence", "feature": {"_type": "Image"}}}
    write(path, {"views": pa.array(rows, pa.list_(struct))}, features=features)
    dataset = ParquetDataset(path, fields="views")
    assert [len(dataset[index]["views"]) for index in range(3)] == [2, 0, 3]
    assert abs(int(dataset[2]["views"][2].mean()) - 2) <= 1


# --- labels ---


@pytest.mark.parametrize(
    ("values", "dtype", "expected"),
    [
        (pa.array([1, 2, 3], pa.int8()), None, np.int64),
        (pa.array([True, False, True]), None, np.int64),
        (pa.array([0.5, 1.0, 2.0], pa.float64()), None, np.float32),
        (pa.array([1, 2, 3], pa.int32()), "float64", np.float64),
    ],
)
def test_labels_have_the_dtype_of_samples(tmp_path: Path, values: Any, dtype: Any, expected: Any) -> None:
    path = write(tmp_path / "a.parquet", {"image": images(range(3)), "label": values}, group=2)
    dataset = ParquetDataset(path, label_dtype=dtype)
    assert dataset.labels().dtype == expected
    assert dataset[2][1].dtype == expected
    assert dataset.labels().tolist() == [float(dataset[index][1]) for index in range(3)]


def test_labels_of_several_numbers_are_arrays(tmp_path: Path) -> None:
    rows = [[1.0, 0.0], [0.0, 1.0]]
    path = write(
        tmp_path / "a.parquet", {"image": images(range(2)), "label": pa.array(rows, pa.list_(pa.float32()))}
    )
    dataset = ParquetDataset(path)
    assert dataset[1][1].tolist() == [0, 1]
    with pytest.raises(ValueError, match="is no number, but array of float32"):
        dataset.labels()


def test_a_label_without_a_value_is_an_error_of_its_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"image": images(range(3)), "label": [1, None, 3]})
    dataset = ParquetDataset(path)
    assert int(dataset[2][1]) == 3
    with pytest.raises(ValueError, match="'label'"):
        dataset[1]
    with pytest.raises(ParquetError, match="row 1: the column 'label' has no value"):
        dataset.labels()


def test_text_labels_are_refused_with_advice(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"image": images(range(2)), "label": ["cat", "dog"]}, features=None)
    with pytest.raises(
        ParquetError, match=r"the label 'label' is text: pass fields=\('image', 'label'\).*class_encode"
    ):
        len(ParquetDataset(path)[0])
    assert ParquetDataset(path, fields=("image", "label"))[1]["label"] == "dog"


@pytest.mark.parametrize(
    ("options", "text"),
    [
        (
            {"image": "picture"},
            "there is no column 'picture'; the columns are 'img', 'fine', 'caption'; perhaps you mean image='img'",
        ),
        ({"image": "img"}, "there is no column 'label'; .* perhaps you mean label='fine'"),
        ({"image": "caption", "label": "fine"}, "has no encoded images, but text"),
        ({"image": "img", "label": "img"}, "the label 'img' is no number, but file"),
        ({"fields": ("img", "none")}, "there is no column 'none'"),
    ],
)
def test_a_wrong_column_is_named_with_the_right_ones(
    tmp_path: Path, options: dict[str, Any], text: str
) -> None:
    columns = {"img": images(range(2)), "fine": [0, 1], "caption": ["a", "b"]}
    features = {"img": {"_type": "Image"}, "fine": {"_type": "ClassLabel", "names": ["x", "y"]}}
    path = write(tmp_path / "a.parquet", columns, features=features)
    with pytest.raises(ParquetError, match=text) as caught:
        len(ParquetDataset(path, **options)) and ParquetDataset(path, **options)[0]
    assert caught.value.path == str(path)


def test_options_are_checked_at_once(files: list[Path]) -> None:
    with pytest.raises(ValueError, match="shuffle_blocks must be at least 1"):
        ParquetDataset(files, shuffle_blocks=0)
    with pytest.raises(ValueError, match="'auto'"):
        ParquetDataset(files, shuffle_blocks="all")
    with pytest.raises(ValueError, match="blocks_limit must be a size"):
        ParquetDataset(files, blocks_limit="much")
    with pytest.raises(ValueError, match="one column unless fields"):
        ParquetDataset(files, image=("a", "b"))
    with pytest.raises(FileNotFoundError):
        ParquetDataset(files[0].parent / "none-*.parquet")


def test_without_pyarrow_the_error_names_the_extra(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'pip install "aioloader\[parquet\]"'):
        ParquetDataset(files)[0]


def test_workers_do_not_import_pyarrow(files: list[Path], leftovers: object) -> None:
    dataset = ParquetDataset(files).transform_first(lambda image: np.int64("pyarrow" in sys.modules))
    with DataLoader(dataset, 10, num_workers=1) as loader:
        assert {int(value) for flags, _ in loader for value in flags} == {0}


# --- shuffling ---


def test_a_loader_shuffles_by_blocks(files: list[Path]) -> None:
    dataset = ParquetDataset(files, shuffle_blocks=3)
    sampler = shuffle_sampler(dataset)
    assert isinstance(sampler, BlockShuffleSampler)
    found = labels_in(batches_of(dataset))
    assert found == sampler.indices(5, 0, 0, COUNT).tolist()
    groups = [0, 5, 10, 15, 20, 23, 27, 32, 37, 42, 47, 52, 57]  # where row groups begin
    for start in range(0, COUNT, 4):
        blocks = np.searchsorted(groups, found[start : start + 4], side="right")
        assert len(set(blocks.tolist())) <= 3 + 3


def test_each_block_is_read_once_in_an_epoch(files: list[Path], monkeypatch: pytest.MonkeyPatch) -> None:
    from aioloader.formats.parquet.row_groups import RowGroupReader

    reads: list[int] = []
    read = RowGroupReader.read
    monkeypatch.setattr(
        RowGroupReader, "read", lambda self, number: reads.append(number) or read(self, number)
    )
    # Room for five of the thirteen blocks.
    dataset = ParquetDataset(files, shuffle_blocks=3)
    nbytes = int(dataset._table.nbytes.max())
    batches_of(ParquetDataset(files, shuffle_blocks=3, blocks_limit=6 * nbytes), batch_size=7)
    assert sorted(reads) == list(range(13))


def test_a_full_shuffle_is_that_of_other_datasets(files: list[Path]) -> None:
    dataset = ParquetDataset(files, shuffle_blocks=None)
    assert shuffle_sampler(dataset) is None
    found = labels_in(batches_of(dataset))
    assert found == RandomSampler(COUNT).indices(5, 0, 0, COUNT).tolist()


def test_the_usual_window_depends_on_the_files_only(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from aioloader.formats.parquet import dataset as parquet

    before = ParquetDataset(files).shuffle_sampler(None)
    monkeypatch.setattr(parquet, "usable_memory", lambda: 64 << 20)
    after = ParquetDataset(files).shuffle_sampler(None)
    assert before is not None
    assert after is not None
    assert before.description() == after.description()


def test_too_little_memory_for_the_window_is_a_warning(files: list[Path]) -> None:
    dataset = ParquetDataset(files, shuffle_blocks=5, blocks_limit=1)
    with pytest.warns(UserWarning, match=r"shuffle_blocks=5 needs about 0 MiB .* pass a larger blocks_limit"):
        found = batches_of(dataset)
    assert sorted(labels_in(found)) == list(range(COUNT))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        batches_of(ParquetDataset(files, blocks_limit=1), shuffle=False)


@pytest.mark.parametrize(
    "view",
    [
        lambda data: data.take(31),
        lambda data: data.shard(3, 1),
        lambda data: data.filter(lambda sample: int(sample[1]) % 3 == 0),
        lambda data: data.sample(RandomSampler(COUNT, seed=4)).take(40),
        lambda data: data.take(0),
    ],
    ids=["take", "shard", "filter", "sample", "empty"],
)
def test_views_are_shuffled_by_their_blocks(files: list[Path], view: Any) -> None:
    chosen = view(ParquetDataset(files, shuffle_blocks=2)).transform_first(lambda image: image)
    expected = chosen.labels().tolist() if len(chosen) else []
    found = labels_in(batches_of(chosen))
    assert sorted(found) == sorted(expected)
    sampler = shuffle_sampler(chosen)
    assert isinstance(sampler, BlockShuffleSampler)
    assert [expected[place] for place in sampler.indices(5, 0, 0, len(expected))] == found


def test_a_class_of_the_caller_is_shuffled_fully(files: list[Path]) -> None:
    class Numbered(ParquetDataset):
        def __getitem__(self, index: int) -> Any:
            return index

    assert shuffle_sampler(Numbered(files)) is None


# --- resuming and ranks ---


def test_a_state_of_another_window_is_refused(files: list[Path]) -> None:
    with DataLoader(ParquetDataset(files, shuffle_blocks=3), 5, shuffle=True, num_workers=0) as loader:
        next(iter(loader))
        state = loader.state_dict()
    for other in (ParquetDataset(files, shuffle_blocks=4), ParquetDataset(files, shuffle_blocks=None)):
        with DataLoader(other, 5, shuffle=True, num_workers=0) as loader, pytest.raises(ResumeError):
            loader.load_state_dict(state)


# --- errors ---


@pytest.fixture
def damaged(tmp_path: Path) -> Path:
    """Write 25 images in row groups of 5; row 3 has a null, row 7 only a path, and row group 3 is overwritten."""
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string())])
    rows: list[Any] = [{"bytes": jpeg(n), "path": f"{n}.jpg"} for n in range(25)]
    rows[3] = None
    rows[7]["bytes"] = None
    path = write(
        tmp_path / "a.parquet",
        {"image": pa.array(rows, struct), "label": list(range(25))},
        compression="snappy",
    )
    import pyarrow.parquet as pq

    chunk = pq.read_metadata(path).row_group(3).column(0)
    begin = chunk.dictionary_page_offset or chunk.data_page_offset
    data = bytearray(path.read_bytes())
    data[begin : begin + chunk.total_compressed_size] = b"\x15\x04" * (
        chunk.total_compressed_size // 2
    ) + bytes(chunk.total_compressed_size % 2)
    path.write_bytes(data)
    return path


@pytest.mark.parametrize(("executor", "on_error"), [("inline", "replace"), ("process", "skip")])
def test_bad_rows_and_row_groups_cost_their_samples_only(damaged: Path, executor: str, on_error: str) -> None:
    dataset = ParquetDataset(damaged, shuffle_blocks=2)
    with DataLoader(dataset, 5, shuffle=True, **pool(executor, 2), on_error=on_error) as loader:
        found = labels_in(loader)
        errors = list(loader.errors)
    good = set(range(25)) - {3, 7, *range(15, 20)}
    assert set(found) == good
    assert len(found) == (len(good) if on_error == "skip" else 25)
    assert sorted(error.index for error in errors) == [3, 7, *range(15, 20)]
    assert {error.path for error in errors} == {str(damaged)}
    assert sorted(error.key for error in errors) == [3, 7, *range(15, 20)]
    reasons = {error.index: error.reason for error in errors}
    assert "row group 0, row 3: the column 'image' has no value" in reasons[3]
    assert "row group 1, row 7: the column 'image' has only the path '7.jpg'" in reasons[7]
    assert "row group 3: " in reasons[16]
    (cause,) = [error.__cause__ for error in errors if error.index == 3]
    assert isinstance(cause, ParquetError)
    assert (cause.row_group, cause.row, cause.path) == (0, 3, str(damaged))


@pytest.mark.parametrize("narrow_first", [True, False])
def test_whole_numbers_of_several_widths_and_images_with_more_fields_are_read(
    tmp_path: Path, narrow_first: bool
) -> None:
    struct = pa.struct([("bytes", pa.binary()), ("path", pa.string()), ("caption", pa.string())])
    kinds = [pa.int32(), pa.int64(), pa.uint8()]
    kinds = kinds if narrow_first else kinds[::-1]
    large = {str(kind): value for kind, value in zip(kinds, (7, 8, 9), strict=True)} | {"int64": 1 << 40}
    paths = []
    for number, kind in enumerate(kinds):
        rows = pa.array([{"bytes": jpeg(number), "path": "a.jpg", "caption": "a cat"}], struct)
        paths.append(tmp_path / f"{number}.parquet")
        write(paths[-1], {"image": rows, "label": pa.array([large[str(kind)]], kind)})
    dataset = ParquetDataset(paths)
    wanted = [large[str(kind)] for kind in kinds]
    assert [int(label) for _, label in dataset] == dataset.labels().tolist() == wanted
    assert dataset[0][0].ndim == 3
    assert [each["label"].dtype for each in ParquetDataset(paths, fields=("label",))] == [
        np.dtype("int64")
    ] * 3
    write(tmp_path / "9.parquet", {"image": rows, "label": pa.array([1.5])})
    with pytest.raises(ParquetError, match="differs"):
        ParquetDataset([*paths, tmp_path / "9.parquet"])[0]


@pytest.mark.parametrize(
    ("kinds", "wanted"),
    [
        ((pa.float32(), pa.float64()), (0.5, 0.1)),
        ((pa.list_(pa.int32()), pa.large_list(pa.int64())), ([7, 8], [9, 1 << 40])),
        ((pa.list_(pa.float32(), 2), pa.list_(pa.float64())), ([0.5, 1.0], [0.1, 2.0])),
    ],
)
def test_fractions_and_lists_of_several_widths_are_read_in_the_widest(
    tmp_path: Path, kinds: Any, wanted: Any
) -> None:
    paths = []
    for number, (kind, value) in enumerate(zip(kinds, wanted, strict=True)):
        paths.append(tmp_path / f"{number}.parquet")
        write(paths[-1], {"image": images([number]), "label": pa.array([value], kind)})
    for order in ((0, 1), (1, 0)):
        dataset = ParquetDataset([paths[place] for place in order], fields=("label",))
        assert [each["label"].tolist() for each in dataset] == [wanted[place] for place in order]
        assert {each["label"].dtype.itemsize for each in dataset} == {8}
