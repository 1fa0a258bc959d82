"""Tests of `mx.image.ImageIter`: sources, orders, last batches, parts, hooks and errors; with MXNet's tests."""

import random
import tracemalloc

import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.mxnet.image import ImageIter
from aioloader.mxnet.image._encoded_images import open_images
from tests.aioloader.mxnet.image.made import SHAPE, centre_of, labels_of, make_iter
from tests.cases import with_cases

SOURCES = ["imglist", "lst", "rec", "rec+idx"]


@with_cases(("source", "workers"), [*((source, 0) for source in SOURCES), ("lst", 2)])
def test_every_source_gives_every_image_with_its_label(photos, source, workers):
    iterator = make_iter(photos, 4, source, num_workers=workers)
    assert iterator.provide_data == [("data", (4, 3, 24, 24))]
    assert iterator.provide_label == [("softmax_label", (4,))]
    assert iterator.num_image == 16
    for _ in range(2):
        batches = list(iterator)
        assert [batch.pad for batch in batches] == [0] * 4
        assert sum(labels_of(batches), []) == photos.labels
        data = np.concatenate([batch.data[0] for batch in batches])
        assert (data.dtype, data.shape) == (np.float32, (16, 3, 24, 24))
        for number in range(16):
            assert np.array_equal(data[number], centre_of(photos, number))
        assert list(iterator) == []  # until it is reset
        iterator.reset()
    iterator.close()


@with_cases(
    ("source", "dtype"),
    [("imglist", "int32"), ("lst", "float32"), ("rec+idx", "int64"), ("lst", "float64")],
)
def test_last_batches_as_mxnet_s_own_test_has_them(photos, source, dtype):
    discarded = list(make_iter(photos, 3, source, dtype=dtype, last_batch_handle="discard"))
    assert len(discarded) == 5

    padded = list(make_iter(photos, 3, source, dtype=dtype, last_batch_handle="pad"))
    assert len(padded) == 6
    assert [batch.pad for batch in padded] == [0] * 5 + [2]
    assert np.array_equal(padded[0].data[0][:2], padded[5].data[0][1:])
    assert np.array_equal(padded[0].label[0][:2], padded[5].label[0][1:])

    rolled = make_iter(photos, 3, source, dtype=dtype, last_batch_handle="roll_over")
    first = list(rolled)
    assert len(first) == 5
    image = first[0].data[0][0]
    rolled.reset()
    batch = rolled.next()
    assert np.array_equal(batch.data[0][1], image)
    assert batch.pad == 2
    assert len(list(rolled)) == 4
    rolled.reset()
    batch = rolled.next()
    assert np.array_equal(batch.data[0][2], image)
    assert batch.pad == 1
    assert len(list(rolled)) == 5  # six with the one before: no remainder


def test_the_pad_of_rolled_batches_can_be_that_of_rows_that_fill_up(photos):
    iterator = make_iter(photos, 3, last_batch_handle="roll_over", pad_counts_rolled=False)
    pads = []
    for _ in range(3):
        pads += [batch.pad for batch in iterator]
        iterator.reset()
    assert pads == [0] * 16


def test_rolled_images_can_be_dropped(photos):
    iterator = make_iter(photos, 3, last_batch_handle="roll_over")
    list(iterator)
    iterator.hard_reset()
    assert labels_of([iterator.next()]) == [photos.labels[:3]]


def test_fewer_images_than_a_batch(photos):
    (batch,) = make_iter(photos, 20)
    assert batch.pad == 4
    assert batch.label[0].asnumpy().tolist() == photos.labels + photos.labels[:4]
    (batch,) = ImageIter(5, SHAPE, imglist=photos.imglist[:2], path_root=str(photos.folder))
    assert batch.label[0].asnumpy().tolist() == [0, 1, 0, 1, 0]
    assert list(make_iter(photos, 20, last_batch_handle="discard")) == []


