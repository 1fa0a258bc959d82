"""Tests of `mx.image.ImageIter`: methods that a subclass may override, and failed images."""

import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.mxnet.image import ImageIter
from aioloader.tools.draw import draw_image
from tests.aioloader.mxnet.image.made import SHAPE, centre_of, labels_of, make_iter
from tests.cases import with_cases

# --- hooks ---


class Darker(ImageIter):
    """Iterator that overrides the methods that scripts override."""

    def augmentation_transform(self, data):
        return super().augmentation_transform(data) / 2

    def postprocess_data(self, datum):
        return super().postprocess_data(datum) + 1


@with_cases("workers", [0, 1])
def test_hooks_may_be_overridden(photos, workers):
    iterator = Darker(4, SHAPE, imglist=photos.imglist, path_root=str(photos.folder), num_workers=workers)
    batch = iterator.next()
    for number in range(4):
        assert np.array_equal(batch.data[0][number], centre_of(photos, number) / 2 + 1)
    iterator.close()


class Counting(ImageIter):
    """Iterator that reads its images itself."""

    read = 0

    def read_image(self, fname):
        self.read += 1
        return super().read_image(fname)


def test_images_may_be_read_otherwise(photos):
    counting = Counting(3, SHAPE, imglist=photos.imglist, path_root=str(photos.folder))
    batches = list(counting)
    assert [batch.pad for batch in batches] == [0] * 5 + [2]
    assert counting.read == 18
    assert sum(labels_of(batches), []) == photos.labels + photos.labels[:2]


def test_next_sample_goes_on_where_next_stopped(photos):
    iterator = make_iter(photos, 3, "rec+idx")
    iterator.next()
    label, encoded = iterator.next_sample()
    assert label == photos.labels[3]
    assert np.array_equal(mx.image.imdecode(encoded), photos.images[3])
    assert labels_of([iterator.next()]) == [photos.labels[4:7]]
    iterator.reset()
    seen = 0
    with pytest.raises(StopIteration):
        while True:
            iterator.next_sample()
            seen += 1
    assert seen == 16


class Picky(ImageIter):
    """Iterator that refuses two images."""

    refused = 0

    def check_valid_image(self, data):
        super().check_valid_image(data)
        if data.shape[0] in (40, 45):  # images 0 and 5
            raise RuntimeError("too plain")


@pytest.mark.parametrize("workers", [0, 1])
def test_refused_images_make_room_for_the_next(photos, workers, caplog):
    iterator = Picky(4, SHAPE, imglist=photos.imglist, path_root=str(photos.folder), num_workers=workers)
    kept = [label for number, label in enumerate(photos.labels) if number not in (0, 5)]
    for _ in range(2):
        batches = list(iterator)
        assert sum(labels_of(batches), []) == kept + kept[:2]
        assert [batch.pad for batch in batches] == [0, 0, 0, 2]
        iterator.reset()
    assert "too plain" in caplog.text
    iterator.close()


def test_augmenters_of_one_s_own(photos):
    chain = [mx.image.ForceResizeAug((24, 24), 1), lambda image: image.astype("float32") / 255]
    iterator = make_iter(photos, 4, aug_list=chain)
    assert iterator.next().data[0].max() <= 1
    with pytest.raises(ValueError, match=r"shape \(3, 40, 60\), but data_shape is \(3, 24, 24\)"):
        make_iter(photos, 4, aug_list=[mx.image.CastAug()]).next()


# --- errors ---


@with_cases("workers", [0, 1])
def test_a_broken_image_is_named_and_the_pass_goes_on(photos, tmp_path, workers):
    _with_one_broken(photos, tmp_path, 4)
    iterator = ImageIter(3, SHAPE, imglist=photos.imglist[:7], path_root=str(tmp_path), num_workers=workers)
    assert labels_of([iterator.next()]) == [photos.labels[:3]]
    with pytest.raises(RuntimeError, match=r"Broken image filename: .*04\.png") as caught:
        iterator.next()
    assert isinstance(caught.value, mx.image.BrokenImageError)
    assert (caught.value.key, caught.value.path) == ("5", str(tmp_path / "04.png"))
    (last,) = iterator
    assert last.label[0].asnumpy().tolist() == [photos.labels[5], photos.labels[6], photos.labels[0]]
    assert last.pad == 1
    iterator.close()


