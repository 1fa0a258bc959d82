"""Tests of `mx.image.det`: augmenters that transform boxes, and `ImageDetIter` with its label layout."""

import json
import random

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioloader.mxnet as mx
from aioloader.mxnet.image import ImageDetIter
from tests.cases import with_cases

SHAPE = (3, 24, 24)


def _objects(seed):
    """Draw a random label: between one and nine boxes, some at the border."""
    draws = np.random.RandomState(seed)
    count = draws.randint(1, 10)
    low = draws.rand(count, 2) * 0.6
    high = np.minimum(1.0, low + 0.05 + draws.rand(count, 2) / 2)
    classes = draws.randint(0, 20, count)[:, None]
    return [2, 5, *np.hstack((classes, low, high)).ravel().tolist()]


def _list(photos):
    return [[*_objects(number), name] for number, name in enumerate(photos.names)]


def _marked(height, width, box, colour):
    """Draw a black image with one box of one colour, and its label."""
    x0, y0, x1, y1 = box
    image = np.zeros((height, width, 3), np.uint8)
    image[y0:y1, x0:x1] = colour
    label = np.array([[3, x0 / width, y0 / height, x1 / width, y1 / height, 9]], np.float32)
    return image, label


def _box_in(image, colour):
    """Return the box of the pixels of a colour, in shares of the extents."""
    rows, columns = np.nonzero((np.asarray(image) == colour).all(axis=2))
    height, width = image.shape[:2]
    return [
        columns.min() / width,
        rows.min() / height,
        (columns.max() + 1) / width,
        (rows.max() + 1) / height,
    ]


COLOUR = (200, 100, 50)  # none of the fills below
AUGMENTERS = {
    "flip": mx.image.DetHorizontalFlipAug(1.0),
    "crop": mx.image.DetRandomCropAug(0.1, (0.5, 2.0), (0.2, 0.9)),
    "pad": mx.image.DetRandomPadAug((0.5, 2.0), (1.2, 4.0), pad_val=(1, 2, 3)),
    "one of two": mx.image.DetRandomSelectAug(
        [mx.image.DetHorizontalFlipAug(1.0), mx.image.DetRandomPadAug()], 0.3
    ),
    "chain": lambda image, label: mx.image.DetRandomPadAug()(*mx.image.DetRandomCropAug()(image, label)),
}


@pytest.mark.parametrize("augment", AUGMENTERS.values(), ids=AUGMENTERS)
@given(
    seed=st.integers(0, 10_000),
    x=st.integers(0, 40),
    y=st.integers(0, 30),
    width=st.integers(4, 20),
    height=st.integers(4, 20),
)
def test_boxes_stay_on_their_objects(augment, seed, x, y, width, height):
    image, label = _marked(50, 60, (x, y, x + width, y + height), COLOUR)
    before = image.copy(), label.copy()
    random.seed(seed)
    made, boxes = augment(mx.nd.from_numpy(image), label)
    assert np.array_equal(image, before[0])
    assert np.array_equal(label, before[1])
    assert boxes.dtype == np.float32
    assert boxes[:, [0, 5]].tolist() == [[3, 9]]
    assert np.allclose(boxes[0, 1:5], _box_in(made, COLOUR), atol=1e-6)
    assert (boxes[:, 1:5] >= 0).all()
    assert (boxes[:, 1:5] <= 1).all()


@given(seed=st.integers(0, 10_000))
def test_a_crop_keeps_its_promises(seed):
    label = np.array(_objects(seed)[2:], np.float32).reshape(-1, 5)
    image = np.zeros((60, 80, 3), np.uint8)
    image[..., 0], image[..., 1] = np.arange(80), np.arange(60)[:, None]  # every pixel encodes its place
    random.seed(seed)
    made, boxes = mx.image.DetRandomCropAug(0.4, (0.75, 1.33), (0.1, 0.8), 0.5)(image, label)
    if made is image:
        assert boxes is label
        return
    x, y = np.asarray(made)[0, 0, :2].tolist()
    height, width = made.shape[:2]
    crop = np.array([x / 80, y / 60, (x + width) / 80, (y + height) / 60])
    inside = np.clip(label[:, 1:5], crop[[0, 1, 0, 1]], crop[[2, 3, 2, 3]])
    areas = np.prod(label[:, 3:5] - label[:, 1:3], axis=1)
    covered = np.prod(inside[:, 2:] - inside[:, :2], axis=1) / areas
    touched = covered[covered > 1e-5]
    assert len(touched)
    assert touched.min() > 0.4 - 1e-5
    assert 1 <= len(boxes) <= len(label)
    assert len(boxes) == (covered > 0.5).sum()
    assert (boxes[:, 1:5] >= 0).all()
    assert (boxes[:, 1:5] <= 1).all()
    assert (boxes[:, 3:5] > boxes[:, 1:3]).all()


