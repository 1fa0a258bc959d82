"""Tests of fused chains: the same pixels, draws and errors as decoding and transforming one after the other."""

from functools import partial

import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader import transforms as t
from aioloader.errors import DecodeError
from aioloader.foundation.types import StageTimer
from aioloader.rng import Rng
from aioloader.transforms.interpolation import CODES
from tests.aioloader.jpeg.samples import encode, exif, oriented
from tests.aioloader.transforms.chains import TRANSFORMS
from tests.aioloader.transforms.fusing import SOUND, TENSOR, check, images, make
from tests.cases import with_cases


def test_every_transform_is_among_the_chains():
    known = {getattr(t, name) for name in t.__all__}
    kinds = {kind for kind in known if isinstance(kind, type) and issubclass(kind, t.Transform)}
    among = list(TRANSFORMS.values())
    among += [part for transform in among if type(transform) is t.Compose for part in transform.transforms]
    # These transform boxes too, or wrap another library: the plan treats them as foreign.
    others = {t.Transform, t.BoxTransform, t.Albumentations}
    # Their results are not one array: test_qwen2vl.py and test_joint.py compare them.
    others |= {t.Qwen2VLImageProcessor, t.JointCompose}
    # Several arrays, and whole batches: test_views.py and test_mixing.py.
    others |= {t.Views, t.MixUp, t.CutMix}
    assert kinds - set(map(type, among)) == others


def check_pairs(first, among):
    """Compare the pairs with a transform, together and in two stages, each pair with one of four images."""
    own = list(TRANSFORMS).index(first)
    for place, second in enumerate(TRANSFORMS):
        index = (place + own) % 4
        image = images()[("jpeg-420", "restarts-420", "exif-6", "png")[index]]
        chain = [TRANSFORMS[first], TRANSFORMS[second]]
        if among(place + own):
            check(image, [t.Compose(chain)], index)
        if among(place + own + 5):
            check(image, chain, index)


@with_cases("first", TRANSFORMS)
def test_some_pairs(first):
    check_pairs(first, lambda number: number % 11 == 0)


@pytest.mark.slow
@with_cases("first", TRANSFORMS)
def test_every_pair(first):
    """Compare each pair once: in one stage, or in two."""
    check_pairs(first, lambda number: number % 2 == 0)


