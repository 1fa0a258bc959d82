"""Tests of the signature of both loaders: it is one, and contradictions are refused."""

from __future__ import annotations

import inspect
import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import aioloader
from aioloader import AsyncDataLoader, DataLoader, SimpleDataset, samplers
from tests.aioloader.loader.samples import Made
from tests.cases import with_cases

DATA = SimpleDataset(list(range(10)))
LOADERS = [AsyncDataLoader, DataLoader]


def batches(**options: Any) -> list[list[int]]:
    with DataLoader[Any](DATA, **options) as loader:
        return [np.asarray(batch).tolist() for batch in loader]


def arguments(text: str | None) -> str:
    """Return the part "Args:" of a docstring, without its line ends."""
    assert text is not None
    part = text.partition("Args:\n")[2].partition("Raises:")[0]
    return " ".join(part.replace("the caller's thread", "this thread").split())


def test_both_loaders_have_one_signature_and_describe_all_of_it() -> None:
    first, second = (inspect.signature(loader.__init__) for loader in LOADERS)
    assert first == second
    assert arguments(AsyncDataLoader.__doc__) == arguments(DataLoader.__doc__)
    for name, parameter in list(first.parameters.items())[2:]:
        assert f"{name}: " in arguments(DataLoader.__doc__) or f"{name}, " in arguments(DataLoader.__doc__), (
            name
        )
        assert parameter.kind is (
            parameter.KEYWORD_ONLY if name != "batch_size" else parameter.POSITIONAL_OR_KEYWORD
        )


@with_cases("loader", LOADERS)
def test_options_are_keywords(loader: Any) -> None:
    with pytest.raises(TypeError) as caught:
        loader(DATA, 2, True, None)
    assert str(caught.value) == (
        f"{loader.__name__} takes only dataset and batch_size by position: pass by name, as in shuffle=..., the "
        "positional arguments True, None"
    )


@with_cases(("drop_last", "last"), [(True, [4, 5, 6, 7]), (False, [8, 9]), (None, [8, 9])])
def test_drop_last(drop_last: bool | None, last: list[int]) -> None:
    assert batches(batch_size=4, drop_last=drop_last)[-1] == last


def test_collate_fn_is_batchify_fn() -> None:
    assert list(DataLoader[Any](DATA, 5, collate_fn=sum, num_workers=0)) == [10, 35]


@with_cases(
    ("options", "kind", "text"),
    [
        ({"drop_last": True, "last_batch": "keep"}, ValueError, "pass one of them"),
        ({"drop_last": 1}, TypeError, "drop_last must be True or False, got 1"),
        ({"collate_fn": list, "batchify_fn": list}, ValueError, "two names of one option"),
        ({"executor": "inline", "num_workers": 2}, ValueError, "has no workers, but num_workers=2"),
        ({"executor": "inline", "num_workers": "auto"}, ValueError, "num_workers='auto'"),
        ({"prefetch": 0}, ValueError, "prefetch must be at least 1, got 0"),
        ({"on_error": "skip", "max_errors": 0.1}, TypeError, "a share of them is max_error_rate="),
        ({"on_error": "skip", "max_error_rate": 3}, ValueError, "a number of them is max_errors="),
        ({"max_errors": 3}, ValueError, "on_error='skip' or 'replace'"),
        ({"max_error_rate": 0.1}, ValueError, "max_error_rate limits the samples"),
        ({"device": "cpu", "pin_memory": True}, ValueError, "pass one of them"),
        ({"device": "cpu", "output": list}, ValueError, "let your function move the batch"),
    ],
)
@with_cases("loader", LOADERS)
def test_contradictions_are_refused(
    loader: Any, options: dict[str, Any], kind: type[Exception], text: str
) -> None:
    with pytest.raises(kind, match=text):
        loader(DATA, 2, **options)