def test_no_crop_that_would_lose_all_objects():
    image, label = _marked(50, 60, (0, 0, 60, 50), COLOUR)
    made, boxes = mx.image.DetRandomCropAug(min_object_covered=0.99, area_range=(0.1, 0.5))(image, label)
    assert made is image
    assert boxes is label


def test_flip_of_several_boxes():
    label = np.array([[0, 0.1, 0.2, 0.5, 0.6], [1, 0.5, 0.5, 1.0, 1.0]], np.float32)
    _, boxes = mx.image.DetHorizontalFlipAug(1.0)(np.zeros((4, 4, 3), np.uint8), label)
    assert np.allclose(boxes, [[0, 0.5, 0.2, 0.9, 0.6], [1, 0.0, 0.5, 0.5, 1.0]])
    image = np.zeros((4, 4, 3), np.uint8)
    assert mx.image.DetHorizontalFlipAug(0.0)(image, label)[1] is label


def test_ranges_that_allow_nothing_are_warned_about_and_skipped():
    image, label = _marked(50, 60, (5, 5, 20, 20), COLOUR)
    makers = [
        lambda: mx.image.DetRandomCropAug(area_range=(2, 1)),
        lambda: mx.image.DetRandomCropAug(aspect_ratio_range=(2, 1)),
        lambda: mx.image.DetRandomPadAug(area_range=(0.5, 0.9)),
        lambda: mx.image.DetRandomPadAug(aspect_ratio_range=(0, 1)),
    ]
    for make in makers:
        with pytest.warns(UserWarning, match=r"Skip DetRandom\w+Aug"):
            augmenter = make()
        assert not augmenter.enabled
        assert augmenter(image, label)[0] is image


def test_dumps():
    assert mx.image.DetHorizontalFlipAug(0.5).dumps() == '["dethorizontalflipaug", {"p": 0.5}]'
    assert mx.image.DetBorrowAug(mx.image.ResizeAug(30)).dumps() == [
        "detborrowaug",
        '["resizeaug", {"size": 30, "interp": 2}]',
    ]
    crop = (
        '["detrandomcropaug", {"min_object_covered": 0.1, "aspect_ratio_range": [0.75, 1.33], '
        '"area_range": [0.05, 1.0], "min_eject_coverage": 0.3, "max_attempts": 50}]'
    )
    pad = (
        '["detrandompadaug", {"aspect_ratio_range": [0.75, 1.33], "area_range": [1.0, 3.0], "max_attempts": 50, '
        '"pad_val": [128, 128, 128]}]'
    )
    chosen = mx.image.DetRandomSelectAug([mx.image.DetRandomCropAug(), mx.image.DetRandomPadAug()])
    assert chosen.dumps() == ["detrandomselectaug", [crop, pad]]


def test_labels_of_whole_numbers_are_shares_too():
    random.seed(0)
    image, label = np.zeros((50, 60, 3), np.uint8), [[7, 0, 0, 1, 1]]
    _, boxes = mx.image.DetRandomPadAug(area_range=(2, 3))(image, label)
    assert boxes.dtype == np.float32
    assert (boxes[0, 3:5] - boxes[0, 1:3] < 1).all()
    _, boxes = mx.image.DetHorizontalFlipAug(1.0)(image, np.array(label))
    assert boxes.tolist() == label


@with_cases(
    "augmenter",
    [mx.image.DetHorizontalFlipAug(1.0), mx.image.DetRandomCropAug(), mx.image.DetRandomPadAug()],
    ids=lambda augmenter: type(augmenter).__name__,
)
@with_cases("label", [[[1, 2]], [0, 0.1, 0.1, 0.5, 0.5]], ids=["narrow", "flat"])
def test_what_is_no_label(augmenter, label):
    with pytest.raises(ValueError, match=rf"{type(augmenter).__name__} takes labels \(n, 5 or more\)"):
        augmenter(np.zeros((50, 60, 3), np.uint8), label)


def test_ranges_may_be_one_number():
    crop = mx.image.DetRandomCropAug(0.2, 1.5, 0.5, 0.4, 7)
    assert (crop.min_object_covered, crop.min_eject_coverage, crop.max_attempts) == (0.2, 0.4, 7)
    assert (crop.aspect_ratio_range, crop.area_range) == ((1.5, 1.5), (0.5, 0.5))
    assert mx.image.DetRandomPadAug(pad_val=9).pad_val == 9
    for area in ((0.1, 0.2, 0.3), None, "all"):
        with pytest.raises(ValueError, match="least, greatest"):
            mx.image.DetRandomCropAug(area_range=area)


