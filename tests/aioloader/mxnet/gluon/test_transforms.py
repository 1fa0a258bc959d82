"""Tests of vision.transforms: values and shapes of MXNet, and its errors."""

import pickle

import cv2
import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader import transforms as native
from aioloader.mxnet import gluon, nd
from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.gluon.data.vision import transforms
from tests.cases import with_cases


def make_image(height=30, width=20, dtype="uint8", seed=0):
    return nd.array(np.random.default_rng(seed).uniform(0, 255, (height, width, 3)), dtype=dtype)


def test_to_tensor():
    image = make_image()
    made = transforms.ToTensor()(image)
    assert isinstance(made, nd.NDArray)
    assert np.allclose(made.asnumpy(), image.asnumpy().astype("float32").transpose(2, 0, 1) / 255)
    many = nd.stack(image, make_image(seed=1))
    assert np.allclose(
        transforms.ToTensor()(many).asnumpy(), many.asnumpy().astype("float32").transpose(0, 3, 1, 2) / 255
    )
    with pytest.raises(MXNetError):
        transforms.ToTensor()(nd.zeros((5, 5, 30, 30, 3), dtype="uint8"))
    assert (transforms.ToTensor()(nd.zeros((2, 2, 3), dtype="uint8")).asnumpy() == 0).all()
    assert (transforms.ToTensor()(nd.full((2, 2, 3), 255, dtype="uint8")).asnumpy() == 1).all()


def test_normalize():
    mean, std = np.array((0, 1, 2)), np.array((3, 2, 1))
    image = mx.random.uniform(shape=(3, 30, 20))
    made = transforms.Normalize(mean=(0, 1, 2), std=(3, 2, 1))(image)
    assert np.allclose(
        made.asnumpy(), (image.asnumpy() - mean[:, None, None]) / std[:, None, None], atol=1e-6
    )
    many = mx.random.uniform(shape=(2, 3, 30, 20))
    assert np.allclose(
        transforms.Normalize(mean=(0, 1, 2), std=(3, 2, 1))(many).asnumpy(),
        (many.asnumpy() - mean[:, None, None]) / std[:, None, None],
        atol=1e-6,
    )
    assert np.allclose(transforms.Normalize(0.5, 2.0)(image).asnumpy(), (image.asnumpy() - 0.5) / 2)
    for shape in ((5, 5, 3, 30, 30), (5, 4, 30, 30)):
        with pytest.raises(MXNetError):
            transforms.Normalize(mean=(0, 1, 2), std=(3, 2, 1))(nd.zeros(shape))
    # Where MXNet returns uint8.
    assert transforms.Normalize(1, 2)(nd.ones((3, 2, 2), dtype="uint8")).dtype == np.float32


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_resize(dtype):
    image = make_image(dtype=dtype)
    for size, options, extents in (
        (12, {}, (12, 12)),
        ((20, 10), {}, (10, 20)),
        (15, {"keep_ratio": True}, (22, 15)),
        (12, {"interpolation": 2}, (12, 12)),
    ):
        made = transforms.Resize(size, **options)(image)
        code = options.get("interpolation", 1)
        expected = cv2.resize(image.asnumpy(), extents[::-1], interpolation=code)
        assert (made.shape[:2], made.dtype) == (extents, image.dtype)
        assert np.array_equal(made.asnumpy(), expected)
    many = nd.stack(image, make_image(dtype=dtype, seed=1))
    made = transforms.Resize(12)(many)
    assert np.array_equal(made[1].asnumpy(), transforms.Resize(12)(many[1]).asnumpy())
    for transform in (
        transforms.Resize(-15, keep_ratio=True),
        transforms.Resize((10, 10, 10), keep_ratio=True),
    ):
        with pytest.raises(MXNetError):
            transform(image)


@pytest.mark.parametrize("dtype", ["uint8", "float32", "float64"])
def test_crop_resize(dtype):
    small = nd.array(np.arange(60).reshape(5, 4, 3), dtype=dtype)
    made = transforms.CropResize(0, 0, 3, 2)(small).asnumpy()
    assert made.sum() == 180
    assert made[0:2, 1, 1].tolist() == [4, 16]
    many = nd.array(np.arange(180).reshape(2, 6, 5, 3), dtype=dtype)
    made = transforms.CropResize(1, 2, 3, 4)(many).asnumpy()
    assert made.sum() == 7524
    assert made[0:2, 0:4, 1, 1].ravel().tolist() == [37, 52, 67, 82, 127, 142, 157, 172]
    image = make_image(dtype=dtype)
    made = transforms.CropResize(0, 0, 10, 5, (25, 25), 1)(image)
    assert np.array_equal(made.asnumpy(), transforms.Resize(25, interpolation=1)(image[:5, :10]).asnumpy())
    for transform in (
        transforms.CropResize(0, 0, 10, 5, (-25, 25), 1),
        transforms.CropResize(0, 0, -10, -5),
        transforms.CropResize(15, 20, 20, 50),
    ):
        with pytest.raises(MXNetError):
            transform(image)


