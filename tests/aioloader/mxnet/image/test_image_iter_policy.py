"""Tests of `mx.image.ImageIter` and `ImageDetIter` with failed images: skip, replace, and their limit."""

import json
import pickle

import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.errors import SampleError
from aioloader.mxnet.image import ImageDetIter, ImageIter
from tests.aioloader.mxnet.image.made import SHAPE, labels_of, make_iter
from tests.cases import with_cases

BAD = (1, 6, 9)


class Counting(ImageIter):
    """Iterator that reads the images itself, so that the loader does not."""

    def read_image(self, fname):
        return super().read_image(fname)


class Picky(ImageIter):
    """Iterator that refuses one image."""

    def check_valid_image(self, data):
        super().check_valid_image(data)
        if data.shape[0] == 45:  # image 5
            raise RuntimeError("too plain")


WAYS = [(ImageIter, 0), (Counting, 0), (ImageIter, 2)]


@pytest.fixture
def broken(photos, tmp_path):
    """Write ten photographs, number i with the label i: one truncated, one missing, one not an image."""
    for number, name in enumerate(photos.names[:10]):
        data = (photos.folder / name).read_bytes()
        (tmp_path / name).write_bytes({1: data[:100], 9: b"never an image"}.get(number, data))
    (tmp_path / photos.names[6]).unlink()
    imglist = [[float(number), name] for number, name in enumerate(photos.names[:10])]
    return {"imglist": imglist, "path_root": str(tmp_path)}


@with_cases(("kind", "workers"), WAYS)
def test_left_out_images_make_room_for_the_next(broken, kind, workers):
    iterator = kind(3, SHAPE, num_workers=workers, on_error="skip", **broken)
    for _ in range(2):
        batches = list(iterator)
        assert labels_of(batches) == [[0, 2, 3], [4, 5, 7], [8, 0, 2]]
        assert [batch.pad for batch in batches] == [0, 0, 2]
        iterator.reset()
    assert [error.index for error in iterator.errors][:3] == [1, 6, 9]
    assert {error.index for error in iterator.errors} == set(BAD)
    assert all(error.replaced_by is None for error in iterator.errors)
    iterator.close()


@with_cases(("kind", "workers"), WAYS)
@with_cases(
    ("handle", "expected", "pads"),
    [
        ("pad", [[0, 2, 2, 3], [4, 5, 7, 7], [8, 0, 0, 8]], [0, 0, 2]),
        ("discard", [[0, 2, 2, 3], [4, 5, 7, 7]], [0, 0]),
        ("roll_over", [[0, 2, 2, 3], [4, 5, 7, 7]], [0, 0]),
    ],
)
def test_replaced_images_leave_batches_and_pads_as_they_are(
    broken,
    kind,
    workers,
    handle,
    expected,
    pads,
):
    iterator = kind(4, SHAPE, num_workers=workers, on_error="replace", last_batch_handle=handle, **broken)
    batches = list(iterator)
    assert labels_of(batches) == expected
    assert [batch.pad for batch in batches] == pads
    found = {(error.index, error.replaced_by) for error in iterator.errors}
    assert {(1, 2), (6, 7)} <= found
    assert {index for index, _ in found} <= set(BAD)
    if handle == "roll_over":
        iterator.reset()
        (first, *_) = iterator
        assert labels_of([first]) == [[8, 0, 0, 8]]  # 8 and 9 were kept, 0 and 1 are new
        assert first.pad == 2
    iterator.close()


@with_cases("kind", [ImageIter, Counting])
@with_cases("policy", ["skip", "replace"])
def test_too_many_failed_images_are_an_error(broken, kind, policy):
    iterator = kind(4, SHAPE, on_error=policy, max_errors=1, **broken)
    iterator.next()
    with pytest.raises(mx.MXNetError, match="max_errors=1") as caught:
        iterator.next()
    assert isinstance(caught.value, mx.io.TooManyFailedError)
    assert list(iterator) == []
    assert len(iterator.errors) == 2
    assert len(list(kind(4, SHAPE, on_error=policy, max_errors=8, **broken))) in (2, 3)
    with pytest.raises(mx.io.TooManyFailedError, match=r"max_errors=0\.1"):
        list(kind(4, SHAPE, on_error=policy, max_errors=0.1, **broken))


