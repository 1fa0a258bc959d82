"""Tests of `aioloader.images`: accepted paths, and errors at the call."""

import pytest

import aioloader


def test_a_record_file_may_have_any_name(photo_rec, tmp_path):
    other = tmp_path / "photos.data"
    other.write_bytes(photo_rec.read_bytes())
    other.with_suffix(".idx").write_bytes(photo_rec.with_suffix(".idx").read_bytes())
    for path in (photo_rec, other):
        with aioloader.images(path, size=32, batch_size=8, blocking=True, num_workers=0) as loader:
            images, _ = next(iter(loader))
        assert images.shape == (8, 32, 32, 3)


@pytest.mark.parametrize(
    ("name", "message"),
    [
        ("x.lst", "ImageListDataset"),
        ("x.idx", "pass the .rec file"),
        ("x.jpg", "neither a folder nor a .rec file"),
    ],
)
def test_other_files_are_refused_at_the_call(tmp_path, name, message):
    path = tmp_path / name
    path.write_text("0\t1.0\ta.jpg\n")
    with pytest.raises(ValueError, match=message):
        aioloader.images(path)


def test_a_missing_path_is_a_file_not_found_error(tmp_path):
    with pytest.raises(FileNotFoundError, match="nothing here"):
        aioloader.images(tmp_path / "nothing here")


def test_a_batch_sampler_takes_the_place_of_size_and_shuffling(photo_rec):
    with aioloader.images(
        photo_rec, 32, batch_size=None, batch_sampler=[[3, 1], [0]], blocking=True, num_workers=0
    ) as loader:
        assert [len(labels) for _, labels in loader] == [2, 1]


@pytest.mark.filterwarnings("ignore:.*no images:UserWarning")
def test_a_folder_without_images_is_refused_at_the_call(tmp_path):
    with pytest.raises(ValueError, match="no images in"):
        aioloader.images(tmp_path)


def test_images_of_too_many_pixels_are_refused(photo_rec, photo_folder):
    for path in (photo_rec, photo_folder):
        options = {"size": 32, "batch_size": 8, "blocking": True, "num_workers": 0}
        with aioloader.images(path, max_pixels=100, **options) as loader:
            with pytest.raises(aioloader.SampleError, match="more than max_pixels=100"):
                next(iter(loader))
        with aioloader.images(path, max_pixels=None, **options) as loader:
            assert len(next(iter(loader))[0]) == 8
