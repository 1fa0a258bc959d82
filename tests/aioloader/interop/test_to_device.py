"""Tests of copies to a device ahead of the caller, async and blocking: a stop loses and repeats no batch."""

import json
import time

import anyio
import numpy as np
import pytest

from aioloader import AsyncDataLoader, DataLoader, SampleError, SimpleDataset
from tests.aioloader.loader.samples import Numbers
from tests.executors import pool

pytestmark = pytest.mark.torch
OPTIONS = {"shuffle": True, "seed": 9}


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


@pytest.fixture
def to_device(torch):
    from aioloader.interop.torch import to_device

    return to_device


@pytest.fixture(params=["cpu", pytest.param("cuda", marks=pytest.mark.gpu)])
def device(request, torch):
    if request.param == "cuda" and not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    return request.param


def numbers(batches):
    return [labels.tolist() for _, labels in batches]


def expected_batches(executor="inline"):
    with DataLoader(Numbers(50), 4, **pool(executor, 2), **OPTIONS) as loader:
        return numbers(loader)


@pytest.mark.parametrize(("executor", "ahead"), [("inline", 0), ("thread", 1), ("process", 3)])
def test_a_stop_loses_and_repeats_nothing(to_device, device, executor, ahead):
    expected = expected_batches()
    for stop in (0, 1, 5, 12, 13):
        with DataLoader(Numbers(50), 4, **pool(executor, 2), **OPTIONS) as loader:
            batches = to_device(loader, device, ahead)
            passing = iter(batches)
            got = [next(passing)[1].tolist() for _ in range(stop)]
            state = json.loads(json.dumps(batches.state_dict()))
        with to_device(DataLoader(Numbers(50), 4, num_workers=0, **OPTIONS), device, ahead) as other:
            other.load_state_dict(state)
            assert len(other) == 13 - stop
            assert got + numbers(other) == expected


@pytest.mark.parametrize(("executor", "ahead"), [("inline", 3), ("thread", 0), ("process", 1)])
def test_the_same_with_async_for(to_device, device, executor, ahead, run_on):
    expected = expected_batches()

    async def main():
        for stop in (0, 1, 5, 12, 13):
            options = {**pool(executor, 2), **OPTIONS}
            async with to_device(AsyncDataLoader(Numbers(50), 4, **options), device, ahead) as batches:
                passing = aiter(batches)
                got = [(await anext(passing))[1].tolist() for _ in range(stop)]
                state = json.loads(json.dumps(batches.state_dict()))
            loader = AsyncDataLoader(Numbers(50), 4, num_workers=1, executor="thread", **OPTIONS)
            async with to_device(loader, device, ahead) as other:
                other.load_state_dict(state)
                assert len(other) == 13 - stop
                got += [labels.tolist() async for _, labels in other]
                assert got == expected

    run_on(main)


def test_what_is_ready_is_taken_ahead_and_does_not_count(torch, to_device):
    with DataLoader(Numbers(50), 4, num_workers=1, executor="thread", **OPTIONS) as loader:
        batches = to_device(loader, "cpu", 2)
        passing = iter(batches)
        first = next(passing)[1].tolist()
        while not passing._batches.ready:
            time.sleep(0.001)
        second = next(passing)[1].tolist()
        state = batches.state_dict()
        inner = loader.state_dict()
    other = DataLoader(Numbers(50), 4, num_workers=0, **OPTIONS)
    other.load_state_dict(state)
    assert [first, second, *numbers(other)] == expected_batches()
    assert inner["consumed"] >= state["consumed"] == 8


def test_it_is_iterated_as_its_loader_is(to_device):
    with pytest.raises(TypeError, match="async for"):
        iter(to_device(AsyncDataLoader(Numbers(8), 4), "cpu"))
    with pytest.raises(TypeError, match=r"aioloader\.AsyncDataLoader"):
        aiter(to_device(DataLoader(Numbers(8), 4), "cpu"))


@pytest.mark.parametrize("face", [DataLoader, AsyncDataLoader])
def test_a_copy_that_fails_loses_nothing_and_can_be_tried_again(to_device, run_on, face):
    """A failed copy, as when the device has no memory left, can be retried."""
    failures = [MemoryError("no room")]

    def start(batch, go_on):
        if batch[1].tolist()[0] == 8 and failures:
            raise failures.pop()
        return go_on(batch)

    async def main():
        batches = to_device(face(Numbers(50), 4, num_workers=0), "cpu", 0)
        go_on = batches._mover.start
        batches._mover.start = lambda batch: start(batch, go_on)
        passing = aiter(batches) if face is AsyncDataLoader else iter(batches)

        async def following():
            return await anext(passing) if face is AsyncDataLoader else next(passing)

        got = [(await following())[1].tolist() for _ in range(2)]
        with pytest.raises(MemoryError, match="no room"):
            await following()
        assert batches.state_dict()["consumed"] == 8
        got += [(await following())[1].tolist() for _ in range(11)]
        assert sum(got, []) == list(range(50))

    run_on(main)


