"""Tests of formats of others: they are registered, recognized and opened, and all commands work on them."""

from __future__ import annotations

import json
import os
import subprocess
import sys
from collections.abc import Iterator, Sequence
from contextlib import closing
from importlib import metadata
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader
from aioloader import cli
from aioloader.datasets.files import FileDataset
from aioloader.errors import AmbiguousPathError, SampleError, SampleFormatError, UnknownFormatError
from aioloader.formats import EncodedDataset, Format, base, register
from aioloader.formats.inspection import Inspection, Options
from aioloader.tools import bench, view
from aioloader.tools.inspect import inspect
from aioloader.tools.verify import check_shard
from tests.aioloader.datasets.tars import members_of, photo, write_tar
from tests.aioloader.service.images import jpeg
from tests.cases import with_cases

IMAGES = [jpeg(20 + n, 30) for n in range(6)]


class BoxDataset(EncodedDataset):
    """Dataset over a file of JSON: labels, and the numbers of images; one of them is damaged."""

    def __init__(self, path: str, **options: Any) -> None:
        super().__init__(path, **options)
        self._items = json.loads(Path(self.paths[0]).read_text(encoding="utf-8"))["box"]

    def __len__(self) -> int:
        return self._counted(len(self._items))

    def read(self, indices: Sequence[int]) -> list[bytes]:
        found = [self._items[index][0] for index in indices]
        if None in found:
            raise OSError("the lid is closed")
        return [IMAGES[number] for number in found]

    def labels(self, indices: Sequence[int]) -> list[Any]:
        return [self._items[index][1] for index in indices]

    def location(self, index: int) -> str:
        return f"item {index}"


class BoxFormat(Format):
    name = "Box"
    suffixes = (".box",)

    def recognizes(self, path: str, head: bytes) -> bool:
        return head.startswith(b'{"box"')

    def open(self, paths: Sequence[str], **options: Any) -> BoxDataset:
        (path,) = paths
        return BoxDataset(path, **options)


@pytest.fixture
def box(tmp_path: Path) -> Iterator[Path]:
    """Register the format for one test, and write a file of it."""
    before = list(base._registered)
    register(BoxFormat())
    path = tmp_path / "data.box"
    write(path, [(n, n % 2) for n in range(len(IMAGES))])
    yield path
    base._registered[:] = before
    base._known = ()


def write(path: Path, items: Sequence[tuple[int | None, Any]]) -> None:
    path.write_text(json.dumps({"box": items}), encoding="utf-8")


def test_a_file_is_recognized_by_its_name_and_by_its_bytes(box: Path, tmp_path: Path) -> None:
    assert isinstance(aioloader.open_dataset(box), BoxDataset)
    renamed = box.rename(tmp_path / "data")
    assert isinstance(aioloader.open_dataset(renamed), BoxDataset)
    (tmp_path / "other").write_bytes(b"something else")
    with pytest.raises(UnknownFormatError, match=r"Box \(\.box\)"):
        aioloader.open_dataset(tmp_path / "other")


def test_batches_are_those_of_the_images(box: Path) -> None:
    with aioloader.images(
        box, size=16, batch_size=4, train=False, blocking=True, executor="process", num_workers=1
    ) as loader:
        batches = list(loader)
    assert [batch[0].shape for batch in batches] == [(4, 16, 16, 3), (2, 16, 16, 3)]
    np.testing.assert_array_equal(np.concatenate([batch[1] for batch in batches]), [0, 1, 0, 1, 0, 1])


def test_labels_are_asked_for_without_the_images(box: Path) -> None:
    dataset = aioloader.open_dataset(box)
    np.testing.assert_array_equal(dataset.labels(), [0, 1, 0, 1, 0, 1])
    assert dataset.targets == [0, 1, 0, 1, 0, 1]
    assert aioloader.open_dataset(box, label=None)[0].shape == (20, 30, 3)
    assert set(aioloader.open_dataset(box, fields=("image", "label"))[1]) == {"image", "label"}


def test_an_item_that_cannot_be_read_is_the_error_of_its_sample(box: Path) -> None:
    write(box, [(0, 1), (None, 2), (2, 3)])
    options: dict[str, Any] = {"size": 8, "batch_size": 3, "train": False, "blocking": True, "num_workers": 1}
    with (
        aioloader.images(box, **options) as loader,
        pytest.raises(SampleError, match="the lid is closed") as caught,
    ):
        list(loader)
    assert (caught.value.index, caught.value.key) == (1, "item 1")
    with aioloader.images(box, on_error="skip", **options) as loader:
        (batch,) = loader
        assert batch[1].tolist() == [1, 3]


