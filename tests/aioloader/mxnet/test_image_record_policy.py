"""Tests of `ImageRecordIter` and similar with failed records: skip, replace, their limit, and correct pads."""

import json

import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.errors import TooManyErrorsError
from tests.aioloader.mxnet.image_records import make, make_det, numbered, write
from tests.cases import with_cases


def damaged(path, count, *bad):
    """Write a record file of `count` images, some of them invalid."""
    images = numbered(count)
    for number in bad:
        images[number] = b"never an image"
    return write(path, images)


def labels_of(batch):
    found = batch.label[0].asnumpy().astype(int).tolist()
    return found


@with_cases("executor", ["inline", "thread", "process"])
def test_replaced_records_leave_batches_and_pads_as_they_are(tmp_path, executor):
    # Batches of four: 0123 4567 89+01. The replacement of 9 is a padding row, and that of 1 is not.
    path = damaged(tmp_path / "bad.rec", 10, 1, 7, 9)
    iterator = make(path, on_error="replace", executor=executor, preprocess_threads=2)
    found = [(labels_of(batch), batch.pad) for batch in iterator]
    assert found == [([0, 2, 2, 3], 0), ([4, 5, 6, 4], 0), ([8, 0, 0, 8], 2)]
    assert [(error.key, error.replaced_by) for error in iterator.errors] == [
        (1, 2),
        (7, 4),
        (9, 10),  # record 0, as a padding row
        (1, 8),
    ]
    iterator.close()


def test_the_pass_behind_a_borrowed_row_has_the_pads_of_a_valid_file(tmp_path):
    sound, bad = (
        make(damaged(tmp_path / name, 7, *broken), batch_size=3, on_error="replace", shuffle=True, seed=5)
        for name, broken in (("sound.rec", ()), ("bad.rec", (0, 3, 6)))
    )
    for _ in range(5):
        pairs = list(zip(sound, bad, strict=True))
        assert [batch.pad for _, batch in pairs] == [batch.pad for batch, _ in pairs]
        for whole, replaced in pairs:
            same = np.asarray(whole.index) == np.asarray(replaced.index)
            assert same.tolist() == [number not in (0, 3, 6) for number in whole.index.tolist()]
        sound.reset()
        bad.reset()


def test_padding_zeros_stay_behind_the_replacements(tmp_path):
    path = damaged(tmp_path / "bad.rec", 6, 5)
    iterator = make(path, on_error="replace", round_batch=False)
    batches = list(iterator)
    assert [batch.pad for batch in batches] == [0, 2]
    assert labels_of(batches[1]) == [4, 4, 0, 0]


def test_left_out_records_are_counted_by_the_pad(tmp_path):
    path = damaged(tmp_path / "bad.rec", 10, 1, 9, 4, 5, 6, 7)
    iterator = make(path, on_error="skip")
    found = [(labels_of(batch), batch.pad) for batch in iterator]
    # The batch without any row left is dropped; the last one has one regular row.
    assert found == [([0, 2, 3, 0], 1), ([8, 0, 0, 0], 3)]
    iterator.reset()  # to the records behind the borrowed one
    assert [(labels_of(batch), batch.pad) for batch in iterator] == [([2, 3, 0, 0], 2), ([8, 0, 0, 0], 3)]
    assert len(iterator.errors) == 12


def test_a_batch_without_a_valid_record_is_filled_from_elsewhere(tmp_path):
    path = damaged(tmp_path / "bad.rec", 8, 4, 5, 6, 7)
    iterator = make(path, on_error="replace")
    first, second = iterator
    assert (labels_of(first), first.pad) == ([0, 1, 2, 3], 0)
    assert len(set(labels_of(second))) == 1
    assert second.pad == 0
    assert {error.replaced_by % 8 for error in iterator.errors} == set(labels_of(second))


def test_too_many_failed_records_are_an_error(tmp_path):
    path = damaged(tmp_path / "bad.rec", 12, 1, 6, 9)
    for policy in ("skip", "replace"):
        iterator = make(path, on_error=policy, max_errors=1)
        assert len(labels_of(iterator.next())) == 4
        with pytest.raises(mx.MXNetError, match="max_errors=1") as caught:
            iterator.next()
        assert isinstance(caught.value, mx.io.TooManyFailedError)
        assert isinstance(caught.value, TooManyErrorsError)
        assert (caught.value.max_errors, caught.value.count) == (1, 2)
        with pytest.raises(StopIteration):
            iterator.next()
        assert len(list(make(path, on_error=policy, max_errors="3"))) == 3
        shares = make(path, on_error=policy, max_errors="0.2")
        with pytest.raises(mx.io.TooManyFailedError, match="3 of 12"):
            list(shares)
        assert len(list(make(path, on_error=policy, max_errors=0.25))) == 3


@with_cases("limit", [-1, 1.5, "nan", "many", True])
def test_limits_that_are_none(tmp_path, limit):
    path = damaged(tmp_path / "a.rec", 4)
    with pytest.raises(mx.MXNetError, match="max_errors"):
        make(path, max_errors=limit)


def test_the_report_is_a_json_object(tmp_path):
    path = damaged(tmp_path / "bad.rec", 4, 2)
    iterator = make(path, on_error="replace")
    list(iterator)
    report = json.loads(json.dumps(iterator.error_report()))
    assert (report["count"], report["by_reason"]) == (1, {"DecodeError": 1})
    (told,) = report["errors"]
    assert (told["key"], told["path"], told["replaced_by"]) == (2, path, 3)
    (tmp_path / "a.csv").write_text("1,2\n3,4\n")
    in_memory = mx.io.CSVIter(data_csv=str(tmp_path / "a.csv"), data_shape=(2,), batch_size=1)
    assert in_memory.error_report()["count"] == 0


def test_a_mean_image_takes_no_record_twice(tmp_path):
    path = damaged(tmp_path / "bad.rec", 4, 1)
    for policy in ("skip", "replace"):
        mean = tmp_path / f"{policy}.nd"
        make(path, on_error=policy, mean_img=str(mean)).close()
        (array,) = mx.nd.load(str(mean)).values()
        np.testing.assert_allclose(np.asarray(array), (0 + 2 + 3) / 3, rtol=1e-6)


def test_boxes_are_replaced_with_their_image(tmp_path):
    label = np.array([2, 5, 7, 0.25, 0.25, 0.75, 0.75], np.float32)
    labels = [label + np.float32([0, 0, number, 0, 0, 0, 0]) for number in range(3)]
    images = numbered(3, 24, 24)
    images[0] = b"never an image"
    path = write(tmp_path / "boxes.rec", images, labels)
    iterator = make_det(path, batch_size=3, on_error="replace")
    (batch,) = iterator
    # After four numbers of the image and two of the header: the class.
    assert batch.label[0].asnumpy()[:, 6].tolist() == [8, 8, 9]
    assert batch.data[0].asnumpy()[:, 0, 0, 0].tolist() == [1, 1, 2]
    assert [error.key for error in iterator.errors] == [0]