def test_other_loaders_are_refused(torch, to_device):
    loader = DataLoader(Numbers(8), 4, num_workers=0)
    theirs = torch.utils.data.DataLoader(Numbers(8))
    for other in (theirs, to_device(loader, "cpu"), [1]):
        with pytest.raises(TypeError, match=r"needs an aioloader\.DataLoader or AsyncDataLoader.* got "):
            to_device(other, "cpu")


def test_arrays_of_jax_are_refused(to_device):
    pytest.importorskip("jax")
    with pytest.raises(ValueError, match="use output='numpy' or 'torch'"):
        to_device(DataLoader(Numbers(8), 4, num_workers=0, output="jax"), "cpu")


def test_it_has_what_its_loader_has(to_device):
    batches = to_device(DataLoader(Numbers(8, fail=(2,)), 4, num_workers=0, on_error="skip"), "cpu")
    assert sum(numbers(batches), []) == [0, 1, 3, 4, 5, 6, 7]
    assert [error.index for error in batches.errors] == [2]
    assert batches.error_report()["count"] == 1
    assert batches.receipt() == batches.loader.receipt()
    batches.check_receipt(batches.receipt())


def test_tensors_and_functions_results_are_moved_too(torch, to_device, device):
    for output in ("torch", lambda batch: {"x": torch.from_numpy(batch[0]), "names": ["a"]}):
        loader = DataLoader(Numbers(8), 4, num_workers=0, output=output)
        for batch in to_device(loader, device):
            tensor = batch["x"] if isinstance(batch, dict) else batch[0]
            assert tensor.device.type == device
            assert tensor[0, 0, 0] in (0, 4)


def test_a_cancelled_call_loses_nothing(to_device, run_on):
    async def main():
        options = {"num_workers": 1, "executor": "thread", **OPTIONS}
        async with to_device(AsyncDataLoader(Numbers(50, pause_s=0.002), 4, **options), "cpu") as batches:
            passing, got = aiter(batches), []
            while len(got) < 13:
                with anyio.move_on_after(0.003):
                    got.append((await anext(passing))[1].tolist())
            with pytest.raises(StopAsyncIteration):
                await anext(passing)
            return got

    assert run_on(main) == expected_batches()


def test_what_came_before_an_error_is_handed_out_and_then_it_is_over(to_device, run_on):
    async def main():
        loader = AsyncDataLoader(Numbers(50, fail=(22,)), 4, num_workers=2, executor="thread")
        async with to_device(loader, "cpu", 3) as batches:
            passing, got = aiter(batches), []
            with pytest.raises(SampleError):
                async for _, labels in passing:
                    got.append(labels.tolist())
            assert got == [list(range(start, start + 4)) for start in range(0, 20, 4)]
            assert await anext(passing, "over") == "over"
            assert len(batches.errors) == 1
            assert batches.stats().batches == 5
            assert batches.explain()

    run_on(main)


def test_two_tasks_do_not_wait_for_the_same_batch(to_device, run_on):
    async def main():
        loader = AsyncDataLoader(Numbers(50, pause_s=0.01), 4, num_workers=1, executor="thread", **OPTIONS)
        async with to_device(loader, "cpu") as batches:
            passing, refused = aiter(batches), []

            async def ask():
                try:
                    await anext(passing)
                except RuntimeError as error:
                    refused.append(str(error))

            async with anyio.create_task_group() as tasks:
                tasks.start_soon(ask)
                tasks.start_soon(ask)
            assert len(refused) == 1
            assert len([batch async for batch in passing]) == 12

    run_on(main)


def test_a_device_that_is_not_there(torch, to_device, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.raises(RuntimeError, match="no CUDA device here for device='cuda'"):
        to_device(DataLoader(Numbers(8), 4))
    with pytest.raises(ValueError, match="ahead"):
        to_device(DataLoader(Numbers(8), 4), "cpu", -1)


@pytest.mark.gpu
def test_batches_on_the_gpu_are_right_while_memory_is_scarce_and_kernels_are_slow(torch, to_device):
    """Slabs are reused at once, but not while copies or kernels still read them."""
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")

    class Large:
        def __len__(self):
            return 256

        def __getitem__(self, index):
            return np.full((256, 256), index, np.float32)

    busy = torch.randn(4096, 4096, device="cuda")
    sums = []
    loader = DataLoader(Large(), 8, num_workers=4, executor="thread", memory_limit=16 << 20)
    for batch in to_device(loader, "cuda", 2):
        busy = busy @ busy
        busy /= busy.norm()
        sums.append(batch.double().sum((1, 2)))
        del batch
    loader.close()
    assert torch.cat(sums).tolist() == [index * 256 * 256 for index in range(256)]


@pytest.mark.gpu
def test_pinned_batches_are_copied_as_they_are(torch, to_device):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    loader = DataLoader(Numbers(50), 4, num_workers=0, output="torch", pin_memory=True, **OPTIONS)
    batches = to_device(loader, "cuda")
    assert numbers(batches) == expected_batches()


def test_a_stateful_loader_has_the_attributes_of_its_loader(to_device):
    dataset = SimpleDataset([1, 2, 3])
    batches = to_device(DataLoader(dataset, 2, num_workers=0, drop_last=True), "cpu")
    assert (batches.dataset, batches.batch_size, batches.num_workers, batches.drop_last) == (
        dataset,
        2,
        0,
        True,
    )
