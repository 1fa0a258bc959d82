"""MixUp and CutMix next to torchvision's, version 2: the same batches, the same weights and rectangles."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from aioloader.rng import Rng
from aioloader.transforms import CutMix, MixUp
from tests.cases import with_cases
from tests.torchvision_import import import_torchvision

tv = import_torchvision()
torch = pytest.importorskip("torch")

SIZES = [1, 2, 7]
LABELS = ["classes", "probabilities", "halves"]


class GivenMixUp(tv.MixUp):
    def make_params(self, flat_inputs: Any) -> Any:
        return {"lam": self.share}


class GivenCutMix(tv.CutMix):
    def make_params(self, flat_inputs: Any) -> Any:
        left, top, right, bottom = self.box
        area = (right - left) * (bottom - top)
        return {"box": self.box, "lam_adjusted": 1.0 - area / (11 * 13)}


def batch_of(size: int, kind: str, dtype: Any) -> tuple[Any, Any]:
    rng = np.random.default_rng(size)
    images = rng.normal(size=(size, 3, 11, 13)).astype(dtype)
    if kind == "classes":
        return images, rng.integers(0, 5, size)
    labels = rng.random((size, 5)).astype(np.float32 if kind == "probabilities" else np.float64)
    return images, labels


@with_cases("dtype", ["float32", "float64", "float16"])
@with_cases("kind", LABELS)
@with_cases("size", SIZES)
def test_mixup(size: int, kind: str, dtype: str) -> None:
    batch = batch_of(size, kind, dtype)
    for number in range(5):
        other = GivenMixUp(num_classes=5)
        other.share = Rng(number).beta(0.2, 0.2)
        expected = other(*map(torch.from_numpy, batch))
        found = MixUp(alpha=0.2, num_classes=5)(batch, rng=Rng(number))
        for ours, theirs in zip(found, expected, strict=True):
            assert ours.dtype == theirs.numpy().dtype
            np.testing.assert_array_equal(ours, theirs.numpy())


@with_cases("channels_last", [False, True])
@with_cases("kind", LABELS)
@with_cases("size", SIZES)
def test_cutmix(size: int, kind: str, channels_last: bool) -> None:
    images, labels = batch_of(size, kind, "float32")
    images = (images * 20 + 100).clip(0, 255).astype(np.uint8) if channels_last else images
    given = np.ascontiguousarray(images.transpose(0, 2, 3, 1)) if channels_last else images
    for number in range(5):
        other = GivenCutMix(num_classes=5)
        other.box = CutMix(num_classes=5).rectangle(11, 13, Rng(number))
        expected = other(torch.from_numpy(images), torch.from_numpy(labels))
        found = CutMix(num_classes=5)((given, labels), rng=Rng(number))
        pixels = found[0].transpose(0, 3, 1, 2) if channels_last else found[0]
        np.testing.assert_array_equal(pixels, expected[0].numpy())
        np.testing.assert_array_equal(found[1], expected[1].numpy())


@pytest.mark.slow
def test_rectangles_are_distributed_like_torchvisions() -> None:
    stats = pytest.importorskip("scipy.stats")
    torch.manual_seed(0)
    other = tv.CutMix(alpha=0.7, num_classes=5)
    theirs = np.array([other.make_params([torch.empty(2, 3, 100, 150)])["box"] for _ in range(10_000)])
    ours = np.array([CutMix(alpha=0.7).rectangle(100, 150, Rng(3, 0, n)) for n in range(10_000)])
    for column in range(4):
        assert stats.ks_2samp(ours[:, column], theirs[:, column]).pvalue > 1e-3
