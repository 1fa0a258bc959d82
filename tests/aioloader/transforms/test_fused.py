"""A fused chain gives what decoding and transforming one after the other give: pixels, draws and errors."""

import struct
from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np
import pytest
import simplejpeg
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader import transforms
from aioloader._types import Trace
from aioloader.errors import DecodeError
from aioloader.rng import Rng
from aioloader.transforms import (
    IMAGENET_MEAN,
    IMAGENET_STD,
    Cast,
    CenterCrop,
    Compose,
    CropResize,
    Normalize,
    RandomColorJitter,
    RandomCrop,
    RandomFlipLeftRight,
    RandomFlipTopBottom,
    RandomResizedCrop,
    Resize,
    ToTensor,
    Transform,
    decode_image,
)
from aioloader.transforms.fused import ImagePlan
from aioloader.transforms.pictures import PictureReader
from aioloader.transforms.raw import encode_raw
from tests.aioloader.jpeg.samples import encode, picture, segment
from tests.aioloader.transforms.chains import TRANSFORMS

FILES = Path(__file__).parents[2] / "data" / "images"

TENSOR = (ToTensor(), Normalize(IMAGENET_MEAN, IMAGENET_STD))


def exif(orientation, order="<"):
    mark = b"II*\0" if order == "<" else b"MM\0*"
    entry = struct.pack(order + "HHIHH", 0x0112, 3, 1, orientation, 0)
    return segment(0xE1, b"Exif\0\0" + mark + struct.pack(order + "IH", 8, 1) + entry + bytes(4))


def oriented(data, orientation):
    return data[:2] + exif(orientation) + data[2:]


