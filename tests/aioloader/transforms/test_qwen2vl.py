"""Tests of Qwen2-VL's image processor: equal to the published one and to a plain reference, fused and not."""

from __future__ import annotations

import io
import json
import pickle
import sys
import tracemalloc
from functools import lru_cache
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import aioloader
from aioloader import transforms
from aioloader.abc import DecodingProcessor, SizedProcessor
from aioloader.errors import AspectRatioError, DecodeError, MissingPackageError
from aioloader.foundation.types import StageTimer
from aioloader.jpeg.frame import count_components
from aioloader.rng import Rng
from aioloader.transforms import Compose, Qwen2VLImageProcessor, RandomHorizontalFlip, decode_image, is_native
from aioloader.transforms.formats import read_header
from aioloader.transforms.fused import ImagePlan
from aioloader.transforms.lazy_image import LazyImageReader
from aioloader.transforms.pillow import decode_by_pillow
from aioloader.transforms.qwen2vl import smart_resize
from tests.aioloader.foundation.test_patches import plain_patches
from tests.aioloader.jpeg.samples import encode, make_image, oriented
from tests.aioloader.transforms.fusing import apart, images, make
from tests.cases import with_cases

pytest.importorskip("PIL", reason="Qwen2VLImageProcessor needs Pillow")

from PIL import Image, ImageOps
from PIL import __version__ as PIL_VERSION

from tests.aioloader.transforms import qwen2vl_images

FILES = Path(__file__).parents[2] / "data" / "images"
MEAN = np.array([0.48145466, 0.4578275, 0.40821073], np.float32)
STD = np.array([0.26862954, 0.26130258, 0.27577711], np.float32)
SMALL = Qwen2VLImageProcessor(min_pixels=28 * 28, max_pixels=16 * 28 * 28)


@lru_cache
def all_cases() -> dict[str, Any]:
    return {name: rest for name, *rest in qwen2vl_images.cases()}


@lru_cache
def published() -> Any:
    """Return the function that makes the published processor from its options."""
    transformers = pytest.importorskip("transformers", reason="compares with transformers' processor")
    if not hasattr(transformers, "Qwen2VLImageProcessorPil"):
        pytest.skip("this release of transformers has no Qwen2VLImageProcessorPil")
    if tuple(map(int, transformers.__version__.split(".")[:2])) < (5, 21):
        pytest.skip("the processor of transformers before 5.21 drops alpha instead of composing with white")
    return qwen2vl_images.published


def same(found: dict[str, Any], expected: dict[str, Any]) -> None:
    assert list(found) == ["pixel_values", "image_grid_thw"]
    for name, array in found.items():
        other = np.asarray(expected[name])
        assert (array.dtype, array.shape) == (other.dtype, other.shape)
        assert np.array_equal(array, other)


