"""The rectangle that a chain needs, found without the image: the one that its plan requests of the image."""

from __future__ import annotations

from typing import Any

import pytest

from aioloader import transforms
from aioloader.foundation.types import StageTimer
from aioloader.rng import Rng
from aioloader.transforms import lazy_image
from aioloader.transforms.fused import ImagePlan, NeededRegion
from aioloader.transforms.lazy_image import LazyImageReader
from tests.aioloader.jpeg.samples import encode, oriented
from tests.cases import with_cases

CHAINS: list[list[Any]] = [
    [transforms.RandomResizedCrop(24)],
    [
        transforms.Compose([transforms.RandomResizedCrop(8), transforms.ToTensor()]),
        transforms.RandomHorizontalFlip(),
    ],
    [transforms.RandomCrop(31)],
    [transforms.CenterCrop((40, 20))],
    [transforms.CropResize(7, 5, 20, 30, size=10)],
    [transforms.Resize((60, 60)), transforms.RandomCrop(40)],
]


@pytest.mark.parametrize(("orientation", "scales"), [(1, True), (6, False), (6, True)])
def test_it_is_the_one_that_the_plan_requests(
    orientation: int, scales: bool, monkeypatch: pytest.MonkeyPatch
) -> None:
    requested: list[Any] = []
    for name in ("region", "frame"):
        real = getattr(lazy_image._Jpeg, name)

        def request(self: Any, box: Any, shrink: int = 1, real: Any = real) -> Any:
            requested.append((box, shrink))
            return real(self, box, shrink)

        monkeypatch.setattr(lazy_image._Jpeg, name, request)
    data = oriented(encode(131, 93, "420"), orientation)
    height, width = (131, 93) if orientation == 6 else (93, 131)
    for chain in CHAINS:
        plan = ImagePlan(LazyImageReader(dct_scaling=scales), [(str(n), fn) for n, fn in enumerate(chain)])
        region = NeededRegion(chain, shrinks=scales)
        assert region.crops
        for index in range(8):
            plan(data, None, Rng(3, 1, index), None, StageTimer([0.0] * len(chain)))
            assert region.find(height, width, Rng(3, 1, index)) == requested.pop()
        assert not requested


@with_cases(
    "chain",
    [[], [transforms.Resize((20, 20))], [transforms.RandomHorizontalFlip()], [lambda image: image[:9]]],
)
def test_a_chain_that_begins_otherwise_does_not_crop(chain: list[Any]) -> None:
    region = NeededRegion(chain, shrinks=False)
    assert not region.crops


def test_a_rectangle_outside_of_the_image_is_not_known() -> None:
    region = NeededRegion([transforms.CropResize(7, 5, 20, 300)], shrinks=False)
    assert region.find(93, 131, Rng(0)) is None
