"""Tests of `mx.image`: functions that decode, resize, crop, pad, rotate and normalise, as OpenCV and MXNet do."""

import hashlib
import json
import random
from pathlib import Path

import cv2
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioloader.mxnet as mx
import recordio
from aioloader.mxnet.gluon_geometry import rotate
from aioloader.tools.draw import draw_image
from tests.cases import with_cases

GOLDEN = Path(__file__).parents[3] / "data" / "mxnet"


@pytest.fixture(scope="module")
def image():
    return mx.nd.array(draw_image(1, height=60, width=90), dtype="uint8")


# --- the golden file of encoded images ---


@with_cases(("flag", "name"), [(1, "mx.image.imdecode_rgb"), (0, "mx.image.imdecode_gray")])
def test_golden_images(flag, name):
    records = json.loads((GOLDEN / "manifest.json").read_text())["files"]["images.rec"]["records"]
    seen = 0
    with recordio.RecordReader(GOLDEN / "images.rec") as reader:
        for facts, payload in zip(records, reader, strict=True):
            if name not in facts:
                continue
            seen += 1
            expected = facts[name]
            found = mx.image.imdecode(recordio.unpack(payload)[1], flag=flag)
            assert list(found.shape) == expected["shape"]
            if facts.get("lossless") and flag:
                assert hashlib.sha256(found.tobytes()).hexdigest() == expected["sha256"]
            means = expected["mean_per_channel"] if flag else [expected["mean"]]
            assert np.allclose(np.asarray(found, float).mean(axis=(0, 1)), means, atol=0.5)
    assert seen >= 6


# --- sizes ---


@with_cases(
    ("source", "size", "expected"),
    [
        ((640, 480), (720, 120), (640, 106)),
        ((360, 1000), (480, 500), (360, 375)),
        ((300, 400), (0, 0), (0, 0)),
        ((300, 400), (10, 10), (10, 10)),
    ],
)
def test_scale_down(source, size, expected):
    assert mx.image.scale_down(source, size) == expected