CROP, FLIP = t.RandomResizedCrop(32), t.RandomHorizontalFlip()
CHAINS = {
    "nothing": [],
    "flip-stage": [FLIP],
    "random-interpolation-stages": [t.Resize((31, 40), interpolation="random"), t.RandomCrop(20)],
    "crop-larger": [t.RandomCrop(200, pad_if_needed=True)],
    "crop-refused": [t.RandomCrop(200)],
    "padded-reflected": [t.RandomCrop((53, 61), padding=(9, 4), padding_mode="reflect")],
    "padded-away": [t.RandomCrop(3, padding=100, fill=(1, 2, 3))],
    "train-cubic": [t.RandomResizedCrop((20, 30), interpolation="bicubic")],
    "resize-refused": [t.Resize(20), t.RandomCrop(40)],
    "auto": [t.RandomResizedCrop(32, interpolation="auto")],
    "random-interpolation": [t.RandomResizedCrop(32, interpolation="random")],
    "outside": [t.CropResize(40, 50, 100, 100, 20)],
    "two-stages": [CROP, t.Compose([FLIP, *TENSOR])],
    "four-stages": [CROP, FLIP, *TENSOR],
    "foreign-only": [lambda x: x[2:, 3:]],
    "foreign-stage": [t.CenterCrop(20), lambda x: x[:, :7], FLIP],
}
COMPOSED = {
    "empty": [],
    "train": [CROP, FLIP],
    "train-float": [CROP, FLIP, *TENSOR],
    "evaluate": [t.Resize(36), t.CenterCrop(32)],
    "evaluate-float": [t.Resize(36), t.CenterCrop(32), *TENSOR],
    "evaluate-lanczos": [t.Resize((30, 30), interpolation="lanczos"), t.CenterCrop(12)],
    "evaluate-cubic-larger": [t.Resize((300, 300), interpolation="cubic"), t.CenterCrop(12)],
    "resize-random-crop-resized": [t.Resize(80), t.RandomResizedCrop(16, interpolation="random")],
    "resize-crop-larger": [t.Resize((30, 30)), t.CenterCrop(40)],
    "resize-padded": [t.Resize((30, 30)), t.RandomCrop(30, padding=4)],
    "flips": [FLIP, t.RandomVerticalFlip()],
    "flip-float": [t.RandomHorizontalFlip(1.0), *TENSOR],
    "flip-before": [FLIP, t.RandomResizedCrop(20), t.RandomVerticalFlip()],
    "crop-only": [t.RandomCrop(20), FLIP],
    "crop-only-float": [t.CenterCrop((20, 30)), t.RandomVerticalFlip(), *TENSOR],
    "train-plain": [t.RandomResizedCrop(32, antialias=False), FLIP],
    "evaluate-plain": [t.Resize(36, antialias=False), t.CenterCrop(32)],
    "evaluate-cubic": [t.Resize(20, "bicubic", max_size=22), t.RandomCrop(12)],
    "padded": [t.RandomCrop((53, 61), padding=4), FLIP],
    "jitter": [CROP, t.ColorJitter(0.4, 0.4, 0.4, 0.1), FLIP],
    "jitter-float": [CROP, FLIP, t.ColorJitter(0.4, 0.4, 0.4), *TENSOR],
    "jitter-crop-float": [t.RandomCrop(20), t.ColorJitter(0.4, 0.4, 0.4), *TENSOR],
    "cast-first": [CROP, t.Cast(), t.ToTensor(), t.Normalize(0.5, 0.5)],
    "cast-last": [CROP, *TENSOR, t.Cast("float32"), t.Cast("float16")],
    "cast-only": [CROP, t.Cast("float32")],
    "normalized-twice": [t.ToTensor(), t.Normalize(0.5, 0.5), t.Normalize((1, 2, 3), 2)],
    "wrong-channels": [CROP, t.ToTensor(), t.Normalize((1, 2), 2)],
    "tensor-twice": [t.ToTensor(), t.ToTensor()],
    "foreign-first": [lambda x: x[::-1], CROP, *TENSOR],
    "foreign-middle": [CROP, lambda x: 255 - x, FLIP, *TENSOR],
    "foreign-last": [CROP, FLIP, *TENSOR, lambda x: x * 2],
    "foreign-not-an-array": [t.CenterCrop(20), lambda x: x.mean(), np.sqrt],
}
CHAINS |= {name: [t.Compose(parts)] for name, parts in COMPOSED.items()}


@with_cases(("number", "name"), enumerate(SOUND))
def test_every_kind_of_image(number, name):
    """Every chain has a third of the images."""
    for place, stages in enumerate(CHAINS.values()):
        if (place + number) % 3 == 0:
            check(images()[name], stages, index=(place + number) % 4, flag=place % 2)


@pytest.mark.slow
@with_cases(("number", "name"), enumerate(SOUND))
def test_every_kind_of_image_and_every_chain(number, name):
    for index, stages in enumerate(CHAINS.values()):
        check(images()[name], stages, index % 4, flag=(number + index) % 2)


@with_cases("name", CHAINS)
def test_a_plan_is_used_again_and_again(name):
    stages = CHAINS[name]
    plan = make(stages)
    for index in range(8):
        kind = ("jpeg-420", "restarts-420", "large", "no-image", "exif-6-restarts", "raw", "jpeg-444", "png")[
            index
        ]
        check(images()[kind], stages, index, plan)


