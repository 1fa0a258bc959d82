"""Tests of batches of a budget: full, in order, the same for all who plan them, and resumed in the middle."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest
import simplejpeg
from hypothesis import given
from hypothesis import strategies as st

import aioloader
from aioloader import DataLoader, ImageFolderDataset, image_costs
from aioloader.samplers import BudgetBatchSampler
from aioloader.samplers.first_fit import FirstFit, first_fit

COSTS = st.lists(st.integers(0, 20), max_size=60)


@given(COSTS, st.integers(20, 60), st.integers(1, 20), st.none() | st.integers(1, 5))
def test_every_item_comes_once_and_within_the_budget(
    costs: list[int], budget: int, lookahead: int, most: int | None
) -> None:
    batches = list(first_fit(enumerate(costs), budget, lookahead=lookahead, max_items=most))
    assert sorted(index for batch in batches for index, _ in batch) == list(range(len(costs)))
    waiting = list(range(len(costs)))
    for batch in batches:
        indices = [index for index, _ in batch]
        assert sum(cost for _, cost in batch) <= budget
        assert len(batch) <= (most or len(costs))
        assert indices == sorted(indices)
        assert indices[0] == waiting[0]  # the one that has waited longest
        passed = [index for index in waiting if index < indices[-1] and index not in indices]
        assert len(passed) <= lookahead + (0 if most is None else len(costs))
        waiting = [index for index in waiting if index not in indices]


def test_without_a_look_ahead_a_batch_ends_where_an_item_does_not_fit() -> None:
    batches = list(first_fit(enumerate([4, 4, 4, 1, 9, 1]), 10, lookahead=1))
    assert [[index for index, _ in batch] for batch in batches] == [[0, 1], [2, 3], [4, 5]]
    ahead = list(first_fit(enumerate([4, 4, 4, 1, 9, 1]), 10, lookahead=2))
    assert [[index for index, _ in batch] for batch in ahead] == [[0, 1, 3], [2, 5], [4]]


def test_a_mix_of_sizes_fills_its_batches() -> None:
    rng = np.random.default_rng(0)
    sides = rng.integers(200, 1200, (5000, 2))
    processor = aioloader.transforms.Qwen2VLImageProcessor()
    tokens = [processor.spec(int(high), int(wide)).num_tokens for high, wide in sides]
    for budget in (2048, 4096, 16_384):
        assert BudgetBatchSampler(tokens, budget).fill() > 0.96
        assert BudgetBatchSampler(tokens, budget, lookahead=1).fill() > 0.6


def test_an_item_over_the_budget_is_a_named_error() -> None:
    with pytest.raises(ValueError, match="item 1 costs 11"):
        BudgetBatchSampler([3, 11, 12], 10)
    with pytest.raises(ValueError, match="raise the budget"):
        FirstFit(10).add("x", 11)


@pytest.mark.parametrize("drop_last", [False, True])
def test_ranks_share_the_batches_in_equal_numbers(drop_last: bool) -> None:
    costs = np.random.default_rng(1).integers(1, 10, 200)
    whole = BudgetBatchSampler(costs, 40, seed=5).epoch_batches(3)
    ranks = [
        BudgetBatchSampler(costs, 40, seed=5, rank=rank, world=3, drop_last=drop_last).epoch_batches(3)
        for rank in range(3)
    ]
    assert len({len(batches) for batches in ranks}) == 1
    mixed = [batch.tolist() for step in zip(*ranks, strict=True) for batch in step]
    plain = [batch.tolist() for batch in whole]
    assert mixed[: len(plain)] == plain[: len(mixed)]
    assert len(mixed) - len(plain) in ((-2, -1, 0) if drop_last else (0, 1, 2))


def test_epochs_differ_and_depend_on_nothing_else() -> None:
    costs = list(range(1, 40))
    first, second = BudgetBatchSampler(costs, 60), BudgetBatchSampler(costs, 60)
    assert [b.tolist() for b in first.epoch_batches(0)] != [b.tolist() for b in first.epoch_batches(1)]
    second.set_epoch(1)
    assert [b.tolist() for b in second] == [b.tolist() for b in first.epoch_batches(1)]
    assert len(second) == len(first.epoch_batches(1))
    ordered = BudgetBatchSampler(costs, 60, shuffle=False, lookahead=1)
    assert [index for batch in ordered for index in batch.tolist()] == list(range(39))


class Numbers:
    def __len__(self) -> int:
        return 50

    def __getitem__(self, index: int) -> int:
        return index


@pytest.mark.parametrize("taken", [0, 3, 7])
def test_a_loader_resumes_in_the_middle_of_any_epoch(taken: int) -> None:
    costs = np.random.default_rng(2).integers(1, 9, 50)

    def loader(**more: Any) -> Any:
        return DataLoader(
            Numbers(), batch_sampler=BudgetBatchSampler(costs, 20, seed=4), num_workers=0, **more
        )

    with loader() as first:
        whole = [[batch.tolist() for batch in first] for _ in range(2)]
    assert whole[0] != whole[1]
    with loader() as second:
        list(second)
        batches = iter(second)
        for _ in range(taken):
            next(batches)
        state = second.state_dict()
    with loader() as third:
        third.load_state_dict(state)
        rest = [batch.tolist() for batch in third]
    assert rest == (whole[1][taken:] if taken else rest)
    if taken:
        assert sorted(index for batch in whole[1][:taken] + rest for index in batch) == list(range(50))


def test_image_costs_reads_headers(tmp_path: Path) -> None:
    sizes = [(40, 60), (33, 20), (128, 64)]
    for number, (height, width) in enumerate(sizes):
        folder = tmp_path / "a"
        folder.mkdir(exist_ok=True)
        image = np.zeros((height, width, 3), np.uint8)
        (folder / f"{number}.jpg").write_bytes(simplejpeg.encode_jpeg(image))
    dataset = ImageFolderDataset(tmp_path)
    assert image_costs(dataset).tolist() == [height * width for height, width in sizes]
    assert image_costs(dataset, lambda height, width: height).tolist() == [40, 33, 128]
    assert image_costs(dataset.take(2), max).tolist() == [60, 33]
    processor = aioloader.transforms.Qwen2VLImageProcessor()
    assert image_costs(dataset, processor).tolist() == [processor.spec(*size).num_tokens for size in sizes]
    with pytest.raises(TypeError, match="encoded images"):
        image_costs([1, 2])