@with_cases(("height", "width"), [(60, 90), (90, 60), (50, 50)])
@with_cases("interp", [0, 1, 2, 3, 4])
def test_resize_short_is_opencv_s(height, width, interp):
    source = draw_image(3, height=height, width=width)
    found = mx.image.resize_short(source, 40, interp)
    size = (40, 40 * height // width) if height > width else (40 * width // height, 40)
    assert np.array_equal(found, cv2.resize(source, size, interpolation=interp))
    assert min(found.shape[:2]) == 40


@with_cases(
    ("interp", "sizes", "expected"),
    [(9, (4, 5, 8, 9), 2), (9, (4, 5, 2, 3), 3), (9, (4, 5, 8, 2), 1), (9, (), 2), (3, (), 3)],
)
def test_interpolation_numbers(interp, sizes, expected):
    assert mx.image._get_interp_method(interp, sizes) == expected


def test_interpolation_10_is_one_of_five():
    random.seed(0)
    assert {mx.image._get_interp_method(10) for _ in range(200)} == {0, 1, 2, 3, 4}
    with pytest.raises(ValueError, match="Unknown interp method 5"):
        mx.image._get_interp_method(5)


# --- crops ---


def test_fixed_crop(image):
    crop = mx.image.fixed_crop(image, 10, 20, 30, 15)
    assert np.array_equal(crop, image[20:35, 10:40])
    assert not np.shares_memory(crop, image)
    assert mx.image.fixed_crop(image, 10, 20, 30, 15, (30, 15)).shape == (15, 30, 3)
    larger = mx.image.fixed_crop(image, 10, 20, 30, 15, (60, 30), 2)
    assert np.array_equal(larger, cv2.resize(np.asarray(image)[20:35, 10:40], (60, 30), interpolation=2))
    with pytest.raises(ValueError, match="does not lie inside an image of width 90 and height 60"):
        mx.image.fixed_crop(image, 70, 0, 30, 10)


def test_center_crop_returns_its_place(image):
    crop, place = mx.image.center_crop(image, (20, 31))
    assert place == (35, 14, 20, 31)
    assert np.array_equal(crop, image[14:45, 35:55])
    crop, place = mx.image.center_crop(image, (200, 100))
    assert (place, crop.shape) == ((0, 7, 90, 45), (100, 200, 3))


def test_random_crops_choose_what_mxnet_chooses(gradient):
    random.seed(7)
    assert mx.image.random_size_crop(gradient, (2, 3), 0.3, (0.75, 1.33), 1)[1] == (2, 0, 3, 4)
    assert mx.image.random_crop(gradient, (2, 3))[1] == (0, 0, 2, 3)
    assert mx.image.center_crop(gradient, (2, 3))[1] == (1, 0, 2, 3)
    crop, (x, y, width, height) = mx.image.random_crop(gradient, (2, 3))
    assert np.array_equal(crop, gradient[y : y + height, x : x + width])
    large, place = mx.image.random_crop(gradient, (20, 10))  # larger than the image
    assert (large.shape, place[2:]) == ((10, 20, 3), (5, 2))


def test_random_size_crop_falls_back_to_the_middle(image):
    crop, place = mx.image.random_size_crop(image, (40, 40), (2.0, 3.0), (1.0, 1.0))
    assert (crop.shape, place) == ((40, 40, 3), (25, 10, 40, 40))
    random.seed(1)
    one = mx.image.random_size_crop(image, (40, 40), min_area=0.3)
    random.seed(1)
    assert mx.image.random_size_crop(image, (40, 40), 0.3)[1] == one[1]
    with pytest.raises(TypeError, match="needs area"):
        mx.image.random_size_crop(image, (40, 40))
    assert mx.image.random_size_crop(image, (4, 4), np.array([0.2, 0.3]))[0].shape == (4, 4, 3)
    for area in ((0.5, 0.2), (0.1, 0.2, 0.3), (0.0, 1.0), "all"):
        with pytest.raises(ValueError, match=r"area must be \(least, greatest\)"):
            mx.image.random_size_crop(image, (40, 40), area)
    with pytest.raises(ValueError, match=r"ratio must be \(least, greatest\)"):
        mx.image.random_size_crop(image, (40, 40), 0.5, (2.0, 1.0))


# --- borders ---

BORDERS = [
    cv2.BORDER_CONSTANT,
    cv2.BORDER_REPLICATE,
    cv2.BORDER_REFLECT,
    cv2.BORDER_WRAP,
    cv2.BORDER_REFLECT_101,
]


@given(
    kind=st.sampled_from(BORDERS),
    sides=st.tuples(*[st.integers(0, 7)] * 4),
    value=st.one_of(st.integers(-20, 300), st.floats(0, 255)),
)
def test_borders_are_opencv_s(kind, sides, value):
    source = draw_image(2, height=8, width=9)
    expected = cv2.copyMakeBorder(source, *sides, kind, value=(value,) * 3)
    assert np.array_equal(mx.image.copyMakeBorder(source, *sides, type=kind, value=value), expected)


def test_values_of_borders(gradient):
    source = gradient.astype(np.uint8)
    found = mx.image.copyMakeBorder(source, 1, 0, 2, 1, values=(1, 2, 3), value=9)
    assert found.shape == (5, 8, 3)
    assert found.dtype == np.uint8
    assert found[0].tolist() == [[1, 2, 3]] * 8
    assert np.array_equal(found[1:, 2:7], source)
    assert mx.image.copyMakeBorder(source, 1, 0, 0, 0, 16, values=[5])[0].tolist() == [[5, 5, 5]] * 5
    with pytest.raises(mx.MXNetError, match="unknown border type 9"):
        mx.image.copyMakeBorder(source, 1, 0, 0, 0, 9)
    with pytest.raises(ValueError, match=r"one per channel \(3\)"):
        mx.image.copyMakeBorder(source, 1, 0, 0, 0, values=(1, 2))
    with pytest.raises(ValueError, match="must be >= 0"):
        mx.image.copyMakeBorder(source, -1, 0, 0, 0)


# --- results and inputs ---


def test_a_result_goes_into_an_array_of_its_shape_only(image):
    out = mx.nd.zeros((30, 20, 3), dtype="uint8")
    assert mx.image.imresize(image, 20, 30, out=out) is out
    assert np.array_equal(out, mx.image.imresize(image, 20, 30))
    with pytest.raises(
        ValueError, match=r"out has the shape \(30, 20, 3\), but the result has \(30, 21, 3\)"
    ):
        mx.image.imresize(image, 21, 30, out=out)
    grey = cv2.imencode(".png", np.zeros((30, 20), np.uint8))[1].tobytes()
    with pytest.raises(ValueError, match="out has the shape"):
        mx.image.imdecode(grey, flag=0, out=out)


# --- normalisation ---


@given(seed=st.integers(0, 1000))
def test_color_normalize_is_arithmetic(seed):
    draws = np.random.RandomState(seed)
    mean, std = draws.rand(3) * 255, draws.rand(3) + 1
    source = draws.rand(7, 9, 3).astype(np.float32) * 255
    before = source.copy()
    found = mx.image.color_normalize(mx.nd.array(source), mx.nd.array(mean), mx.nd.array(std))
    assert np.allclose(found, (source - mean) / std, atol=1e-3)
    assert np.array_equal(source, before)


def test_color_normalize_leaves_parts_out(gradient):
    assert np.allclose(mx.image.color_normalize(gradient, None, [1, 2, 4]), gradient / [1, 2, 4])
    assert np.allclose(mx.image.color_normalize(gradient, 10.0, 2.0), (gradient - 10) / 2)
    same = mx.image.color_normalize(gradient, None)
    assert np.array_equal(same, gradient)
    assert not np.shares_memory(same, gradient)
    whole = mx.image.color_normalize(gradient.astype(np.uint8), [1, 2, 3])
    assert whole.dtype == np.float32
    assert np.array_equal(whole, gradient - np.float32([1, 2, 3]))


# --- rotation ---


def _plane():
    """Return a tilted plane, which is still a plane after a rotation: float32 (1, 30, 60)."""
    rows, columns = np.linspace(0, 0.5, 30)[:, None], np.linspace(0, 0.5, 60)[None]
    return mx.nd.array((rows + columns)[None])


@with_cases("options", [{}, {"zoom_in": True}, {"zoom_out": True}])
def test_every_image_is_rotated_by_its_angle(options):
    batch = mx.nd.stack(_plane(), _plane(), _plane())
    for angles in ([6.0, 0.0, -6.0], [6.0] * 3):
        given_angles = mx.nd.array(angles) if len(set(angles)) > 1 else 6
        for made, angle in zip(mx.image.imrotate(batch, given_angles, **options), angles, strict=True):
            expected = rotate(np.asarray(_plane()), angle, **options)
            assert np.array_equal(made, expected)
            assert np.array_equal(mx.image.imrotate(_plane(), angle, **options), expected)


def test_random_angles_are_drawn_by_numpy():
    for images, count in ((_plane(), None), (mx.nd.stack(_plane(), _plane()), 2)):
        np.random.seed(4)
        angles = np.random.uniform(-20, 35, count)
        np.random.seed(4)
        made = mx.image.random_rotate(images, (-20, 35), zoom_in=True)
        assert np.array_equal(made, mx.image.imrotate(images, angles, zoom_in=True))


@with_cases(
    ("arguments", "error"),
    [
        ((_plane(), 6, True, True), ValueError),
        ((_plane(), [6, 0, 6]), TypeError),
        ((_plane(), mx.nd.array([6.0, 0.0, 6.0])), TypeError),
        ((mx.nd.stack(_plane(), _plane()), mx.nd.array([6.0])), ValueError),
        ((_plane().astype("float64"), 6), TypeError),
        ((_plane().astype("uint8"), 6), TypeError),
        ((_plane()[0], 6), ValueError),
    ],
    ids=["zooms", "list", "array", "count", "float64", "uint8", "axes"],
)
def test_imrotate_refuses(arguments, error):
    with pytest.raises(error):
        mx.image.imrotate(*arguments)


# --- Exif ---


def test_orientation_is_applied_unless_it_is_to_be_ignored():
    import simplejpeg

    from tests.conftest import with_orientation

    image = draw_image(4, height=20, width=30)
    data = with_orientation(simplejpeg.encode_jpeg(image, quality=95), 6)
    assert mx.image.imdecode(data).shape == (30, 20, 3)
    assert mx.image.imdecode(data, exif="ignore").shape == (20, 30, 3)


@pytest.fixture(scope="module")
def png():
    done, data = cv2.imencode(".png", draw_image(1, height=60, width=90)[..., ::-1])
    assert done
    return data.tobytes()


@with_cases(
    "kind",
    [
        bytes,
        bytearray,
        memoryview,
        lambda b: np.frombuffer(b, np.uint8),
        lambda b: mx.nd.array(list(b), dtype="uint8"),
    ],
)
def test_imdecode_takes_bytes_and_arrays(png, kind):
    image = mx.image.imdecode(kind(png))
    assert isinstance(image, mx.nd.NDArray)
    assert np.array_equal(image, draw_image(1, height=60, width=90))


def test_imdecode_flags(png):
    colour = cv2.imdecode(np.frombuffer(png, np.uint8), 1)
    assert np.array_equal(mx.image.imdecode(png, to_rgb=False), colour)
    grey = mx.image.imdecode(png, flag=0)
    assert grey.shape == (60, 90, 1)
    assert np.abs(grey[..., 0].astype(int) - cv2.imdecode(np.frombuffer(png, np.uint8), 0)).max() <= 1
    out = mx.nd.zeros((60, 90, 3), dtype="uint8")
    assert mx.image.imdecode(png, out=out) is out
    assert np.array_equal(out[..., ::-1], colour)


def test_imread_is_imdecode_of_the_file(png, tmp_path):
    path = tmp_path / "a.png"
    path.write_bytes(png)
    assert np.array_equal(mx.img.imread(str(path)), mx.image.imdecode(png))
    path.write_bytes(png[:100])
    with pytest.raises(mx.MXNetError) as caught:
        mx.image.imread(path)
    assert caught.value.__notes__ == [f"file: {path}"]


def test_what_is_no_image(png, tmp_path):
    with pytest.raises(ValueError, match="mode 'rb'"):
        mx.image.imdecode("text")
    with pytest.raises(TypeError, match="bytes-like or a uint8 array, got int"):
        mx.image.imdecode(5)
    with pytest.raises(mx.MXNetError, match="Input cannot be an empty buffer"):
        mx.image.imdecode(b"")
    with pytest.raises(mx.MXNetError) as caught:
        mx.image.imdecode(b"clearly not image content")
    assert isinstance(caught.value, mx.image.ImageDecodeError)
    with pytest.raises(mx.MXNetError, match="couldn't open file"):
        mx.image.imread(str(tmp_path / "none.png"))


@with_cases("interp", [0, 1, 2, 3, 4])
@with_cases("size", [(45, 30), (100, 70), (90, 60)])
def test_imresize_is_opencv_s(png, interp, size):
    image = mx.image.imdecode(png)
    resized = mx.image.imresize(image, *size, interp=interp)
    assert np.array_equal(resized, cv2.resize(image.asnumpy(), size, interpolation=interp))
    assert not np.shares_memory(resized, image)
