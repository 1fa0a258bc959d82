"""Tests of failed samples: raise, skip, replace, their limit, and their reports."""

from __future__ import annotations

import json
import pathlib
import traceback
import warnings

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader import (
    DataLoader,
    LoaderError,
    RecordFileDataset,
    SampleError,
    SimpleDataset,
    TooManyErrorsError,
)
from aioloader.abc import ItemLocation
from aioloader.errors import UnevenStepsWarning
from aioloader.foundation.replacement import CANDIDATES, fallback_indices, replacement_rows
from recordio import RecordWriter
from tests.aioloader.loader.samples import Made, labels, souvenirs
from tests.cases import with_cases
from tests.executors import pool

EXECUTORS = ["inline", "thread", pytest.param("process", marks=pytest.mark.slow)]


class Damaged(Made):
    """Dataset of numbers, some of which fail."""

    def __init__(self, n, bad):
        super().__init__(n, lambda index: (np.full((2, 3), index, np.float32), index))
        self.bad = frozenset(bad)

    def __getitem__(self, index):
        if index in self.bad:
            raise ValueError(f"{index} is damaged")
        return self.make(index)


@given(st.lists(st.booleans(), min_size=1, max_size=40))
def test_a_replacement_is_the_next_valid_sample_around_the_end(sound):
    rows = [row for row, fine in enumerate(sound) if fine]
    found = replacement_rows(len(sound), rows)
    if not rows:
        assert found == {}
        return
    assert sorted([*found, *rows]) == list(range(len(sound)))
    for failed, stand_in in found.items():
        later = [row for row in rows if row > failed]
        assert stand_in == (later or rows)[0]


@given(st.integers(1, 500).flatmap(lambda n: st.tuples(st.integers(0, n - 1), st.just(n))))
def test_candidates_are_other_items_spread_over_the_dataset(case):
    index, length = case
    found = fallback_indices(index, length)
    assert len(found) == len(set(found)) == min(length - 1, CANDIDATES)
    assert all(0 <= other < length and other != index for other in found)
    if length > 2 * CANDIDATES:
        places = sorted([*found, index])
        gaps = np.diff([*places, places[0] + length])
        assert max(gaps) <= min(gaps) + 1


@pytest.mark.parametrize("executor", EXECUTORS)
def test_replace_keeps_every_batch_full(executor):
    bad = {3, 9, 10, 11, 39}
    with DataLoader(Damaged(40, bad), 8, **pool(executor, 2), on_error="replace") as loader:
        batches = [(images.copy(), numbers.copy()) for images, numbers in loader]
        assert [error.index for error in loader.errors] == sorted(bad)
        assert [error.replaced_by for error in loader.errors] == [4, 12, 12, 12, 32]
        assert all(isinstance(error.__cause__, ValueError) for error in loader.errors)
        stats = loader.stats()
    assert (stats.samples, stats.replaced, stats.skipped) == (40, 5, 0)
    expected = [4 if n == 3 else 12 if n in (9, 10, 11) else 32 if n == 39 else n for n in range(40)]
    assert sum(labels(batches), []) == expected
    for images, numbers in batches:
        np.testing.assert_array_equal(images, np.broadcast_to(numbers[:, None, None], (8, 2, 3)))


def fields(samples):
    return list(zip(*samples, strict=True))


@with_cases("batchify", [None, fields])
@with_cases("bad", [range(4, 8), range(4)])
@pytest.mark.parametrize("executor", EXECUTORS)
def test_a_batch_of_which_nothing_is_left_is_filled_from_elsewhere(executor, bad, batchify):
    options = {**pool(executor, 2), "on_error": "replace", "batchify_fn": batchify}
    with DataLoader(Damaged(12, bad), 4, **options) as loader:
        batches = [[int(label) for label in batch[1]] for batch in loader]
        other = bad.stop  # in a small dataset the following items are tried one after the other
        assert batches == [
            [other] * 4 if start == bad.start else list(range(start, start + 4)) for start in (0, 4, 8)
        ]
        assert [(error.index, error.replaced_by) for error in loader.errors] == [(n, other) for n in bad]
        assert (loader.stats().samples, loader.stats().replaced) == (12, 4)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_samples_of_every_kind_are_replaced(executor):
    options = {**pool(executor, 2), "on_error": "replace"}
    texts = Damaged(12, {0, 7})
    texts.make = lambda index: {"text": f"sample {index}", "number": index}
    with DataLoader(texts, 4, **options) as loader:
        batches = list(loader)
    found = [batch["number"].tolist() for batch in batches]
    assert found == [[1, 1, 2, 3], [4, 5, 6, 4], [8, 9, 10, 11]]
    assert [batch["text"] for batch in batches] == [[f"sample {n}" for n in batch] for batch in found]
    with DataLoader(Damaged(6, {2}), 1, **options) as loader:
        assert labels(loader) == [[0], [1], [3], [3], [4], [5]]
    options["batchify_fn"] = lambda samples: [number for _, number in samples]
    with DataLoader(Damaged(20, {2, 3, 19}), 5, **options) as loader:
        assert list(loader) == [[0, 1, 4, 4, 4], [5, 6, 7, 8, 9], [10, 11, 12, 13, 14], [15, 16, 17, 18, 15]]
        assert [error.replaced_by for error in loader.errors] == [4, 4, 15]