def test_flips():
    image = make_image()
    assert np.array_equal(transforms.RandomFlipLeftRight(1.0)(image).asnumpy(), image.asnumpy()[:, ::-1])
    assert np.array_equal(transforms.RandomFlipTopBottom(1.0)(image).asnumpy(), image.asnumpy()[::-1])
    assert np.array_equal(transforms.RandomFlipTopBottom(0.0)(image).asnumpy(), image.asnumpy())
    flip = transforms.RandomFlipLeftRight()
    turned = sum(not np.array_equal(flip(image).asnumpy(), image.asnumpy()) for _ in range(200))
    assert 60 < turned < 140


def test_rotate():
    with pytest.raises(TypeError, match="only supports float32"):
        transforms.Rotate(10.0)(nd.ones((3, 30, 60), dtype="uint8"))
    assert transforms.Rotate(10.0)(nd.ones((3, 30, 60))).shape == (3, 30, 60)
    assert transforms.Rotate(10.0)(nd.ones((3, 3, 30, 60))).shape == (3, 3, 30, 60)
    image = nd.array([[[0, 0, 0], [0, 0, 1], [0, 0, 0]]])
    for angle, place in ((90.0, (0, 1)), (180.0, (1, 0)), (270.0, (2, 1)), (360.0, (1, 2))):
        expected = np.zeros((3, 3), np.float32)
        expected[place] = 1
        assert np.allclose(transforms.Rotate(angle)(image)[0].asnumpy(), expected, atol=1e-6)


def test_random_rotation():
    for proba in (1.1, -0.3):
        with pytest.raises(ValueError, match="Probability of rotating the image should be between 0 and 1"):
            transforms.RandomRotation([-10, 10.0], rotate_with_proba=proba)
    with pytest.raises(ValueError, match="`angle_limits` must be an ordered tuple"):
        transforms.RandomRotation([10, -10])
    turn = transforms.RandomRotation([-10, 10.0])
    with pytest.raises(TypeError):
        turn(nd.ones((3, 30, 60), dtype="uint8"))
    image = mx.random.uniform(shape=(3, 30, 60))
    assert turn(image).shape == (3, 30, 60)
    assert not np.array_equal(turn(image).asnumpy(), image.asnumpy())
    still = transforms.RandomRotation([-10, 10.0], rotate_with_proba=0.0)
    assert np.array_equal(still(image).asnumpy(), image.asnumpy())


def test_a_chain_of_everything():
    chain = transforms.Compose(
        [
            transforms.Resize(30),
            transforms.Resize(30, keep_ratio=True),
            transforms.CenterCrop(26),
            transforms.RandomCrop(25, pad=2),
            transforms.RandomResizedCrop(22),
            transforms.RandomFlipLeftRight(),
            transforms.RandomFlipTopBottom(),
            transforms.RandomColorJitter(0.1, 0.1, 0.1, 0.1),
            transforms.RandomBrightness(0.1),
            transforms.RandomContrast(0.1),
            transforms.RandomSaturation(0.1),
            transforms.RandomHue(0.1),
            transforms.RandomLighting(0.1),
            transforms.RandomGray(),
            transforms.RandomApply(transforms.RandomBrightness(0.2)),
            transforms.Cast("uint8"),
            transforms.ToTensor(),
            transforms.RandomRotation([-10.0, 10.0]),
            transforms.Normalize([0, 0, 0], [1, 1, 1]),
        ]
    )
    made = chain(nd.ones((245, 480, 3), dtype="uint8"))
    made.wait_to_read()
    assert (made.shape, made.dtype) == ((3, 22, 22), np.float32)


def test_random_apply():
    inner = transforms.Compose([transforms.Resize(30), transforms.RandomResizedCrop(24)])
    for chain in (
        transforms.Compose([transforms.RandomApply(inner, 0.5)]),
        transforms.RandomApply([transforms.Resize(30), transforms.CenterCrop(24)], p=0.5),
    ):
        image = nd.ones((10, 10, 3), dtype="uint8")
        applied = sum(chain(image).shape[0] == 24 for _ in range(300))
        assert 100 < applied < 200


