"""Tests that what several callers have is read-only or each one's own: joined requests and images from the cache."""

from __future__ import annotations

import collections
import pickle
import threading
from dataclasses import dataclass
from typing import Any, NamedTuple

import anyio
import numpy as np
import pytest

import aioloader
from aioloader import AsyncImageService
from aioloader.errors import ImageError
from tests.aioloader.service.images import jpeg, numbered, service_of
from tests.cases import on_both_loops, with_cases


class Pair(NamedTuple):
    image: Any
    facts: Any


@dataclass
class Record:
    image: Any
    facts: Any


class Opaque:
    """Object of a user's class, with state that no one else knows of."""

    def __init__(self, facts: list[int]) -> None:
        self.facts = facts


def everything(image: Any) -> dict[str, Any]:
    """Return all kinds of values that can be changed in place, in one another."""
    floats = image.astype(np.float32)
    objects = np.empty(2, object)
    objects[:] = [[1, 2], image[:2].copy()]
    rows = np.zeros(2, [("a", np.int32), ("b", object)])
    rows["b"] = [[1], [2]]
    values = {
        "array": image.copy(),
        "float": floats,
        "scalar": floats.mean(),
        "empty": np.zeros((0, 3)),
        "list": [1, [2, {"a": [3]}]],
        "tuple": ([1], (image[:1].copy(), {"b": 2})),
        "named": Pair(floats.copy(), [1]),
        "record": Record(floats.copy(), {"c": [1]}),
        "set": {1, 2},
        "bytes": bytearray(b"abc"),
        "deque": collections.deque([[1], 2]),
        "counter": collections.OrderedDict(a=[1]),
        "objects": objects,
        "rows": rows,
        "row": np.zeros(1, [("a", np.int32)])[0],
        "masked": np.ma.masked_equal(np.arange(4), 2),
        "opaque": Opaque([1, 2]),
        "text": "text",
    }
    return {**values, "nested": {"again": [values["list"], values["array"]]}}


def unmasked(image: Any) -> dict[str, Any]:
    """Return all kinds of values that JAX takes."""
    values = everything(image)
    del values["masked"]
    return values


def nothing_but_pixels(image: Any) -> Any:
    return image


def tensors(image: Any) -> Any:
    import torch

    return {"tensor": torch.from_numpy(image.astype(np.float32)), "bytes": bytearray(b"abc")}


def described(value: Any) -> Any:
    """Return a description of a value and all that is in it, which nothing that happens later changes."""
    if isinstance(value, np.ma.MaskedArray):
        return described(value.filled(99))
    if isinstance(value, np.ndarray):
        content = described(value.tolist()) if value.dtype.hasobject else value.tobytes()
        return value.dtype.str, value.shape, content
    if type(value).__module__.partition(".")[0] in ("torch", "jaxlib"):
        return described(np.asarray(value))
    if isinstance(value, dict):
        return {key: described(child) for key, child in value.items()}
    if isinstance(value, (list, tuple, collections.deque)):
        return type(value).__name__, [described(child) for child in value]
    if isinstance(value, (Record, Opaque)):
        return described(vars(value))
    return pickle.dumps(value)


def spoil(value: Any) -> None:
    """Change all that can be changed of a value and of what is in it."""
    if isinstance(value, np.ma.MaskedArray):
        value[:] = np.ma.masked
    elif isinstance(value, (np.ndarray, np.void)):
        if value.dtype.hasobject and value.dtype.names is None:
            for child in value.ravel():
                spoil(child)
        if isinstance(value, np.ndarray) and value.flags.writeable:
            value[...] = np.zeros((), value.dtype)
        if isinstance(value, np.ndarray) and value.ndim > 1:
            value.shape = (-1,)  # of a read-only array too
        if isinstance(value, np.void) and value.dtype.names is not None:
            value["a"] = 7
    elif type(value).__module__.partition(".")[0] == "torch":
        value.zero_()
    elif type(value).__module__.partition(".")[0] == "jaxlib":
        import torch

        torch.from_dlpack(value).zero_()
    elif isinstance(value, (dict, set, list, collections.deque)):
        for child in list(value.values() if isinstance(value, dict) else value):
            spoil(child)
        value.clear()
    elif isinstance(value, bytearray):
        value[:] = b"xyz"
    elif isinstance(value, tuple):
        for child in value:
            spoil(child)
    elif isinstance(value, (Record, Opaque)):
        spoil(list(vars(value).values()))
        vars(value).clear()


CASES = [
    (everything, "process", "numpy"),
    (everything, "thread", "numpy"),
    (nothing_but_pixels, "thread", "numpy"),
    (None, "process", "numpy"),
    (tensors, "thread", "numpy"),
    *[(made, "thread", "torch") for made in (everything, None, tensors)],
    *[(made, "thread", "jax") for made in (unmasked, None, tensors)],
]


@with_cases("cache_limit", [0, 1 << 26])
@with_cases(("processor", "executor", "output"), CASES)
async def test_no_caller_changes_what_another_has(
    processor: Any, executor: str, output: str, cache_limit: int
) -> None:
    if output == "jax":
        pytest.importorskip("jax")
    if output != "numpy" or processor is tensors:
        pytest.importorskip("torch")

    async with AsyncImageService(
        processor, num_workers=1, executor=executor, output=output, cache_limit=cache_limit
    ) as service:
        for photo in (numbered(3, 4), jpeg(220, 220)):
            right = described(await service.get(photo))
            first, second = await service.gather([photo, {"b": photo}])
            ways = [first, second["b"]]
            async for _, images in service.map([0, 1], refs=lambda _, photo=photo: [photo, photo]):
                ways += images
            ways.append(await service.get(photo))
            assert (service.stats().cache_hits if cache_limit else service.stats().joined) > 1
            while ways:
                one = ways.pop(0)
                assert described(one) == right
                spoil(one)
            assert described(await service.get(photo)) == right


@on_both_loops
async def test_no_batch_of_prompts_changes_what_the_cache_has() -> None:
    processor = aioloader.transforms.Qwen2VLImageProcessor(max_pixels=28 * 28 * 16)

    async with service_of(processor, cache_limit=1 << 24) as service:
        refs = {"refs": lambda _: [jpeg(60, 60)], "max_tokens": 16}
        for _ in range(2):
            async for batch in service.pack([0, 1, 2], **refs):
                assert batch.pixel_values.any()
                spoil([batch.pixel_values, batch.image_grid_thw, batch.cu_seqlens, batch.owners])
        image = await service.get(jpeg(60, 60))
        assert image["pixel_values"].any()
        assert image["image_grid_thw"].tolist() == [[1, 4, 4]]


@on_both_loops
async def test_what_cannot_be_copied_is_not_shared() -> None:
    def processor(image: Any) -> Any:
        return {"lock": threading.Lock()}

    async with service_of(processor) as service:
        assert "lock" in await service.get(numbered(1))
        with anyio.fail_after(30):
            found = await service.gather([numbered(1), numbered(1)], on_error="return")
        for error in found:
            assert isinstance(error, ImageError)
            assert "lock" in error.reason
            assert "arrays" in error.reason