@with_cases(
    ("name", "text"),
    [
        ("persistent_workers", "workers live as long as the loader"),
        ("prefetch_factor", "pass prefetch="),
        ("generator", "pass seed="),
        ("worker_init_fn", "no state to initialise"),
        ("multiprocessing_context", "pass executor="),
        ("pin_memory_device", "pass device="),
        ("snapshot_every_n_steps", "after every one"),
    ],
)
@with_cases("loader", LOADERS)
def test_arguments_of_torchs_loaders_are_explained(loader: Any, name: str, text: str) -> None:
    with pytest.raises(TypeError, match=f"{loader.__name__} has no argument {name}: .*{text}"):
        loader(DATA, 2, **{name: True})


@with_cases("loader", LOADERS)
def test_an_unknown_argument_names_the_class_and_the_closest_one(loader: Any) -> None:
    text = rf"^{loader.__name__} has no argument num_worker; did you mean num_workers\?$"
    with pytest.raises(TypeError, match=text):
        loader(DATA, 2, num_worker=1)
    with pytest.raises(TypeError, match=f"^{loader.__name__} has no argument zzz$"):
        loader(DATA, 2, zzz=1)


@with_cases("loader", LOADERS)
def test_attributes_as_torchs_loaders_have(loader: Any) -> None:
    made = loader(DATA, 4, num_workers=3, drop_last=True)
    found = made.dataset, made.batch_size, made.num_workers, made.drop_last, made.sampler, made.batch_sampler
    assert found == (DATA, 4, 3, True, None, None)
    sampler = samplers.SequentialSampler(10)
    assert loader(DATA, 4, sampler=sampler).sampler is sampler
    lists = [[1], [2]]
    made = loader(DATA, batch_sampler=lists, executor="inline")
    assert (made.batch_sampler, made.batch_size, made.num_workers, made.drop_last) == (lists, None, 0, False)
    with pytest.raises(AttributeError):
        made.dataset = DATA


def test_drop_last_with_a_batch_sampler() -> None:
    assert batches(batch_sampler=[[1], [2, 3]], drop_last=False) == [[1], [2, 3]]
    with pytest.raises(ValueError, match="last_batch must not be specified"):
        DataLoader(DATA, batch_sampler=[[1]], drop_last=True)


class Indices:
    """Sampler of a caller: single indices, or lists of them."""

    def __init__(self, *found: Any) -> None:
        self._found = found

    def __len__(self) -> int:
        return len(self._found)

    def __iter__(self) -> Any:
        return iter(self._found)


class OfRank(Indices):
    """Sampler of the indices of one rank, as torch's."""

    num_replicas, rank = 2, 1


@with_cases("loader", LOADERS)
def test_a_sampler_of_one_rank_excludes_a_shard(loader: Any) -> None:
    with pytest.raises(ValueError, match=r"one of 2 ranks.*leave out shard="):
        loader(DATA, 2, sampler=OfRank(0, 1), shard=(0, 2))
    with pytest.raises(ValueError, match="OfRank"):
        loader(DATA, batch_sampler=samplers.BatchSampler(OfRank(0, 1), 2), shard=(0, 2))
    loader(DATA, 2, sampler=OfRank(0, 1), shard=(0, 1))
    loader(DATA, 2, sampler=OfRank(0, 1))


@with_cases(
    "given",
    [
        *([0, 1, 2], (3, 4), np.arange(3), range(3), samplers.SequentialSampler(10), Indices(0, 1)),
        *(Indices(None), Indices(np.array(1)), Indices([0, 1], 2)),
    ],
)
def test_a_sampler_of_single_indices_is_no_batch_sampler(given: Any) -> None:
    with pytest.raises(TypeError, match="pass it as sampler= with a batch_size"):
        batches(batch_sampler=given, num_workers=0)


@with_cases(
    "given",
    [
        [[0, 1], [2]],
        np.arange(4).reshape(2, 2),
        samplers.BatchSampler(range(4), 2),
        Indices([0, 1]),
        Indices((2,)),
    ],
)
def test_a_batch_sampler_is_no_sampler(given: Any) -> None:
    with pytest.raises(TypeError, match="pass it as batch_sampler=, without a batch_size"):
        batches(batch_size=2, sampler=given, num_workers=0)


