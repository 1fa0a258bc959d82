"""`aioloader.images`: what it takes, and what it refuses at the call."""

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
        ("x.idx", "give the .rec file"),
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
