"""Tests of `aioloader.images`: accepted paths, and errors at the call."""

import re
import shutil

import numpy as np
import pytest

import aioloader
import recordio
from aioloader.cli import main
from aioloader.errors import AmbiguousPathError, EmptyDatasetError
from tests.aioloader.format_sets import FORMATS, Sample
from tests.cases import with_cases


def test_a_record_file_may_have_any_name(photo_rec, tmp_path):
    other = tmp_path / "photos.data"
    other.write_bytes(photo_rec.read_bytes())
    other.with_suffix(".idx").write_bytes(photo_rec.with_suffix(".idx").read_bytes())
    for path in (photo_rec, other):
        with aioloader.images(path, size=32, batch_size=8, blocking=True, num_workers=0) as loader:
            images, _ = next(iter(loader))
        assert images.shape == (8, 32, 32, 3)


@with_cases(
    ("name", "message"),
    [
        ("x.lst", "ImageListDataset"),
        ("x.idx", "pass the .rec file"),
        ("x.jpg", "a sub-folder of images for each class"),
    ],
)
def test_other_files_are_refused_at_the_call(tmp_path, name, message):
    path = tmp_path / name
    path.write_text("0\t1.0\ta.jpg\n")
    with pytest.raises(ValueError, match=message):
        aioloader.images(path)


@with_cases(
    ("name", "message"),
    [
        ("batchsize", "images has no argument batchsize; did you mean batch_size?"),
        ("image_size", "images has no argument image_size; did you mean size?"),
        ("workers", "images has no argument workers; did you mean num_workers?"),
        ("num_worker", "images has no argument num_worker; did you mean num_workers?"),
        ("generator", "images has no argument generator: pass seed="),
        ("dataset", "images has no argument dataset"),
        ("fields", "images has no argument fields: pass open_dataset(path, fields=...), with transforms, to"),
        ("flag", "images has no argument flag: pass open_dataset(path, flag=...)"),
    ],
)
def test_an_unknown_option_names_the_closest_one(tmp_path, name, message):
    with pytest.raises(TypeError, match=re.escape(message)):
        aioloader.images(tmp_path, **{name: 3})


@pytest.mark.parametrize("made", FORMATS)
def test_every_format(made, photo_rec, tmp_path):
    dataset = aioloader.RecordFileDataset(photo_rec)
    pictures = [recordio.unpack(dataset[number])[1] for number in range(8)]
    samples = [
        Sample(key=f"{number}", image=image, label=5 + number) for number, image in enumerate(pictures)
    ]
    path = made.write(tmp_path / "set", samples)
    expected = []
    with aioloader.images(photo_rec, 32, 8, train=False, blocking=True, num_workers=0) as loader:
        for images, _ in loader:
            expected += list(images)
    for named in ({}, {"image": made.image, "label": made.label}):
        with aioloader.images(path, 32, 3, train=False, blocking=True, num_workers=0, **named) as loader:
            batches = list(loader)
        assert np.concatenate([labels for _, labels in batches]).tolist() == list(range(5, 13))
        np.testing.assert_array_equal(np.concatenate([images for images, _ in batches]), expected[:8])
    with aioloader.images(path, 32, 3, blocking=True, num_workers=0) as loader:
        assert sorted(label for _, labels in loader for label in labels.tolist()) == list(range(5, 13))


@pytest.mark.parametrize("made", FORMATS)
def test_blocks_can_be_chosen_for_parquet(made, photo_rec, tmp_path):
    image = recordio.unpack(aioloader.RecordFileDataset(photo_rec)[0])[1]
    samples = [Sample(key=f"{number:03}", image=image, label=number) for number in range(40)]
    path = made.write(tmp_path / "set", samples, shards=1)

    def order(**options):
        with aioloader.images(path, 16, 40, blocking=True, num_workers=0, seed=1, **options) as loader:
            ((_, labels),) = loader
        return labels.tolist()

    if made.name != "parquet":
        for name, value in (("shuffle_blocks", 1), ("shuffle_blocks", None), ("blocks_limit", "1GB")):
            with pytest.raises(TypeError, match=f"no option '{name}'"):
                order(**{name: value})
        return
    rows_of_groups = [sorted(range(start, start + 4)) for start in range(0, 40, 4)]
    one_at_a_time = order(shuffle_blocks=1)
    assert sorted(sorted(one_at_a_time[start : start + 4]) for start in range(0, 40, 4)) == rows_of_groups
    assert sorted(order(shuffle_blocks=None, blocks_limit="1GB")) == list(range(40))
    assert order(shuffle_blocks=None) not in (one_at_a_time, list(range(40)))