@with_cases("kind", [ImageIter, Counting])
def test_what_failed_is_reported(broken, kind, tmp_path):
    iterator = kind(10, SHAPE, on_error="replace", **broken)
    iterator.next()
    iterator.close()
    report = json.loads(json.dumps(iterator.error_report()))
    assert report["count"] == 3
    assert report["by_reason"] == {"ImageDecodeError": 2, "FileNotFoundError": 1}
    assert [told["path"] for told in report["errors"]] == [str(tmp_path / f"{n:02}.png") for n in BAD]
    assert [told["replaced_by"] for told in report["errors"]] == [2, 7, 0]
    again = pickle.loads(pickle.dumps(kind(3, SHAPE, on_error="skip", **broken)))
    assert labels_of([again.next()]) == [[0, 2, 3]]
    assert [error.index for error in again.errors] == [1]


def test_refused_images_are_reported_too(photos):
    given = {"imglist": photos.imglist[:8], "path_root": str(photos.folder)}
    for policy, labels in (("raise", [0, 1, 2, 3, 4, 1, 2]), ("replace", [0, 1, 2, 3, 4, 1, 1, 2])):
        iterator = Picky(4, SHAPE, on_error=policy, **given)
        assert sum(labels_of(iterator), [])[: len(labels)] == labels
        (error,) = iterator.errors
        assert error.index == 5
        assert "too plain" in error.reason


class Endless(ImageIter):
    """Iterator with endless images, all of them invalid."""

    def next_sample(self):
        return 1.0, b"no image at all"


@with_cases("policy", ["skip", "replace"])
def test_images_without_end_of_which_all_fail_are_an_error(photos, policy):
    iterator = Endless(2, SHAPE, imglist=photos.imglist, path_root=str(photos.folder), on_error=policy)
    with pytest.raises(SampleError, match="cannot decode"):
        iterator.next()


def test_a_pass_of_which_all_images_fail(photos, tmp_path):
    for name in photos.names[:4]:
        (tmp_path / name).write_bytes(b"never an image")
    for kind in (ImageIter, Counting):
        iterator = kind(
            2, SHAPE, imglist=photos.imglist[:4], path_root=str(tmp_path), on_error="skip", max_errors=10
        )
        assert list(iterator) == []
        assert len(iterator.errors) == 4


def test_what_cannot_be_asked_for(photos):
    with pytest.raises(ValueError, match="on_error must be"):
        make_iter(photos, on_error="ignore")
    with pytest.raises(ValueError, match="max_errors"):
        make_iter(photos, max_errors=1.5)


@with_cases("policy", ["skip", "replace"])
def test_images_without_a_box_fail_alone(photos, policy):
    box = [2, 5, 1.0, 0.1, 0.1, 0.9, 0.9]
    imglist = [[np.float32(box), name] for name in photos.names[:6]]
    imglist[1][0] = np.float32([2, 5, 1.0, 0.5, 0.5, 0.5, 0.5])  # no area
    imglist[3][0] = np.float32([9])  # not a label of boxes
    given = {"imglist": imglist, "path_root": str(photos.folder)}
    with pytest.raises(RuntimeError, match="label"):
        ImageDetIter(3, SHAPE, **given)
    iterator = ImageDetIter(3, SHAPE, on_error=policy, **given)
    batches = list(iterator)
    assert [batch.pad for batch in batches] == ([0, 2] if policy == "skip" else [0, 0])
    assert {error.index for error in iterator.errors} == {1, 3}
    assert all((batch.label[0].asnumpy()[:, 0, 0] == 1).all() for batch in batches)