ONE_OF_EACH = [
    transforms.Cast("float32"),
    transforms.CenterCrop((9, 8)),
    transforms.CropResize(1, 2, 5, 6),
    transforms.RandomCrop(9),
    transforms.RandomResizedCrop(9),
    transforms.RandomBrightness(0.4),
    transforms.RandomContrast(0.4),
    transforms.RandomSaturation(0.4),
    transforms.RandomHue(0.1),
    transforms.RandomColorJitter(0.2, 0.2, 0.2, 0.1),
    transforms.RandomColorJitter(),
    transforms.RandomLighting(0.3),
    transforms.RandomGray(1.0),
    transforms.RandomFlipLeftRight(),
    transforms.RandomFlipTopBottom(),
    transforms.Resize(9),
    transforms.ToTensor(),
    transforms.Compose([transforms.RandomCrop(9), transforms.ToTensor(), transforms.Normalize(0.5, 0.2)]),
    transforms.RandomApply(transforms.RandomHue(0.1)),
]


@with_cases("transform", ONE_OF_EACH, ids=repr)
@with_cases("dtype", ["uint8", "float32"])
def test_they_are_the_native_ones(transform, dtype):
    image = make_image(dtype=dtype)
    before = image.asnumpy()
    twin = transform.native_transform()
    assert native.is_native(twin)
    for seed in range(4):
        mx.random.seed(seed)
        made = transform(image)
        mx.random.seed(seed)
        expected = twin(image.asnumpy())
        assert isinstance(made, nd.NDArray)
        assert made.dtype == expected.dtype
        assert np.array_equal(made.asnumpy(), expected)
        # The image is not altered, nor can it be through the result.
        made[...] = 0
        assert np.array_equal(image.asnumpy(), before)
        mx.random.seed(seed)
        assert np.array_equal(pickle.loads(pickle.dumps(transform))(image).asnumpy(), expected)


@pytest.mark.parametrize("transform", ONE_OF_EACH[:4], ids=repr)
def test_more_arguments_are_passed_on(transform):
    mx.random.seed(1)
    expected = transform(make_image())
    mx.random.seed(1)
    made, label, box = transform(make_image(), 5, "box")
    assert np.array_equal(made.asnumpy(), expected.asnumpy())
    assert (label, box) == (5, "box")


def test_saturation_goes_towards_luma():
    # With MXNet's factor of 0 this pixel becomes 22.8.
    pixel = nd.array([[[100, 50, 200]]])
    grey = transforms.RandomGray(1.0)(pixel).asnumpy().ravel()
    assert np.allclose(grey, 82.05, atol=0.01)
    mx.random.seed(0)
    drawn = [transforms.RandomSaturation(1.0)(pixel).asnumpy().ravel() for _ in range(20)]
    for values in drawn:
        shares = (values - 82.05) / (pixel.asnumpy().ravel() - 82.05)
        assert np.allclose(shares, shares[0], atol=1e-3)


def test_compose_leaves_the_list_alone_and_is_one():
    parts = [transforms.Resize(8), transforms.ToTensor()]
    chain = transforms.Compose(parts)
    assert len(parts) == len(chain) == 2
    assert list(chain) == parts
    chain.add(transforms.Normalize(0.5, 0.5))
    assert chain[2](nd.ones((3, 2, 2))).asnumpy().max() == 1.0
    assert chain(make_image()).asnumpy().min() < 0


def test_hybrid_ones_take_hybrid_blocks_only():
    chain = transforms.HybridCompose([transforms.Resize(8), transforms.ToTensor()])
    assert chain(make_image()).shape == (3, 8, 8)
    assert transforms.HybridRandomApply(transforms.Resize(8), 1.0)(make_image()).shape == (8, 8, 3)
    chain.hybridize()
    with pytest.raises(ValueError, match="is not a HybridBlock, try use `Compose` instead"):
        transforms.HybridCompose([len])
    with pytest.raises(ValueError, match="is not a HybridBlock"):
        transforms.HybridRandomApply(len)


class Doubled(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.concat(x, x, dim=0)


class Brighter(transforms.ToTensor):
    """Custom subclass that behaves differently from its base."""

    def forward(self, x):
        return super().forward(x) + 1


class OwnError(ValueError):
    pass


def refuse(image):
    raise OwnError("mine")


def test_blocks_of_the_callers():
    image = nd.ones((2, 3, 3))
    assert Doubled()(image).shape == (4, 3, 3)
    assert transforms.Compose([Doubled(), transforms.ToTensor()])(image).shape == (3, 4, 3)
    made = transforms.Compose([Brighter()])(image)
    assert np.allclose(made.asnumpy(), 1 + 1 / 255)
    dataset = gluon.data.ArrayDataset(nd.ones((4, 2, 3, 3)), list(range(4))).transform_first(Brighter())
    images, _ = next(iter(gluon.data.DataLoader(dataset, 4)))
    assert np.allclose(images.asnumpy(), 1 + 1 / 255)
    with pytest.raises(OwnError, match="mine"):
        transforms.Compose([refuse])(image)
    with pytest.raises(NotImplementedError, match="defines no forward"):
        gluon.Block()(1)
    with pytest.raises(MXNetError, match="outside aioloader"):
        Doubled().initialize()
