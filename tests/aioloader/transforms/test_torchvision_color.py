"""Colour transforms and policies next to torchvision's, version 2: the same images, the same parameters.

Rule: bytes differ by at most one level in 99.9 % of the values; those of tables are equal.
"""

from __future__ import annotations

from functools import partial
from typing import Any

import numpy as np
import pytest

from aioloader import transforms as t
from aioloader.rng import Rng
from aioloader.transforms.autoaugment import POLICIES, augment, mixed
from aioloader.transforms.blur import adjust_sharpness, gaussian_blur
from aioloader.transforms.color import (
    adjust_brightness,
    adjust_contrast,
    adjust_hue,
    adjust_saturation,
    autocontrast,
    equalize,
    invert,
    posterize,
    solarize,
    to_gray,
)
from tests.aioloader.jpeg.samples import make_image
from tests.cases import with_cases
from tests.torchvision_import import import_torchvision

tv = import_torchvision()
torch = pytest.importorskip("torch")
F = tv.functional


def images() -> list[np.ndarray]:
    rng = np.random.default_rng(3)
    noise = rng.integers(0, 256, (61, 83, 3), dtype=np.uint8)
    dark = (make_image(48, 64) // 3 + 20).astype(np.uint8)
    flat = np.full((9, 7, 3), 77, np.uint8)
    return [make_image(97, 130), noise, dark, flat]


def theirs(image: np.ndarray, call: Any) -> np.ndarray:
    return call(torch.from_numpy(image.transpose(2, 0, 1).copy())).numpy().transpose(1, 2, 0)


def assert_near(found: np.ndarray, expected: np.ndarray, share: float = 0.999) -> None:
    away = np.abs(found.astype(np.int16) - expected.astype(np.int16))
    assert (away <= 1).mean() >= share, (away.max(), (away > 1).mean())


def with_values(name: str, ours: Any, other: Any, *values: float) -> dict[str, tuple[Any, Any]]:
    """Return both functions for each value of their second argument."""
    return {f"{name} {v}": (lambda x, v=v: ours(x, v), lambda x, v=v: other(x, v)) for v in values}


EXACT = {
    "invert": (invert, F.invert),
    "autocontrast": (autocontrast, F.autocontrast),
    "equalize": (equalize, F.equalize),
    **with_values("posterize", posterize, F.posterize, 1, 4, 7, 8),
    **with_values("solarize", solarize, F.solarize, 0, 100, 192.5, 255, 85.00000000000001),
}
saturate = partial(adjust_saturation, truncate=True)
NEAR: dict[str, tuple[Any, Any]] = {
    **with_values("brightness", adjust_brightness, F.adjust_brightness, 0.0, 0.4, 1.0, 1.7),
    **with_values("contrast", adjust_contrast, F.adjust_contrast, 0.0, 0.4, 1.7),
    **with_values("saturation", saturate, F.adjust_saturation, 0.0, 0.4, 1.7),
    **with_values("hue", adjust_hue, F.adjust_hue, -0.5, -0.1, 0.3),
    **with_values("sharpness", adjust_sharpness, F.adjust_sharpness, 0.0, 0.5, 2.0),
    **{
        f"blur {k} {s}": (
            lambda x, k=k, s=s: gaussian_blur(x, k, s),
            lambda x, k=k, s=s: F.gaussian_blur(x, list(k), list(s)),
        )
        for k, s in (((3, 3), (0.5, 0.5)), ((5, 7), (1.0, 2.0)))
    },
    "gray": (to_gray, lambda x: F.rgb_to_grayscale(x, 3)),
}


@with_cases("name", EXACT)
def test_tables_are_equal(name: str) -> None:
    ours, other = EXACT[name]
    for image in images():
        np.testing.assert_array_equal(ours(image), theirs(image, other))


@with_cases("name", NEAR)
def test_colours_are_equal_within_one_level(name: str) -> None:
    ours, other = NEAR[name]
    for image in images():
        if name.startswith("blur") and min(image.shape[:2]) < 10:
            continue
        assert_near(ours(image), theirs(image, other))


OPERATIONS = {
    "ShearX": (-0.3, 0.1, 0.99),
    "ShearY": (-0.2, 0.4),
    "TranslateX": (-20.7, 8.0),
    "TranslateY": (-3.0, 12.4),
    "Rotate": (-30.0, 17.5, 120.0),
    "Brightness": (-0.5, 0.9),
    "Color": (-0.5, 0.9),
    "Contrast": (-0.5, 0.9),
    "Sharpness": (-0.5, 0.9),
    "Posterize": (4.0, 7.0),
    "Solarize": (0.2, 0.8),
    "AutoContrast": (0.0,),
    "Equalize": (0.0,),
    "Invert": (0.0,),
    "Identity": (0.0,),
}


@with_cases("interpolation", ["nearest", "bilinear"])
@with_cases("operation", OPERATIONS)
def test_operations_of_policies(operation: str, interpolation: str) -> None:
    policy = tv.TrivialAugmentWide()
    mode = tv.InterpolationMode.NEAREST if interpolation == "nearest" else tv.InterpolationMode.BILINEAR
    for image in images()[:3]:
        for magnitude in OPERATIONS[operation]:

            def other(x: Any, magnitude: float = magnitude) -> Any:
                fill = {torch.Tensor: None}
                return policy._apply_image_or_video_transform(x, operation, magnitude, mode, fill)

            assert_near(
                augment(image, operation, magnitude, interpolation=interpolation), theirs(image, other)
            )


def wrap(transform: Any, name: str) -> Any:
    """Return an object with the table of a transform of torchvision, one of two."""

    class Other:
        _AUGMENTATION_SPACE = getattr(transform(), name)

    return Other


@with_cases(
    ("ours", "other"),
    [
        (t.RandAugment, tv.RandAugment),
        (t.TrivialAugmentWide, tv.TrivialAugmentWide),
        (t.AutoAugment, tv.AutoAugment),
        (t.AugMix(), tv.AugMix),
        (t.AugMix(all_ops=False), wrap(tv.AugMix, "_PARTIAL_AUGMENTATION_SPACE")),
    ],
)
def test_policies_have_the_operations_and_magnitudes_of_torchvision(ours: Any, other: Any) -> None:
    space = other()._AUGMENTATION_SPACE
    assert sorted(ours._space) == sorted(space)
    for bins in (5, 10, 31):
        for name, (magnitudes, signed) in ours._space.items():
            expected, also_signed = space[name]
            assert signed == also_signed
            wanted = expected(bins, 97, 130)
            if wanted is None:
                assert magnitudes is None
            else:
                # All digits: a threshold of Solarize decides about a level.
                np.testing.assert_array_equal(magnitudes(bins, 97, 130), wanted.double().numpy())


@with_cases("name", ["IMAGENET", "CIFAR10", "SVHN"])
def test_pairs_of_autoaugment(name: str) -> None:
    constant = tv.AutoAugmentPolicy[name]
    assert [*POLICIES[t.AutoAugmentPolicy[name]]] == tv.AutoAugment()._get_policies(constant)
    assert t.AutoAugment(constant).policy is t.AutoAugment(constant.value).policy is t.AutoAugmentPolicy[name]


def steps_of(ours: Any, rng: Rng, image: Any, count: int) -> list[tuple[str, float]]:
    """Draw operations and their magnitudes, by the rule in the docstring of AugMix."""
    steps = []
    for _ in range(count):
        name = rng.choice(tuple(ours._space))
        magnitudes, signed = ours._space[name]
        place, sign = rng.integers(7), rng.random()
        magnitude = 0.0 if magnitudes is None else magnitudes(10, *image.shape[:2])[place]
        steps.append((name, -magnitude if signed and sign < 0.5 else magnitude))
    return steps


def stepwise(image: Any, steps: list[tuple[str, float]], interpolation: str) -> Any:
    """Apply operations, and compare each with torchvision's: a step may spread what differs by one level before it."""
    for name, magnitude in steps:
        call = partial(
            tv.AutoAugment()._apply_image_or_video_transform,
            transform_id=name,
            magnitude=magnitude,
            interpolation=tv.InterpolationMode(interpolation),
            fill={torch.Tensor: None},
        )
        before, image = image, augment(image, name, magnitude, interpolation=interpolation)
        assert_near(image, theirs(before, call))
    return image


@with_cases("interpolation", ["nearest", "bilinear"])
@with_cases("number", range(8))
def test_augmix_with_the_same_parameters(number: int, interpolation: str) -> None:
    ours = t.AugMix(severity=7, chain_depth=2, interpolation=interpolation)
    image = images()[number % 3]
    rng = Rng(number)
    (own, together), shares = rng.dirichlet([1.0] * 2), rng.dirichlet([1.0] * 3)
    total = np.float32(own) * image.astype(np.float32)
    for share in shares:
        made = stepwise(image, steps_of(ours, rng, image, 2), interpolation)
        total += np.float32(together * share) * made.astype(np.float32)
    np.testing.assert_array_equal(ours(image, rng=Rng(number)), total.astype(np.uint8))


def test_mixing_is_exact() -> None:
    image, a, b, _ = (np.resize(each, (40, 50, 3)) for each in images())
    weights = torch.tensor([0.3, 0.45, 0.25], dtype=torch.float32)
    total = weights[0] * torch.from_numpy(image)
    total.add_(weights[1] * torch.from_numpy(a)).add_(weights[2] * torch.from_numpy(b))
    found = mixed(image, 0.3, [a, b], [0.45, 0.25], None)
    np.testing.assert_array_equal(found, total.to(torch.uint8).numpy())


@with_cases("policy", t.AutoAugmentPolicy)
def test_autoaugment_with_the_same_parameters(policy: t.AutoAugmentPolicy) -> None:
    ours = t.AutoAugment(policy)
    for number in range(20):
        image = images()[number % 3]
        rng = Rng(number)
        steps = []
        for name, probability, place in rng.choice(POLICIES[policy]):
            applied, sign = rng.random() < probability, rng.random()
            magnitudes, signed = ours._space[name]
            magnitude = 0.0 if magnitudes is None else magnitudes(10, *image.shape[:2])[place]
            if applied:
                steps.append((name, -magnitude if signed and sign < 0.5 else magnitude))
        np.testing.assert_array_equal(ours(image, rng=Rng(number)), stepwise(image, steps, "nearest"))


DTYPES = ["uint8", "int8", "int16", "int32", "int64", "float16", "float32", "float64"]


@with_cases("scale", [False, True])
@with_cases("target", DTYPES)
@with_cases("source", DTYPES)
def test_dtypes(source: str, target: str, scale: bool) -> None:
    rng = np.random.default_rng(4)
    if source.startswith("float"):
        values = rng.random((5, 6, 3)).astype(source) * (1 if scale else 100)
        values[0, 0] = (0, 1, 0.5)
    else:
        bounds = np.iinfo(source)
        low = 0 if target.startswith("u") or not scale else bounds.min
        values = rng.integers(low, 100 if not scale else bounds.max, (5, 6, 3), dtype=source, endpoint=True)
    ours = t.ToDtype(getattr(torch, target), scale)
    assert ours.dtype == target
    try:
        expected = F.to_dtype(torch.from_numpy(values), getattr(torch, target), scale)
    except RuntimeError:
        with pytest.raises(TypeError, match="not exact enough"):
            ours(values)
        return
    wide = ("int16", "int32", "int64")
    if scale and ((source == "float16" and target in wide) or (target == "float16" and source in wide[1:])):
        # torchvision overflows.
        with pytest.raises(TypeError, match="not exact enough"):
            ours(values)
        return
    found = ours(values)
    assert found.dtype == target
    np.testing.assert_array_equal(found, expected.numpy())
    out = np.empty_like(found)
    np.testing.assert_array_equal(ours.apply(values, Rng(0), out), found)


@with_cases(("a", "b"), [(0.01, 0.2), (0.2, 1.0), (1.0, 0.2), (4.0, 1.0)])
def test_weights_are_distributed_like_torchs(a: float, b: float) -> None:
    stats = pytest.importorskip("scipy.stats")
    found = [Rng(5, 0, n).beta(a, b) for n in range(10_000)]
    torch.manual_seed(0)
    expected = torch.distributions.Beta(torch.tensor(a, dtype=torch.float64), b).sample((10_000,)).numpy()
    assert all(0 <= value <= 1 for value in found)
    assert stats.ks_2samp(found, expected).pvalue > 1e-3


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["jitter", "blur"])
def test_draws_are_distributed_like_torchvisions(kind: str) -> None:
    stats = pytest.importorskip("scipy.stats")
    torch.manual_seed(0)
    grey = np.full((4, 4, 3), 100, np.float32)
    if kind == "jitter":
        ours = t.ColorJitter(brightness=(0.3, 1.9))
        found = [float(ours(grey, rng=Rng(5, 0, n))[0, 0, 0]) / 100 for n in range(10_000)]
        other = tv.ColorJitter(brightness=(0.3, 1.9))
        expected = [float(other.make_params([])["brightness_factor"]) for _ in range(10_000)]
    else:
        blur = t.GaussianBlur(3, (0.2, 1.5))
        found = [Rng(5, 0, n).uniform(*blur.sigma) for n in range(10_000)]
        expected = [float(tv.GaussianBlur(3, (0.2, 1.5)).make_params([])["sigma"][0]) for _ in range(10_000)]
    assert stats.ks_2samp(found, expected).pvalue > 1e-3
