"""Tests of `ParquetDataset`: samples, columns, labels, batches in every executor, shuffling, resuming and views."""

from __future__ import annotations

import datetime
import pickle
import subprocess
import sys
import warnings
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioloader import AsyncDataLoader, DataLoader, ParquetDataset
from aioloader.datasets.resolve import shuffle_sampler
from aioloader.errors import ParquetError, ResumeError, SampleError
from aioloader.samplers import BlockShuffleSampler, RandomSampler
from tests.aioloader.datasets.parquet_files import CLASSES, images, jpeg, write, write_images
from tests.conftest import RunOn
from tests.executors import pool

pa: Any = pytest.importorskip("pyarrow", reason="needs pyarrow (pip install pyarrow)")

PYARROW = int(pa.__version__.partition(".")[0])
SIZES = (23, 0, 4, 33)
COUNT = sum(SIZES)


@pytest.fixture(autouse=True)
def own_cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(tmp_path / "user-cache"))


@pytest.fixture(scope="module")
def files(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Write files of 23, 0, 4 and 33 images in row groups of 5, labels and grey values 0 to 59."""
    folder = tmp_path_factory.mktemp("parquet")
    paths, first = [], 0
    for number, size in enumerate(SIZES):
        paths.append(write_images(folder / f"train-{number:05}-of-00004.parquet", first, size))
        first += size
    return paths


def labels_of(batches: Any) -> list[list[int]]:
    return [labels.tolist() for _, labels in batches]


def epoch(dataset: Any, batch_size: int = 7, **options: Any) -> list[tuple[Any, Any]]:
    options = {"shuffle": True, "executor": "inline", **options}
    with DataLoader(dataset, batch_size, **options) as loader:
        return [(images.copy(), labels.copy()) for images, labels in loader]


def assert_same(found: list[Any], expected: list[Any]) -> None:
    assert len(found) == len(expected)
    for mine, theirs in zip(found, expected, strict=True):
        for one, other in zip(mine, theirs, strict=True):
            assert one.dtype == other.dtype
            np.testing.assert_array_equal(one, other)


# --- samples ---


@pytest.mark.parametrize("given", ["pattern", "list"])
def test_rows_of_the_files_follow_one_another(files: list[Path], given: str) -> None:
    dataset = ParquetDataset(files if given == "list" else str(files[0].parent / "train-*.parquet"))
    assert len(dataset) == COUNT
    for index in (0, 4, 5, 22, 23, 26, 27, 59):
        image, label = dataset[index]
        assert (image.shape, image.dtype) == ((16, 16, 3), np.uint8)
        assert abs(int(image.mean()) - index) <= 1
        assert label == index
        assert label.dtype == np.int64
    assert dataset[-1][1] == COUNT - 1
    with pytest.raises(IndexError):
        dataset[COUNT]
    assert dataset.labels().tolist() == list(range(COUNT))
    assert dataset.labels().dtype == np.int64
    assert dataset.synsets == list(CLASSES)
    again = pickle.loads(pickle.dumps(dataset))
    assert [int(again[index][1]) for index in (0, 30)] == [0, 30]


def test_the_key_is_the_row_in_its_file(files: list[Path]) -> None:
    dataset = ParquetDataset(files)
    place = dataset.location(34)
    assert (place.key, place.path) == (7, str(files[3]))
    assert place.offset is None  # no bytes are those of one row
    assert dataset.file_nbytes(34) == files[3].stat().st_size


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
    dataset = ParquetDataset(write(path / "x.parquet", {"x": values}, features=None), fields="x", **options)
    return [dataset[index]["x"] for index in range(len(dataset))]


NUMBERS = (
    "int8",
    "int16",
    "int32",
    "int64",
    "uint8",
    "uint16",
    "uint32",
    "uint64",
    "float16",
    "float32",
    "float64",
)


@pytest.mark.parametrize("dtype", [*NUMBERS, "bool_"])
def test_numbers_are_numpy_scalars(tmp_path: Path, dtype: str) -> None:
    kind = pa.from_numpy_dtype(np.dtype(dtype))
    found = one(tmp_path, pa.array(np.array([1, 0, 1, 0, 1, 1, 1], dtype), kind))
    assert [type(value) for value in found] == [getattr(np, dtype)] * 7
    assert [int(value) for value in found] == [1, 0, 1, 0, 1, 1, 1]
    rows = [None, None, True, None, False, None] if dtype == "bool_" else [None, None, 1, None, 0, None]
    assert one(tmp_path, pa.array(rows, kind)) == rows


@pytest.mark.parametrize(
    "kind",
    [pa.list_(pa.float32()), pa.large_list(pa.float32()), pa.list_(pa.float32(), 2)],
    ids=["list", "large list", "fixed size"],
)
def test_lists_of_numbers_are_arrays(tmp_path: Path, kind: Any) -> None:
    rows = [[float(n), n + 0.5] for n in range(7)]
    # PyArrow before 26 cannot read a null list of fixed size: "Expected all lists to be of size=2".
    nulls = [] if pa.types.is_fixed_size_list(kind) and PYARROW < 26 else [None]
    found = one(tmp_path, pa.array([*rows, *nulls], kind))
    assert found[7:] == nulls
    assert [value.dtype for value in found[:7]] == [np.float32] * 7
    assert [value.tolist() for value in found[:7]] == rows


def test_lists_of_other_lengths_and_types_are_arrays(tmp_path: Path) -> None:
    rows = [[], [1], [2, 3, 4], [5, 6]]
    assert [value.tolist() for value in one(tmp_path, pa.array(rows, pa.list_(pa.int16())))] == rows
    flags = [[True], [False, True, True], []]
    assert [value.tolist() for value in one(tmp_path, pa.array(flags, pa.list_(pa.bool_())))] == flags
    (missing, known) = one(tmp_path, pa.array([[1.0, None], [2.0]], pa.list_(pa.float64())))
    assert np.isnan(missing).tolist() == [False, True]
    assert known.tolist() == [2.0]


def test_a_null_in_a_list_of_whole_numbers_is_an_error_of_its_row(tmp_path: Path) -> None:
    path = write(tmp_path / "a.parquet", {"x": pa.array([[1], [2, None], [3]])}, features=None)
    dataset = ParquetDataset(path, fields="x")
    assert dataset[2]["x"].tolist() == [3]
    with pytest.raises(ParquetError, match="row group 0, row 1: the list in the column 'x' contains a null"):
        dataset[1]


@pytest.mark.parametrize(
    "kind",
    [pa.string(), pa.large_string(), pa.dictionary(pa.int32(), pa.string())],
    ids=["string", "large", "dictionary"],
)
def test_text_is_str(tmp_path: Path, kind: Any) -> None:
    rows = ["a", "", "äöü", None, "a", "long " * 50, "z"]
    assert one(tmp_path, pa.array(rows, kind)) == rows


@pytest.mark.parametrize(
    "kind", [pa.binary(), pa.large_binary(), pa.binary(3)], ids=["binary", "large", "fixed size"]
)
def test_other_bytes_are_bytes(tmp_path: Path, kind: Any) -> None:
    rows = [b"abc", b"def", None, b"\0\1\2"]
    assert one(tmp_path, pa.array(rows, kind)) == rows


NOON = datetime.datetime(2024, 2, 29, 12, 30, 1, 5)


@pytest.mark.parametrize(
    ("kind", "value", "expected"),
    [
        (pa.timestamp("us"), NOON, np.datetime64("2024-02-29T12:30:01.000005")),
        (pa.timestamp("ns", tz="UTC"), NOON, np.datetime64("2024-02-29T12:30:01.000005", "ns")),
        (pa.date32(), NOON.date(), np.datetime64("2024-02-29")),
        (pa.duration("ms"), datetime.timedelta(seconds=2), np.timedelta64(2000, "ms")),
    ],
    ids=["timestamp", "zone", "date", "duration"],
)
def test_times_are_numpy_scalars(tmp_path: Path, kind: Any, value: Any, expected: Any) -> None:
    found, missing = one(tmp_path, pa.array([value, None], kind))
    assert found == expected
    assert found.dtype.kind == expected.dtype.kind
    assert missing is None


def test_nested_values_are_python_objects(tmp_path: Path) -> None:
    rows = [
        {"boxes": [[1.0, 2.0], [3.0]], "names": ["a", None], "raw": b"x", "more": {"when": NOON}},
        {"boxes": [], "names": None, "raw": None, "more": {"when": None}},
    ]
    assert one(tmp_path, pa.array(rows)) == rows
    assert one(tmp_path, pa.array([["a", "b"], [], None])) == [["a", "b"], [], None]
    assert one(tmp_path, pa.array([None, None], pa.null())) == [None, None]


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


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_batches_of_fields_are_dicts(tmp_path: Path, executor: str, leftovers: object) -> None:
    columns = {
        "image": images(range(12)),
        "text": [f"t{n}" for n in range(12)],
        "x": np.arange(12, dtype=np.float32),
    }
    dataset = ParquetDataset(write(tmp_path / "a.parquet", columns), fields=("image", "text", "x"))
    with DataLoader(dataset, 4, **pool(executor, 2)) as loader:
        batches = list(loader)
        assert [batch["text"] for batch in batches][1] == ["t4", "t5", "t6", "t7"]
        assert batches[2]["x"].tolist() == [8, 9, 10, 11]
        assert batches[0]["image"].shape == (4, 16, 16, 3)


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


def test_files_of_other_schemas_are_refused(tmp_path: Path) -> None:
    first = write_images(tmp_path / "a.parquet", 0, 3)
    second = write(tmp_path / "b.parquet", {"image": images(range(2)), "label": [0.5, 1.5]})
    dataset = ParquetDataset([first, second])
    with pytest.raises(
        ParquetError, match=r"the column 'label' differs .*expected number of int64, found number of float64"
    ):
        dataset[0]


def test_options_are_checked_at_once(files: list[Path]) -> None:
    with pytest.raises(ValueError, match="shuffle_blocks must be at least 1"):
        ParquetDataset(files, shuffle_blocks=0)
    with pytest.raises(ValueError, match="'auto'"):
        ParquetDataset(files, shuffle_blocks="all")
    with pytest.raises(ValueError, match="blocks_limit must be a size"):
        ParquetDataset(files, blocks_limit="much")
    with pytest.raises(ValueError, match="one column unless fields"):
        ParquetDataset(files, image=("a", "b"))
    with pytest.raises(ValueError, match="exif"):
        ParquetDataset(files, exif="turn")
    with pytest.raises(FileNotFoundError):
        ParquetDataset(files[0].parent / "none-*.parquet")


def test_without_pyarrow_the_error_names_the_extra(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setitem(sys.modules, "pyarrow", None)
    with pytest.raises(ImportError, match=r'pip install "aioloader\[parquet\]"'):
        ParquetDataset(files)[0]


# --- loaders ---


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_an_async_loader_makes_the_same_batches(
    files: list[Path], executor: str, run_on: RunOn, no_blocking: None, leftovers: object
) -> None:
    dataset = ParquetDataset(files, shuffle_blocks=3)
    expected = epoch(dataset)

    async def main() -> list[Any]:
        async with AsyncDataLoader(dataset, 7, shuffle=True, **pool(executor, 2)) as loader:
            return [(batch[0].copy(), batch[1].copy()) async for batch in loader]

    assert_same(run_on(main), expected)


def test_workers_do_not_import_pyarrow(files: list[Path], leftovers: object) -> None:
    dataset = ParquetDataset(files).transform_first(lambda image: np.int64("pyarrow" in sys.modules))
    with DataLoader(dataset, 10, num_workers=1) as loader:
        assert {int(value) for flags, _ in loader for value in flags} == {0}


def test_importing_the_package_does_not_import_pyarrow() -> None:
    code = "import sys, aioloader; sys.exit('pyarrow' in sys.modules)"
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


# --- shuffling ---


def test_a_loader_shuffles_by_blocks(files: list[Path]) -> None:
    dataset = ParquetDataset(files, shuffle_blocks=3)
    sampler = shuffle_sampler(dataset)
    assert isinstance(sampler, BlockShuffleSampler)
    found = sum(labels_of(epoch(dataset, seed=5)), [])
    assert found == sampler.indices(5, 0, 0, COUNT).tolist()
    groups = [0, 5, 10, 15, 20, 23, 27, 32, 37, 42, 47, 52, 57]  # where row groups begin
    for start in range(0, COUNT, 7):
        blocks = np.searchsorted(groups, found[start : start + 7], side="right")
        assert len(set(blocks.tolist())) <= 3 + 3


def test_each_block_is_read_once_or_twice_in_an_epoch(
    files: list[Path], monkeypatch: pytest.MonkeyPatch
) -> None:
    from aioloader.formats.parquet.row_groups import RowGroupReader

    reads: list[int] = []
    read = RowGroupReader.read
    monkeypatch.setattr(
        RowGroupReader, "read", lambda self, number: reads.append(number) or read(self, number)
    )
    # Room for five of the thirteen blocks.
    dataset = ParquetDataset(files, shuffle_blocks=3)
    nbytes = int(dataset._table.nbytes.max())
    epoch(ParquetDataset(files, shuffle_blocks=3, blocks_limit=6 * nbytes), num_workers=0)
    assert set(reads) == set(range(13))
    assert len(reads) <= 13 + 4


def test_a_full_shuffle_is_that_of_other_datasets(files: list[Path]) -> None:
    dataset = ParquetDataset(files, shuffle_blocks=None)
    assert shuffle_sampler(dataset) is None
    found = sum(labels_of(epoch(dataset, seed=5)), [])
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
        found = epoch(dataset)
    assert sorted(sum(labels_of(found), [])) == list(range(COUNT))
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        epoch(ParquetDataset(files, blocks_limit=1), shuffle=False)


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
    found = sum(labels_of(epoch(chosen)), [])
    assert sorted(found) == sorted(expected)
    sampler = shuffle_sampler(chosen)
    assert isinstance(sampler, BlockShuffleSampler)
    assert [expected[place] for place in sampler.indices(0, 0, 0, len(expected))] == found


def test_a_class_of_the_caller_is_shuffled_fully(files: list[Path]) -> None:
    class Numbered(ParquetDataset):
        def __getitem__(self, index: int) -> Any:
            return index

    assert shuffle_sampler(Numbered(files)) is None


# --- resuming and ranks ---


@pytest.mark.parametrize("executor", ["inline", "process"])
def test_an_epoch_is_resumed_with_other_workers_and_ranks(
    files: list[Path], executor: str, leftovers: object
) -> None:
    dataset = ParquetDataset(files, shuffle_blocks=3)
    whole = sum(labels_of(epoch(dataset, 5, seed=2)), [])
    with DataLoader(dataset, 5, shuffle=True, seed=2, **pool(executor, 1)) as loader:
        before = [labels.tolist() for _, (_, labels) in zip(range(4), loader, strict=False)]
        state = loader.state_dict()
    assert sum(before, []) == whole[:20]
    rest: list[int] = []
    for rank in range(2):
        with DataLoader(dataset, 4, shuffle=True, seed=2, shard=(rank, 2), **pool(executor, 2)) as loader:
            loader.load_state_dict(state)
            rest += sum(labels_of(loader), [])
    assert sorted(rest) == sorted(whole[20:])


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


@pytest.mark.parametrize("executor", ["inline", "process"])
@pytest.mark.parametrize("on_error", ["skip", "replace"])
def test_bad_rows_and_row_groups_cost_their_samples_only(
    damaged: Path, executor: str, on_error: str, leftovers: object
) -> None:
    dataset = ParquetDataset(damaged, shuffle_blocks=2)
    with DataLoader(dataset, 5, shuffle=True, **pool(executor, 2), on_error=on_error) as loader:
        found = sum(labels_of(loader), [])
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


def test_the_error_of_a_sample_names_file_row_group_and_row(damaged: Path) -> None:
    with (
        DataLoader(ParquetDataset(damaged), 5, num_workers=0) as loader,
        pytest.raises(SampleError) as caught,
    ):
        list(loader)
    error = caught.value
    assert (error.index, error.key, error.path) == (3, 3, str(damaged))
    cause = error.__cause__
    assert isinstance(cause, ParquetError)
    assert (cause.row_group, cause.row, cause.path) == (0, 3, str(damaged))
    again = pickle.loads(pickle.dumps(cause))
    assert (again.row_group, again.row, str(again)) == (0, 3, str(cause))


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


@pytest.mark.parametrize("narrow_first", [True, False])
@pytest.mark.parametrize(
    ("kinds", "wanted"),
    [
        ((pa.float32(), pa.float64()), (0.5, 0.1)),
        ((pa.list_(pa.int32()), pa.large_list(pa.int64())), ([7, 8], [9, 1 << 40])),
        ((pa.list_(pa.float32(), 2), pa.list_(pa.float64())), ([0.5, 1.0], [0.1, 2.0])),
    ],
)
def test_fractions_and_lists_of_several_widths_are_read_in_the_widest(
    tmp_path: Path, kinds: Any, wanted: Any, narrow_first: bool
) -> None:
    paths = []
    for number, (kind, value) in enumerate(zip(kinds, wanted, strict=True)):
        paths.append(tmp_path / f"{number}.parquet")
        write(paths[-1], {"image": images([number]), "label": pa.array([value], kind)})
    order = (0, 1) if narrow_first else (1, 0)
    dataset = ParquetDataset([paths[place] for place in order], fields=("label",))
    assert [each["label"].tolist() for each in dataset] == [wanted[place] for place in order]
    assert {each["label"].dtype.itemsize for each in dataset} == {8}
