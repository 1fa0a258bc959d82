"""Images of every kind, and comparisons of a fused chain with separate decoding and transforms."""

from functools import lru_cache
from pathlib import Path

import cv2
import numpy as np

from aioloader.foundation.types import StageTimer
from aioloader.rng import Rng
from aioloader.transforms import IMAGENET_MEAN, IMAGENET_STD, Normalize, ToTensor, Transform, decode_image
from aioloader.transforms.fused import ImagePlan
from aioloader.transforms.lazy_image import LazyImageReader
from aioloader.transforms.raw import encode_raw
from tests.aioloader.jpeg.samples import encode, make_image, oriented

FILES = Path(__file__).parents[2] / "data" / "images"

TENSOR = (ToTensor(), Normalize(IMAGENET_MEAN, IMAGENET_STD))


@lru_cache
def images():
    """Return images of every kind, by name; most of 61 x 53."""
    rgb = make_image(61, 53)
    bgr = np.ascontiguousarray(rgb[..., ::-1])

    def other(suffix, *options, of=bgr):
        return cv2.imencode(suffix, of, list(options))[1].tobytes()

    plain = encode(61, 53)
    found = {
        **{f"jpeg-{kind}": encode(61, 53, kind) for kind in ("444", "422", "440", "420", "411", "grey")},
        **{f"restarts-{kind}": encode(128, 96, kind, restart=2) for kind in ("444", "420", "grey")},
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
    found.update({f"exif-{n}-restarts": oriented(encode(128, 96, restart=2), n) for n in range(1, 9)})
    return found


# Files whose damage is outside of the part that a crop's decoder may read.
DAMAGED_BELOW = {"damaged-below"}
SOUND = sorted(images().keys() - DAMAGED_BELOW)


def outcome(run):
    """Return (True, a copy of the result), or (False, kind and text of the error)."""
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
    """Compare the fused chain with the separate steps, without and with a row for the result.

    The row's earlier bytes are arbitrary, and the bytes around it must stay unchanged.
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
        rng, trace = Rng(3, 0, index), StageTimer([0.0] * len(stages))
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
    return ImagePlan(LazyImageReader(**options), list(zip(names, stages, strict=True)))
