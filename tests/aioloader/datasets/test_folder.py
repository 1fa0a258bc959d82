"""Tests of image folders and image lists."""

import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from aioloader import abc
from aioloader.datasets import ImageFolderDataset, ImageListDataset
from aioloader.formats.list.dataset import read_table
from aioloader.formats.packed_files import read_list
from aioloader.foundation.types import WHOLE_FILE
from tests.cases import with_cases


@pytest.fixture
def root(tmp_path: Path, png: Any) -> Path:
    for number, name in enumerate(["cat/b.PNG", "cat/a.png", "ant/1.jpeg", "dog/x.jpg"]):
        (tmp_path / name).parent.mkdir(exist_ok=True)
        (tmp_path / name).write_bytes(png(number))
    return tmp_path


def test_classes_and_files_are_sorted(root: Path) -> None:
    dataset = ImageFolderDataset(root)

    assert dataset.synsets == ["ant", "cat", "dog"]
    assert dataset.items == [
        (str(root / name), label)
        for name, label in [("ant/1.jpeg", 0), ("cat/a.png", 1), ("cat/b.PNG", 1), ("dog/x.jpg", 2)]
    ]
    assert len(dataset) == 4
    assert isinstance(dataset, abc.ByteDataset)


def test_items_are_rgb_images_and_class_numbers(root: Path, pixels: Any) -> None:
    image, label = ImageFolderDataset(root)[1]

    assert np.array_equal(image, pixels(1))
    assert (label, label.dtype) == (1, np.int64)
    assert ImageFolderDataset(root, 0)[-1][0].shape == (6, 8, 1)
    assert ImageFolderDataset(root, label_dtype="int32")[0][1].dtype == np.int32


def test_spans_are_whole_files_with_labels_as_extras(root: Path) -> None:
    dataset = ImageFolderDataset(root)
    indices = np.array([3, 0, 3])
    spans = dataset.spans(indices)

    assert (spans.file.tolist(), spans.length.tolist()) == ([3, 0, 3], [WHOLE_FILE] * 3)
    assert dataset.extras(indices).tolist() == [2, 0, 2]
    assert dataset.open_source().paths[3] == dataset.location(3).path == str(root / "dog/x.jpg")


def test_ignored_entries_are_one_warning(root: Path) -> None:
    (root / "notes.txt").write_text("x")
    (root / "cat" / "c.heic").write_text("x")
    (root / "cat" / ".inner").mkdir()

    with pytest.warns(UserWarning, match="Ignoring") as caught:
        dataset = ImageFolderDataset(root)

    assert [str(warning.message) for warning in caught] == [
        f"Ignoring 3 entries of {root}: {root / 'notes.txt'} of type .txt; {root / 'cat' / '.inner'}, which is hidden; "
        f"{root / 'cat' / 'c.heic'} of type .heic"
    ]
    assert caught[0].filename == __file__
    assert len(dataset) == 4


@pytest.mark.parametrize(
    ("level", "count", "advice"),
    [
        ("", 4, "have one class, 'set', because they are in folders in this folder: pass {set} if"),
        (
            "set/ant",
            0,
            "it has images itself: pass label=None to read them without labels, or the folder above it",
        ),
    ],
)
def test_a_folder_at_the_wrong_level_is_one_warning(root: Path, level: str, count: int, advice: str) -> None:
    (root / "top" / "set").mkdir(parents=True)
    for name in ("ant", "cat", "dog"):
        (root / name).rename(root / "top" / "set" / name)

    with pytest.warns(UserWarning, match="images") as caught:
        dataset = ImageFolderDataset(root / "top" / level)

    assert len(dataset) == count
    assert [advice.format(set=root / "top" / "set") in str(warning.message) for warning in caught] == [True]


def test_many_ignored_entries_are_counted_and_gluon_names_some_singly(root: Path) -> None:
    from aioloader.mxnet import gluon

    for number in range(25):
        (root / f"{number}.txt").write_text("x")
    (root / "cat" / "c.gif").write_text("x")

    with pytest.warns(UserWarning, match=r"Ignoring 25 entries of .*; and 22 more$"):
        ImageFolderDataset(root)
    with pytest.warns(UserWarning, match="Ignoring") as caught:
        gluon.data.vision.ImageFolderDataset(root)

    texts = [str(warning.message) for warning in caught]
    assert texts[0] == f"Ignoring {root / '0.txt'}, which is not a directory."
    assert (len(texts), texts[-1]) == (11, "Ignoring 16 more files and directories.")