@with_cases("path", [None, 3])
def test_what_is_not_a_path_is_refused(path):
    for function in (aioloader.images, aioloader.open_dataset):
        with pytest.raises(TypeError, match=f"path must be a path or a list of paths, got {path}"):
            function(path)


def test_a_missing_path_is_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing here"):
        aioloader.images(tmp_path / "nothing here")


def test_a_batch_sampler_takes_the_place_of_size_and_shuffling(photo_rec):
    with aioloader.images(
        photo_rec, 32, batch_size=None, batch_sampler=[[3, 1], [0]], blocking=True, num_workers=0
    ) as loader:
        assert [len(labels) for _, labels in loader] == [2, 1]


def test_a_folder_without_images_is_refused_at_the_call(tmp_path):
    with pytest.raises(ValueError, match="an empty folder: it needs a sub-folder with images"):
        aioloader.images(tmp_path)


def test_splits_of_a_folder_are_refused_at_the_call(photo_folder, tmp_path, capsys):
    for split in ("train", "val"):
        shutil.copytree(photo_folder, tmp_path / split)
    for function in (aioloader.images, aioloader.open_dataset):
        with pytest.raises(AmbiguousPathError) as caught:
            function(tmp_path)
        assert caught.value.choices == (f"{tmp_path}/train", f"{tmp_path}/val")
    assert main(["inspect", str(tmp_path)]) == 1
    assert f"pass one of '{tmp_path}/train', '{tmp_path}/val'" in capsys.readouterr().err


def test_warnings_name_the_line_of_the_caller(photo_folder, tmp_path):
    shutil.copytree(photo_folder, tmp_path / "set")
    (tmp_path / "set" / "notes.txt").write_text("x")
    (tmp_path / "set" / "empty").mkdir()
    with pytest.warns(UserWarning, match="Ignoring|classes") as caught:
        aioloader.images(tmp_path / "set", blocking=True).close()
    assert sorted(str(each.message).split()[0] for each in caught) == ["1", "Ignoring"]
    assert {each.filename for each in caught} == {__file__}


def test_names_of_fields_are_refused_for_records(photo_rec):
    with pytest.raises(TypeError, match="records have no fields with names: label must be None"):
        aioloader.images(photo_rec, label="cls")


def test_the_crop_index_is_passed_on(photo_rec, tmp_path):
    with pytest.raises(FileNotFoundError, match=r"no\.crops"):
        aioloader.images(photo_rec, crop_index=tmp_path / "no.crops")
    with aioloader.images(photo_rec, 32, 8, crop_index=None, blocking=True, num_workers=0) as loader:
        assert len(next(iter(loader))[0]) == 8


def test_images_of_too_many_pixels_are_refused(photo_rec, photo_folder):
    for path in (photo_rec, photo_folder):
        options = {"size": 32, "batch_size": 8, "blocking": True, "num_workers": 0}
        with aioloader.images(path, max_pixels=100, **options) as loader:
            with pytest.raises(aioloader.SampleError, match="more than max_pixels=100"):
                next(iter(loader))
        with aioloader.images(path, max_pixels=None, **options) as loader:
            assert len(next(iter(loader))[0]) == 8


@pytest.mark.parametrize("made", FORMATS)
def test_files_without_samples_are_an_error(made, tmp_path):
    path = made.write(tmp_path / "set", [Sample(key="a", image=b"x", label=1)], shards=1)
    if made.name == "mds":
        index = path / "index.json"
        index.write_text(re.sub(r'"shards": *\[.*\]', '"shards": []', index.read_text(), flags=re.DOTALL))
    else:
        (file,) = path.glob(f"*.{made.name}")
        _empty(file, made.name)
    for train in (True, False):
        with aioloader.images(path, 32, train=train, blocking=True, num_workers=0) as loader:
            with pytest.raises(EmptyDatasetError, match="there are no samples in") as caught:
                list(loader)
        assert (caught.value.path.startswith(str(path)), caught.value.files) == (True, 1)
    assert len(aioloader.open_dataset(path)) == 0


def _empty(file, name):
    if name == "tar":
        file.write_bytes(bytes(10240))
    elif name == "tfrecord":
        file.write_bytes(b"")
    else:
        parquet = pytest.importorskip("pyarrow.parquet")
        parquet.write_table(parquet.read_table(file).slice(0, 0), file)


def test_record_files_without_records_are_an_error(tmp_path):
    paths = [tmp_path / name for name in ("a.rec", "b.rec")]
    for path in paths:
        with recordio.RecordWriter(path, index=True):
            pass
    with aioloader.images(paths, 32, blocking=True, num_workers=0) as loader:
        with pytest.raises(EmptyDatasetError, match=r"a\.rec' and the 1 file after it") as caught:
            list(loader)
    assert (caught.value.path, caught.value.files) == (str(paths[0]), 2)