@with_cases("source", SOURCES)
def test_shuffling_draws_from_python_s_random(photos, source):
    random.seed(3)
    iterator = make_iter(photos, 4, source, shuffle=True)
    one = labels_of(iterator)
    iterator.reset()
    two = labels_of(iterator)
    assert one != two
    assert sorted(sum(one, [])) == sorted(sum(two, [])) == sorted(photos.labels)
    random.seed(3)
    again = make_iter(photos, 4, source, shuffle=True)
    assert labels_of(again) == one
    # MXNet's order: the list of keys, shuffled once for the first epoch and once more for the second.
    keys = list(range(16))
    random.seed(3)
    random.shuffle(keys)
    assert sum(one, []) == [photos.labels[key] for key in keys]
    random.shuffle(keys)
    assert sum(two, []) == [photos.labels[key] for key in keys]


def _two_passes(photos, seed, workers):
    """Return the images of two epochs with all random augmenters, (2, 16, 3, 24, 24)."""
    random.seed(seed)
    np.random.seed(seed)
    mx.random.seed(seed)
    options = {"rand_crop": True, "rand_mirror": True, "brightness": 0.2, "hue": 0.3, "pca_noise": 0.1}
    iterator = make_iter(photos, 4, "rec+idx", num_workers=workers, **options)
    found = []
    for _ in range(2):
        found.append(np.concatenate([batch.data[0] for batch in iterator]))
        iterator.reset()
    iterator.close()
    return np.array(found)


def test_epochs_differ_and_seeds_agree(photos):
    one = _two_passes(photos, 1, 0)
    assert np.array_equal(one, _two_passes(photos, 1, 0))
    assert not np.array_equal(one[0], one[1])
    assert not np.array_equal(one[0], _two_passes(photos, 2, 0)[0])


def test_the_number_of_workers_does_not_matter(photos):
    one = _two_passes(photos, 4, 1)
    assert np.array_equal(one, _two_passes(photos, 4, 2))
    assert not np.array_equal(one[0], one[1])


def test_what_is_drawn_without_workers_is_mxnet_s(photos):
    random.seed(9)
    (batch,) = make_iter(photos, 16, rand_crop=True)
    random.seed(9)
    for number, row in enumerate(batch.data[0]):
        image = photos.images[number]
        x = random.randint(0, image.shape[1] - 24)
        y = random.randint(0, image.shape[0] - 24)
        assert np.array_equal(row, image[y : y + 24, x : x + 24].transpose(2, 0, 1))


# --- parts ---


@with_cases(("parts", "source"), [(3, "imglist"), (5, "lst"), (3, "rec"), (5, "rec+idx"), (17, "rec")])
def test_parts_share_all_images_out(photos, source, parts):
    iterators = [make_iter(photos, 1, source, num_parts=parts, part_index=part) for part in range(parts)]
    sizes = [iterator.num_image for iterator in iterators]
    assert max(sizes) - min(sizes) <= 1
    labels = [label for iterator in iterators for label in sum(labels_of(iterator), [])]
    assert labels == photos.labels


def test_parts_without_the_remainder_as_in_mxnet(photos):
    part = make_iter(photos, 1, num_parts=5, part_index=4, drop_remainder=True)
    assert part.num_image == 3
    with pytest.raises(ValueError, match="part_index"):
        make_iter(photos, 1, num_parts=2, part_index=2)


# --- labels ---


def test_label_width(photos, tmp_path):
    root = str(photos.folder)
    several = [[[1, 2], "00.png"], [3, 4, "01.png"], [np.array([5.0, 6.0]), "02.png"]]
    (batch,) = ImageIter(3, SHAPE, 2, imglist=several, path_root=root)
    assert batch.label[0].asnumpy().tolist() == [[1, 2], [3, 4], [5, 6]]
    (batch,) = ImageIter(1, SHAPE, 2, imglist=[[7, "00.png"]], path_root=root)
    assert batch.label[0].asnumpy().tolist() == [[7, 7]]  # as in MXNet, one label is used for all
    with pytest.raises(ValueError, match="there are 2 labels, but label_width is 1"):
        ImageIter(1, SHAPE, imglist=[[1, 2, "00.png"]], path_root=root).next()
    with pytest.raises(ValueError, match="there are 2 labels, but label_width is 3"):
        ImageIter(1, SHAPE, 3, imglist=[[1, 2, "00.png"]], path_root=root).next()


