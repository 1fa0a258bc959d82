"""Tests of `ImageRecordIter`: epochs, pads, reset, order, files and parts."""

from pathlib import Path

import numpy as np
import pytest

import aioloader.mxnet as mx
from tests.aioloader.mxnet.image_records import make, numbered, one_pass, write
from tests.cases import with_cases

# --- epochs, pads, reset ---


def test_passes_and_pads_are_right_in_every_epoch(ten):
    iterator = make(ten)
    first = ([[100, 101, 102, 103], [104, 105, 106, 107], [108, 109, 100, 101]], [0, 0, 2])
    second = ([[102, 103, 104, 105], [106, 107, 108, 109]], [0, 0])
    for expected in (first, second, first):
        assert one_pass(iterator) == expected
        assert list(iterator) == []
        iterator.reset()


def test_without_rounds_zeros_fill_up(ten):
    iterator = make(ten, round_batch=False)
    for _ in range(2):
        batches = list(iterator)
        assert [batch.pad for batch in batches] == [0, 0, 2]
        assert batches[-1].data[0].shape == (4, 3, 4, 4)
        assert batches[-1].data[0][:, 0, 0, 0].tolist() == [8, 9, 0, 0]
        assert batches[-1].label[0].tolist() == [8, 9, 0, 0]
        assert batches[-1].index.tolist() == [108, 109]
        iterator.reset()


def test_a_reset_before_the_end_always_goes_back(ten):
    iterator = make(ten)
    iterator.reset()  # directly after its construction
    for taken in (1, 2):
        for _ in range(taken):
            iterator.next()
        iterator.reset()
        assert iterator.next().index.tolist() == [100, 101, 102, 103]
        iterator.reset()
    for _ in range(3):
        iterator.next()
    iterator.reset()  # after the last batch, which has borrowed two
    assert iterator.next().index.tolist() == [102, 103, 104, 105]


def test_batches_are_the_caller_s(ten):
    iterator = make(ten)
    kept = [batch.data[0] for batch in iterator]
    copies = [array.copy() for array in kept]
    kept[0][...] = 77
    iterator.reset()
    list(iterator)
    for array, copy in zip(kept[1:], copies[1:], strict=True):
        assert np.array_equal(array, copy)


def test_what_the_batches_look_like(ten):
    iterator = make(ten, data_name="x", label_name="y")
    assert (iterator.provide_data, iterator.provide_label) == ([("x", (4, 3, 4, 4))], [("y", (4,))])
    batch = iterator.next()
    assert isinstance(batch.data[0], mx.nd.NDArray)
    assert (batch.data[0].dtype, batch.label[0].dtype, batch.index.dtype) == (
        np.float32,
        np.float32,
        np.uint64,
    )


# --- order and parts ---


@with_cases("index", [False, True], ids=["no-idx", "idx"])
def test_the_shuffle_is_complete(tmp_path, index):
    path = write(tmp_path / "many.rec", numbered(200), index=index)
    extra = {"path_imgidx": str(tmp_path / "many.idx")} if index else {}
    iterator = make(path, shuffle=True, batch_size=50, seed=3, **extra)
    orders = []
    for _ in range(3):
        orders.append(sum(one_pass(iterator)[0], []))
        iterator.reset()
    assert all(sorted(order) == list(range(200)) for order in orders)
    assert orders[0] != orders[1] != orders[2]
    # Records come from all parts of the file, from the first batch on.
    assert max(orders[0][:50]) > 150 > 50 > min(orders[0][:50])
    again = make(path, shuffle=True, batch_size=50, seed=3, **extra)
    assert sum(one_pass(again)[0], []) == orders[0]
    other = make(path, shuffle=True, batch_size=50, seed=4, **extra)
    assert sum(one_pass(other)[0], []) != orders[0]


def test_the_order_is_that_of_the_file(tmp_path):
    path = write(tmp_path / "a.rec", numbered(6), index=True)
    lines = (tmp_path / "a.idx").read_text().splitlines()
    (tmp_path / "b.idx").write_text("\n".join(lines[::-1]) + "\n")
    assert one_pass(make(path, path_imgidx=str(tmp_path / "b.idx"), batch_size=6))[0] == [[0, 1, 2, 3, 4, 5]]


def test_several_files(tmp_path):
    folder = tmp_path / "parts"
    folder.mkdir()
    paths = [
        write(folder / f"{name}.rec", numbered(3), first_id=10 * number, index=name == "b")
        for number, name in enumerate("abc")
    ]
    expected = [[0, 1, 2, 10, 11, 12, 20, 21, 22]]
    regular = str(folder / r".*\.rec")
    joined = ";".join(paths)
    for given in (joined, f"{joined};", f"file://{joined}", paths, str(folder), f"file://{folder}", regular):
        assert one_pass(make(given, batch_size=9))[0] == expected
    iterator = make(joined, batch_size=9, shuffle=True)
    (order,) = one_pass(iterator)[0]
    assert sorted(order) == expected[0] != order
    with pytest.raises(mx.MXNetError, match="names 1 files, path_imgrec 3"):
        make(paths, path_imgidx=str(folder / "b.idx"))
    (tmp_path / "text").mkdir()
    (tmp_path / "text" / "a.txt").write_text("no record")
    with pytest.raises(mx.MXNetError, match="Cannot find any record files"):
        make(str(tmp_path / "text"))


def test_a_list_of_index_files(tmp_path):
    paths = [
        write(tmp_path / f"{name}.rec", numbered(3), first_id=10 * n, index=True)
        for n, name in enumerate("ab")
    ]
    lines = [Path(path).with_suffix(".idx").read_text().splitlines()[::2] for path in paths]
    others = []
    for name, kept in zip("cd", lines, strict=True):
        (tmp_path / f"{name}.idx").write_text("\n".join(kept) + "\n")
        others.append(tmp_path / f"{name}.idx")
    for given in (others, ";".join(map(str, others))):
        assert one_pass(make(paths, path_imgidx=given, batch_size=4))[0] == [[0, 2, 10, 12]]


def test_a_part_without_records_is_empty(ten):
    iterator = make(ten, num_parts=12, part_index=11)
    assert iterator.provide_data == [("data", (4, 3, 4, 4))]
    assert list(iterator) == []
    iterator.reset()
    assert list(iterator) == []
    with pytest.raises(mx.MXNetError, match="part_index 2 must be below num_parts 2"):
        make(ten, num_parts=2, part_index=2)


def test_parts_have_orders_of_their_own(tmp_path):
    path = write(tmp_path / "many.rec", numbered(200))
    orders = []
    for part in range(2):
        iterator = make(path, batch_size=100, num_parts=2, part_index=part, shuffle=True)
        (order,) = one_pass(iterator)[0]
        assert sorted(order) == list(range(100 * part, 100 * part + 100))
        orders.append([key - 100 * part for key in order])
    # Otherwise the same two records would be in one step every time.
    assert orders[0] != orders[1]


def test_what_is_drawn_for_a_record_depends_on_no_part(tmp_path):
    image = np.random.default_rng(0).integers(0, 256, (40, 40, 3), np.uint8)
    path = write(tmp_path / "same.rec", [image] * 12)
    (whole,) = (np.asarray(batch.data[0]) for batch in make(path, batch_size=12, rand_crop=True))
    halves = [
        np.asarray(make(path, batch_size=6, rand_crop=True, num_parts=2, part_index=part).next().data[0])
        for part in range(2)
    ]
    assert np.array_equal(np.concatenate(halves), whole)
    assert not np.array_equal(*halves)