def plain(pixels: np.ndarray[Any, Any], processor: Qwen2VLImageProcessor = SMALL) -> dict[str, Any]:
    """Return the result for RGB pixels, made step by step, with every step on the whole image."""
    height, width = processor.spec(*pixels.shape[:2]).size
    resized = np.array(Image.fromarray(pixels).resize((width, height), Image.Resampling.BICUBIC))
    values = (resized.astype(np.float64) * (1 / 255)).astype(np.float32)
    patch, merge, temporal = processor.patch_size, processor.merge_size, processor.temporal_patch_size
    return {
        "pixel_values": plain_patches((values - MEAN) / STD, patch, merge, temporal),
        "image_grid_thw": np.array([[1, height // patch, width // patch]]),
    }


# -- the published processor -----------------------------------------------------------------------------------------


@pytest.mark.skipif(
    int(PIL_VERSION.partition(".")[0]) < 13,
    reason="made with Pillow 13, whose filter rounds otherwise",
)
def test_results_are_those_that_the_published_processor_made() -> None:
    expected = json.loads(qwen2vl_images.EXPECTED.read_text(encoding="utf-8"))
    found = {
        name: qwen2vl_images.summary(
            Qwen2VLImageProcessor(**options, exif="apply" if turned else "ignore")(image)
        )
        for name, (image, options, turned) in all_cases().items()
    }
    assert found == expected


RARE_MODES = ("I;16", "I", "F", "YCbCr", "HSV", "PA")


def rare(mode: str) -> Image.Image:
    if mode == "I;16":
        return Image.fromarray(np.random.default_rng(3).integers(0, 300, (61, 53)).astype(np.uint16))
    of = {"PA": "P", "YCbCr": "RGB", "HSV": "RGB"}.get(mode, "L")
    return qwen2vl_images.make_image(of, 61, 53).convert(mode)


@pytest.mark.slow  # transformers imports torch
def test_results_are_those_of_the_published_processor() -> None:
    for image, options, turned in all_cases().values():
        found = Qwen2VLImageProcessor(**options, exif="apply" if turned else "ignore")(image)
        same(found, published()(options)([ImageOps.exif_transpose(image) if turned else image]))
    processor = Qwen2VLImageProcessor()
    pixels = np.random.default_rng(4).integers(0, 256, (45, 67, 4), np.uint8)
    for image in (*map(rare, RARE_MODES), pixels, pixels[:, :, :3], pixels[:, :, :1], pixels[:, :, 0]):
        same(
            processor(image),
            published()({})([np.atleast_3d(image) if isinstance(image, np.ndarray) else image]),
        )
    for data in encoded().values():
        same(processor(decoded(data, processor)), published()({})([Image.open(io.BytesIO(data))]))


@with_cases("mode", RARE_MODES)
def test_rare_modes_are_converted_by_pillow(mode: str) -> None:
    image = rare(mode)
    assert image.mode == mode
    same(SMALL(image), plain(np.array(image.convert("RGB"))))


@lru_cache
def encoded() -> dict[str, bytes]:
    """Return encoded images of many kinds, by name."""
    found = {path.name: path.read_bytes() for path in sorted(FILES.iterdir()) if path.suffix != ".md"}
    for mode in qwen2vl_images.MODES:
        image = qwen2vl_images.make_image(mode, 48, 61)
        for suffix in ("PNG", "WEBP", "TIFF", "GIF", "JPEG", "PPM", "BMP"):
            if (mode, suffix) == ("P-transparent", "GIF"):
                continue  # of such palettes Pillow warns
            exif = image.getexif()
            exif[0x0112] = 6
            more = {"exif": exif} if suffix in ("PNG", "WEBP", "JPEG", "TIFF") else {}
            if suffix == "WEBP":
                more["lossless"] = True
            try:
                buffer = io.BytesIO()
                image.save(buffer, suffix, **more)
            except (OSError, ValueError):
                continue  # the format has no such mode
            found[f"{mode}.{suffix.lower()}"] = buffer.getvalue()
    grey = np.random.default_rng(3).integers(0, 65536, (48, 61)).astype(np.uint16)
    for suffix in ("PNG", "TIFF"):
        buffer = io.BytesIO()
        Image.fromarray(grey).save(buffer, suffix)
        found[f"16-bits.{suffix.lower()}"] = buffer.getvalue()
    colour = Image.fromarray(make_image(130, 90))
    for subsampling in range(3):
        for progressive in (False, True):
            buffer = io.BytesIO()
            colour.save(buffer, "JPEG", quality=85, subsampling=subsampling, progressive=progressive)
            found[f"{subsampling}-{progressive}.jpeg"] = buffer.getvalue()
    return found


def decoded_by_pillow(data: bytes, processor: Qwen2VLImageProcessor) -> np.ndarray[Any, Any]:
    """Return the pixels that Pillow and the published rules of conversion make of an encoded image."""
    with Image.open(io.BytesIO(data)) as image:
        if processor.exif == "apply":
            image = ImageOps.exif_transpose(image)
        if "A" in image.getbands() or image.info.get("transparency") is not None:
            image = image.convert("RGBA")
            if processor.alpha == "white":
                image = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image)
        return np.array(image.convert("RGB"))


def decoded(data: bytes, processor: Qwen2VLImageProcessor) -> np.ndarray[Any, Any]:
    pixels = processor.decode(data)
    return decode_image(data, exif=processor.exif) if pixels is None else pixels


@pytest.mark.parametrize("exif", ["ignore", "apply"])
@pytest.mark.parametrize("alpha", ["white", "drop"])
def test_decoded_pixels_are_those_of_pillow(exif: str, alpha: str) -> None:
    processor = Qwen2VLImageProcessor(exif=exif, alpha=alpha)
    for name, data in encoded().items():
        found = decoded(data, processor)
        assert (found.dtype, found.ndim) == (np.uint8, 3), name
        assert np.array_equal(found, decoded_by_pillow(data, processor)), name


def test_only_what_differs_is_decoded_by_pillow() -> None:
    own = {name for name, data in encoded().items() if SMALL.decode(data) is None}
    assert own == {name for name in encoded() if name.endswith((".jpeg", ".jpg"))} - {
        "CMYK.jpeg",
        "cmyk.jpg",
        "cmyk-no-adobe.jpg",
        "ycck.jpg",
    }
    assert SMALL.decode(transforms.encode_raw(make_image(8, 9))) is None
    assert SMALL.decode(bytearray(encode(8, 9))) is None


@pytest.mark.torch
def test_the_filter_in_floats_is_that_of_torch() -> None:
    torch = pytest.importorskip("torch")
    processor = Qwen2VLImageProcessor(resample="torchvision")
    rng = np.random.default_rng(5)
    for height, width in ((300, 401), (37, 53), (1000, 700), (480, 640), (56, 56)):
        pixels = rng.integers(0, 256, (height, width, 3)).astype(np.uint8)
        size = processor.spec(height, width).size
        tensor = torch.from_numpy(pixels).permute(2, 0, 1)[None].float()
        resized = torch.nn.functional.interpolate(tensor, size, mode="bicubic", antialias=True)
        levels = resized.clamp(0, 255).round()[0]
        mean, std = (torch.from_numpy(values)[:, None, None] * 255.0 for values in (MEAN, STD))
        made = ((levels - mean) / std).permute(1, 2, 0).numpy()
        expected = plain_patches(made, 14, 2, 2)
        found = processor(pixels)["pixel_values"]
        assert (found != expected).mean() < 0.005
        assert np.abs(found - expected).max() < 1.01 / 255 / STD.min()


def test_the_two_filters_differ() -> None:
    pixels = np.random.default_rng(6).integers(0, 256, (70, 90, 3), np.uint8)
    floats = Qwen2VLImageProcessor(resample="torchvision")
    made = Qwen2VLImageProcessor()(pixels)["pixel_values"]
    assert 0 < np.abs(floats(pixels)["pixel_values"] - made).mean() < 0.3


# -- sizes -----------------------------------------------------------------------------------------------------------

extents = st.one_of(st.integers(1, 60), st.integers(1, 20_000))


@given(
    height=extents,
    width=extents,
    patch=st.sampled_from([1, 14, 16]),
    merge=st.integers(1, 4),
    tokens=st.tuples(st.integers(1, 300), st.integers(0, 3000)),
)
@example(height=9, width=9, patch=14, merge=1, tokens=(289, 0))
def test_sizes_are_multiples_within_the_limits(
    height: int, width: int, patch: int, merge: int, tokens: tuple[int, int]
) -> None:
    side = patch * merge
    least, most = tokens[0] * side**2, sum(tokens) * side**2
    processor = Qwen2VLImageProcessor(least, most, patch, merge)
    if max(height, width) > 200 * min(height, width):
        with pytest.raises(AspectRatioError):
            processor.spec(height, width)
        return
    spec = processor.spec(height, width)
    tall, wide = spec.size
    assert tall % side == wide % side == 0
    assert tall >= side <= wide
    if tall > side < wide and tall * wide > most:
        # Only where a small image is enlarged to the least number of pixels, rounded up; as a float 238 may be a little
        # more, and is rounded up too.
        assert (tall - side) * (wide - side) <= least
    assert spec.grid_thw == (1, tall // patch, wide // patch)
    assert spec.shape == (tall * wide // patch**2, 6 * patch**2)
    assert spec.num_tokens * side**2 == tall * wide
    assert spec.nbytes == 4 * spec.shape[0] * spec.shape[1]
    assert spec.dtype == np.float32


@pytest.mark.slow
@given(height=extents, width=extents, factor=st.sampled_from([14, 28, 32, 56]), seed=st.integers(0, 9))
def test_sizes_are_those_of_the_published_rule(height: int, width: int, factor: int, seed: int) -> None:
    published()
    from transformers.models.qwen2_vl import image_processing_pil_qwen2_vl as module

    least = factor**2 * (1 + seed * 7)
    most = least * (1 + seed * 30)

    def outcome(rule: Any) -> Any:
        try:
            return rule(height, width, factor=factor, min_pixels=least, max_pixels=most)
        except ValueError:
            return "refused"

    assert outcome(smart_resize) == outcome(module.smart_resize)


@with_cases(
    ("extent", "size"),
    [((1536, 2170), (840, 1176)), ((1, 1), (56, 56)), ((1, 200), (28, 812)), ((28_000, 140), (14_140, 56))],
)
def test_sizes_of_some_images(extent: tuple[int, int], size: tuple[int, int]) -> None:
    assert Qwen2VLImageProcessor().spec(*extent).size == size


def test_images_that_are_too_long_are_refused() -> None:
    with pytest.raises(AspectRatioError, match="200") as caught:
        SMALL(np.zeros((2, 401, 3), np.uint8))
    error = pickle.loads(pickle.dumps(caught.value))
    assert (error.height, error.width, error.limit) == (2, 401, 200)
    assert isinstance(error, ValueError)
    SMALL(np.zeros((2, 400, 3), np.uint8))


@with_cases("extent", [(0, 5), (5, 0), (-1, 5)])
def test_there_is_at_least_one_pixel(extent: tuple[int, int]) -> None:
    with pytest.raises(ValueError, match="at least one pixel"):
        SMALL.spec(*extent)
    if min(extent) == 0:
        with pytest.raises(ValueError, match="at least one pixel"):
            SMALL(np.zeros((*extent, 3), np.uint8))


# -- values ----------------------------------------------------------------------------------------------------------


@given(
    height=st.integers(1, 90),
    width=st.integers(1, 90),
    patch=st.integers(1, 9),
    merge=st.integers(1, 3),
    temporal=st.integers(1, 3),
    seed=st.integers(0, 2**32 - 1),
)
def test_values_are_those_of_every_step_on_the_whole_image(
    height: int, width: int, patch: int, merge: int, temporal: int, seed: int
) -> None:
    side = (patch * merge) ** 2
    processor = Qwen2VLImageProcessor(side, 12 * side, patch, merge, temporal)
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width, 3), np.uint8)
    same(processor(pixels), plain(pixels, processor))


@given(height=st.integers(1, 60), width=st.integers(1, 60), seed=st.integers(0, 2**32 - 1))
def test_grey_and_opaque_images_are_processed_as_colour(height: int, width: int, seed: int) -> None:
    pixels = np.random.default_rng(seed).integers(0, 256, (height, width), np.uint8)
    colour = np.repeat(pixels[:, :, None], 3, axis=2)
    expected = plain(colour)
    for resample in ("pil", "torchvision"):
        processor = Qwen2VLImageProcessor(28**2, 16 * 28**2, resample=resample)
        expected = plain(colour) if resample == "pil" else processor(colour)
        opaque = np.dstack([colour, np.full_like(pixels, 255)])
        for image in (pixels, pixels[:, :, None], opaque):
            same(processor(image), expected)


def test_alpha_is_composed_with_white_or_dropped() -> None:
    image = qwen2vl_images.make_image("RGBA", 50, 60)
    colour = np.array(image)[:, :, :3]
    drop = Qwen2VLImageProcessor(28**2, 16 * 28**2, alpha="drop")
    same(drop(image), plain(colour))
    same(drop(np.array(image)), plain(colour))
    white = Image.alpha_composite(Image.new("RGBA", image.size, "white"), image).convert("RGB")
    same(SMALL(image), plain(np.array(white)))
    clear = np.zeros((50, 60, 4), np.uint8)
    same(SMALL(clear), plain(np.full((50, 60, 3), 255, np.uint8)))


# -- the contract of transforms --------------------------------------------------------------------------------------

PIXELS = make_image(61, 53)


def test_out_is_used_if_it_fits() -> None:
    expected = SMALL(PIXELS)
    rows = np.full((3, *SMALL.spec(53, 61).shape), 77, np.float32)
    found = SMALL.apply(PIXELS, Rng(0), rows[1])
    assert found["pixel_values"] is not rows
    assert np.shares_memory(found["pixel_values"], rows[1])
    same(found, expected)
    assert (rows[[0, 2]] == 77).all()
    for shape, dtype in (
        ((4, 1176), np.float32),
        ((1176, 24), np.float32),
        (expected["pixel_values"].shape, float),
    ):
        out = np.full(shape, 99, dtype)
        same(SMALL.apply(PIXELS, Rng(0), out), expected)
        assert (out == 99).all()


def test_there_are_no_floats_besides_the_result() -> None:
    pixels = np.random.default_rng(7).integers(0, 256, (600, 800, 3), np.uint8)
    processor = Qwen2VLImageProcessor()
    out = np.empty(processor.spec(600, 800).shape, np.float32)
    processor.apply(pixels, Rng(0), out)
    tracemalloc.start()
    try:
        processor.apply(pixels, Rng(0), out)
        _, peak = tracemalloc.get_traced_memory()
    finally:
        tracemalloc.stop()
    # Pillow's result is copied to bytes in pieces, which are joined: 3 bytes for a pixel, twice. The result has 24.
    assert peak < out.nbytes * 0.3 + (1 << 20)


def test_the_input_is_not_altered_and_may_be_a_view() -> None:
    expected = SMALL(PIXELS)
    room = np.zeros((70, 80, 3), np.uint8)
    room[5:58, 7:68] = PIXELS
    view = room[5:58, 7:68]
    view.flags.writeable = False
    before = room.copy()
    same(SMALL(view), expected)
    assert np.array_equal(room, before)
    mirrored = np.ascontiguousarray(PIXELS[::-1, ::-1])[::-1, ::-1]
    same(SMALL(mirrored), expected)


def test_it_is_a_transform_that_announces_sizes_and_decodes() -> None:
    copy = pickle.loads(pickle.dumps(SMALL))
    assert repr(eval(repr(copy), vars(transforms))) == repr(SMALL)
    same(copy(PIXELS), SMALL(PIXELS))
    assert is_native(SMALL)
    assert isinstance(SMALL, SizedProcessor)
    assert isinstance(SMALL, DecodingProcessor)
    rng, other = Rng(1, 0, 0), Rng(1, 0, 0)
    SMALL(PIXELS, rng=rng)
    assert rng.random() == other.random()


# -- errors ----------------------------------------------------------------------------------------------------------


@with_cases(
    ("image", "error", "words"),
    [
        (PIXELS.astype(np.float32), TypeError, "float32"),
        (b"bytes", TypeError, "bytes"),
        (None, TypeError, "NoneType"),
        (np.zeros((4, 5, 2), np.uint8), ValueError, "channels"),
        (np.zeros((1, 4, 5, 3), np.uint8), ValueError, "channels"),
        (np.zeros(4, np.uint8), ValueError, "channels"),
    ],
)
def test_other_things_than_images_are_refused(image: Any, error: type[Exception], words: str) -> None:
    with pytest.raises(error, match=words):
        SMALL(image)


def damaged() -> dict[str, bytes]:
    found = {"nothing": b"", "text": b"never an image", "postscript": b"%!PS-Adobe-3.0 EPSF-3.0\n" * 20}
    for name, data in encoded().items():
        kind = name.rpartition(".")[2]
        if kind not in ("jpeg", "bmp") and f"truncated-{kind}" not in found and len(data) > 400:
            found[f"truncated-{kind}"] = data[: len(data) // 2]
    return found


@with_cases("name", damaged())
def test_damaged_images_are_named_errors(name: str) -> None:
    with pytest.raises(DecodeError):
        decoded(damaged()[name], SMALL)


def test_damage_that_pillow_accepts_is_an_error() -> None:
    data = (FILES / "ycck.jpg").read_bytes()
    with pytest.raises(DecodeError):
        SMALL.decode(data[:-30])


def test_more_pixels_than_the_header_announces_are_an_error() -> None:
    data = memoryview(encoded()["RGB.png"])
    header = read_header(data)
    assert decode_by_pillow(data, header, exif="ignore", alpha="white").shape == (48, 61, 3)
    with pytest.raises(DecodeError, match="another header"):
        decode_by_pillow(data, header._replace(height=header.height - 1), exif="ignore", alpha="white")


def test_without_pillow_the_error_names_the_extra(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setitem(sys.modules, "PIL", None)
    monkeypatch.delitem(sys.modules, "PIL.Image")
    for call in (lambda: SMALL(PIXELS), lambda: SMALL.decode((FILES / "palette.png").read_bytes())):
        with pytest.raises(MissingPackageError, match=r"aioloader\[service\]") as caught:
            call()
        assert (caught.value.package, caught.value.extra) == ("pillow", "service")
    # Sizes are known without it.
    assert SMALL.spec(1536, 2170).num_tokens <= 16


@with_cases(
    ("data", "count"),
    [
        (b"", 0),
        (b"\xff\xd8", 0),
        (b"\xff\xd8\xff\xe0\0\0" + b"\xff" * 99, 0),
        (b"\xff\xd8" + b"\xff" * 99, 0),
        (b"\xff\xd8\xff\xe0\0\4ab\xff\xff\xc2\0\x11\x08\0\1\0\1\4", 4),
        (b"\xff\xd8\xff\xd0\xff\xc4\0\2\xff\xc0\0\x11\x08\0\1\0\1\3", 3),
        (b"\xff\xd8\xff\xc0\0\x11\x08\0\1\0\1", 0),
    ],
)
def test_components_of_a_jpeg_are_counted(data: bytes, count: int) -> None:
    assert count_components(data) == count
    assert count_components(memoryview(data)) == count


# -- fused with decoding, in loaders ---------------------------------------------------------------------------------

CHAINS = {
    "alone": [SMALL],
    "composed": [Compose([SMALL])],
    "flipped": [Compose([RandomHorizontalFlip(1.0), SMALL])],
    "two-stages": [RandomHorizontalFlip(), SMALL],
    "foreign-before": [lambda x: x[2:, 3:], SMALL],
    "foreign-after": [SMALL, lambda made: made],
}


@with_cases("flag", [1, 0], ids=["colour", "grey"])
@with_cases("chain", CHAINS)
def test_fused_with_decoding_the_result_is_the_same(chain: str, flag: int) -> None:
    stages = CHAINS[chain]
    for name in ("jpeg-420", "jpeg-grey", "progressive", "png", "raw", "exif-6", "one-pixel", "cmyk"):
        if name == "one-pixel" and chain == "foreign-before":
            continue
        data = images()[name]
        expected: Any = apart(data, stages, Rng(3, 0, 1), {"flag": flag})
        plan = make(stages, flag=flag)
        for out in (None, np.full(expected["pixel_values"].shape, 77, np.float32)):
            for _ in range(2):
                timer = StageTimer([0.0] * len(stages))
                found = plan(data, None, Rng(3, 0, 1), out, timer)
                same(found, expected)
            if out is not None and not chain.startswith("foreign-after"):
                assert found["pixel_values"] is out


def test_decoded_pixels_stay_in_memory_that_is_used_again() -> None:
    data = oriented(encode(300, 200), 1)
    reader = LazyImageReader()
    plan = ImagePlan(reader, [("stage", SMALL)])
    out = np.empty(SMALL.spec(200, 300).shape, np.float32)
    for _ in range(4):
        plan(data, None, Rng(0), out, StageTimer([0.0]))
        assert len(reader.scratch._buffers) == 1
    assert 300 * 200 * 3 <= reader.scratch.nbytes < 2 * 300 * 200 * 3 + (1 << 18)


def _folder(path: Path, sizes: list[tuple[int, int]]) -> Path:
    (path / "class").mkdir(parents=True)
    for number, (width, height) in enumerate(sizes):
        (path / "class" / f"{number}.jpg").write_bytes(
            encode(width, height, ("420", "444", "grey")[number % 3])
        )
    return path


@pytest.mark.parametrize("one_size", [True, False])
def test_batches_of_images(tmp_path: Path, one_size: bool) -> None:
    sizes = [(100 + n if one_size else 30 + 40 * n, 80) for n in range(6)]
    folder = _folder(tmp_path / "images", sizes)
    dataset = aioloader.ImageFolderDataset(folder).transform_first(SMALL)
    expected = [SMALL(decode_image(path.read_bytes())) for path in sorted(folder.glob("*/*.jpg"))]
    assert (len({one["pixel_values"].shape for one in expected}) == 1) == one_size
    options: dict[str, Any] = {} if one_size else {"batchify_fn": aioloader.batchify.AsList()}
    executor = "process" if one_size else "thread"
    with aioloader.DataLoader(dataset, 2, executor=executor, num_workers=2, **options) as loader:
        for _ in range(2):
            made = [image for batch in loader for image in (_rows(batch[0]) if one_size else batch)]
            assert len(made) == len(expected)
            for found, one in zip(made, expected, strict=True):
                same(found if one_size else found[0], one)


def _rows(batch: dict[str, Any]) -> list[dict[str, Any]]:
    return [dict(zip(batch, row, strict=True)) for row in zip(*batch.values(), strict=True)]


def test_a_module_that_another_thread_is_importing_has_no_images(monkeypatch: pytest.MonkeyPatch) -> None:
    import sys
    import types

    from aioloader.transforms.pillow import is_pillow_image

    monkeypatch.setitem(sys.modules, "PIL.Image", types.ModuleType("PIL.Image"))
    assert not is_pillow_image(np.zeros((2, 2, 3), np.uint8))