def test_a_list_next_to_a_record_replaces_its_labels(photos, tmp_path):
    other = tmp_path / "other.lst"
    other.write_text("".join(f"{key}\t{key * 2}\tunused\n" for key in range(100, 116)))
    iterator = make_iter(photos, 16, "rec+idx", path_imglist=str(other))
    assert labels_of(iterator) == [[float(key * 2) for key in range(100, 116)]]
    other.write_text("100\t1\tunused\n")
    with pytest.raises(KeyError, match="no entry for the record with the key 101"):
        make_iter(photos, 16, "rec+idx", path_imglist=str(other))
    with pytest.warns(UserWarning, match="no effect without path_imgidx"):
        iterator = make_iter(photos, 16, "rec", path_imglist=str(other))
    assert labels_of(iterator) == [photos.labels]


def test_label_dtypes(photos):
    iterator = ImageIter(1, SHAPE, imglist=[[2.7, "00.png"]], path_root=str(photos.folder), dtype="int32")
    assert iterator.next().label[0].asnumpy().tolist() == [2.0]
    with pytest.raises(AssertionError, match="uint8 label not supported"):
        make_iter(photos, dtype="uint8")


# --- arguments ---


def test_what_cannot_be_asked_for(photos):
    for text, options in (
        ("batch_size must be at least 1", {"batch_size": 0}),
        ("expects inputs to have 3 channels", {"data_shape": (1, 24, 24)}),
        ("data_shape should have length 3", {"data_shape": (24, 24)}),
        ("label_width must be at least 1", {"label_width": 0}),
        ("num_workers must be at least 0", {"num_workers": -1}),
        ("last_batch_handle must be one of pad, discard, roll_over", {"last_batch_handle": "keep"}),
    ):
        with pytest.raises(ValueError, match=text):
            ImageIter(**{"batch_size": 1, "data_shape": SHAPE, "imglist": photos.imglist, **options})
    with pytest.raises(AssertionError, match="needs images"):
        ImageIter(1, SHAPE)
    with pytest.raises(TypeError, match="rand_corp"):
        make_iter(photos, rand_corp=True)
    with pytest.raises(mx.MXNetError):
        ImageIter(1, SHAPE, path_imgrec=str(photos.folder / "none.rec"))
    with pytest.raises(FileNotFoundError):
        ImageIter(1, SHAPE, path_imglist=str(photos.folder / "none.lst"))


def test_what_has_no_effect_is_warned_about(photos):
    for kind in (mx.image.ImageIter, mx.image.ImageDetIter):
        entries = [[2, 5, 0, 0.1, 0.1, 0.5, 0.5, "00.png"]]
        with pytest.warns(UserWarning, match="rand_mirror: without effect, because aug_list") as caught:
            kind(1, SHAPE, imglist=entries, path_root=str(photos.folder), aug_list=[], rand_mirror=True)
        assert caught[0].filename == __file__


def test_keys_that_stand_twice_in_a_list_are_warned_about(photos, tmp_path):
    lst = tmp_path / "twice.lst"
    lst.write_text("0\t1\t00.png\n0\t2\t01.png\n1\t3\t02.png\n")
    with pytest.warns(UserWarning, match="1 of 3 entries of the list of labels have the key of a later one"):
        iterator = ImageIter(1, SHAPE, path_imglist=str(lst), path_root=str(photos.folder))
    assert labels_of(iterator) == [[2.0], [3.0]]


