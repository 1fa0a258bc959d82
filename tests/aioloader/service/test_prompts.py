"""Tests of the images of prompts, by `map` and by `pack`: how prompts are taken, their errors, and how it ends."""

from __future__ import annotations

import gc
import tracemalloc
from collections.abc import AsyncIterator, Callable
from dataclasses import dataclass
from typing import Any, NamedTuple

import anyio
import numpy as np
import pytest

import aioloader
from aioloader import ImageService
from aioloader.errors import BudgetError, ServiceClosedError
from tests.aioloader.service.images import Gate, fails, jpeg, numbered, service_of, until
from tests.cases import on_both_loops, with_cases

pytest.importorskip("PIL")

PROCESSOR = aioloader.transforms.Qwen2VLImageProcessor(max_pixels=28 * 28 * 16)
GOOD = jpeg(30, 30)
TRUNCATED = jpeg(60, 90)[:-200]  # its header is whole
Iterate = Callable[..., Any]


@pytest.fixture(params=["map", "pack"])
def iterate(request: pytest.FixtureRequest) -> Iterate:
    """Return a function that iterates over the images of prompts."""

    def mapping(service: Any, prompts: Any, **options: Any) -> Any:
        return service.map(prompts, **{"refs": refs_of, "ordered": True, **options})

    def packing(service: Any, prompts: Any, **options: Any) -> Any:
        return service.pack(prompts, **{"refs": refs_of, "max_tokens": 32, "lookahead": 4, **options})

    made: Iterate = {"map": mapping, "pack": packing}[request.param]
    return made


def prompts_in(element: Any) -> list[str]:
    return element.prompts if isinstance(element, aioloader.service.packing.PromptBatch) else [element[0]]


# -- how prompts are taken ---------------------------------------------------------------------------------------------


def pair_of(prompt: int) -> list[bytes]:
    return [numbered(prompt), numbered(prompt + 100)]


@with_cases("asynchronous", [True, False])
@with_cases("ordered", [True, False])
@on_both_loops
async def test_all_prompts_come_with_their_images(asynchronous: bool, ordered: bool) -> None:
    async def generated() -> AsyncIterator[int]:
        for prompt in range(20):
            await anyio.lowlevel.checkpoint()
            yield prompt

    async with service_of(fails, num_workers=2) as service:
        prompts: Any = generated() if asynchronous else range(20)
        mapping = service.map(prompts, refs=lambda n: [numbered(2 * n)], ordered=ordered, ahead=4)
        found = [pair async for pair in mapping]
    assert sorted(found) == [(n, [2 * n]) for n in range(20)]
    if ordered:
        assert found == sorted(found)


@on_both_loops
async def test_prompts_are_taken_only_so_far_ahead() -> None:
    taken = []

    def prompts() -> Any:
        for prompt in range(100):
            taken.append(prompt)
            yield prompt

    async with service_of(Gate()) as service:
        mapping = service.map(prompts(), refs=pair_of, ordered=True, ahead=5)
        await anext(mapping)
        await until(lambda: service.stats().pending == 0)
        assert len(taken) in (5, 6)
        await mapping.aclose()


@on_both_loops
async def test_without_order_a_slow_prompt_holds_no_other() -> None:
    gate = Gate(closed=(0,))

    async with service_of(gate, num_workers=2) as service:
        found = []
        async for prompt, _ in service.map(range(4), refs=pair_of):
            found.append(prompt)
            if len(found) == 3:
                gate.open()
        assert found[3] == 0


@on_both_loops
async def test_draws_have_the_number_that_was_asked_for() -> None:
    photo = jpeg(60, 80)

    async with service_of(aioloader.transforms.RandomResizedCrop(24)) as service:
        expected = [await service.get(photo, draw=draw) for draw in range(3)]
        assert not np.array_equal(expected[0], expected[1])
        for draw in range(3):
            ((_, image),) = [each async for each in service.map([photo], refs=lambda ref: ref, draw=draw)]
            assert np.array_equal(image, expected[draw])


async def _asynchronous(prompt: Any) -> Any:
    return prompt


WRONG: dict[str, list[Any]] = {
    "prompts": [3],
    "refs": [3, "images", _asynchronous],
    "key": ["name", _asynchronous],
    "on_error": ["replace"],
    "draw": [-1, 0.5],
    "ahead": [0],
    "max_tokens": [0],
    "lookahead": [0],
}


@on_both_loops
async def test_wrong_arguments_are_refused() -> None:
    async with service_of(PROCESSOR) as service:
        for name, values in WRONG.items():
            for value in values:
                given: dict[str, Any] = {"prompts": [], "refs": list, name: value}
                if name not in ("max_tokens", "lookahead"):
                    with pytest.raises((TypeError, ValueError), match=name):
                        service.map(**given)
                if name not in ("draw", "ahead"):
                    with pytest.raises((TypeError, ValueError), match=name):
                        service.pack(**{"max_tokens": 8, **given})
    async with service_of() as service:
        with pytest.raises(TypeError, match="announces sizes"):
            service.pack([GOOD], refs=lambda ref: ref, max_tokens=8)