def test_two_files_are_two_data_sets(box: Path, capsys: pytest.CaptureFixture[str]) -> None:
    other = box.with_name("more.box")
    write(other, [(0, 0)])
    assert cli.main(["verify", str(box), str(other)]) == 0
    assert cli.main(["verify", str(box.parent)]) == 0
    assert capsys.readouterr().out.count("valid") == 4
    with pytest.raises(ValueError, match=r"data\.box' is a set in Box's layout, and a list or a pattern may"):
        aioloader.open_dataset([box, other])
    with pytest.raises(AmbiguousPathError, match="2 Box files, each of which is a data set"):
        aioloader.open_dataset(box.parent)


def test_a_folder_is_a_data_set(box: Path, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    class CaseDataset(BoxDataset):
        def __init__(self, path: str, **options: Any) -> None:
            super().__init__(os.path.join(path, "data.json"), **options)
            self.paths = (path,)

    class CaseFormat(BoxFormat):
        name = "Case"
        suffixes = ()

        def recognizes(self, path: str, head: bytes) -> bool:
            return not head and os.path.exists(os.path.join(path, "data.json"))

        def open(self, paths: Sequence[str], **options: Any) -> CaseDataset:
            return CaseDataset(*paths, **options)

    register(CaseFormat())
    case = tmp_path / "case"
    case.mkdir()
    data = box.rename(case / "data.json")
    assert check_shard(CaseDataset(str(case)), 0).nbytes == data.stat().st_size
    assert inspect(case).nbytes == data.stat().st_size
    assert cli.main(["pack", str(case), str(tmp_path / "out.rec")]) == 0
    monkeypatch.setattr(bench, "default_settings", lambda cores: [bench.Setting("inline", 0)])
    assert cli.main(["bench", str(case), "--seconds", "0.1", "--rounds", "1", "--size", "16"]) == 0


def test_a_dataset_of_another_base_class_may_have_fields(box: Path) -> None:
    class Bundle(FileDataset):
        def __init__(self, path: str, **options: Any) -> None:
            super().__init__()
            self._shards = BoxDataset(path, **options)

        def __len__(self) -> int:
            return len(self._shards)

        def as_shards(self) -> BoxDataset:
            return self._shards

    class BundleFormat(Format):
        name = "Bundle"
        suffixes = (".bundle",)

        def open(self, paths: Sequence[str], **options: Any) -> Bundle:
            return Bundle(paths[0], **options)

    register(BundleFormat())
    path = box.rename(box.with_suffix(".bundle"))
    for arguments in (["verify", str(path)], ["pack", str(path), str(path.with_suffix(".rec"))]):
        assert cli.main(arguments) == 0
    with closing(view.open_collection(str(path))) as shown:
        shown.load()
        assert shown.count == len(IMAGES)


@pytest.mark.parametrize("items", [[(None, 2)], [(0, 1), (None, 2)]], ids=["alone", "of two"])
def test_an_item_that_cannot_be_read_is_a_problem_of_verify(
    box: Path, items: list[tuple[int | None, int]], capsys: pytest.CaptureFixture[str]
) -> None:
    write(box, items)
    with pytest.raises(OSError, match="the lid is closed"):
        aioloader.open_dataset(box)[len(items) - 1]
    assert cli.main(["verify", str(box)]) == 1
    assert "the lid is closed" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("returned", "reason"),
    [([b"a", b"b"], "returned 2 values for one index"), (["text"], "must return bytes, and returned str")],
)
def test_what_read_must_not_return_is_named(box: Path, returned: list[Any], reason: str) -> None:
    class Wrong(BoxDataset):
        def read(self, indices: Sequence[int]) -> list[bytes]:
            return returned

    with pytest.raises(SampleFormatError, match=reason):
        Wrong(str(box))[0]