@pytest.mark.parametrize("executor", EXECUTORS)
def test_without_a_valid_sample_replace_is_an_error_and_all_is_named(executor):
    with DataLoader(Damaged(6, range(6)), 3, **pool(executor, 2), on_error="replace") as loader:
        with pytest.raises(LoaderError, match="all samples of this batch of 3 failed") as caught:
            list(loader)
        assert isinstance(caught.value.__cause__, SampleError)
        assert [(error.index, error.replaced_by) for error in loader.errors] == [(n, None) for n in range(3)]


def fail_in_here(payload):
    if payload == b"3":
        raise LookupError("three is not welcome")
    return payload


def test_the_cause_keeps_its_type_and_the_place_where_it_was_raised(tmp_path, executor):
    path = tmp_path / "a.rec"
    with RecordWriter(path, index=True) as writer:
        for key in range(6):
            writer.write(b"%d" % key, 10 * key)
    dataset = RecordFileDataset(path).transform(fail_in_here)
    with DataLoader(dataset, 2, **pool(executor, 1)) as loader:
        with pytest.raises(SampleError) as caught:
            list(loader)
    error = caught.value
    assert (error.dataset, error.index, error.position, error.key) == ("RecordFileDataset", 3, 3, 30)
    assert (error.path, error.stage) == (str(path), "transform:fail_in_here")
    assert error.offset == 3 * 12
    assert type(error.__cause__) is LookupError
    text = "".join(traceback.format_exception(error))
    assert "in fail_in_here" in text
    assert "LookupError: three is not welcome" in text


@with_cases("bad", [{5, 17, 18, 33, 59}, range(30)])
@pytest.mark.parametrize("executor", EXECUTORS[1:])
def test_replacing_is_the_same_in_every_executor_and_after_a_resume(executor, bad):
    dataset = Damaged(60, bad)
    options = {"shuffle": True, "seed": 4, "on_error": "replace"}
    expected = labels(DataLoader(dataset, 6, num_workers=0, **options))
    with DataLoader(dataset, 6, **pool(executor, 2), **options) as loader:
        iterator = iter(loader)
        first = labels([next(iterator) for _ in range(4)])
        state = json.loads(json.dumps(loader.state_dict()))
    with DataLoader(dataset, 6, **pool(executor, 3), **options) as loader:
        loader.load_state_dict(state)
        assert first + labels(loader) == expected


def test_a_share_of_errors_is_judged_at_the_end_of_a_short_pass():
    dataset = Damaged(40, range(0, 40, 10))
    assert len(list(DataLoader(dataset, 5, num_workers=0, on_error="skip", max_error_rate=0.1))) == 8
    loader = DataLoader(dataset, 5, num_workers=0, on_error="skip", max_error_rate=0.09)
    taken = []
    with pytest.raises(TooManyErrorsError, match=r"4 of 40 samples .* max_error_rate=0\.09") as caught:
        taken.extend(loader)
    assert len(taken) == 8
    assert (caught.value.count, caught.value.samples, caught.value.max_errors) == (4, 40, 0.09)
    assert isinstance(caught.value.__cause__, SampleError)


@with_cases("policy", ["skip", "replace"])
def test_a_share_of_errors_ends_a_long_pass_early(policy):
    dataset = Damaged(2000, range(0, 2000, 4))
    loader = DataLoader(dataset, 100, num_workers=0, on_error=policy, max_error_rate=0.2)
    taken = []
    with pytest.raises(TooManyErrorsError) as caught:
        taken.extend(loader)
    assert (caught.value.count, caught.value.samples) == (250, 1000)
    assert len(taken) == 9


