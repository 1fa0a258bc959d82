"""Tests of the advice in errors: it names what is there, and what the user has to write."""

from __future__ import annotations

import asyncio
import base64
import io
import re
from typing import TYPE_CHECKING, Any

import numpy as np
import pytest

import aioloader
from aioloader import errors
from aioloader.cli import main
from aioloader.transforms import decode_image
from tests.aioloader.datasets.faces import write_set

if TYPE_CHECKING:
    from collections.abc import Callable
    from pathlib import Path

pa = pytest.importorskip("pyarrow")
pq = pytest.importorskip("pyarrow.parquet")
Image = pytest.importorskip("PIL.Image")

POINTER = b"version https://git-lfs.github.com/spec/v1\noid sha256:4d7a2146\nsize 12345\n"
PAGE = b"\n<!DOCTYPE html><html><body>Not found</body></html>"


def jpeg() -> bytes:
    file = io.BytesIO()
    Image.new("RGB", (40, 30), (9, 99, 200)).save(file, "JPEG")
    return file.getvalue()


def table(path: Path, **columns: Any) -> str:
    name = str(path / "set.parquet")
    pq.write_table(pa.table(columns), name)
    return name


def written(path: Path, name: str, data: bytes) -> str:
    (path / name).parent.mkdir(parents=True, exist_ok=True)
    (path / name).write_bytes(data)
    return str(path / name)


def read_all(dataset: Any, **options: Any) -> None:
    with aioloader.DataLoader(dataset, batch_size=4, num_workers=0, **options) as loader:
        list(loader)


def images(path: Any) -> None:
    with aioloader.images(path, batch_size=1, blocking=True, num_workers=0) as loader:
        list(loader)


def saved_dict(path: Path) -> Path:
    written(path, "train/data-00000-of-00001.arrow", b"\xff\xff\xff\xff\x10")
    written(path, "dataset_dict.json", b'{"splits": ["train"]}')
    return path


def iterate_plainly(path: Path) -> None:
    written(path, "a/x.jpg", jpeg())
    for _ in aioloader.images(path, batch_size=1):
        pass


class Growing:
    """Samples (array of another length, label)."""

    def __len__(self) -> int:
        return 4

    def __getitem__(self, index: int) -> Any:
        return np.zeros(index + 1), index


async def served(reference: Any, **options: Any) -> Any:
    async with aioloader.AsyncImageService(num_workers=1, **options) as service:
        return await service.get(reference)


def in_service(reference: Any) -> Any:
    return asyncio.run(served(reference, allow=("bytes", "data")))


CASES: dict[str, tuple[Callable[[Path], Any], type[BaseException], str]] = {
    "no label column": (
        lambda path: aioloader.ParquetDataset(table(path, image=[jpeg()], category=[1]))[0],
        errors.ParquetError,
        r"no column 'label'.*perhaps you mean label='category'(?!.*image=)",
    ),
    "no image column": (
        lambda path: aioloader.ParquetDataset(table(path, picture=[jpeg()], label=[1]))[0],
        errors.ParquetError,
        r"no column 'image'.*perhaps you mean image='picture'(?!.*label=)",
    ),
    "paths in Parquet": (
        lambda path: aioloader.ParquetDataset(table(path, image=["a.jpg"], label=[1]))[0],
        errors.ParquetError,
        r"aioloader\.ImageListDataset\(FOLDER, pyarrow\.parquet\.read_table\(",
    ),
    "a DatasetDict": (
        lambda path: images(saved_dict(path)),
        errors.UnknownFormatError,
        r"splits that `datasets` saved.*load_from_disk\(FOLDER\)\[SPLIT\]\.to_parquet\(FILE\)",
    ),
    **{
        f"a pointer in place of .{suffix}": (
            lambda path, suffix=suffix: images(written(path, f"a.{suffix}", POINTER)),
            errors.UnknownFormatError,
            r"pointer of Git LFS.*`git lfs pull`",
        )
        for suffix in ("rec", "tar", "parquet", "tfrecord")
    },
    **{
        f"a pointer for {cls.__name__}": (
            lambda path, cls=cls, suffix=suffix: cls(written(path, f"a.{suffix}", POINTER))[0],
            errors.UnknownFormatError,
            r"pointer of Git LFS.*`git lfs pull`",
        )
        for cls, suffix in (
            (aioloader.ImageRecordDataset, "rec"),
            (aioloader.TarDataset, "tar"),
            (aioloader.ParquetDataset, "parquet"),
            (aioloader.TFRecordDataset, "tfrecord"),
        )
    },
    "a pointer as an image": (lambda path: decode_image(POINTER), errors.DecodeError, "`git lfs pull`"),
    "a web page as an image": (lambda path: decode_image(PAGE), errors.DecodeError, r"web page \(HTML\)"),
    "base64 as an image": (
        lambda path: decode_image(base64.b64encode(jpeg())),
        errors.DecodeError,
        r"base64\.b64decode",
    ),
    "base64 as a reference": (
        lambda path: in_service(base64.b64encode(jpeg()).decode()),
        errors.ImageReferenceError,
        r"^a text of [\d,]+ characters: it is an image in base64: .*f'data:image/jpeg;base64,\{text\}'$",
    ),
    "a web page in the service": (lambda path: in_service(PAGE), errors.ImageError, r"web page \(HTML\)"),
    "a list of folders": (
        lambda path: (
            [written(path, f"{name}/property", b"2,112,112") for name in "ab"]
            and images([path / "a", path / "b"])
        ),
        ValueError,
        r"ConcatDataset\(\[aioloader\.open_dataset\(path\) for path in PATHS\]\)",
    ),
    "a plain for": (iterate_plainly, TypeError, r"pass blocking=True to aioloader\.images\(\)"),
    "tuples of different shapes": (
        lambda path: read_all(Growing()),
        errors.BatchShapeError,
        r"Group\(Pad\(\), Stack\(\)\)",
    ),
}