def test_empty_directories_are_classes_and_warned_of(root: Path) -> None:
    (root / "bee").mkdir()

    with pytest.warns(UserWarning, match=r"1 of 4 classes have no images \(bee\)"):
        dataset = ImageFolderDataset(root)

    assert dataset.synsets == ["ant", "bee", "cat", "dog"]
    assert dataset[1][1] == 2


@with_cases("synsets", [["cat", "cat"], "cat"])
def test_synsets_that_would_read_images_twice_are_refused(root: Path, synsets: Any) -> None:
    with pytest.raises(ValueError, match="a list of different names"):
        ImageFolderDataset(root, synsets=synsets)


def test_synsets_number_the_classes(root: Path) -> None:
    with pytest.warns(UserWarning, match="ant, which is not among the synsets"):
        dataset = ImageFolderDataset(root, synsets=["dog", "cat"])

    assert dataset.synsets == ["dog", "cat"]
    assert [label for _, label in dataset.items] == [0, 1, 1]


def test_an_empty_folder_is_warned_of(tmp_path: Path) -> None:
    with pytest.warns(UserWarning, match="There are no images in"):
        dataset = ImageFolderDataset(tmp_path)

    assert len(dataset) == 0
    with pytest.raises(IndexError):
        dataset[0]


@pytest.mark.parametrize(("name", "error"), [("gone", FileNotFoundError), ("cat/a.png", NotADirectoryError)])
def test_a_root_that_is_no_folder_is_an_error(root: Path, name: str, error: Any) -> None:
    with pytest.raises(error):
        ImageFolderDataset(root / name)


def test_items_can_be_replaced(root: Path, pixels: Any) -> None:
    dataset = ImageFolderDataset(root)
    assert dataset[0][1] == 0
    dataset.items = dataset.items[2:]

    assert len(dataset) == 2
    assert dataset[0][1] == 1
    assert np.array_equal(dataset[0][0], pixels(0))


