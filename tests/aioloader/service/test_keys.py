"""Tests of nested references, and of `key=`: keys of the caller in the same nesting."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioloader
from aioloader import ImageService
from aioloader.errors import ImageReferenceError
from aioloader.service.nested import flatten_keys, flatten_references
from tests.aioloader.service.images import jpeg, number_of, numbered, service_of
from tests.cases import on_both_loops, with_cases

LEAVES = st.binary(max_size=3) | st.text(max_size=3)
NESTED = st.recursive(
    LEAVES,
    lambda each: st.lists(each) | st.lists(each).map(tuple) | st.dictionaries(st.text(max_size=2), each),
    max_leaves=20,
)


@given(NESTED)
def test_results_come_back_in_the_nesting_of_their_references(value: Any) -> None:
    found, build = flatten_references(value)
    assert build(found) == value


@with_cases("dataset", [np.zeros((4, 2, 2, 3), np.uint8), range(3)], ids=["array", "range"])
def test_a_dataset_and_an_index_are_one_reference(dataset: Any) -> None:
    item = (dataset, 2)
    found, build = flatten_references([item, (b"a", b"b")])
    assert found == [item, b"a", b"b"]
    assert build([1, 2, 3]) == [1, (2, 3)]


def test_a_row_of_bytes_and_path_is_one_reference() -> None:
    rows = [{"bytes": b"a", "path": None}, {"path": "a.jpg", "bytes": None}]
    others = {"bytes": [b"b"], "path": "c.jpg", "more": b"d"}
    found, build = flatten_references([*rows, others])
    assert found == [*rows, b"b", "c.jpg", b"d"]
    assert build([1, 2, 3, 4, 5]) == [1, 2, {"bytes": [3], "path": 4, "more": 5}]
    assert flatten_keys(rows, ["k", None]) == ["k", None]


@with_cases("wrap", [lambda value: [value], lambda value: (value,), lambda value: {"a": value}])
@with_cases("levels", [101, 5000])
def test_references_nested_too_deep_are_a_named_error(wrap: Any, levels: int) -> None:
    value: Any = b""
    for _ in range(100):
        value = wrap(value)
    assert flatten_references(value)[0] == [b""]
    for _ in range(levels - 100):
        value = wrap(value)
    with pytest.raises(ImageReferenceError, match="100 levels"):
        flatten_references(value)


def test_references_that_contain_themselves_are_a_named_error() -> None:
    value: list[Any] = []
    value.append(value)
    with pytest.raises(ImageReferenceError, match="levels"):
        flatten_references(value)


# -- keys -----------------------------------------------------------------------------------------------------------


@on_both_loops
async def test_gather_keeps_images_by_their_keys() -> None:
    async with service_of(number_of, cache_limit=1 << 20) as service:
        refs = {"first": numbered(1), "rest": [numbered(2), (numbered(3), numbered(4))]}
        keys = {"first": ("album", 1), "rest": [None, ("c", ("album", 4))]}
        assert await service.gather(refs, key=keys) == {"first": 1, "rest": [2, (3, 4)]}
        made = service.stats().made
        # Other bytes with these keys are not made.
        assert await service.get(numbered(9), key=("album", 1)) == 1
        assert await service.get(numbered(9), key="c") == 3
        assert await service.gather([numbered(9)], key=[("album", 4)]) == [4]
        assert service.stats().made == made
        assert await service.gather([numbered(9)], key=[None]) == [9]
        assert await service.gather([numbered(8)]) == [8]
        assert await service.gather(numbered(5), key=("a", 1)) == 5  # one reference has one key
        assert await service.get(numbered(2), key=("a", 1)) == 5


@on_both_loops
async def test_map_and_pack_ask_for_the_keys_of_a_prompt() -> None:
    pytest.importorskip("PIL")
    processor = aioloader.transforms.Qwen2VLImageProcessor(max_pixels=28 * 28 * 16)
    prompts = [{"images": [jpeg(30, 30, seed=n)], "ids": [f"photo {n % 2}"]} for n in range(6)]
    options: Any = {"refs": lambda prompt: prompt["images"], "key": lambda prompt: prompt["ids"]}

    for way in ("map", "pack"):
        async with service_of(processor, cache_limit=1 << 20) as service:
            if way == "map":
                found = [images async for _, images in service.map(prompts, ordered=True, **options)]
                values = [images[0]["pixel_values"] for images in found]
            else:
                (batch,) = [batch async for batch in service.pack(prompts, max_tokens=64, **options)]
                values = np.split(batch.pixel_values, 6)
            assert service.stats().made == 2, way
            for number in range(2, 6):
                assert np.array_equal(values[number], values[number % 2])


def test_the_blocking_twin_takes_keys() -> None:
    with ImageService(number_of, num_workers=1, executor="thread", cache_limit=1 << 20) as service:
        assert service.gather([numbered(1)], key=["a"]) == [1]
        mapped = service.map([numbered(2)], refs=lambda ref: [ref], key=lambda ref: ["a"])
        assert [images for _, images in mapped] == [[1]]


WRONG: list[Any] = [
    ([b"1", b"2"], ["a"]),
    ([b"1", b"2"], "ab"),
    ([b"1"], {"a": 1}),
    ({"x": b"1"}, {"y": "a"}),
    ({"x": b"1"}, ["a"]),
    ([b"1", [b"2"]], ["a", "b"]),
]


@with_cases(("refs", "keys"), WRONG)
@on_both_loops
async def test_keys_in_another_nesting_are_refused(refs: Any, keys: Any) -> None:
    async with service_of(number_of, cache_limit=1 << 20) as service:
        for on_error in ("raise", "return"):
            with pytest.raises(ValueError, match="key"):
                await service.gather(refs, key=keys, on_error=on_error)
        assert service.stats().pending == 0


@on_both_loops
async def test_a_key_that_is_not_hashable_is_the_error_of_its_image() -> None:
    async with service_of(number_of, cache_limit=1 << 20) as service:
        with pytest.raises(TypeError, match="hashable"):
            await service.gather([numbered(1)], key=[["a"]])
        for key in ([1], {}, (1, [2]), np.zeros(2)):
            for method in (service.get, service.probe):
                with pytest.raises(TypeError, match="key must be hashable"):
                    await method(numbered(1), key=key)
        found = await service.gather([numbered(1), numbered(2)], key=[["a"], "b"], on_error="return")
        assert isinstance(found[0], TypeError)
        assert found[1] == 2


@given(NESTED)
def test_each_reference_gets_the_key_in_its_place(refs: Any) -> None:
    found, build = flatten_references(refs)
    numbers = list(range(len(found)))
    assert flatten_keys(refs, build(numbers)) == numbers
    assert flatten_keys(refs, None) == [None] * len(found)


@given(NESTED, st.data())
def test_a_key_may_be_a_tuple(refs: Any, data: st.DataObject) -> None:
    found, build = flatten_references(refs)
    keys = [data.draw(st.tuples(st.integers(), st.text(max_size=1))) for _ in found]
    assert flatten_keys(refs, build(keys)) == keys