def _with_one_broken(photos, folder, broken):
    """Copy the first seven photographs, one of them truncated."""
    for number, name in enumerate(photos.names[:7]):
        data = (photos.folder / name).read_bytes()
        (folder / name).write_bytes(data[:100] if number == broken else data)


def test_own_readers_name_broken_images_too(photos, tmp_path):
    _with_one_broken(photos, tmp_path, 4)
    iterator = Counting(3, SHAPE, imglist=photos.imglist[:7], path_root=str(tmp_path))
    assert labels_of([iterator.next()]) == [photos.labels[:3]]
    with pytest.raises(mx.image.BrokenImageError, match=r"Broken image filename: .*04\.png") as caught:
        iterator.next()
    assert (caught.value.key, caught.value.path) == ("5", str(tmp_path / "04.png"))
    (last,) = iterator
    assert last.label[0].asnumpy().tolist() == [photos.labels[5], photos.labels[6], photos.labels[0]]


class Elsewhere(ImageIter):
    """Iterator with one image from another place, without counting."""

    def next_sample(self):
        return 1.0, b"no image at all"


def test_a_broken_image_from_elsewhere_has_no_name(photos):
    iterator = Elsewhere(1, SHAPE, imglist=photos.imglist, path_root=str(photos.folder))
    with pytest.raises(mx.image.BrokenImageError, match="Broken image, ") as caught:
        iterator.next()
    assert (caught.value.key, caught.value.path) == (None, None)


@with_cases("kind", [ImageIter, Counting])
def test_a_broken_image_among_those_that_fill_up_ends_the_pass(photos, tmp_path, kind):
    _with_one_broken(photos, tmp_path, 1)
    iterator = kind(4, SHAPE, imglist=photos.imglist[:7], path_root=str(tmp_path))
    for _ in range(2):
        with pytest.raises(mx.image.BrokenImageError, match=r"01\.png"):
            iterator.next()
        assert labels_of([iterator.next()]) == [photos.labels[2:6]]
        with pytest.raises(mx.image.BrokenImageError, match=r"01\.png"):
            iterator.next()
        assert list(iterator) == []
        iterator.reset()


def test_a_broken_record_is_named_by_its_key(tmp_path):
    rec, idx = str(tmp_path / "a.rec"), str(tmp_path / "a.idx")
    record = mx.recordio.MXIndexedRecordIO(idx, rec, "w")
    record.write_idx(
        7, mx.recordio.pack_img((0, 1.0, 7, 0), draw_image(0, height=30, width=30), img_fmt=".png")
    )
    record.write_idx(8, mx.recordio.pack((0, 2.0, 8, 0), b"no image at all"))
    record.close()
    for given, name in (({"path_imgidx": idx}, "index: 8"), ({}, "index: 1")):
        iterator = ImageIter(1, SHAPE, path_imgrec=rec, **given)
        assert iterator.next().label[0].asscalar() == 1
        with pytest.raises(mx.image.BrokenImageError, match=f"Broken image {name}") as caught:
            iterator.next()
        assert caught.value.offset is not None
        assert list(iterator) == []


def test_a_missing_file_is_an_error_of_its_own(photos):
    iterator = ImageIter(1, SHAPE, imglist=[[1, "none.png"], [2, "00.png"]], path_root=str(photos.folder))
    with pytest.raises(FileNotFoundError):
        iterator.next()
    assert labels_of(iterator) == [[2.0]]


def test_an_iterator_that_is_dropped_ends_its_workers(photos, leftovers):
    for kind in (ImageIter, Darker):
        iterator = kind(
            2, SHAPE, path_imgrec=photos.rec, path_imgidx=photos.idx, num_workers=1, rand_crop=True
        )
        iterator.next()
        del iterator


def test_an_error_of_an_augmenter_is_raised_as_itself(photos):
    def fail(image):
        raise KeyError("mine")

    for workers in (0, 1):
        iterator = make_iter(photos, 4, "rec+idx", aug_list=[fail], num_workers=workers)
        with pytest.raises(KeyError, match="mine") as caught:
            iterator.next()
        assert "image with the key 100" in caught.value.__notes__[-1]
        iterator.close()
