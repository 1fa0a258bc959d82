"""Tests of `on_error=` of `map` and `pack`: a damaged prompt is raised, returned or left out."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import anyio
import pytest

import aioloader
from aioloader import AsyncImageService, ImageService
from aioloader.errors import BudgetError
from tests.aioloader.service.images import jpeg
from tests.aioloader.service.test_async_service import until
from tests.cases import on_both_loops

pytest.importorskip("PIL")

PROCESSOR = aioloader.transforms.Qwen2VLImageProcessor(max_pixels=28 * 28 * 16)
GOOD = jpeg(30, 30)
TRUNCATED = jpeg(60, 90)[:-200]  # its header is whole
Iterate = Callable[..., Any]

# Prompts by name: their references, and the error that each one has.
DAMAGED: dict[str, tuple[Any, type[Exception]]] = {
    "no image": ([GOOD, b"no image"], aioloader.ImageError),
    "truncated": ([TRUNCATED, GOOD], aioloader.ImageError),
    "not allowed": (["/etc/passwd"], aioloader.ImageNotAllowedError),
    "no reference": ([None], TypeError),
    "too deep": ([], aioloader.ImageReferenceError),
    "refs fails": ([], KeyError),
}
NAMES = ["a", *DAMAGED, "b"]


def refs_of(name: str) -> Any:
    if name == "too deep":
        endless: list[Any] = []
        endless.append(endless)
        return endless
    if name == "refs fails":
        raise KeyError(name)
    return DAMAGED[name][0] if name in DAMAGED else [GOOD]


@pytest.fixture(params=["map", "pack"])
def iterate(request: pytest.FixtureRequest) -> Iterate:
    def mapping(service: Any, prompts: Any, **options: Any) -> Any:
        return service.map(prompts, **{"refs": refs_of, "ordered": True, **options})

    def packing(service: Any, prompts: Any, **options: Any) -> Any:
        return service.pack(prompts, **{"refs": refs_of, "max_tokens": 32, "lookahead": 4, **options})

    made: Iterate = {"map": mapping, "pack": packing}[request.param]
    return made


def prompts_in(element: Any) -> list[str]:
    return element.prompts if isinstance(element, aioloader.service.packing.PromptBatch) else [element[0]]


def check(errors: list[Exception]) -> None:
    found = {error.prompt: type(error) for error in errors}  # type: ignore[attr-defined]
    assert found == {name: error for name, (_, error) in DAMAGED.items()}
    assert len(errors) == len(found)


def service_of(**options: Any) -> AsyncImageService:
    return AsyncImageService(PROCESSOR, num_workers=1, executor="thread", **options)


@on_both_loops
async def test_errors_are_raised_and_iteration_goes_on(iterate: Iterate) -> None:
    async with service_of() as service:
        elements, good, errors = iterate(service, NAMES), [], []
        while True:
            try:
                good += prompts_in(await anext(elements))
            except StopAsyncIteration:
                break
            except Exception as error:
                errors.append(error)
        assert good == ["a", "b"]
        check(errors)
        assert elements.errors == []


@on_both_loops
async def test_skipped_prompts_are_recorded(iterate: Iterate) -> None:
    async with service_of() as service:
        elements = iterate(service, NAMES, on_error="skip")
        assert [name async for each in elements for name in prompts_in(each)] == ["a", "b"]
        check(elements.errors)
        nothing = iterate(service, list(DAMAGED), on_error="skip")
        assert [each async for each in nothing] == []
        check(nothing.errors)


@on_both_loops
async def test_skipped_prompts_do_not_keep_their_images(iterate: Iterate) -> None:
    number, nbytes = 100, 100_000

    async def prompts() -> Any:
        for n in range(number):
            yield {"id": n, "images": [GOOD, b"%d no image" % n + bytes(nbytes)]}

    async with service_of() as service:
        options = {"refs": lambda prompt: prompt["images"], "on_error": "skip"}
        elements = iterate(service, prompts(), **options)
        assert await anext(iterate(service, ["a", *DAMAGED], on_error="skip"))  # imports all that is used
        tracemalloc.start()
        assert [each async for each in elements] == []

        def freed() -> bool:
            gc.collect()
            return tracemalloc.get_traced_memory()[0] < number * nbytes / 4

        try:
            await until(freed)
        finally:
            tracemalloc.stop()
        assert sorted(error.prompt["id"] for error in elements.errors) == list(range(number))
        assert {error.prompt["images"][1] for error in elements.errors} <= {
            f"<{nbytes + digits + 9} bytes>" for digits in (1, 2)
        }


class NamedPrompt(NamedTuple):
    number: int
    images: list[bytes]


@dataclass(frozen=True, slots=True)
class FrozenPrompt:
    number: int
    images: list[bytes]


def attrs_prompt(**fields: Any) -> Any:
    attrs = pytest.importorskip("attrs")
    return attrs.make_class("Prompt", list(fields), frozen=True)(**fields)


def pydantic_prompt(**fields: Any) -> Any:
    pydantic = pytest.importorskip("pydantic")
    kinds: Any = dict.fromkeys(fields, (Any, ...))
    return pydantic.create_model("Prompt", **kinds)(**fields)


@pytest.mark.parametrize("make", [NamedPrompt, FrozenPrompt, attrs_prompt, pydantic_prompt])
@on_both_loops
async def test_skipped_prompts_keep_their_form(make: Any, iterate: Iterate) -> None:
    prompt = make(number=7, images=[GOOD, bytes(100_000)])

    async with service_of() as service:
        elements = iterate(service, [prompt], refs=lambda prompt: prompt.images, on_error="skip")
        assert [each async for each in elements] == []
        kept = elements.errors[0].prompt
        assert type(kept) is type(prompt)
        assert (kept.number, kept.images[1:]) == (7, ["<100000 bytes>"])
        assert prompt.images[1] == bytes(100_000)


@on_both_loops
async def test_map_returns_errors_in_the_places_of_their_images() -> None:
    async with service_of() as service:
        found = {
            name: images
            async for name, images in service.map(NAMES, refs=refs_of, ordered=True, on_error="return")
        }
        assert list(found) == NAMES
        assert [isinstance(each, Exception) for each in found["no image"]] == [False, True]
        assert [isinstance(each, Exception) for each in found["truncated"]] == [True, False]
        for name, (_, error) in DAMAGED.items():
            # Where there are no places it is in that of all images.
            images = found[name] if isinstance(found[name], list) else [found[name]]
            assert any(isinstance(image, error) for image in images), name


@on_both_loops
async def test_pack_returns_errors_in_place_of_batches() -> None:
    async with service_of() as service:
        batches = service.pack(NAMES, refs=refs_of, max_tokens=32, lookahead=4, on_error="return")
        found = [each async for each in batches]
        check([each for each in found if isinstance(each, Exception)])
        assert [n for each in found if not isinstance(each, Exception) for n in each.prompts] == [
            "a",
            "b",
        ]
        assert batches.errors == []


@on_both_loops
async def test_a_prompt_over_the_budget_is_one_of_them() -> None:
    async with service_of() as service:
        prompts = [[GOOD], [jpeg(400, 400)], [GOOD]]
        found = service.pack(prompts, refs=list, max_tokens=8, on_error="return")
        error, batch = sorted(
            [each async for each in found], key=lambda each: not isinstance(each, BudgetError)
        )
        assert len(batch.prompts) == 2
        assert isinstance(error, BudgetError)
        assert error.prompt is prompts[1]


@on_both_loops
async def test_what_no_prompt_is_at_fault_for_is_raised(iterate: Iterate) -> None:
    """A service that is closed, and an iterable that fails, are not skipped."""

    async def endless() -> Any:
        while True:
            yield "a"

    def broken() -> Any:
        yield "a"
        raise OSError("the queue is gone")

    with anyio.fail_after(60):
        async with service_of() as service:
            elements = iterate(service, broken(), on_error="skip")
            assert prompts_in(await anext(elements)) == ["a"]
            with pytest.raises(OSError, match="the queue is gone"):
                await anext(elements)
            elements = iterate(service, endless(), on_error="skip")
            await anext(elements)
        with pytest.raises(aioloader.ServiceClosedError):
            async for _ in elements:
                pass


def test_the_blocking_twin_skips_too(iterate: Iterate) -> None:
    with ImageService(PROCESSOR, num_workers=1, executor="thread") as service:
        elements = iterate(service, NAMES, on_error="skip")
        assert [name for each in elements for name in prompts_in(each)] == ["a", "b"]
        check(elements.errors)


@on_both_loops
async def test_wrong_words_are_refused(iterate: Iterate) -> None:
    async with service_of() as service:
        for options in ({"on_error": "replace"}, {"key": "name"}, {"refs": "images"}):
            with pytest.raises((TypeError, ValueError), match=next(iter(options))):
                iterate(service, [], **options)


@dataclass(frozen=True)
class FrozenError(Exception):
    """Exception whose class forbids attributes."""

    name: str


SHARED = ValueError("raised for each of them")


@pytest.mark.parametrize("on_error", ["raise", "return"])
@pytest.mark.parametrize("kind", [FrozenError, lambda name: SHARED])
@on_both_loops
async def test_any_exception_of_refs_is_that_of_its_prompt(
    iterate: Iterate, on_error: str, kind: Any
) -> None:
    def refs(name: str) -> Any:
        if name.startswith("bad"):
            raise kind(name)
        return [GOOD]

    good, bad = [], []
    async with service_of() as service:
        elements = iterate(service, ["bad 1", "bad 2", "a", "bad 3"], refs=refs, on_error=on_error)
        while True:
            try:
                element = await anext(elements)
            except StopAsyncIteration:
                break
            except Exception as error:
                element = error
            # `map` returns the error of a whole prompt with the prompt.
            error = element[1] if isinstance(element, tuple) else element
            if isinstance(error, Exception):
                assert type(error) is type(kind("bad"))
                bad.append(vars(error)["prompt"])
            else:
                good += prompts_in(element)
    assert (good, sorted(bad)) == (["a"], ["bad 1", "bad 2", "bad 3"])