def test_the_users_home_is_expanded(root: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("HOME", str(root.parent))

    assert len(ImageFolderDataset(f"~/{root.name}")) == 4


def test_folders_and_lists_can_be_pickled(root: Path) -> None:
    assert len(pickle.loads(pickle.dumps(ImageListDataset(root, [])))) == 0
    for dataset in (ImageFolderDataset(root), ImageListDataset(root, [[3, "cat/a.png"]])):
        dataset[0]
        copy = pickle.loads(pickle.dumps(dataset))
        assert np.array_equal(copy[0][0], dataset[0][0])


# -- lists -------------------------------------------------------------------------------------------------------------


@with_cases(
    ("imglist", "labels", "dtype"),
    [
        ([[3, "cat/a.png"], (4.0, "ant/1.jpeg")], [3, 4], np.int64),
        ([[3, "cat/a.png"], [0.5, "ant/1.jpeg"]], [3, 0.5], np.float32),
        ([[[1, 2], "cat/a.png"], [np.array([3, 4]), "ant/1.jpeg"]], [[1, 2], [3, 4]], np.float32),
        ([[1, 2, "cat/a.png"], [3, 4, "ant/1.jpeg"]], [[1, 2], [3, 4]], np.float32),
    ],
)
def test_a_list_gives_labels_and_paths(
    root: Path, imglist: Any, labels: Any, dtype: Any, pixels: Any
) -> None:
    dataset = ImageListDataset(root, imglist)

    assert [np.asarray(label).tolist() for _, label in dataset] == labels
    assert {label.dtype for _, label in dataset} == {np.dtype(dtype)}
    assert np.array_equal(dataset[0][0], pixels(1))
    assert dataset.location(1) == ("2", str(root / "ant/1.jpeg"), None)
    assert isinstance(dataset, abc.ByteDataset)


def test_a_lst_file_gives_them_too(root: Path) -> None:
    (root / "some.lst").write_text("7\t2.0\tcat/a.png\n\n9\t5\tant/1.jpeg\r\n")
    dataset = ImageListDataset(root, "some.lst")

    assert [label for _, label in dataset] == [2, 5]
    assert [dataset.location(place).key for place in range(2)] == [7, 9]


@with_cases(
    ("line", "why"),
    [("1\tcat/a.png", "separated by TABs"), ("x\t1\tcat/a.png", "'x'"), ("1\tcat\tcat/a.png", "'cat'")],
)
def test_a_bad_line_is_named(root: Path, line: str, why: str) -> None:
    (root / "some.lst").write_text(f"0\t1\tant/1.jpeg\n{line}\n")

    with pytest.raises(ValueError, match=rf"some\.lst, line 2 .*{why}"):
        ImageListDataset(root, "some.lst")


@with_cases("imglist", [None, 3, [3], [["a.png"]], [[1, 2]], [["x", "a.png"]]], ids=str)
def test_malformed_lists_are_refused(root: Path, imglist: Any) -> None:
    with pytest.raises(ValueError, match=r"imglist must be the name of .*, or a list of entries"):
        ImageListDataset(root, imglist)


@with_cases("path", ["../x.png", "cat/../../x.png", "/etc/x.png", "a/./../../cat/a.png", "a\0b"], ids=repr)
def test_paths_must_not_lead_out_of_the_root(root: Path, path: str) -> None:
    with pytest.raises(ValueError, match="leads out of the root"):
        ImageListDataset(root, [[1, path]])


def test_numbers_of_labels_must_agree(root: Path) -> None:
    with pytest.raises(ValueError, match="entry '2' has 2 labels, but the first one has 1"):
        ImageListDataset(root, [[1, "cat/a.png"], [1, 2, "cat/a.png"]])


def test_label_dtype_decides(root: Path) -> None:
    assert ImageListDataset(root, [[1, 2, "cat/a.png"]], label_dtype="int16")[0][1].dtype == np.int16
    with pytest.raises(ValueError, match=r"entry '1': the label 0\.5 does not fit"):
        ImageListDataset(root, [[0.5, "cat/a.png"]], label_dtype="int64")


def test_a_link_in_the_folder_does_not_let_a_list_climb_out(root: Path, tmp_path_factory: Any) -> None:
    outside = tmp_path_factory.mktemp("outside")
    (outside / "inner").mkdir()
    (outside / "secret.png").write_bytes(b"secret")
    (root / "link").symlink_to(outside / "inner")
    dataset = ImageListDataset(root, [[1, "link/../secret.png"]])
    assert dataset.location(0).path == str(root / "secret.png")
    with pytest.raises(FileNotFoundError):
        dataset[0]


# -- tables ------------------------------------------------------------------------------------------------------------

ROWS = {"file": ["cat/a.png", "ant/1.jpeg"], "a": [1, 0], "b": [0.5, 2.0], "kind": ["cat", "ant"]}


def _table(kind: str, folder: Path) -> Any:
    if kind == "dict":
        return ROWS
    if kind in ("pandas", "polars", "pyarrow"):
        library = pytest.importorskip(kind)
        return library.table(ROWS) if kind == "pyarrow" else library.DataFrame(ROWS)
    apart = "," if kind == "csv" else "\t"
    lines = [ROWS, *zip(*ROWS.values(), strict=True)]
    place = folder / f"labels.{kind}"
    place.write_text("".join(apart.join(map(str, line)) + "\r\n" for line in lines), "utf-8-sig")
    return place


@pytest.mark.parametrize("kind", ["csv", "tsv", "pandas", "polars", "pyarrow", "dict"])
def test_a_table_gives_paths_and_labels(kind: str, root: Path, tmp_path_factory: Any, pixels: Any) -> None:
    table = _table(kind, tmp_path_factory.mktemp("beside"))
    dataset = ImageListDataset(root, table, label="a")
    assert [(label, label.dtype) for _, label in dataset] == [(1, np.int64), (0, np.int64)]
    assert np.array_equal(dataset[0][0], pixels(1))
    several = ImageListDataset(root, table, label=["a", "b"])
    assert several[0][1].dtype == np.float32
    assert [label.tolist() for _, label in several] == [[1, 0.5], [0, 2]]
    text = ImageListDataset(root, table, image="file", label="kind")
    assert ([int(label) for _, label in text], text.class_names()) == ([1, 0], ["ant", "cat"])
    alone = ImageListDataset(root, table, label=None)
    assert np.array_equal(alone[0], pixels(1))
    with pytest.raises(ValueError, match=r"'file', 'a', 'b', 'kind': pass label=NAME"):
        ImageListDataset(root, table)
    with pytest.raises(ValueError, match="there is no column 'c': the columns are 'file'"):
        ImageListDataset(root, table, label="c")


@with_cases(
    ("text", "labels"),
    [
        ("cat/a.png,3\nant/1.jpeg,4\n", [3, 4]),
        ("path,label\n'cat/a.png',1\n".replace("'", '"'), [1]),
        ("id,target,image\n7,1.5,cat/a.png\n", [1.5]),
        ("image,species\ncat/a.png,9007199254740993\n", [9007199254740993]),
        ("cat/a.png,1,0\nant/1.jpeg,0,1\n", [[1, 0], [0, 1]]),
        ('path, label\n cat/a.png, ant\nant/1.jpeg,ant\nant/1.jpeg, "a, b"\n', [1, 1, 0]),
    ],
)
def test_a_csv_file_needs_no_more_than_its_name(text: str, labels: Any, root: Path) -> None:
    (root / "labels.csv").write_text(text)
    for dataset in (ImageListDataset(root, "labels.csv"), ImageListDataset(imglist=root / "labels.csv")):
        assert [label.tolist() for _, label in dataset] == labels


@with_cases(
    ("text", "message"),
    [
        ("path,label\ncat/a.png,\n", "row 1 has no label in the column 'label'"),
        ("path,label\ncat/a.png,1\nant/1.jpeg,nan\n", "row 2 has no label in the column 'label', but 'nan'"),
        ("path,label\ncat/a.png\n", "row 2 has 1 fields, and the first one has 2"),
        ("path,label\n,1\n", "row 1 has no path in the column 'path'"),
        ("a,b\nx,1\n", "no column of 'a', 'b' has names of images"),
        ("path,path\nx,1\n", "two columns of one name"),
        ("path,label\na.png,10\nb.png,NA\nc.png,2\n", "row 2 has 'NA' in the column 'label'"),
        ("path;label\na.png;1\n", r"fields apart by ';'.*pandas.read_csv\(.*, sep=';'\)"),
        ("", "has no lines"),
        ("path,label\na.png," + "x" * (1 << 18), "line 2 is not valid CSV"),
        ("path,label\ncat/a.png,0.5\nant/1.jpeg,1e999\n", "row 2 has no label in .*, but '1e999'"),
    ],
)
def test_tables_that_are_refused(text: str, message: str, root: Path) -> None:
    (root / "labels.csv").write_text(text)
    with pytest.raises(ValueError, match=message):
        ImageListDataset(root, "labels.csv")


@with_cases(("encoding", "line"), [("latin-1", 3), ("utf-16", 1)])
def test_a_table_of_another_encoding_is_refused_with_its_line(encoding: str, line: int, root: Path) -> None:
    pandas = pytest.importorskip("pandas")
    (root / "labels.csv").write_text("path,label\ncat/a.png,chat\nant/1.jpeg,café\n", encoding)
    message = rf"labels\.csv, line {line} is not UTF-8: .*pandas\.read_csv\('.*csv', encoding='latin-1'\)"
    with pytest.raises(ValueError, match=message):
        ImageListDataset(root, "labels.csv")
    table = pandas.read_csv(root / "labels.csv", encoding=encoding)
    assert ImageListDataset(root, table).class_names() == ["café", "chat"]


@with_cases(
    "imglist",
    [
        [[10**400, "cat/a.png"]],
        [[[10**400, 1], "cat/a.png"]],
        [[2**53 + 1, Path("cat/a.png")]],
        [[[2**70 + 1, 1], "cat/a.png"]],
        {"path": ["cat/a.png"], "label": [10**400]},
    ],
)
def test_labels_that_no_dtype_has_exactly_are_named(imglist: Any, root: Path) -> None:
    with pytest.raises(ValueError, match=r"label of entry 1 is too large"):
        ImageListDataset(root, imglist)


def test_a_table_with_a_missing_value_or_an_uneven_column_is_refused(root: Path) -> None:
    pandas = pytest.importorskip("pandas")
    table = pandas.DataFrame({"path": ["cat/a.png", "ant/1.jpeg"], "label": pandas.array([1, None], "Int64")})
    with pytest.raises(ValueError, match="row 2 has no label in the column 'label'"):
        ImageListDataset(root, table)
    with pytest.raises(ValueError, match="'path' has 2 rows, and 'label' 1"):
        ImageListDataset(root, {"path": ["cat/a.png", "ant/1.jpeg"], "label": [1]})
    with pytest.raises(ValueError, match="imglist must be"):
        ImageListDataset(root, table["path"])
    with pytest.raises(ValueError, match="entry 1 has a null character"):
        ImageListDataset(imglist={"path": ["a\0.png"], "label": [1]})


@pytest.mark.parametrize(
    ("name", "text"), [("a.csv", b"path;label\n"), ("a.csv", b"\xff"), ("a.lst", b"1\tx\ty\n")]
)
def test_the_signature_of_a_list_is_not_in_its_errors(
    name: str, text: bytes, monkeypatch: pytest.MonkeyPatch
) -> None:
    opening = pytest.importorskip(
        "aioloader.storage.remote.opening", reason="needs obstore", exc_type=ImportError
    )
    monkeypatch.setattr(opening, "read_text", lambda url: text)
    read = read_table if name.endswith(".csv") else read_list
    with pytest.raises(ValueError, match=rf"https://host/{name}") as caught:
        read(f"https://host/{name}?X-Amz-Signature=secret")
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("library", ["pandas", "pyarrow"])
def test_two_columns_of_one_name_are_refused(library: str, root: Path) -> None:
    made = pytest.importorskip(library)
    names = ["path", "label", "label"]
    values: list[Any] = [["cat/a.png"], [1], [2]]
    if library == "pandas":
        table = made.DataFrame(list(zip(*values, strict=True)), columns=names)
    else:
        table = made.Table.from_arrays(list(map(made.array, values)), names=names)
    with pytest.raises(ValueError, match=r"two columns of one name \(path, label, label\)"):
        ImageListDataset(root, table)


def test_paths_may_be_absolute_without_a_root(root: Path, pixels: Any) -> None:
    paths = [str(root / "cat/a.png"), root / "ant/1.jpeg"]
    dataset = ImageListDataset(imglist=list(enumerate(paths)))
    assert [label for _, label in dataset] == [0, 1]
    assert np.array_equal(dataset[0][0], pixels(1))
    alone = ImageListDataset(imglist=paths, label=None)
    assert np.array_equal(alone[0], pixels(1))
    with pytest.raises(ValueError, match="label=None"):
        alone.labels()
    with pytest.raises(ValueError, match="cannot mix local files and URLs"):
        ImageListDataset(imglist=[[0, "s3://a/b.png"], [1, "/a.png"]])


def test_several_labels_that_float32_would_merge_are_refused(root: Path) -> None:
    entries = [[[16777217, 1], "cat/a.png"]]
    with pytest.raises(ValueError, match=r"entry '1': float32 has no 16777217.*label_dtype='float64'"):
        ImageListDataset(root, entries)
    assert ImageListDataset(root, entries, label_dtype="int64")[0][1].tolist() == [16777217, 1]


@with_cases(
    ("label", "dtype", "larger"),
    [(1e39, None, "float64"), (-1e39, "float32", "float64"), (70_000, "float16", "float32")],
)
def test_a_label_beyond_its_type_is_refused(root: Path, label: float, dtype: Any, larger: str) -> None:
    with pytest.raises(ValueError, match=rf"does not fit.*label_dtype='{larger}'"):
        ImageListDataset(root, [[0.5, "cat/a.png"], [label, "cat/a.png"]], label_dtype=dtype)
    labels = ImageListDataset(root, [[float("inf"), "cat/a.png"], [label, "cat/a.png"]], label_dtype=larger)
    assert labels[0][1] == np.inf
    assert np.isclose(labels[1][1], label)


def test_a_transform_in_the_place_of_flag_is_refused(root: Path) -> None:
    with pytest.raises(TypeError, match=r"use dataset\.transform_first\(transform\)"):
        ImageFolderDataset(root, lambda image: image)  # type: ignore[arg-type]