# -- errors ------------------------------------------------------------------------------------------------------------

# Prompts by name: their references, and the error that each one has.
DAMAGED: dict[str, tuple[Any, type[Exception]]] = {
    "no image": ([GOOD, b"no image"], aioloader.ImageError),
    "no images": ([b"no image", b"nor this", GOOD], aioloader.ImageError),
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


def check(errors: list[tuple[str, Exception]]) -> None:
    """Check errors with the prompts that they had when they were received."""
    found = {prompt: type(error) for prompt, error in errors}
    assert found == {name: error for name, (_, error) in DAMAGED.items()}
    assert len(errors) == len(found)


def recorded(elements: Any) -> list[tuple[Any, Exception]]:
    return [(error.prompt, error) for error in elements.errors]


async def all_of(elements: Any) -> tuple[list[Any], list[tuple[Any, Exception]]]:
    """Return the good prompts of an iterator, and the errors that it raised or returned, each with its prompt."""
    good, errors = [], []
    while True:
        try:
            element = await anext(elements)
        except StopAsyncIteration:
            return good, errors
        except Exception as error:
            element = error
        # `map` returns the error of a whole prompt with the prompt.
        found = element[1] if isinstance(element, tuple) else element
        if isinstance(found, Exception):
            errors.append((getattr(found, "prompt", None), found))
        else:
            good += prompts_in(element)


@on_both_loops
async def test_errors_are_raised_and_iteration_goes_on(iterate: Iterate) -> None:
    async with service_of(PROCESSOR) as service:
        elements = iterate(service, NAMES)
        good, errors = await all_of(elements)
        assert good == ["a", "b"]
        check(errors)
        assert elements.errors == []


@on_both_loops
async def test_skipped_prompts_are_recorded(iterate: Iterate) -> None:
    async with service_of(PROCESSOR) as service:
        elements = iterate(service, NAMES, on_error="skip")
        assert await all_of(elements) == (["a", "b"], [])
        check(recorded(elements))
        nothing = iterate(service, list(DAMAGED), on_error="skip")
        assert await all_of(nothing) == ([], [])
        check(recorded(nothing))


@on_both_loops
async def test_skipped_prompts_do_not_keep_their_images(iterate: Iterate) -> None:
    number, nbytes = 100, 100_000

    async def prompts() -> Any:
        for n in range(number):
            yield {"id": n, "images": [GOOD, b"%d no image" % n + bytes(nbytes)]}

    async with service_of(PROCESSOR) as service:
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


@with_cases("make", [NamedPrompt, FrozenPrompt, attrs_prompt, pydantic_prompt])
@on_both_loops
async def test_skipped_prompts_keep_their_form(make: Any, iterate: Iterate) -> None:
    prompt = make(number=7, images=[GOOD, bytes(100_000)])

    async with service_of(PROCESSOR) as service:
        elements = iterate(service, [prompt], refs=lambda prompt: prompt.images, on_error="skip")
        assert [each async for each in elements] == []
        kept = elements.errors[0].prompt
        assert type(kept) is type(prompt)
        assert (kept.number, kept.images[1:]) == (7, ["<100000 bytes>"])
        assert prompt.images[1] == bytes(100_000)


@on_both_loops
async def test_map_returns_errors_in_the_places_of_their_images() -> None:
    async with service_of(PROCESSOR) as service:
        mapping = service.map(NAMES, refs=refs_of, ordered=True, on_error="return")
        found = {name: images async for name, images in mapping}
        assert list(found) == NAMES
        assert [isinstance(each, Exception) for each in found["no image"]] == [False, True]
        assert [isinstance(each, Exception) for each in found["truncated"]] == [True, False]
        for name, (_, error) in DAMAGED.items():
            # Where there are no places it is in that of all images.
            images = found[name] if isinstance(found[name], list) else [found[name]]
            assert any(isinstance(image, error) for image in images), name


@on_both_loops
async def test_pack_returns_errors_in_place_of_batches() -> None:
    async with service_of(PROCESSOR) as service:
        batches = service.pack(NAMES, refs=refs_of, max_tokens=32, lookahead=4, on_error="return")
        good, errors = await all_of(batches)
        assert good == ["a", "b"]
        check(errors)
        assert batches.errors == []
        prompts = [[GOOD], [jpeg(400, 400)], [GOOD]]
        good, errors = await all_of(service.pack(prompts, refs=list, max_tokens=8, on_error="return"))
        assert good == [[GOOD], [GOOD]]
        ((prompt, error),) = errors
        assert isinstance(error, BudgetError)
        assert prompt is prompts[1]


@on_both_loops
async def test_what_no_prompt_is_at_fault_for_is_raised(iterate: Iterate) -> None:
    """A service that is closed, and an iterable that fails, are not skipped."""

    async def endless() -> Any:
        while True:
            yield "a"

    def broken() -> Any:
        yield from ("a", "b")
        raise OSError("the queue is gone")

    with anyio.fail_after(60):
        async with service_of(PROCESSOR) as service:
            elements = iterate(service, broken(), on_error="skip")
            good, errors = await all_of(elements)
            assert good == ["a", "b"]
            assert [str(error) for _, error in errors] == ["the queue is gone"]
            elements = iterate(service, endless(), on_error="skip")
            await anext(elements)
        with pytest.raises(aioloader.ServiceClosedError):
            async for _ in elements:
                pass


def test_the_blocking_twin_skips_too(iterate: Iterate) -> None:
    with ImageService(PROCESSOR, num_workers=1, executor="thread") as service:
        elements = iterate(service, NAMES, on_error="skip")
        assert [name for each in elements for name in prompts_in(each)] == ["a", "b"]
        check(recorded(elements))


@dataclass(frozen=True)
class FrozenError(Exception):
    """Exception whose class forbids attributes."""

    name: str


SHARED = ValueError("raised for each of them")


@with_cases("on_error", ["raise", "return"])
@with_cases("kind", [FrozenError, lambda name: SHARED])
@on_both_loops
async def test_any_exception_of_refs_is_that_of_its_prompt(
    iterate: Iterate, on_error: str, kind: Any
) -> None:
    def refs(name: str) -> Any:
        if name.startswith("bad"):
            raise kind(name)
        return [GOOD]

    async with service_of(PROCESSOR) as service:
        elements = iterate(service, ["bad 1", "bad 2", "a", "bad 3"], refs=refs, on_error=on_error)
        good, errors = await all_of(elements)
    assert good == ["a"]
    assert sorted(prompt for prompt, _ in errors) == ["bad 1", "bad 2", "bad 3"]
    assert {type(error) for _, error in errors} == {type(kind("bad"))}


# -- how it ends -------------------------------------------------------------------------------------------------------


class Prompts:
    """Prompts that stop coming after `count` of them, in a generator that has a scope open.

    Attributes:
        waiting: set when no more come.
        closed: the generator has ended.
    """

    def __init__(self, count: int) -> None:
        self.count = count
        self.waiting = anyio.Event()
        self.closed = False

    async def generate(self) -> AsyncIterator[str]:
        try:
            # Its scope has to end in the task in which it began.
            with anyio.fail_after(60):
                for _ in range(self.count):
                    yield "a"
                self.waiting.set()
                await anyio.sleep_forever()
        finally:
            self.closed = True


@on_both_loops
async def test_closing_the_service_ends_an_iterator_that_waits_for_prompts(
    iterate: Iterate, leftovers: Any
) -> None:
    prompts = Prompts(0)
    raised: list[str] = []

    async def wait(elements: Any) -> None:
        try:
            await anext(elements)
        except Exception as error:
            raised.append(type(error).__name__)

    with anyio.fail_after(30):
        async with anyio.create_task_group() as tasks:
            async with service_of(PROCESSOR) as service:
                elements = iterate(service, prompts.generate())
                tasks.start_soon(wait, elements)
                await prompts.waiting.wait()
        assert raised == ["ServiceClosedError"]
        assert prompts.closed
        with pytest.raises(StopAsyncIteration):
            await anext(elements)


@on_both_loops
async def test_an_iterator_that_is_kept_leaves_no_task_behind(iterate: Iterate, leftovers: Any) -> None:
    with anyio.fail_after(30):
        prompts = Prompts(500)
        async with service_of(PROCESSOR) as service:
            elements = iterate(service, prompts.generate())
            unused = iterate(service, ["a"])
            await anext(elements)
        assert prompts.closed
        with pytest.raises((ServiceClosedError, StopAsyncIteration)):
            while True:
                await anext(elements)
        for _ in range(2):
            with pytest.raises(ServiceClosedError):
                await anext(unused)


@with_cases("way", ["dropped", "closed"])
@on_both_loops
async def test_leaving_closes_the_generator_of_the_prompts_in_its_own_task(
    way: str, iterate: Iterate, leftovers: Any
) -> None:
    plainly_closed = []

    def plain() -> Any:
        try:
            while True:
                yield "a"
        finally:
            plainly_closed.append(True)

    with anyio.fail_after(30):
        async with service_of(PROCESSOR) as service:
            prompts = Prompts(500)
            given: Any
            for given in (prompts.generate(), plain()):
                elements = iterate(service, given)
                await anext(elements)
                if way == "closed":
                    await elements.aclose()
                    with pytest.raises(StopAsyncIteration):
                        while True:
                            await anext(elements)
                del elements
                if way == "dropped":
                    gc.collect()
            await until(lambda: prompts.closed and plainly_closed)
            await until(lambda: service.stats().pending == 0)


@on_both_loops
async def test_leaving_the_loop_gives_the_images_up(leftovers: Any) -> None:
    gate = Gate(closed=tuple(range(5, 200)))

    async with service_of(gate) as service:
        async for prompt, _ in service.map(range(50), refs=lambda n: [numbered(n)], ahead=10):
            assert prompt < 5
            break
        gc.collect()
        await until(lambda: service.stats().pending == 0)
        gate.open()
