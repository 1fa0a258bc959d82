"""Tests of `ImageRecordIter`: labels of records, and of a list that replaces them."""

import pickle

import pytest

import aioloader.mxnet as mx
from aioloader.errors import SampleError
from aioloader.mxnet.io import MissingLabelError
from aioloader.mxnet.io.image_records import LabelList
from tests.aioloader.mxnet.image_records import make, numbered, write
from tests.cases import with_cases


def test_several_labels(tmp_path):
    path = write(tmp_path / "a.rec", numbered(4), [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]])
    iterator = make(path, label_width=3)
    assert iterator.provide_label == [("softmax_label", (4, 3))]
    assert iterator.next().label[0].tolist() == [[1, 2, 3], [4, 5, 6], [7, 8, 9], [10, 11, 12]]
    with pytest.raises(
        mx.MXNetError, match="provide 3-dimensional label but label_width is set to 1"
    ) as caught:
        make(path)
    assert isinstance(caught.value, SampleError)
    single = write(tmp_path / "b.rec", numbered(4), [[1], [2], [3], [4]])
    assert make(single).next().label[0].tolist() == [1, 2, 3, 4]


def test_scalar_labels_have_a_width_of_one(ten):
    with pytest.raises(mx.MXNetError, match="label_width must be 1 unless an imglist is provided"):
        make(ten, label_width=2)


@with_cases("workers", ["inline", "process"])
def test_records_with_different_numbers_of_labels_are_named(tmp_path, workers):
    path = write(tmp_path / "a.rec", numbered(8), [0.0, 1, 2, 3, 4, [5, 5], 6, 7])
    for width, record in ((1, "id 5 of {} has 2 labels"), (2, "id 0 of {} has 1 label")):
        with pytest.raises(mx.MXNetError, match="label_width") as caught:
            list(make(path, label_width=width, executor=workers))
        (note,) = (note for note in caught.value.__cause__.__notes__ if note.startswith("The record"))
        assert note.startswith(f"The record with {record.format(path)}. ")
        assert "no label_width fits all of them" in note


def test_a_list_replaces_the_labels(ten, tmp_path):
    lst = tmp_path / "new.lst"
    lines = [f"{key}\t{key - 50}\t{key}.5\tsome name.jpg" for key in reversed(range(99, 112))]
    lst.write_text("\n".join(lines) + "\n\n")
    iterator = make(ten, path_imglist=str(lst), label_width=2)
    assert iterator.next().label[0].tolist() == [[k - 50, k + 0.5] for k in (100, 101, 102, 103)]
    with pytest.raises(mx.MXNetError, match=r"new\.lst, line 1 .* has 2 labels, but label_width is 1"):
        make(ten, path_imglist=str(lst))
    lst.write_text("100 7 a.jpg\n101 8 b.jpg\n102 9 c.jpg\n")
    with pytest.raises(mx.MXNetError, match="fail to find imagelabel for id 103") as caught:
        make(ten, path_imglist=str(lst))
    cause = caught.value.__cause__
    assert isinstance(cause, MissingLabelError)
    assert (cause.key, cause.path) == (103, str(lst))
    assert str(pickle.loads(pickle.dumps(cause))) == str(cause)


def test_ids_are_whole_numbers_of_any_size(tmp_path):
    # Beyond 2**53 not every integer is a float.
    first = 2**53
    path = write(tmp_path / "a.rec", numbered(2), first_id=first)
    lst = tmp_path / "a.lst"
    lst.write_text(f"{first + 1}\t6\tb.jpg\n{first}\t5\ta.jpg\n")
    assert make(path, batch_size=2, path_imglist=str(lst)).next().label[0].tolist() == [5, 6]
    low = write(tmp_path / "b.rec", numbered(2))
    lst.write_text("0.0 5 a.jpg\n1.000000 6 b.jpg\n")
    assert make(low, batch_size=2, path_imglist=str(lst)).next().label[0].tolist() == [5, 6]


def test_blanks_around_a_field_do_not_count(tmp_path):
    lst = tmp_path / "blanks.lst"
    lst.write_text(" 7\t\x1f5 \tx.jpg\n")
    assert LabelList(str(lst), 1).find(7).tolist() == [5]


@with_cases("text", ["1\t2\n", "a\t2\tb\n", "1\tb\tc\n", "-1\t2\tc\n", "1.5\t2\tc\n", "nan\t2\tc\n"])
def test_a_list_that_is_none(ten, tmp_path, text):
    lst = tmp_path / "bad.lst"
    lst.write_text(text)
    with pytest.raises(mx.MXNetError, match=r"bad\.lst, line 1"):
        make(ten, path_imglist=str(lst))
    with pytest.raises(mx.MXNetError, match="cannot be opened"):
        make(ten, path_imglist=str(tmp_path / "none.lst"))
