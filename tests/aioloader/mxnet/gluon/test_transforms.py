"""Tests of vision.transforms and mx.nd.image: values and shapes of MXNet, and its errors."""

import pickle

import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader import transforms as native
from aioloader.mxnet import gluon, gluon_geometry, nd
from aioloader.mxnet.base import MXNetError
from aioloader.mxnet.gluon.data.vision import transforms
from tests.cases import with_cases


def make_image(dtype="uint8", seed=0):
    return nd.array(np.random.default_rng(seed).uniform(0, 255, (30, 20, 3)), dtype=dtype)


MANY = nd.stack(make_image(), make_image(seed=1))
PLANES = mx.random.uniform(shape=(2, 3, 30, 20))


@with_cases(
    ("transform", "images"),
    [
        (transforms.ToTensor(), MANY),
        (transforms.Normalize((0, 1, 2), (3, 2, 1)), PLANES),
        (transforms.Resize(12), MANY),
        (transforms.CropResize(1, 2, 3, 4), MANY),
        (transforms.Rotate(10.0), PLANES),
    ],
)
def test_batches_of_images_are_transformed_one_by_one(transform, images):
    made = transform(images)
    assert isinstance(made, nd.NDArray)
    for one, image in zip(made, images, strict=True):
        assert np.array_equal(one.asnumpy(), transform(image).asnumpy())


@with_cases(
    ("transform", "native_one"),
    [
        (transforms.Resize((9, 8), True, 2), gluon_geometry.Resize((9, 8), True, 2)),
        (transforms.CenterCrop(9, 2), gluon_geometry.CenterCrop((9, 9), 2)),
        (transforms.CropResize(1, 2, 3, 4, 5, 0), gluon_geometry.CropResize(1, 2, 3, 4, 5, 0)),
        (transforms.RandomCrop(9, 1, 2, 3), gluon_geometry.RandomCrop((9, 9), 1, 2, 3)),
        (transforms.RandomResizedCrop(9, 0.5, (1, 2)), gluon_geometry.RandomResizedCrop((9, 9), 0.5, (1, 2))),
        (transforms.RandomFlipLeftRight(0.3), native.RandomHorizontalFlip(0.3)),
        (transforms.RandomFlipTopBottom(0.3), native.RandomVerticalFlip(0.3)),
        (transforms.RandomBrightness(0.3), native.RandomBrightness(0.3)),
        (transforms.RandomContrast(0.3), native.RandomContrast(0.3)),
        (transforms.RandomSaturation(0.3), native.RandomSaturation(0.3)),
        (transforms.RandomHue(0.3), native.RandomHue(0.3)),
        (transforms.RandomLighting(0.3), native.RandomLighting(0.3)),
        (transforms.RandomGray(0.3), native.RandomGrayscale(0.3)),
        (transforms.Normalize((0, 1, 2), (3, 2, 1)), native.Normalize((0, 1, 2), (3, 2, 1))),
        (transforms.Cast("int32"), native.Cast("int32")),
        (transforms.ToTensor(), native.ToTensor()),
        (transforms.Rotate(10, True), gluon_geometry.Rotate(10, True, False)),
        (
            transforms.RandomRotation((-1, 2), False, True, 0.3),
            gluon_geometry.RandomRotation((-1, 2), False, True, 0.3),
        ),
    ],
)
def test_arguments_are_passed_to_the_native_ones(transform, native_one):
    assert type(transform.native_transform()) is type(native_one)
    assert repr(transform) == repr(native_one)


@with_cases(
    ("transform", "shape", "kind"),
    [
        (transforms.ToTensor(), (5, 5, 30, 30, 3), MXNetError),
        (transforms.Normalize((0, 1, 2), (3, 2, 1)), (5, 5, 3, 30, 30), MXNetError),
        (transforms.Normalize((0, 1, 2), (3, 2, 1)), (5, 4, 30, 30), MXNetError),
        (transforms.Resize(-15, keep_ratio=True), (30, 20, 3), MXNetError),
        (transforms.Resize((10, 10, 10), keep_ratio=True), (30, 20, 3), MXNetError),
        (transforms.CropResize(0, 0, 10, 5, (-25, 25), 1), (30, 20, 3), MXNetError),
        (transforms.CropResize(0, 0, -10, -5), (30, 20, 3), MXNetError),
        (transforms.CropResize(15, 20, 20, 50), (30, 20, 3), MXNetError),
        (transforms.Rotate(10.0), (3, 30, 60), TypeError),
        (transforms.RandomRotation((-10, 10)), (3, 30, 60), TypeError),
    ],
)
def test_what_cannot_be_done_is_refused_when_it_is_applied(transform, shape, kind):
    with pytest.raises(kind):
        transform(nd.zeros(shape, dtype="uint8"))


def test_parts_are_applied_together_or_not_at_all():
    inner = transforms.Compose([transforms.Resize(30), transforms.RandomResizedCrop(24)])
    for chain in (
        transforms.Compose([transforms.RandomApply(inner, 0.5)]),
        transforms.RandomApply([transforms.Resize(30), transforms.CenterCrop(24)], p=0.5),
    ):
        shapes = {chain(nd.ones((10, 10, 3), dtype="uint8")).shape for _ in range(30)}
        assert shapes == {(24, 24, 3), (10, 10, 3)}


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


@with_cases("transform", ONE_OF_EACH[:4], ids=repr)
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


IMAGE = nd.array(np.random.default_rng(1).integers(0, 256, (30, 20, 3)), dtype="uint8")


def test_values():
    data = IMAGE.asnumpy()
    assert np.array_equal(nd.image.flip_left_right(IMAGE).asnumpy(), data[:, ::-1])
    assert np.array_equal(nd.image.flip_top_bottom(IMAGE).asnumpy(), data[::-1])
    assert np.array_equal(nd.image.crop(IMAGE, 2, 3, 10, 5).asnumpy(), data[3:8, 2:12])
    tensor = nd.image.to_tensor(IMAGE)
    assert np.allclose(tensor.asnumpy(), data.transpose(2, 0, 1) / 255)
    assert np.allclose(nd.image.normalize(tensor, 0.5, 2).asnumpy(), (tensor.asnumpy() - 0.5) / 2)
    assert nd.image.resize(IMAGE, (8, 9)).shape == (9, 8, 3)
    for flip in (nd.image.random_flip_left_right, nd.image.random_flip_top_bottom):
        assert np.array_equal(flip(IMAGE, 0.0).asnumpy(), data)
    with pytest.raises(MXNetError):
        nd.image.crop(IMAGE, 0, 0, 100, 5)


class Halves(gluon.HybridBlock):
    def hybrid_forward(self, F, x):
        return F.image.resize(x, (10, 15))


def test_a_block_calls_them_by_name():
    assert Halves()(IMAGE).shape == (15, 10, 3)
