"""Tests of fused chains: the same pixels, draws and errors as decoding and transforming one after the other."""

from functools import partial

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader import transforms
from aioloader.errors import DecodeError
from aioloader.foundation.types import StageTimer
from aioloader.rng import Rng
from aioloader.transforms import (
    Cast,
    CenterCrop,
    ColorJitter,
    Compose,
    CropResize,
    Normalize,
    RandomCrop,
    RandomHorizontalFlip,
    RandomResizedCrop,
    RandomVerticalFlip,
    Resize,
    ToTensor,
    Transform,
    decode_image,
)
from aioloader.transforms.interpolation import CODES
from tests.aioloader.jpeg.samples import encode
from tests.aioloader.transforms.chains import TRANSFORMS
from tests.aioloader.transforms.fusing import SOUND, TENSOR, check, exif, images, make, oriented
from tests.cases import with_cases

OF_FOUR = [0, *(pytest.param(n, marks=pytest.mark.slow) for n in (1, 2, 3))]


def test_every_transform_is_among_the_chains():
    known = {getattr(transforms, name) for name in transforms.__all__}
    kinds = {kind for kind in known if isinstance(kind, type) and issubclass(kind, Transform)}
    among = list(TRANSFORMS.values())
    among += [part for transform in among if type(transform) is Compose for part in transform.transforms]
    # These transform boxes too, or wrap another library: the plan treats them as foreign.
    others = {Transform, transforms.BoxTransform, transforms.Albumentations}
    # Their results are not one array: test_qwen2vl.py and test_joint.py compare them.
    others |= {transforms.Qwen2VLImageProcessor, transforms.JointCompose}
    # Several arrays, and whole batches: test_views.py and test_mixing.py.
    others |= {transforms.Views, transforms.MixUp, transforms.CutMix}
    assert kinds - set(map(type, among)) == others