@pytest.mark.parametrize(("fails", "kind", "advice"), CASES.values(), ids=CASES)
def test_an_error_says_what_helps(
    fails: Callable[[Path], Any], kind: type[BaseException], advice: str, tmp_path: Path
) -> None:
    with pytest.raises(kind, match=advice):
        fails(tmp_path)


_IMAGE = pa.struct([("bytes", pa.binary()), ("path", pa.string())])


@pytest.mark.parametrize("label", ["kind", None])
@pytest.mark.parametrize(
    "paths",
    [["a.jpg"], pa.array([{"bytes": None, "path": "a.jpg"}], _IMAGE), [{"path": "a.jpg"}]],
    ids=["text", "a struct without bytes", "a struct of a path"],
)
def test_the_line_for_paths_in_parquet_works(paths: Any, label: str | None, tmp_path: Path) -> None:
    written(tmp_path, "a.jpg", jpeg())
    file = table(tmp_path, picture=paths, kind=[7], label=[8])
    with pytest.raises(errors.ParquetError) as caught:
        aioloader.ParquetDataset(file, image="picture", label=label)[0]
    line = re.search(r"aioloader\.ImageListDataset\(.*label=[^)]*\)", str(caught.value))
    assert line is not None
    found = eval(line[0], {"aioloader": aioloader, "pyarrow": pa, "FOLDER": tmp_path, "FILE": file})[0]
    image, *labels = (found,) if label is None else found
    assert (image.shape, labels) == ((30, 40, 3), [] if label is None else [7])


@pytest.mark.parametrize("name", ["", "train.rec"])
def test_the_lines_for_several_sets_work(name: str, tmp_path: Path) -> None:
    paths = [write_set(tmp_path / folder, [jpeg()] * 4, [0, 0, 1, 2]) / name for folder in "ab"]
    with pytest.raises(ValueError, match=r"is a (folder|set in InsightFace's layout)") as caught:
        images(paths)
    joined = re.search(r"aioloader\.ConcatDataset\(.*PATHS\]\)", str(caught.value))
    moved = re.search(r"open_dataset\(path\)\.transform\(.*\)", str(caught.value))
    assert joined is not None
    assert moved is not None
    names = {"aioloader": aioloader, "open_dataset": aioloader.open_dataset, "PATHS": paths, "path": paths[1]}
    assert eval(joined[0], names).labels().tolist() == [0, 0, 1, 2] * 2
    first = aioloader.open_dataset(paths[0])
    both = first + eval(moved[0], {**names, "BEFORE": first.num_classes})
    with aioloader.DataLoader(both, batch_size=8, num_workers=1, executor="thread") as loader:
        assert [labels.tolist() for _, labels in loader] == [[0, 0, 1, 2, 3, 3, 4, 5]]


def test_the_advice_works(tmp_path: Path) -> None:
    read_all(
        Growing(), batchify_fn=aioloader.batchify.Group(aioloader.batchify.Pad(), aioloader.batchify.Stack())
    )
    text = base64.b64encode(jpeg()).decode()
    assert in_service(f"data:image/jpeg;base64,{text}").shape == (30, 40, 3)


def test_a_damaged_row_is_named_by_its_number(tmp_path: Path, capfd: pytest.CaptureFixture[str]) -> None:
    file = table(tmp_path, image=[jpeg(), jpeg(), b"junk"], label=[0, 1, 2])
    with pytest.raises(errors.SampleError, match=r"key 2, path [^,]*set\.parquet failed"):
        read_all(aioloader.ParquetDataset(file))
    assert main(["verify", "--decode", file]) == 1
    shown = "".join(capfd.readouterr())
    assert f"{file}: key 2: " in shown
    assert "byte" not in shown.replace("bytes", "")


def test_equal_faults_are_one_line(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for number in range(40):
        written(tmp_path, f"a/{number}.jpg", PAGE)
    main(["inspect", str(tmp_path)])
    lines = [line for line in capsys.readouterr().out.splitlines() if "web page" in line]
    assert len(lines) == 1
    assert "and 39 more: " in lines[0]