@pytest.mark.parametrize(
    ("command", "found"),
    [
        (["inspect"], "Box samples"),
        (["verify", "--decode", "--num-workers", "1"], "6 images decoded, all valid"),
        (["index"], "no index is needed"),
        (["bench", "--seconds", "0.1", "--rounds", "1", "--size", "16"], "images/s"),
        (["pack", "OUT"], "6 records of 2 classes"),
        (["index", "--crops", "--num-workers", "0"], ".crops"),
        (["view", "--export", "OUT"], "6 of 6 samples"),
    ],
    ids=lambda value: value[0] if isinstance(value, list) else "",
)
def test_every_command_works_on_it(
    command: list[str],
    found: str,
    box: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setattr(bench, "default_settings", lambda cores: [bench.Setting("inline", 0)])
    if "view" in command:
        pytest.importorskip("starlette")
    words = [str(tmp_path / "out.rec") if word == "OUT" else word for word in command[1:]]
    arguments = [command[0], str(box), *words]
    assert cli.main(arguments) == 0
    output = "".join(capfd.readouterr())
    assert found in output


class LidDataset(BoxDataset):
    """Dataset whose samples have no named fields."""

    def as_shards(self) -> None:  # type: ignore[override]
        return None


class LidFormat(BoxFormat):
    name = "Lid"
    suffixes = (".lid",)
    has_fields = False
    has_shards = True

    def recognizes(self, path: str, head: bytes) -> bool:
        return False

    def open(self, paths: Sequence[str], **options: Any) -> FileDataset:
        opened = [LidDataset(path, **options) for path in paths]
        return opened[0]

    def inspect(self, path: str, paths: Sequence[str], options: Options) -> Inspection:
        return Inspection(path, "boxes with lids", len(paths), 0, 6)


@pytest.fixture
def lid(box: Path) -> Path:
    """Register a format without fields, and write a file of it."""
    register(LidFormat())
    return box.rename(box.with_suffix(".lid"))


@pytest.mark.parametrize(
    ("command", "code", "found"),
    [
        (["inspect"], 0, "boxes with lids"),
        (["verify"], 2, "has the format Lid; use --decode to check its images"),
        (["verify", "--decode", "--num-workers", "0"], 0, "6 images decoded, all valid"),
        (["index"], 0, "no index is needed"),
        (["index", "--crops", "--num-workers", "0"], 0, "data.lid.crops: "),
        (["repair", "OUT"], 1, "has the format Lid"),
        (["pack", "OUT"], 0, "6 records of 2 classes"),
        (["view", "--export", "OUT"], 1, "has neither named fields nor collection()"),
    ],
    ids=lambda value: " ".join(value[:2]) if isinstance(value, list) else "",
)
def test_every_command_asks_a_format_without_fields(
    command: list[str],
    code: int,
    found: str,
    lid: Path,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
) -> None:
    words = [str(tmp_path / "out.rec") if word == "OUT" else word for word in command[1:]]
    assert run(command[0], lid, *words) == code
    assert found in "".join(capfd.readouterr())


def run(*words: object) -> object:
    """Run a command; return its exit code."""
    try:
        return cli.main(list(map(str, words)))
    except SystemExit as stopped:  # wrong usage
        return stopped.code


def test_a_dataset_may_have_no_crop_indexes(
    lid: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LidDataset, "crop_files", FileDataset.crop_files)
    assert run("index", "--crops", lid) == 2
    assert "LidDataset has no crop indexes" in capsys.readouterr().err
    assert run("verify", "--decode", "--num-workers", "0", lid) == 0
    assert run("pack", lid, lid.with_suffix(".rec")) == 0


@pytest.mark.parametrize("command", [["pack", "out.rec"], ["bench"]], ids=lambda command: command[0])
def test_images_that_stay_encoded_need_their_decoder(
    command: list[str], lid: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.setattr(LidDataset, "decoder", lambda data, extra, location: bytes(data))
    assert run(command[0], lid, *command[1:]) == 1
    assert "the decoder of LidDataset is no ImageDecoder" in capsys.readouterr().err


@with_cases(
    ("attributes", "reason"),
    [
        ({"name": ""}, "has no name"),
        ({"suffixes": ("box",)}, "must begin with a dot"),
        ({"suffixes": (".TAR",)}, "lower case"),
        ({"suffixes": (".tar",)}, "is that of the format tar"),
        ({"name": "tar"}, "there is a format 'tar' already"),
    ],
)
def test_formats_that_are_refused(attributes: dict[str, Any], reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        register(type("Other", (BoxFormat,), attributes)())
    with pytest.raises(TypeError, match="derived from"):
        register(BoxFormat)  # type: ignore[arg-type]


def test_entry_points_add_formats(monkeypatch: pytest.MonkeyPatch) -> None:
    points = [
        metadata.EntryPoint("box", f"{__name__}:FORMAT", base.ENTRY_POINTS),
        metadata.EntryPoint("missing", "no_such_module:FORMAT", base.ENTRY_POINTS),
    ]
    monkeypatch.setattr(metadata, "entry_points", lambda group: points)
    monkeypatch.setattr(base, "_known", ())
    with pytest.warns(RuntimeWarning, match=r"the format 'missing' of no_such_module:FORMAT cannot be used"):
        found = base.formats()
    assert [each.name for each in found][-1] == "Box"
    base._known = ()


FORMAT = BoxFormat()


def test_formats_are_imported_when_they_are_asked_for(tmp_path: Path) -> None:
    write_tar(tmp_path / "a.tar", members_of([photo(0)]))
    code = f"""
import sys, aioloader.formats.base
print("aioloader.formats.tar.format" in sys.modules)
from aioloader.formats.opening import recognize
for path in ({str(tmp_path / "a.tar")!r}, ["http://host/a.tar"], "http://host/a.tar"):
    assert recognize(path).format.name == "tar"
print("importlib.metadata" in sys.modules)  # which finds the formats of others
"""
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    assert done.stdout.split() == ["False", "False"]