def test_wrong_parts_are_refused():
    with pytest.raises(TypeError, match="Borrowing from invalid Augmenter"):
        mx.image.DetBorrowAug(3)
    with pytest.raises(TypeError, match="Borrowing from invalid Augmenter"):
        mx.image.DetBorrowAug(mx.image.DetHorizontalFlipAug(0.5))
    with pytest.raises(ValueError, match="Allow DetAugmenter in list only"):
        mx.image.DetRandomSelectAug([mx.image.CastAug()])
    with pytest.raises(ValueError, match="Allow DetAugmenter in list only"):
        mx.image.DetRandomSelectAug(3)
    image, label = _marked(10, 10, (1, 1, 5, 5), COLOUR)
    assert mx.image.DetRandomSelectAug([])(image, label) == (image, label)


def test_create_multi_rand_crop_augmenter_aligns_its_lists():
    made = mx.image.CreateMultiRandCropAugmenter(
        min_object_covered=[0.1, 0.3, 0.5], area_range=[(0.1, 1), (0.2, 1), (0.3, 1)], skip_prob=0.2
    )
    found = [json.loads(crop.dumps())[1] for crop in made.aug_list]
    assert [crop["min_object_covered"] for crop in found] == [0.1, 0.3, 0.5]
    assert [crop["area_range"] for crop in found] == [[0.1, 1], [0.2, 1], [0.3, 1]]
    assert {tuple(crop["aspect_ratio_range"]) for crop in found} == {(0.75, 1.33)}
    assert made.skip_prob == 0.2
    with pytest.raises(AssertionError, match="one length"):
        mx.image.CreateMultiRandCropAugmenter([0.1, 0.2], area_range=[(0.1, 1)] * 3)


def test_create_det_augmenter_in_mxnet_s_order():
    made = mx.image.CreateDetAugmenter(
        (3, 20, 24), resize=30, rand_crop=0.5, rand_pad=0.5, rand_gray=0.2, rand_mirror=True, mean=True, std=True,
        brightness=0.1, contrast=0.1, saturation=0.1, hue=0.1, pca_noise=0.1,
    )  # fmt: skip
    dumps = [augmenter.dumps() for augmenter in made]
    assert [type(a).__name__ for a in made[:4]] == [
        "DetBorrowAug", "DetRandomSelectAug", "DetHorizontalFlipAug", "DetRandomSelectAug",
    ]  # fmt: skip
    names = [part[1] if isinstance(part[1], str) else part[1][0] for part in dumps[4:]]
    assert [name.split('"')[1] if name.startswith("[") else name for name in names] == [
        "forceresizeaug", "castaug", "colorjitteraug", "huejitteraug", "lightingaug", "randomgrayaug",
        "colornormalizeaug",
    ]  # fmt: skip
    assert json.loads(dumps[1][1][0])[1]["area_range"] == [0.05, 3.0]
    assert json.loads(dumps[3][1][0])[1]["area_range"] == [1.0, 3.0]
    # Figures as MXNet prints them: double precision here, single precision in `CreateAugmenter`.
    assert json.loads(dumps[-1][1])[1] == {"mean": [123.68, 116.28, 103.53], "std": [58.395, 57.12, 57.375]}
    assert (made[1].skip_prob, made[3].skip_prob) == (0.5, 0.5)
    assert mx.image.det.CreateDetAugmenter is mx.image.CreateDetAugmenter


# --- the iterator ---