@with_cases("wrong", ["x", "0", b"1", 0.5, np.float32(1.5), float("nan"), float("inf"), None, np.True_])
def test_what_a_sampler_yields_is_named(wrong: Any) -> None:
    text = f"Indices must yield indices, whole numbers, and yielded {re.escape(repr(wrong))}"
    with pytest.raises(TypeError, match=text):
        batches(batch_size=2, sampler=Indices(wrong), num_workers=0)
    with pytest.raises(TypeError, match=text):
        batches(batch_sampler=Indices([wrong]), num_workers=0)


def test_whole_numbers_of_any_type_are_indices() -> None:
    given = (1, np.int32(2), np.uint8(3), True, 4.0, np.float64(5), np.array(6))
    found = batches(batch_sampler=Indices(given, iter([7])), num_workers=0)
    assert [np.asarray(batch).tolist() for batch in found] == [[1, 2, 3, 1, 4, 5, 6], [7]]


@with_cases("far", [10**30, -(10**30)])
def test_an_index_that_no_data_set_has_is_refused(far: int) -> None:
    with pytest.raises(IndexError, match="which no data set has"):
        batches(batch_sampler=Indices([far]), num_workers=0)


@with_cases(
    ("given", "text"),
    [
        (SimpleDataset, r"the class SimpleDataset: pass an object of it"),
        ((number for number in range(3)), r"a generator can be iterated once.*IterableDataset\(function\)"),
        (iter([1]), r"a list_iterator can be iterated once"),
        (5, "__len__ and __getitem__, but int lacks one of them; wrap a list"),
        ({1, 2}, r"but set lacks one of them; pass aioloader.IterableDataset\(\.\.\.\)"),
        (
            "photos",
            r"a str is not a dataset: pass aioloader.open_dataset\('photos'\), or use aioloader.images\(",
        ),
        (Path("photos"), r"a PosixPath is not a dataset"),
    ],
)
@with_cases("loader", LOADERS)
def test_what_is_no_dataset_is_refused(loader: Any, given: Any, text: str) -> None:
    with pytest.raises(TypeError, match=text):
        loader(given, 2)


def test_both_limits_of_errors_hold() -> None:
    def make(index: int) -> int:
        if index % 4 == 0:
            raise ValueError("bad")
        return index

    for limits, text in (
        ({"max_errors": 3, "max_error_rate": 0.9}, "max_errors=3"),
        ({"max_errors": 30, "max_error_rate": 0.2}, r"max_error_rate=0\.2"),
    ):
        loader = DataLoader[Any](Made(40, make), 8, num_workers=0, on_error="skip", **limits)
        with pytest.raises(aioloader.TooManyErrorsError, match=text):
            list(loader)


@pytest.mark.torch
def test_tensors_on_a_device() -> None:
    torch = pytest.importorskip("torch")
    for output in ("numpy", "torch"):
        (batch,) = DataLoader[Any](DATA, 10, output=output, device="cpu", num_workers=0)
        assert isinstance(batch, torch.Tensor)
        assert batch.tolist() == list(range(10))
    (batch,) = DataLoader[Any](DATA, 10, device="meta", num_workers=0)
    assert batch.device.type == "meta"
    if not torch.cuda.is_available():
        with pytest.raises(RuntimeError, match="no CUDA device here"):
            DataLoader(DATA, 10, device="cuda")


@pytest.mark.torch
async def test_an_async_loader_hands_out_tensors_on_a_device() -> None:
    torch = pytest.importorskip("torch")
    async with AsyncDataLoader[Any](DATA.transform(float), 5, device="cpu", num_workers=1) as loader:
        first = [batch async for batch in loader]
        assert all(isinstance(batch, torch.Tensor) for batch in first)


@pytest.mark.jax
def test_arrays_on_a_device_of_jax() -> None:
    jax = pytest.importorskip("jax")
    (batch,) = DataLoader[Any](DATA, 10, output="jax", device="cpu:0", num_workers=0)
    assert batch.devices() == {jax.devices("cpu")[0]}
    with pytest.raises(RuntimeError, match="JAX has no device 'cpu:99'"):
        DataLoader(DATA, 10, output="jax", device="cpu:99")
