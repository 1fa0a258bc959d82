"""Tests of batches of one variant each: every item once, by seed and epoch, resumed, dealt, and of different sizes."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioloader
from aioloader import ConcatDataset, DataLoader, transforms
from aioloader.samplers import VariantBatchSampler
from tests.cases import with_cases


def taken(sampler: VariantBatchSampler, seed: int = 0, epoch: int = 0) -> list[list[int]]:
    return [batch.indices.tolist() for batch in sampler.batches(seed, epoch)]


@given(
    length=st.integers(0, 90),
    sizes=st.lists(st.integers(1, 9), min_size=1, max_size=4),
    epoch=st.integers(0, 3),
    shuffle=st.booleans(),
    drop=st.booleans(),
)
def test_every_item_comes_once_in_batches_of_one_variant(
    length: int, sizes: list[int], epoch: int, shuffle: bool, drop: bool
) -> None:
    sampler = VariantBatchSampler(length, sizes, shuffle=shuffle, drop_last=drop)
    batches = taken(sampler, 3, epoch)
    items = sorted(index % length for batch in batches for index in batch) if length else []
    assert len(items) == len(set(items))
    if not drop:
        assert items == list(range(length))
    for number, batch in enumerate(batches):
        (variant,) = {index // length for index in batch}
        last = number + 1 == len(batches)
        assert len(batch) == sizes[variant] or (last and not drop and len(batch) < sizes[variant])
    assert sampler.count(3, epoch) == len(batches)


def test_variants_are_about_equally_many_and_change_with_the_epoch() -> None:
    sampler = VariantBatchSampler(30_000, [10, 10, 10])
    drawn = [[batch[0] // 30_000 for batch in taken(sampler, 0, epoch)] for epoch in range(2)]
    counts = np.bincount(drawn[0])
    assert counts.min() > 900
    assert drawn[0] != drawn[1]
    assert drawn[0] == [batch[0] // 30_000 for batch in taken(sampler)]


def test_batches_have_images_of_their_size(photo_rec: Path) -> None:
    photos = aioloader.ImageRecordDataset(photo_rec)
    parts = [photos.transform_first(transforms.RandomResizedCrop(size)) for size in (8, 12, 16)]
    options = {"batch_sampler": VariantBatchSampler(len(photos), [6, 4, 2]), "executor": "thread"}
    with DataLoader(ConcatDataset(parts), **options) as loader:
        batches = [(images.shape, len(labels)) for images, labels in loader]
    assert len({shape[1:] for shape, _ in batches}) == 3
    assert all(count == shape[0] <= {8: 6, 12: 4, 16: 2}[shape[1]] for shape, count in batches)
    assert sum(count for _, count in batches) == len(photos)


@with_cases(
    ("sizes", "kind", "text"),
    [([], ValueError, "at least one"), ([0], ValueError, "at least 1"), (4, TypeError, "each variant")],
)
def test_what_is_not_allowed_is_named(sizes: Any, kind: type[Exception], text: str) -> None:
    with pytest.raises(kind, match=text):
        VariantBatchSampler(5, sizes)