@with_cases("exif", ["apply", "ignore"])
@with_cases("orientation", range(1, 9))
def test_crops_are_drawn_in_the_upright_image(orientation, exif):
    for name in ("jpeg-420", "restarts-420", "restarts-grey"):
        data = oriented(images()[name], orientation)
        stages = [t.Compose([t.RandomResizedCrop(24), t.RandomHorizontalFlip()])]
        plan = make(stages, exif=exif)
        for index in range(4):
            check(data, stages, index, plan, exif=exif)


def test_an_orientation_behind_the_frame_header_counts():
    data = images()["jpeg-420"]
    here = data.index(b"\xff\xc4")
    assert here > data.index(b"\xff\xc0")
    odd = data[:here] + exif(6) + data[here:]
    check(odd, [t.RandomResizedCrop(20)])
    assert t.decode_image(odd).shape == (61, 53, 3)


@given(data=st.data())
@settings(max_examples=4 * settings().max_examples // 5)
def test_any_crop_of_any_size(data):
    width, height = data.draw(st.integers(1, 90)), data.draw(st.integers(1, 90))
    kind = data.draw(st.sampled_from(["444", "422", "440", "420", "411", "grey"]))
    restart = data.draw(st.sampled_from([0, 1, 2, 5]))
    encoded = encode(width, height, kind, restart)
    encoded = oriented(encoded, data.draw(st.integers(1, 8)))
    x, y = data.draw(st.integers(0, 90)), data.draw(st.integers(0, 90))
    size = data.draw(st.one_of(st.none(), st.integers(1, 50)))
    crop = t.CropResize(x, y, data.draw(st.integers(1, 90)), data.draw(st.integers(1, 90)), size)
    check(
        encoded,
        [t.Compose([crop, t.RandomHorizontalFlip()])],
        flag=data.draw(st.integers(0, 1)),
    )


@given(data=st.data())
@settings(max_examples=4 * settings().max_examples // 5)
def test_only_what_the_middle_is_resized_from(data):
    width, height = data.draw(st.integers(1, 150)), data.draw(st.integers(1, 150))
    encoded = encode(
        width, height, data.draw(st.sampled_from(["444", "420"])), data.draw(st.sampled_from([0, 1, 3]))
    )
    interpolation = data.draw(st.sampled_from(list(CODES)))
    antialias = interpolation in ("box", "hamming") or data.draw(st.booleans())
    size = data.draw(st.one_of(st.integers(1, 60), st.tuples(st.integers(1, 200), st.integers(1, 200))))
    resize = t.Resize(size, interpolation=interpolation, antialias=antialias)
    crop = data.draw(st.sampled_from([t.CenterCrop, partial(t.RandomCrop, pad_if_needed=True)]))(
        data.draw(st.integers(1, 60))
    )
    check(encoded, [t.Compose([resize, crop])])


@with_cases("limit", [0, 10, 61 * 53 - 1, 61 * 53, None])
@with_cases("name", ["jpeg-420", "progressive", "png", "raw"])
def test_images_that_are_too_large_are_refused(name, limit):
    check(images()[name], [t.RandomCrop(20)], max_pixels=limit)


def test_damage_where_the_decoder_looks_is_an_error():
    data = images()["damaged-below"]
    plan = make([t.CropResize(0, 0, 53, 61)])
    with pytest.raises(DecodeError):
        plan(data, None, Rng(0), None, StageTimer([0.0]))


def test_simplejpeg_takes_its_options_in_the_order_in_which_they_are_given():
    data = encode(64, 48)
    by_name = simplejpeg.decode_jpeg(data, "RGB", min_height=24, min_width=32, min_factor=2.0, strict=True)
    buffer = np.empty(24 * 32 * 3, np.uint8)
    simplejpeg.decode_jpeg(data, "RGB", False, False, 24, 32, 2.0, buffer, True)
    assert np.array_equal(buffer.reshape(24, 32, 3), by_name)