@lru_cache
def images():
    """Images of every kind, by name; most of 61 x 53."""
    rgb = picture(61, 53)
    bgr = np.ascontiguousarray(rgb[..., ::-1])

    def other(suffix, *options, of=bgr):
        return cv2.imencode(suffix, of, list(options))[1].tobytes()

    plain = encode(61, 53)
    found = {
        **{f"jpeg-{kind}": encode(61, 53, kind) for kind in ("444", "422", "440", "420", "411", "grey")},
        **{f"tiled-{kind}": encode(128, 96, kind, restart=2, table=True) for kind in ("444", "420", "grey")},
        "large": encode(200, 150),
        "progressive": other(".jpg", cv2.IMWRITE_JPEG_PROGRESSIVE, 1),
        "extraneous": plain[:-2] + b"\0\0\0" + plain[-2:],
        "no-end": plain[:-2],
        "truncated": plain[: len(plain) // 2],
        "damaged-below": plain[:-90] + b"\xff\xd3" + plain[-88:],
        "cmyk": (FILES / "cmyk.jpg").read_bytes(),
        "png": other(".png"),
        "png-grey": other(".png", of=bgr[..., 0]),
        "raw": encode_raw(rgb),
        "raw-grey": encode_raw(rgb[..., :1]),
        "raw-truncated": encode_raw(rgb)[:-1],
        "one-pixel": encode(1, 1),
        "no-image": b"never",
        "empty": b"",
    }
    found.update({f"exif-{n}": oriented(encode(61, 53, "420"), n) for n in range(1, 9)})
    found.update(
        {f"exif-{n}-tiled": oriented(encode(128, 96, restart=2, table=True), n) for n in range(1, 9)}
    )
    return found


# Files whose damage lies where a crop's decoder may not look.
DAMAGED_BELOW = {"damaged-below"}
SOUND = sorted(images().keys() - DAMAGED_BELOW)


def outcome(run):
    """(True, a copy of the result), or (False, kind and text of the error)."""
    try:
        result = run()
    except Exception as error:
        return False, (type(error), str(error), getattr(error, "__notes__", []))
    return True, np.array(result)


def apart(data, stages, rng, options):
    x = decode_image(data, **options, path="a/file")
    for stage in stages:
        x = stage(x, rng=rng) if isinstance(stage, Transform) else stage(x)
    return x


def check(data, stages, index=0, plan=None, **options):
    """Hold the fused chain against the chain taken apart, without and with a place for the result.

    The row's bytes before are arbitrary, and what is around it must stay.
    """
    plan = plan or make(stages, **options)
    expected_rng = Rng(3, 0, index)
    expected = outcome(lambda: apart(data, stages, expected_rng, options))
    after = expected_rng.random()
    kinds = [None]
    if expected[0]:
        rows = np.full((3, *expected[1].shape), 77, expected[1].dtype)
        kinds += [rows[1], np.zeros((5, 4, 3), np.uint8)]
    for out in kinds:
        rng, trace = Rng(3, 0, index), Trace([0.0] * len(stages))
        found = outcome(lambda out=out, rng=rng, trace=trace: plan(data, "a/file", rng, out, trace))
        assert found[0] == expected[0], (found, expected)
        if not expected[0]:
            assert found == expected
            continue
        assert found[1].dtype == expected[1].dtype
        assert np.array_equal(found[1], expected[1])
        assert rng.random() == after
        assert trace.stage == ("transform:last" if stages else "decode")
        assert trace.decode_s > 0
    if expected[0]:
        assert (rows[0] == 77).all()
        assert (rows[2] == 77).all()


def make(stages, **options):
    names = (
        ["first", "last"][2 - len(stages) :] if len(stages) <= 2 else [*"abcdefgh"[: len(stages) - 1], "last"]
    )
    return ImagePlan(PictureReader(**options), list(zip(names, stages, strict=True)))


def test_every_transform_is_among_the_chains():
    known = {getattr(transforms, name) for name in transforms.__all__}
    kinds = {kind for kind in known if isinstance(kind, type) and issubclass(kind, Transform)}
    assert kinds - {type(transform) for transform in TRANSFORMS.values()} == {Transform}


@pytest.mark.parametrize("first", TRANSFORMS)
def test_every_pair(first):
    for second in TRANSFORMS:
        chain = [TRANSFORMS[first], TRANSFORMS[second]]
        for stages in ([Compose(chain)], chain):
            plan = make(stages)
            for index, name in enumerate(("jpeg-420", "tiled-420", "exif-6", "png")):
                check(images()[name], stages, index, plan)


CHAINS = {
    "nothing": [],
    "empty": [Compose([])],
    "train": [Compose([RandomResizedCrop(32), RandomFlipLeftRight()])],
    "train-float": [Compose([RandomResizedCrop(32), RandomFlipLeftRight(), *TENSOR])],
    "evaluate": [Compose([Resize(36, keep_ratio=True), CenterCrop(32)])],
    "evaluate-float": [Compose([Resize(36, keep_ratio=True), CenterCrop(32), *TENSOR])],
    "evaluate-lanczos": [Compose([Resize(30, interpolation="lanczos"), CenterCrop(12)])],
    "evaluate-cubic-larger": [Compose([Resize(300, interpolation="cubic"), CenterCrop(12)])],
    "evaluate-random": [Resize((40, 31), interpolation="random"), RandomCrop(20, interpolation="random")],
    "resize-random-crop-resized": [
        Compose([Resize(80, True), RandomResizedCrop(16, interpolation="random")])
    ],
    "resize-crop-larger": [Compose([Resize(30), CenterCrop(40)])],
    "resize-padded": [Compose([Resize(30), RandomCrop(30, pad=4)])],
    "flip": [RandomFlipLeftRight()],
    "flips": [Compose([RandomFlipLeftRight(), RandomFlipTopBottom()])],
    "flip-float": [Compose([RandomFlipLeftRight(1.0), *TENSOR])],
    "flip-before": [Compose([RandomFlipLeftRight(), RandomResizedCrop(20), RandomFlipTopBottom()])],
    "crop-only": [Compose([RandomCrop(20), RandomFlipLeftRight()])],
    "crop-only-float": [Compose([CenterCrop((20, 30)), RandomFlipTopBottom(), *TENSOR])],
    "crop-larger": [RandomCrop(200)],
    "padded": [Compose([RandomCrop((61, 53), pad=4), RandomFlipLeftRight()])],
    "auto": [RandomResizedCrop(32, interpolation="auto")],
    "random-interpolation": [RandomResizedCrop(32, interpolation="random")],
    "outside": [CropResize(50, 40, 100, 100, 20)],
    "jitter": [
        Compose([RandomResizedCrop(32), RandomColorJitter(0.4, 0.4, 0.4, 0.1), RandomFlipLeftRight()])
    ],
    "jitter-float": [
        Compose([RandomResizedCrop(32), RandomFlipLeftRight(), RandomColorJitter(0.4, 0.4, 0.4), *TENSOR])
    ],
    "jitter-crop-float": [Compose([RandomCrop(20), RandomColorJitter(0.4, 0.4, 0.4), *TENSOR])],
    "cast-first": [Compose([RandomResizedCrop(32), Cast(), ToTensor(), Normalize(0.5, 0.5)])],
    "cast-last": [Compose([RandomResizedCrop(32), *TENSOR, Cast("float32"), Cast("float16")])],
    "cast-only": [Compose([RandomResizedCrop(32), Cast("float32")])],
    "normalized-twice": [Compose([ToTensor(), Normalize(0.5, 0.5), Normalize((1, 2, 3), 2)])],
    "wrong-channels": [Compose([RandomResizedCrop(32), ToTensor(), Normalize((1, 2), 2)])],
    "tensor-twice": [Compose([ToTensor(), ToTensor()])],
    "two-stages": [RandomResizedCrop(32), Compose([RandomFlipLeftRight(), *TENSOR])],
    "four-stages": [RandomResizedCrop(32), RandomFlipLeftRight(), *TENSOR],
    "foreign-first": [Compose([lambda x: x[::-1], RandomResizedCrop(32), *TENSOR])],
    "foreign-middle": [Compose([RandomResizedCrop(32), lambda x: 255 - x, RandomFlipLeftRight(), *TENSOR])],
    "foreign-last": [Compose([RandomResizedCrop(32), RandomFlipLeftRight(), *TENSOR, lambda x: x * 2])],
    "foreign-only": [lambda x: x[2:, 3:]],
    "foreign-stage": [CenterCrop(20), lambda x: x[:, :7], RandomFlipLeftRight()],
    "foreign-not-an-array": [Compose([CenterCrop(20), lambda x: x.mean(), np.sqrt])],
}


@pytest.mark.parametrize("flag", [1, 0], ids=["colour", "grey"])
@pytest.mark.parametrize("name", SOUND)
def test_every_kind_of_image(name, flag):
    for stages in CHAINS.values():
        plan = make(stages, flag=flag)
        for index in range(4):
            check(images()[name], stages, index, plan, flag=flag)


@pytest.mark.parametrize("name", CHAINS)
def test_a_plan_is_used_again_and_again(name):
    stages = CHAINS[name]
    plan = make(stages)
    for index in range(30):
        kind = ("jpeg-420", "tiled-420", "large", "no-image", "exif-6-tiled", "raw", "jpeg-444", "png")[
            index % 8
        ]
        check(images()[kind], stages, index, plan)


@pytest.mark.parametrize("exif", ["apply", "ignore"])
@pytest.mark.parametrize("orientation", range(1, 9))
def test_crops_are_drawn_in_the_upright_image(orientation, exif):
    for name in ("jpeg-420", "tiled-420", "tiled-grey"):
        data = oriented(images()[name], orientation)
        stages = [Compose([RandomResizedCrop(24), RandomFlipLeftRight()])]
        plan = make(stages, exif=exif)
        for index in range(20):
            check(data, stages, index, plan, exif=exif)


def test_an_orientation_behind_the_frame_header_does_not_count():
    data = images()["jpeg-420"]
    here = data.index(b"\xff\xc4")
    assert here > data.index(b"\xff\xc0")
    odd = data[:here] + exif(6) + data[here:]
    check(odd, [RandomResizedCrop(20)])
    assert decode_image(odd).shape == (53, 61, 3)


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_any_crop_of_any_size(data):
    width, height = data.draw(st.integers(1, 90)), data.draw(st.integers(1, 90))
    kind = data.draw(st.sampled_from(["444", "422", "440", "420", "411", "grey"]))
    restart = data.draw(st.sampled_from([0, 1, 2, 5]))
    encoded = encode(width, height, kind, restart)
    encoded = oriented(encoded, data.draw(st.integers(1, 8)))
    x, y = data.draw(st.integers(0, 90)), data.draw(st.integers(0, 90))
    size = data.draw(st.one_of(st.none(), st.integers(1, 50)))
    crop = CropResize(x, y, data.draw(st.integers(1, 90)), data.draw(st.integers(1, 90)), size)
    check(encoded, [Compose([crop, RandomFlipLeftRight()])], flag=data.draw(st.integers(0, 1)))


@given(data=st.data())
@settings(max_examples=150, deadline=None)
def test_only_what_the_middle_is_resized_from(data):
    width, height = data.draw(st.integers(1, 150)), data.draw(st.integers(1, 150))
    encoded = encode(
        width, height, data.draw(st.sampled_from(["444", "420"])), data.draw(st.sampled_from([0, 1, 3]))
    )
    interpolation = data.draw(st.sampled_from([0, 1, 2, 3, 4, 9, 10]))
    size = data.draw(st.one_of(st.integers(1, 60), st.tuples(st.integers(1, 200), st.integers(1, 200))))
    resize = Resize(size, keep_ratio=True, interpolation=interpolation)
    crop = data.draw(st.sampled_from([CenterCrop, RandomCrop]))(data.draw(st.integers(1, 60)))
    check(encoded, [Compose([resize, crop])])


@pytest.mark.parametrize("limit", [0, 10, 61 * 53 - 1, 61 * 53, None])
@pytest.mark.parametrize("name", ["jpeg-420", "progressive", "png", "raw"])
def test_images_that_are_too_large_are_refused(name, limit):
    check(images()[name], [RandomCrop(20)], max_pixels=limit)


def test_damage_where_the_decoder_looks_is_an_error():
    data = images()["damaged-below"]
    plan = make([CropResize(0, 0, 61, 53)])
    with pytest.raises(DecodeError):
        plan(data, None, Rng(0), None, Trace([0.0]))


class TestForeignCode:
    """What a foreign callable is given may be kept by it for ever."""

    @pytest.mark.parametrize("name", ["jpeg-420", "tiled-420", "raw", "png", "exif-6"])
    @pytest.mark.parametrize(
        "before",
        [
            [],
            [RandomCrop(16)],
            [RandomResizedCrop(16)],
            [RandomFlipLeftRight(1.0)],
            [Resize(20), CenterCrop(16)],
        ],
        ids=["nothing", "crop", "resized-crop", "flip", "evaluate"],
    )
    @pytest.mark.parametrize("own_stage", [False, True])
    def test_kept_images_stay(self, name, before, own_stage):
        kept, copies = [], []

        def keep(x):
            kept.append(x)
            copies.append(x.copy())
            return x

        after = [RandomFlipLeftRight(1.0), *TENSOR]
        parts = [[*before], [keep, *after]] if own_stage else [[*before, keep, *after]]
        plan = make([Compose(part) for part in parts])
        memory = bytearray(images()[name])
        shape = plan(memoryview(memory), None, Rng(3), None, Trace([0.0] * len(parts))).shape
        out = np.empty(shape, np.float32)
        for index in range(8):
            plan(memoryview(memory), None, Rng(3, 0, index), out, Trace([0.0] * len(parts)))
        memory[:] = bytes(len(memory))
        for x, copy in zip(kept, copies, strict=True):
            assert np.array_equal(x, copy)

    def test_a_view_of_borrowed_memory_does_not_get_out_if_foreign_code_follows(self):
        memory = bytearray(images()["raw"])
        for stages in ([], [("crop", RandomCrop(16))]):
            image = ImagePlan(PictureReader(), stages, lend=False)(
                memoryview(memory), None, Rng(3), None, Trace([0.0])
            )
            assert not np.may_share_memory(image, np.frombuffer(memory, np.uint8))


class TestTheRow:
    """The result stands in the row itself, so that nobody has to copy it there."""

    @pytest.mark.parametrize("name", ["jpeg-420", "tiled-420", "large", "exif-6", "progressive", "raw"])
    @pytest.mark.parametrize(
        "chain",
        [
            [RandomResizedCrop(16), RandomFlipLeftRight()],
            [RandomResizedCrop(16), RandomFlipLeftRight(), RandomColorJitter(0.4, 0.4, 0.4)],
            [RandomResizedCrop(16), RandomFlipLeftRight(1.0), *TENSOR],
            [RandomCrop(16), RandomFlipLeftRight(1.0)],
            [RandomCrop(16), *TENSOR],
            [Resize(20), CenterCrop(16), *TENSOR],
            [Resize(20), RandomFlipLeftRight()],
        ],
        ids=lambda chain: "-".join(type(part).__name__ for part in chain),
    )
    def test_holds_the_result(self, chain, name):
        plan = make([Compose(chain)])
        shape, dtype = (made := plan(images()[name], None, Rng(3), None, Trace([0.0]))).shape, made.dtype
        rows = np.zeros((2, *shape), dtype)
        assert plan(images()[name], None, Rng(3), rows[1], Trace([0.0])) is not None
        again = plan(images()[name], None, Rng(3), row := rows[1], Trace([0.0]))
        assert again is row
        assert not rows[0].any()

    @pytest.mark.parametrize("chain", [[], [RandomFlipLeftRight(1.0)]], ids=["nothing", "flip"])
    def test_is_decoded_into(self, chain):
        row = np.zeros((53, 61, 3), np.uint8)
        plan = make([Compose(chain)] if chain else [])
        assert plan(images()["jpeg-420"], None, Rng(0), row, Trace([0.0])) is row

    def test_is_not_touched_where_foreign_code_follows(self):
        row = np.zeros((16, 16, 3), np.uint8)
        stages = [("crop", RandomResizedCrop(16))]
        plan = ImagePlan(PictureReader(), stages, lend=False)
        plan(images()["jpeg-420"], None, Rng(3), row, Trace([0.0]))
        assert not row.any()


class TestStages:
    def test_time_is_told_by_stage(self):
        plan = make([RandomResizedCrop(32), Compose([]), Compose([*TENSOR])])
        trace = Trace([0.0] * 3)
        plan(images()["large"], None, Rng(0), None, trace)
        assert trace.decode_s > 0
        assert trace.transforms[0] > 0
        assert trace.transforms[1] == 0
        assert trace.transforms[2] > 0

    @pytest.mark.parametrize(
        ("stages", "data", "stage"),
        [
            ([RandomResizedCrop(8)], b"never", "decode"),
            ([CropResize(1, 1, 999, 1)], encode(61, 53), "transform:last"),
            ([RandomResizedCrop(8), Normalize((1, 2), 1)], encode(61, 53), "transform:last"),
            ([Normalize((1, 2), 1), RandomResizedCrop(8)], encode(61, 53), "transform:first"),
        ],
    )
    def test_an_error_has_its_stage(self, stages, data, stage):
        trace = Trace([0.0] * len(stages))
        with pytest.raises((DecodeError, ValueError)):
            make(stages)(data, None, Rng(0), None, trace)
        assert trace.stage == stage


class TestScaling:
    """Decoding at a part of the size changes pixels a little, and only where it was asked for."""

    @pytest.mark.parametrize("restart", [0, 4], ids=["plain", "tiled"])
    @pytest.mark.parametrize("orientation", range(1, 9))
    @pytest.mark.parametrize(
        "chain",
        [
            [CropResize(40, 24, 352, 304, 64, "area")],
            [CropResize(40, 24, 352, 304, 30, "area")],
            [Resize((50, 40), interpolation="area")],
            [Resize(128, keep_ratio=True, interpolation="area"), CenterCrop(112)],
        ],
        ids=["crop-4", "crop-8", "resize", "evaluate"],
    )
    def test_it_is_almost_the_same(self, chain, orientation, restart):
        # Soft, because where neighbours have nothing in common a smaller picture is another one; the crops begin and
        # end with blocks, so that they have the same edges at every scale.
        soft = cv2.resize(picture(20, 18, blocks=False), (640, 560), interpolation=cv2.INTER_CUBIC)
        options = [cv2.IMWRITE_JPEG_RST_INTERVAL, restart]
        data = oriented(cv2.imencode(".jpg", soft, options)[1].tobytes(), orientation)
        stages = [Compose(chain)]
        expected = apart(data, stages, Rng(0), {}).astype(int)
        found = make(stages, dct_scaling=True)(data, None, Rng(0), None, Trace([0.0]))
        assert found.shape == expected.shape
        assert not np.array_equal(found, expected)
        assert np.abs(found - expected).mean() < 4
        again = make(stages, dct_scaling=True)(data, None, Rng(0), np.zeros_like(found), Trace([0.0]))
        assert np.array_equal(again, found)

    @pytest.mark.parametrize("name", ["large", "png", "raw", "progressive", "truncated"])
    def test_nothing_changes_where_it_does_not_apply(self, name):
        stages = [Compose([RandomResizedCrop(150), RandomFlipLeftRight()])]
        check(images()[name], stages, plan=make(stages, dct_scaling=True))

    def test_a_crop_that_is_not_resized_is_exact(self):
        stages = [CropResize(3, 4, 50, 40)]
        check(images()["large"], stages, plan=make(stages, dct_scaling=True))


def test_simplejpeg_takes_its_options_in_the_order_in_which_they_are_given():
    data = encode(64, 48)
    by_name = simplejpeg.decode_jpeg(data, "RGB", min_height=24, min_width=32, min_factor=2.0, strict=True)
    buffer = np.empty(24 * 32 * 3, np.uint8)
    simplejpeg.decode_jpeg(data, "RGB", False, False, 24, 32, 2.0, buffer, True)
    assert np.array_equal(buffer.reshape(24, 32, 3), by_name)