@pytest.mark.parametrize("half", [0, pytest.param(1, marks=pytest.mark.slow)])
@pytest.mark.parametrize("turn", OF_FOUR)
@with_cases("first", TRANSFORMS)
def test_every_pair(first, turn, half):
    """Every pair has one of four images in each of four turns."""
    own = list(TRANSFORMS).index(first)
    for place, second in enumerate(TRANSFORMS):
        if (place // 4 + own) % 2 == half:
            chain = [TRANSFORMS[first], TRANSFORMS[second]]
            index = (place + own + turn) % 4
            name = ("jpeg-420", "restarts-420", "exif-6", "png")[index]
            for stages in ([Compose(chain)], chain):
                check(images()[name], stages, index)


CHAINS = {
    "nothing": [],
    "empty": [Compose([])],
    "train": [Compose([RandomResizedCrop(32), RandomHorizontalFlip()])],
    "train-float": [Compose([RandomResizedCrop(32), RandomHorizontalFlip(), *TENSOR])],
    "evaluate": [Compose([Resize(36), CenterCrop(32)])],
    "evaluate-float": [Compose([Resize(36), CenterCrop(32), *TENSOR])],
    "evaluate-lanczos": [Compose([Resize((30, 30), interpolation="lanczos"), CenterCrop(12)])],
    "evaluate-cubic-larger": [Compose([Resize((300, 300), interpolation="cubic"), CenterCrop(12)])],
    "evaluate-random": [Resize((31, 40), interpolation="random"), RandomCrop(20)],
    "resize-random-crop-resized": [Compose([Resize(80), RandomResizedCrop(16, interpolation="random")])],
    "resize-crop-larger": [Compose([Resize((30, 30)), CenterCrop(40)])],
    "resize-padded": [Compose([Resize((30, 30)), RandomCrop(30, padding=4)])],
    "flip": [RandomHorizontalFlip()],
    "flips": [Compose([RandomHorizontalFlip(), RandomVerticalFlip()])],
    "flip-float": [Compose([RandomHorizontalFlip(1.0), *TENSOR])],
    "flip-before": [Compose([RandomHorizontalFlip(), RandomResizedCrop(20), RandomVerticalFlip()])],
    "crop-only": [Compose([RandomCrop(20), RandomHorizontalFlip()])],
    "crop-only-float": [Compose([CenterCrop((20, 30)), RandomVerticalFlip(), *TENSOR])],
    "crop-larger": [RandomCrop(200, pad_if_needed=True)],
    "crop-refused": [RandomCrop(200)],
    "padded-reflected": [RandomCrop((53, 61), padding=(9, 4), padding_mode="reflect")],
    "padded-away": [RandomCrop(3, padding=100, fill=(1, 2, 3))],
    "train-plain": [Compose([RandomResizedCrop(32, antialias=False), RandomHorizontalFlip()])],
    "train-cubic": [RandomResizedCrop((20, 30), interpolation="bicubic")],
    "evaluate-plain": [Compose([Resize(36, antialias=False), CenterCrop(32)])],
    "evaluate-cubic": [Compose([Resize(20, "bicubic", max_size=22), RandomCrop(12)])],
    "resize-refused": [Resize(20), RandomCrop(40)],
    "padded": [Compose([RandomCrop((53, 61), padding=4), RandomHorizontalFlip()])],
    "auto": [RandomResizedCrop(32, interpolation="auto")],
    "random-interpolation": [RandomResizedCrop(32, interpolation="random")],
    "outside": [CropResize(40, 50, 100, 100, 20)],
    "jitter": [Compose([RandomResizedCrop(32), ColorJitter(0.4, 0.4, 0.4, 0.1), RandomHorizontalFlip()])],
    "jitter-float": [
        Compose([RandomResizedCrop(32), RandomHorizontalFlip(), ColorJitter(0.4, 0.4, 0.4), *TENSOR])
    ],
    "jitter-crop-float": [Compose([RandomCrop(20), ColorJitter(0.4, 0.4, 0.4), *TENSOR])],
    "cast-first": [Compose([RandomResizedCrop(32), Cast(), ToTensor(), Normalize(0.5, 0.5)])],
    "cast-last": [Compose([RandomResizedCrop(32), *TENSOR, Cast("float32"), Cast("float16")])],
    "cast-only": [Compose([RandomResizedCrop(32), Cast("float32")])],
    "normalized-twice": [Compose([ToTensor(), Normalize(0.5, 0.5), Normalize((1, 2, 3), 2)])],
    "wrong-channels": [Compose([RandomResizedCrop(32), ToTensor(), Normalize((1, 2), 2)])],
    "tensor-twice": [Compose([ToTensor(), ToTensor()])],
    "two-stages": [RandomResizedCrop(32), Compose([RandomHorizontalFlip(), *TENSOR])],
    "four-stages": [RandomResizedCrop(32), RandomHorizontalFlip(), *TENSOR],
    "foreign-first": [Compose([lambda x: x[::-1], RandomResizedCrop(32), *TENSOR])],
    "foreign-middle": [Compose([RandomResizedCrop(32), lambda x: 255 - x, RandomHorizontalFlip(), *TENSOR])],
    "foreign-last": [Compose([RandomResizedCrop(32), RandomHorizontalFlip(), *TENSOR, lambda x: x * 2])],
    "foreign-only": [lambda x: x[2:, 3:]],
    "foreign-stage": [CenterCrop(20), lambda x: x[:, :7], RandomHorizontalFlip()],
    "foreign-not-an-array": [Compose([CenterCrop(20), lambda x: x.mean(), np.sqrt])],
}


@with_cases("flag", [1, 0], ids=["colour", "grey"])
@pytest.mark.parametrize("index", OF_FOUR)
@with_cases("name", SOUND)
def test_every_kind_of_image(name, index, flag):
    for stages in CHAINS.values():
        check(images()[name], stages, index, flag=flag)


@with_cases("name", CHAINS)
def test_a_plan_is_used_again_and_again(name):
    stages = CHAINS[name]
    plan = make(stages)
    for index in range(30):
        kind = ("jpeg-420", "restarts-420", "large", "no-image", "exif-6-restarts", "raw", "jpeg-444", "png")[
            index % 8
        ]
        check(images()[kind], stages, index, plan)


@with_cases("exif", ["apply", "ignore"])
@with_cases("orientation", range(1, 9))
def test_crops_are_drawn_in_the_upright_image(orientation, exif):
    for name in ("jpeg-420", "restarts-420", "restarts-grey"):
        data = oriented(images()[name], orientation)
        stages = [Compose([RandomResizedCrop(24), RandomHorizontalFlip()])]
        plan = make(stages, exif=exif)
        for index in range(20):
            check(data, stages, index, plan, exif=exif)


def test_an_orientation_behind_the_frame_header_counts():
    data = images()["jpeg-420"]
    here = data.index(b"\xff\xc4")
    assert here > data.index(b"\xff\xc0")
    odd = data[:here] + exif(6) + data[here:]
    check(odd, [RandomResizedCrop(20)])
    assert decode_image(odd).shape == (61, 53, 3)


@given(data=st.data())
@settings(max_examples=150)
def test_any_crop_of_any_size(data):
    width, height = data.draw(st.integers(1, 90)), data.draw(st.integers(1, 90))
    kind = data.draw(st.sampled_from(["444", "422", "440", "420", "411", "grey"]))
    restart = data.draw(st.sampled_from([0, 1, 2, 5]))
    encoded = encode(width, height, kind, restart)
    encoded = oriented(encoded, data.draw(st.integers(1, 8)))
    x, y = data.draw(st.integers(0, 90)), data.draw(st.integers(0, 90))
    size = data.draw(st.one_of(st.none(), st.integers(1, 50)))
    crop = CropResize(x, y, data.draw(st.integers(1, 90)), data.draw(st.integers(1, 90)), size)
    check(encoded, [Compose([crop, RandomHorizontalFlip()])], flag=data.draw(st.integers(0, 1)))


@given(data=st.data())
@settings(max_examples=150)
def test_only_what_the_middle_is_resized_from(data):
    width, height = data.draw(st.integers(1, 150)), data.draw(st.integers(1, 150))
    encoded = encode(
        width, height, data.draw(st.sampled_from(["444", "420"])), data.draw(st.sampled_from([0, 1, 3]))
    )
    interpolation = data.draw(st.sampled_from(list(CODES)))
    antialias = interpolation in ("box", "hamming") or data.draw(st.booleans())
    size = data.draw(st.one_of(st.integers(1, 60), st.tuples(st.integers(1, 200), st.integers(1, 200))))
    resize = Resize(size, interpolation=interpolation, antialias=antialias)
    crop = data.draw(st.sampled_from([CenterCrop, partial(RandomCrop, pad_if_needed=True)]))(
        data.draw(st.integers(1, 60))
    )
    check(encoded, [Compose([resize, crop])])


@with_cases("limit", [0, 10, 61 * 53 - 1, 61 * 53, None])
@with_cases("name", ["jpeg-420", "progressive", "png", "raw"])
def test_images_that_are_too_large_are_refused(name, limit):
    check(images()[name], [RandomCrop(20)], max_pixels=limit)


def test_damage_where_the_decoder_looks_is_an_error():
    data = images()["damaged-below"]
    plan = make([CropResize(0, 0, 53, 61)])
    with pytest.raises(DecodeError):
        plan(data, None, Rng(0), None, StageTimer([0.0]))


def test_simplejpeg_takes_its_options_in_the_order_in_which_they_are_given():
    data = encode(64, 48)
    by_name = simplejpeg.decode_jpeg(data, "RGB", min_height=24, min_width=32, min_factor=2.0, strict=True)
    buffer = np.empty(24 * 32 * 3, np.uint8)
    simplejpeg.decode_jpeg(data, "RGB", False, False, 24, 32, 2.0, buffer, True)
    assert np.array_equal(buffer.reshape(24, 32, 3), by_name)