def test_paths_lie_under_their_root_unless_there_is_none(photos):
    name = str(photos.folder / "00.png")
    (batch,) = ImageIter(1, SHAPE, imglist=[[1, name]], path_root="")
    assert np.array_equal(batch.data[0][0], centre_of(photos, 0))
    (batch,) = ImageIter(1, SHAPE, imglist=[[1, name]], path_root=str(photos.folder))
    assert batch.label[0].asscalar() == 1
    with pytest.raises(ValueError, match="leads out of path_root"):
        ImageIter(1, SHAPE, imglist=[[1, "../x.png"]], path_root=str(photos.folder))


def test_attributes_that_scripts_use(photos):
    iterator = make_iter(photos, 4, "rec+idx", rand_mirror=True)
    assert iterator.seq == iterator.imgidx == list(range(100, 116))
    assert iterator.imgrec.read_idx(100) is not None
    assert [type(a).__name__ for a in iterator.auglist] == ["CenterCropAug", "HorizontalFlipAug", "CastAug"]
    iterator.next()
    assert iterator.cur == 4
    assert (iterator.batch_size, iterator.data_shape, iterator.last_batch_handle) == (4, SHAPE, "pad")
    listed = make_iter(photos, 4, "lst")
    label, name = listed.imglist[103]
    assert (label.asnumpy().tolist(), name) == ([3.0], "03.png")
    assert make_iter(photos, 4, "rec").seq is None


# --- scripts ---


def test_mxnet_s_test_of_all_augmenters(photos):
    iterator = make_iter(
        photos, 2, resize=40, rand_crop=True, rand_resize=True, rand_mirror=True, mean=True,
        std=np.array([1.1, 1.03, 1.05]), brightness=0.1, contrast=0.1, saturation=0.1, hue=0.1, pca_noise=0.1,
        rand_gray=0.2, inter_method=10, shuffle=True,
    )  # fmt: skip
    for _ in range(3):
        assert iterator.next().data[0].shape == (2, 3, 24, 24)


def test_it_can_be_wrapped(photos):
    assert len(list(mx.io.ResizeIter(make_iter(photos, 4), 6))) == 6
    fetched = mx.io.PrefetchingIter(make_iter(photos, 4))
    assert sum(labels_of(fetched), []) == photos.labels


def test_one_line_of_many_labels_does_not_make_all_as_wide(photos, tmp_path):
    lst = tmp_path / "wide.lst"
    name = photos.names[0]
    lines = [f"{number}\t{number}\t{name}\n" for number in range(1000)]
    lst.write_text("".join(lines) + "1000\t" + "1\t" * 50_000 + f"{name}\n")
    tracemalloc.start()
    dataset = open_images(
        path_imgrec=None,
        path_imgidx=None,
        path_imglist=str(lst),
        imglist=None,
        path_root=str(photos.folder),
        dtype="float32",
    ).dataset
    rows = dataset.extras(np.array([7, 5]))
    _, peak = tracemalloc.get_traced_memory()
    tracemalloc.stop()
    assert peak < 20_000_000  # a table would have 200 million bytes
    assert rows is not None
    assert rows.tolist() == [[1, 7], [1, 5]]
    assert len(dataset.label(1000)) == 50_000


def test_a_link_in_the_folder_does_not_let_a_list_climb_out(photos, tmp_path):
    (tmp_path / "outside" / "inner").mkdir(parents=True)
    (tmp_path / "outside" / "secret.png").write_bytes((photos.folder / photos.names[0]).read_bytes())
    (tmp_path / "root").mkdir()
    (tmp_path / "root" / "link").symlink_to(tmp_path / "outside" / "inner")
    source = open_images(
        path_imgrec=None,
        path_imgidx=None,
        path_imglist=None,
        imglist=[[1, "link/../secret.png"]],
        path_root=str(tmp_path / "root"),
        dtype="float32",
    )
    assert source.dataset.location(0).path == str(tmp_path / "root" / "secret.png")