@with_cases("limit", [-1, 1.5, float("nan"), "3", True])
def test_limits_that_are_none_are_refused(limit):
    with pytest.raises((ValueError, TypeError), match="max_errors"):
        DataLoader(SimpleDataset([1]), 1, on_error="skip", max_errors=limit)


def test_the_report_is_json():
    loader = DataLoader(Damaged(20, {2, 3}), 5, num_workers=0, on_error="replace")
    list(loader)
    report = json.loads(json.dumps(loader.error_report()))
    assert (report["count"], report["by_reason"]) == (2, {"ValueError": 2})
    assert report["errors"][0] == {
        **{"dataset": "Damaged", "index": 2, "position": 2, "key": None, "path": None, "offset": None},
        **{"stage": "dataset", "type": "ValueError", "reason": "ValueError: 2 is damaged", "replaced_by": 4},
    }


class Located(Damaged):
    """Numbers whose method `location` returns paths, or fails."""

    def location(self, index: int) -> ItemLocation:
        if index == 3:
            raise KeyError(index)
        if index == 4:
            return "elsewhere"
        return ItemLocation(key=f"k{index}", path=pathlib.Path(f"{index}.txt"))


@with_cases("workers", [0, 2])
def test_a_dataset_of_ones_own_may_name_its_files(workers):
    options = {"sampler": [7, 2, 3, 4, 5], "num_workers": workers, "executor": "thread", "on_error": "skip"}
    with DataLoader(Located(20, {2, 3, 4}), 5, **options) as loader:
        list(loader)
        named, unnamed, strange = loader.errors
    assert (named.index, named.key, named.path, named.stage) == (2, "k2", "2.txt", "dataset")
    assert "sample at index 2, key 'k2', path 2.txt failed in dataset: ValueError" in str(named)
    assert (unnamed.index, unnamed.path) == (3, None)
    assert unnamed.__cause__.__notes__[-1] == "The dataset's location(3) failed: KeyError: 3"
    assert "it returned str, not an aioloader.abc.ItemLocation" in strange.__cause__.__notes__[-1]


@with_cases("bad", [{0, 1, 11}, set(range(12))])
def test_what_cannot_come_back_from_a_worker_is_that_samples_failure(bad):
    with DataLoader(souvenirs(12, bad), 4, num_workers=2, executor="process", on_error="skip") as loader:
        found = [number for texts, numbers in loader for number in numbers]
        errors = loader.errors
    assert found == [number for number in range(12) if number not in bad]
    assert sorted(error.index for error in errors) == sorted(bad)
    assert all("can be pickled but not unpickled" in str(error.__cause__) for error in errors)
    assert all(isinstance(error.__cause__.__cause__, LookupError) for error in errors)


def test_a_collated_batch_that_cannot_come_back_is_an_error_that_says_so():
    options = {"num_workers": 1, "executor": "process", "on_error": "skip"}
    keep = {"batchify_fn": lambda samples: [number for _, number in samples]}
    with (
        DataLoader(souvenirs(8, {5}), 4, **options, **keep) as loader,
        pytest.raises(LoaderError, match="can be pickled but not unpickled"),
    ):
        list(loader)


@with_cases("batches", [{"batch_size": 2}, {"batch_sampler": [[n, n + 1] for n in range(0, 16, 2)]}])
def test_a_state_at_another_step_than_other_ranks_have_is_warned_of_once(batches):
    # Rank 0 has the batches (0, 1), (4, 5), (8, 9), (12, 13).
    def loader(bad, on_error="skip", shard=(0, 2)):
        options = {"executor": "inline", "seed": 0, "shard": shard, "on_error": on_error}
        return DataLoader(Damaged(16, bad), **batches, **options)

    with loader({0, 1}) as uneven:
        epoch = iter(uneven)
        uneven.state_dict()
        next(epoch)
        with pytest.warns(UnevenStepsWarning, match="1 batch") as caught:
            state = uneven.state_dict()
        assert caught[0].filename == __file__
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            assert uneven.state_dict() == state
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        for bad, options in (
            ({0}, {}),  # a shorter batch
            ({2, 3}, {}),  # of the other rank
            ({0, 1}, {"on_error": "replace"}),
            ({0, 1}, {"shard": None}),
        ):
            with loader(bad, **options) as even:
                next(iter(even))
                even.state_dict()
        with loader({0, 1}) as finished:
            assert len(list(finished)) == 3
            finished.state_dict()  # all ranks have the same at the end
