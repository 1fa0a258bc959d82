"""What becomes of failed samples: raise, skip, replace; how many are too many; and what is told of them."""

from __future__ import annotations

import json

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader import DataLoader, SampleError, SimpleDataset, TooManyErrorsError
from aioloader._stand_ins import stand_ins

EXECUTORS = ["process", "thread", "inline"]


class Damaged:
    """Numbers, some of which cannot be had."""

    def __init__(self, n, bad, kind="array"):
        self.n = n
        self.bad = frozenset(bad)
        self.kind = kind

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if index in self.bad:
            raise ValueError(f"{index} is damaged")
        if self.kind == "text":
            return {"text": f"sample {index}", "number": index}
        if self.kind == "ragged":
            return np.full(1 + index % 3, index)[:1]
        return np.full((2, 3), index, np.float32), index


def numbers(batches, kind="array"):
    if kind == "text":
        return [batch["number"].tolist() for batch in batches]
    return [batch[1].tolist() for batch in batches]


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_a_stand_in_is_the_next_sound_sample_round_the_end(sound):
    rows = [row for row, fine in enumerate(sound) if fine]
    found = stand_ins(len(sound), rows)
    if not rows:
        assert found == {}
        return
    assert sorted([*found, *rows]) == list(range(len(sound)))
    for failed, stand_in in found.items():
        later = [row for row in rows if row > failed]
        assert stand_in == (later or rows)[0]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_replace_keeps_every_batch_full(executor):
    bad = {3, 9, 10, 11, 39}
    with DataLoader(Damaged(40, bad), 8, executor=executor, num_workers=2, on_error="replace") as loader:
        batches = [(images.copy(), labels.copy()) for images, labels in loader]
        assert [error.index for error in loader.errors] == sorted(bad)
        assert [error.replaced_by for error in loader.errors] == [4, 12, 12, 12, 32]
        assert all(isinstance(error.__cause__, ValueError) for error in loader.errors)
        stats = loader.stats()
    assert (stats.samples, stats.replaced, stats.skipped) == (40, 5, 0)
    expected = [4 if n == 3 else 12 if n in (9, 10, 11) else 32 if n == 39 else n for n in range(40)]
    assert [label for _, labels in batches for label in labels.tolist()] == expected
    for images, labels in batches:
        np.testing.assert_array_equal(images, np.broadcast_to(labels[:, None, None], (8, 2, 3)))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_texts_are_replaced_too(executor):
    dataset = Damaged(12, {0, 7}, "text")
    with DataLoader(dataset, 4, executor=executor, num_workers=2, on_error="replace") as loader:
        batches = list(loader)
    assert numbers(batches, "text") == [[1, 1, 2, 3], [4, 5, 6, 4], [8, 9, 10, 11]]
    assert [batch["text"] for batch in batches] == [
        [f"sample {n}" for n in batch] for batch in numbers(batches, "text")
    ]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_batchify_function_gets_full_batches(executor):
    dataset = Damaged(20, {2, 3, 19})
    with DataLoader(
        dataset,
        5,
        executor=executor,
        num_workers=2,
        on_error="replace",
        batchify_fn=lambda samples: [number for _, number in samples],
    ) as loader:
        assert list(loader) == [[0, 1, 4, 4, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14], [15, 16, 17, 18, 15]]
        assert [error.replaced_by for error in loader.errors] == [4, 4, 15]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_batch_of_which_nothing_is_left_is_left_out(executor):
    with DataLoader(Damaged(12, range(4, 8)), 4, executor=executor, num_workers=2, on_error="replace") as loader:
        assert numbers(list(loader)) == [[0, 1, 2, 3], [8, 9, 10, 11]]
        assert [error.replaced_by for error in loader.errors] == [None] * 4


def test_replacing_is_the_same_in_every_executor_and_after_a_resume():
    dataset = Damaged(60, {5, 17, 18, 33, 59})
    options = {"shuffle": True, "seed": 4, "on_error": "replace"}
    expected = numbers(DataLoader(dataset, 6, num_workers=0, **options))
    for executor in ("thread", "process"):
        with DataLoader(dataset, 6, executor=executor, num_workers=2, **options) as loader:
            iterator = iter(loader)
            first = numbers([next(iterator) for _ in range(4)])
            state = json.loads(json.dumps(loader.state_dict()))
        with DataLoader(dataset, 6, executor=executor, num_workers=3, **options) as loader:
            loader.load_state_dict(state)
            assert first + numbers(loader) == expected


def test_a_share_of_errors_is_judged_at_the_end_of_a_short_pass():
    dataset = Damaged(40, range(0, 40, 10))
    assert len(list(DataLoader(dataset, 5, num_workers=0, on_error="skip", max_errors=0.1))) == 8
    loader = DataLoader(dataset, 5, num_workers=0, on_error="skip", max_errors=0.09)
    taken = []
    with pytest.raises(TooManyErrorsError, match=r"4 of 40 samples .* max_errors=0\.09") as caught:
        taken.extend(loader)
    assert len(taken) == 8
    assert (caught.value.count, caught.value.samples, caught.value.max_errors) == (4, 40, 0.09)
    assert isinstance(caught.value.__cause__, SampleError)


@pytest.mark.parametrize("policy", ["skip", "replace"])
def test_a_share_of_errors_ends_a_long_pass_early(policy):
    loader = DataLoader(Damaged(5000, range(0, 5000, 4)), 100, num_workers=0, on_error=policy, max_errors=0.2)
    taken = []
    with pytest.raises(TooManyErrorsError) as caught:
        taken.extend(loader)
    assert (caught.value.count, caught.value.samples) == (250, 1000)
    assert len(taken) == 9


@pytest.mark.parametrize("limit", [-1, 1.5, float("nan"), "3", True])
def test_limits_that_are_none_are_refused(limit):
    with pytest.raises((ValueError, TypeError), match="max_errors"):
        DataLoader(SimpleDataset([1]), 1, on_error="skip", max_errors=limit)


def test_the_report_is_json():
    loader = DataLoader(Damaged(20, {2, 3}), 5, num_workers=0, on_error="replace")
    list(loader)
    report = json.loads(json.dumps(loader.error_report()))
    assert (report["count"], report["by_reason"]) == (2, {"ValueError": 2})
    assert report["errors"][0] == {
        "dataset": "Damaged",
        "index": 2,
        "position": 2,
        "key": None,
        "path": None,
        "offset": None,
        "stage": "decode",
        "type": "ValueError",
        "reason": "ValueError: 2 is damaged",
        "replaced_by": 4,
    }