@with_cases(("source", "workers"), [("imglist", 0), ("lst", 0), ("rec", 0), ("rec", 1)])
def test_labels_of_every_source(photos, tmp_path, source, workers):
    entries = _list(photos)
    given = {"imglist": entries, "path_root": str(photos.folder)}
    if source == "lst":
        lst = tmp_path / "det.lst"
        lst.write_text("".join(f"{n}\t" + "\t".join(map(str, row)) + "\n" for n, row in enumerate(entries)))
        given = {"path_imglist": str(lst), "path_root": str(photos.folder)}
    elif source == "rec":
        rec, idx = str(tmp_path / "det.rec"), str(tmp_path / "det.idx")
        record = mx.recordio.MXIndexedRecordIO(idx, rec, "w")
        for number, row in enumerate(entries):
            encoded = (photos.folder / row[-1]).read_bytes()
            record.write_idx(number, mx.recordio.pack((0, row[:-1], number, 0), encoded))
        record.close()
        given = {"path_imgrec": rec, "path_imgidx": idx}
    iterator = ImageDetIter(4, SHAPE, num_workers=workers, **given)
    most = max((len(row) - 3) // 5 for row in entries)
    assert iterator.label_shape == (most, 5)
    assert iterator.provide_label == [("label", (4, most, 5))]
    batches = list(iterator)
    assert [batch.pad for batch in batches] == [0] * 4
    for number, row in enumerate(entries):
        found = batches[number // 4].label[0].asnumpy()[number % 4]
        objects = np.array(row[2:-1], np.float32).reshape(-1, 5)
        assert np.allclose(found[: len(objects)], objects)
        assert (found[len(objects) :] == -1).all()
        image = mx.image.imresize(photos.images[number], 24, 24, 2)
        assert np.array_equal(batches[number // 4].data[0][number % 4], np.transpose(image, (2, 0, 1)))
    iterator.close()


def test_a_list_next_to_a_record_has_the_labels(photos, tmp_path):
    lst = tmp_path / "boxes.lst"  # the records themselves have one number each
    lst.write_text("".join(f"{key}\t2\t5\t{key}\t0\t0\t1\t1\tunused\n" for key in range(100, 116)))
    iterator = ImageDetIter(4, SHAPE, path_imgrec=photos.rec, path_imgidx=photos.idx, path_imglist=str(lst))
    assert iterator.next().label[0].asnumpy()[:, 0, 0].tolist() == [100, 101, 102, 103]


def test_shuffled_orders_are_mxnet_s(photos):
    keys = [str(number) for number in range(1, 17)]
    random.seed(3)
    for _ in range(3):  # first before all labels are read, and then afterwards
        random.shuffle(keys)
    random.seed(3)
    iterator = ImageDetIter(1, SHAPE, imglist=_list(photos), path_root=str(photos.folder), shuffle=True)
    assert iterator.seq == keys


def test_extra_headers_and_columns(photos):
    entries = [[4, 6, 9, 9, 0, 0.1, 0.1, 0.5, 0.5, 7, "00.png"], [2, 6, 1, 0, 0, 1, 1, 8, "01.png"]]
    iterator = ImageDetIter(2, SHAPE, imglist=entries, path_root=str(photos.folder))
    assert np.allclose(
        iterator.next().label[0], [[[0, 0.1, 0.1, 0.5, 0.5, 7]], [[1, 0, 0, 1, 1, 8]]]
    )  # boxes at the border stay


def test_boxes_without_area_are_dropped(photos):
    label = [2, 5, 0, 0.5, 0.5, 0.5, 0.9, 1, 0.1, 0.1, 0.5, 0.5, 2, 0.5, 0.9, 0.9, 0.1]
    iterator = ImageDetIter(1, SHAPE, imglist=[[*label, "00.png"]], path_root=str(photos.folder))
    assert np.allclose(iterator.next().label[0], [[[1, 0.1, 0.1, 0.5, 0.5]]])


@with_cases(
    ("label", "text"),
    [
        ([2, 5, 0, 0.5, 0.5, 0.1, 0.1], "Encounter sample with no valid label"),
        ([2, 5], "Label shape is invalid"),
        ([1.0], "Label shape is invalid"),
        ([1, 5, 0, 0.1, 0.1, 0.5, 0.5], "header width"),
        ([12, 5, 0, 0.1, 0.1, 0.5, 0.5], "header width"),
        ([2, 4, 0, 0.1, 0.1, 0.5, 0, 0], "object width"),
        ([2, 5, 0, 0.1, 0.1, 0.5, 0.5, 1], "not a multiple"),
        ([float("nan"), 5, 0, 0.1, 0.1, 0.5, 0.5], "header width"),
    ],
    ids=["no area", "empty", "scalar", "header", "long header", "narrow", "rest", "no number"],
)
@with_cases("own_reader", [False, True])
def test_labels_that_are_none(photos, label, text, own_reader):
    kind = Reading if own_reader else ImageDetIter
    good = [2, 5, 0, 0.1, 0.1, 0.5, 0.5, "00.png"]
    with pytest.raises(RuntimeError, match=text) as caught:
        kind(1, SHAPE, imglist=[good, [*label, "01.png"]], path_root=str(photos.folder))
    assert isinstance(caught.value, mx.image.DetectionLabelError)
    assert caught.value.__notes__ == ["image with the key '2'"]


def test_objects_of_several_widths_are_refused(photos):
    entries = [[2, 5, 0, 0.1, 0.1, 0.5, 0.5, "00.png"], [2, 6, 0, 0.1, 0.1, 0.5, 0.5, 1, "01.png"]]
    with pytest.raises(mx.image.DetectionLabelError, match="6 numbers, those of other images 5"):
        ImageDetIter(1, SHAPE, imglist=entries, path_root=str(photos.folder))


def test_shapes_can_grow(photos):
    one = ImageDetIter(2, SHAPE, imglist=_list(photos)[:3], path_root=str(photos.folder))
    other = ImageDetIter(2, SHAPE, imglist=_list(photos)[3:], path_root=str(photos.folder))
    assert one.sync_label_shape(other) is other
    assert one.label_shape == other.label_shape
    assert one.provide_label == other.provide_label
    count = one.label_shape[0]
    one.reshape(data_shape=(3, 30, 20), label_shape=(count + 2, 5))
    batch = one.next()
    assert batch.data[0].shape == (2, 3, 30, 20)
    assert batch.label[0].shape == (2, count + 2, 5)
    assert (one.provide_data, one.provide_label) == (
        [("data", (2, 3, 30, 20))],
        [("label", (2, count + 2, 5))],
    )
    with pytest.raises(ValueError, match="reduce label count"):
        one.reshape(label_shape=(count, 5))
    with pytest.raises(ValueError, match="object width inconsistent"):
        one.reshape(label_shape=(count + 2, 6))
    with pytest.raises(ValueError, match="3 channels"):
        one.reshape(data_shape=(1, 5, 5))
    with pytest.raises(AssertionError, match="invalid iterator"):
        one.sync_label_shape(mx.image.ImageIter(1, SHAPE, imglist=[[1, "00.png"]]))


class Reading(ImageDetIter):
    """Iterator that reads its images itself."""

    def read_image(self, fname):
        return super().read_image(fname)


def test_images_that_were_kept_take_the_new_shape(photos):
    for kind in (ImageDetIter, Reading):
        iterator = kind(
            3, SHAPE, imglist=_list(photos), path_root=str(photos.folder), last_batch_handle="roll_over"
        )
        assert len(list(iterator)) == 5
        count = iterator.label_shape[0]
        iterator.reshape((3, 30, 20), (count + 1, 5))
        iterator.reset()
        batch = iterator.next()
        assert batch.data[0].shape == (3, 3, 30, 20)
        assert batch.label[0].shape == (3, count + 1, 5)
        first = np.array(_objects(15)[3:7], np.float32)
        assert np.allclose(batch.label[0][0, 0, 1:], first)
        assert batch.pad == 2


def test_images_that_lose_all_objects_make_room(photos, caplog):
    class Losing(mx.image.DetAugmenter):
        def __call__(self, src, label):
            return src, label[label[:, 0] < 15]

    chain = [Losing(), mx.image.DetBorrowAug(mx.image.ForceResizeAug((24, 24)))]
    entries = [[2, 5, number, 0.1, 0.1, 0.5, 0.5, f"{number:02}.png"] for number in range(10, 16)]
    (batch, last) = ImageDetIter(3, SHAPE, imglist=entries, path_root=str(photos.folder), aug_list=chain)
    assert batch.label[0].asnumpy()[:, 0, 0].tolist() == [10, 11, 12]
    assert last.label[0].asnumpy()[:, 0, 0].tolist() == [13, 14, 10]
    assert last.pad == 1
    assert "Invalid label occurs" in caplog.text


@with_cases("workers", [0, 1])
def test_mxnet_s_test_of_all_augmenters(photos, workers):
    random.seed(0)
    iterator = ImageDetIter(
        2, (3, 30, 30), imglist=_list(photos), path_root=str(photos.folder), resize=64, rand_crop=1, rand_pad=1,
        rand_gray=0.1, rand_mirror=True, mean=True, std=np.array([1.1, 1.03, 1.05]), brightness=0.1, contrast=0.1,
        saturation=0.1, pca_noise=0.1, hue=0.1, inter_method=10, min_object_covered=0.5, aspect_ratio_range=(0.2, 5),
        area_range=(0.1, 4.0), min_eject_coverage=0.5, max_attempts=50, num_workers=workers,
    )  # fmt: skip
    batches = list(iterator)
    assert len(batches) == 8
    for batch in batches:
        boxes = batch.label[0].asnumpy().reshape(-1, 5)
        boxes = boxes[boxes[:, 0] >= 0]
        assert len(boxes) >= 2
        assert (boxes[:, 1:] >= 0).all()
        assert (boxes[:, 1:] <= 1).all()
        assert (boxes[:, 3:] > boxes[:, 1:3]).all()
    iterator.close()
