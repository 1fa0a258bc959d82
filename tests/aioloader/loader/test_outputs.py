"""Tests of `output` and `pin_memory`, the same for the async and the blocking loader."""

import dataclasses
import gc
import importlib
import pickle
import sys
from collections import namedtuple

import anyio
import anyio.from_thread
import numpy as np
import pytest

import aioloader
from aioloader import ArrayDataset, AsyncDataLoader, DataLoader, ImageRecordDataset
from aioloader.errors import MissingPackageError, OutputError
from tests.aioloader.loader.samples import Made, Numbers, churn, labels
from tests.cases import with_cases
from tests.executors import pool

Pair = namedtuple("Pair", "image number")


@dataclasses.dataclass
class Both:
    image: object
    name: object


def nest(index):
    """Return an index in tuples, dicts, a named tuple and a dataclass, with a text and an object."""
    image = np.full((3, 2), index, np.float32)
    both = Both(image.astype(np.float16), f"item {index}")
    return {"pair": Pair(image, index), "both": both, "rest": (np.uint16(index), [index > 5, None])}


NESTED = Made(12, nest)


def take(kind, dataset, batch_size=4, **options):
    """Return all batches of one epoch, by ``for`` or by ``async for``."""
    if kind == "for":
        with DataLoader(dataset, batch_size, **options) as loader:
            return list(loader)

    async def main():
        async with AsyncDataLoader(dataset, batch_size, **options) as loader:
            return [batch async for batch in loader]

    return anyio.run(main)


FACES = ["for", "async for"]
NO_TENSORS = (np.zeros(2, "M8[s]"), np.array(["a"]), np.zeros(2, "f4,i4"), np.longdouble([1]), "text", None)


# --- a function ---


@with_cases("face", FACES)
@with_cases("executor", ["inline", "thread"])
def test_a_function_is_given_the_batch_and_gives_what_is_handed_out(face, executor):
    got = take(face, Numbers(10), **pool(executor, 2), output=lambda batch: ("made", batch[1]))
    assert [(word, labels.tolist()) for word, labels in got] == [
        ("made", [0, 1, 2, 3]),
        ("made", [4, 5, 6, 7]),
        ("made", [8, 9]),
    ]


def fails_at_4(batch):
    if 4 in batch[1]:
        raise KeyError("four")
    return batch


async def failing(face, **options):
    """Return what comes before an output fails, its error, what comes next, and the state."""
    options = {"batch_size": 4, "output": fails_at_4, **options}
    if face == "for":
        with DataLoader(Numbers(12), **options) as loader:
            batches, got = iter(loader), []
            with pytest.raises(OutputError) as caught:
                got.extend(batches)
            return got, caught.value, next(batches, "over"), loader.state_dict()
    async with AsyncDataLoader(Numbers(12), **options) as loader:
        batches, got = aiter(loader), []
        with pytest.raises(OutputError) as caught:
            async for batch in batches:
                got.append(batch)
        return got, caught.value, await anext(batches, "over"), loader.state_dict()


@with_cases("face", FACES)
@with_cases("executor", ["inline", "thread"])
async def test_its_error_has_the_batch_and_the_state_goes_on_with_it(face, executor):
    got, error, after, state = await failing(face, **pool(executor, 2))
    assert (labels(got), after) == ([[0, 1, 2, 3]], "over")
    assert isinstance(error.__cause__, KeyError)
    assert "KeyError: 'four'" in str(error)
    assert error.batch[1].tolist() == [4, 5, 6, 7]
    with DataLoader(Numbers(12), 4, **pool(executor, 2)) as again:
        again.load_state_dict(state)
        assert labels(again) == [[4, 5, 6, 7], [8, 9, 10, 11]]


def test_the_memory_of_a_batch_that_a_function_dropped_is_used_again():
    with DataLoader(Numbers(400), 10, num_workers=2, executor="thread", output=lambda batch: None) as loader:
        assert list(loader) == [None] * 40
        gc.collect()
        assert loader.stats().memory_bytes == 0


# --- options ---


@with_cases("output", ["tensor", "Torch", "", None, 3, b"torch"])
def test_an_unknown_output_is_refused(output):
    with pytest.raises(ValueError, match="output must be one of 'numpy', 'torch', 'jax' or a function"):
        DataLoader(Numbers(), 4, output=output)


def test_an_async_function_is_refused():
    async def later(batch):
        return batch

    class Later:
        async def __call__(self, batch):
            return batch

    for output in (later, Later()):
        with pytest.raises(TypeError, match="await it in the body of your loop"):
            DataLoader(Numbers(), 4, output=output)
    DataLoader(Numbers(), 4, output=Later)  # constructing one does not block


@pytest.mark.parametrize("package", ["torch", "jax"])
def test_a_package_that_is_not_there_is_named(package, monkeypatch):
    monkeypatch.setitem(sys.modules, package, None)
    with pytest.raises(MissingPackageError, match=rf'pip install "aioloader\[{package}\]"') as caught:
        AsyncDataLoader(Numbers(), 4, output=package)
    assert isinstance(caught.value, ImportError)
    assert isinstance(caught.value, aioloader.LoaderError)
    assert pickle.loads(pickle.dumps(caught.value)).package == caught.value.name == package
    if package == "torch":
        for name in [each for each in sys.modules if each.startswith("aioloader.interop.torch")]:
            monkeypatch.delitem(sys.modules, name)
        with pytest.raises(MissingPackageError):
            importlib.import_module("aioloader.interop.torch")


@pytest.mark.parametrize("output", ["numpy", list])
def test_memory_that_cannot_be_pinned_is_reported_once(output):
    with pytest.warns(UserWarning, match="pin_memory has no effect: output=.*output='torch'") as told:
        loader = DataLoader(Numbers(8), 4, pin_memory=True, output=output, num_workers=0)
    assert len(told) == 1
    assert told[0].filename == __file__
    assert len(list(loader)) == 2


# --- torch ---


@pytest.fixture
def torch():
    return pytest.importorskip("torch")


def all_of(torch, tree, pick):
    from aioloader.foundation.pytree import flatten

    return [pick(leaf) for leaf in flatten(tree)[1] if isinstance(leaf, torch.Tensor)]


@pytest.mark.parametrize("face", FACES)
@pytest.mark.parametrize(
    "output", [pytest.param(name, marks=getattr(pytest.mark, name)) for name in ("torch", "jax")]
)
def test_tensors_have_the_structure_and_the_values_of_the_arrays(output, face, executor):
    package = pytest.importorskip(output)
    package = package if output == "torch" else package.numpy
    options = {**pool(executor, 2)}
    arrays, tensors = (take(face, NESTED, output=kind, **options) for kind in ("numpy", output))
    for expected, got in zip(arrays, tensors, strict=True):
        assert list(got) == ["pair", "both", "rest"]
        assert type(got["pair"]) is Pair
        assert type(got["both"]) is Both
        assert got["both"].name == expected["both"].name  # texts
        assert type(got["rest"]) is tuple
        assert got["rest"][1][1] == [None] * 4
        pairs = [
            (got["pair"].image, expected["pair"].image, package.float32),
            (got["pair"].number, expected["pair"].number, package.int64 if output == "torch" else np.int32),
            (got["both"].image, expected["both"].image, package.float16),
            (got["rest"][0], expected["rest"][0], package.uint16),
            (got["rest"][1][0], expected["rest"][1][0], package.bool if output == "torch" else np.bool_),
        ]
        for made, array, dtype in pairs:
            assert isinstance(made, package.Tensor if output == "torch" else package.ndarray)
            assert made.dtype == dtype
            assert np.array_equal(np.asarray(made), array)


@pytest.mark.torch
def test_a_tensor_is_the_slabs_memory(torch, executor, monkeypatch):
    loader = DataLoader(Numbers(100), 10, **pool(executor, 2), output="torch")
    places = []
    with loader:
        for images, labels in loader:
            memory = loader._runtime._context.memory
            start = np.frombuffer(memory.memory, np.uint8).ctypes.data
            end = start + len(memory.memory)
            places += [start <= tensor.data_ptr() < end for tensor in (images, labels)]
            images += 1  # it may be written to
    assert places == [True] * 20


@pytest.mark.torch
def test_images_and_gathered_arrays_are_not_copied(torch, photo_rec):
    """The tensor has the same pointer as the batch's array."""
    pointers = []

    def both(batch):
        pointers.append([array.ctypes.data for array in batch])
        return convert(batch)

    datasets = [
        ImageRecordDataset(photo_rec).transform_first(aioloader.transforms.CenterCrop(64)),
        ArrayDataset(np.zeros((200, 64, 64), np.uint8), np.arange(200)),
    ]
    for dataset in datasets:
        with DataLoader(dataset, 50, num_workers=0, output="torch") as loader:
            convert, loader._runtime.convert = loader._runtime.convert, both
            for batch in loader:
                assert [tensor.data_ptr() for tensor in batch] == pointers[-1]


@pytest.mark.torch
def test_memory_is_not_used_again_before_the_last_view_of_a_tensor_dies(torch, executor):
    kept = []
    options = {**pool(executor, 2), "memory_limit": 1 << 20, "output": "torch"}
    with DataLoader(Numbers(200), 10, **options) as loader:
        for number, (images, _labels) in enumerate(loader):
            if number % 3 == 0:
                kept.append(images[4:6, 1].t())
        del images, _labels
        churn(loader)
        gc.collect()
        assert [view[0].tolist() for view in kept] == [[s + 4, s + 5] for s in range(0, 200, 30)]
        assert loader.stats().memory_bytes > 0
        kept.clear()
        gc.collect()
        assert loader.stats().memory_bytes == 0


@pytest.mark.torch
def test_what_torch_cannot_share_is_copied_and_what_it_lacks_stays(torch):
    from aioloader.loader.outputs import torch_leaf

    leaf = torch_leaf()
    frozen = np.arange(6.0)
    frozen.flags.writeable = False
    for array in (frozen, np.arange(6, dtype=">i4"), np.arange(6)[::-1], np.array(3), np.empty((0, 4))):
        tensor = leaf(array)
        assert isinstance(tensor, torch.Tensor)
        assert tensor.shape == array.shape
        assert np.array_equal(tensor.numpy(), array)
    tensor = leaf(frozen)
    tensor += 1
    assert frozen.tolist() == [0, 1, 2, 3, 4, 5]
    same = np.arange(6)[::2]
    assert leaf(same).data_ptr() == same.ctypes.data  # strides do not require a copy
    for other in NO_TENSORS:
        assert leaf(other) is other


@pytest.mark.torch
def test_bfloat16(torch):
    ml_dtypes = pytest.importorskip("ml_dtypes")
    data = [np.full(3, index, ml_dtypes.bfloat16) for index in range(8)]
    for executor in ("inline", "process"):
        (batch,) = take("for", data, 8, **pool(executor, 1), output="torch")
        assert batch.dtype == torch.bfloat16
        assert batch.float().tolist() == [[index] * 3 for index in range(8)]


@pytest.mark.torch
def test_without_cuda_nothing_is_pinned(torch, monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)
    with pytest.warns(UserWarning, match="pin_memory has no effect: torch finds no CUDA device"):
        loader = DataLoader(Numbers(8), 4, pin_memory=True, output="torch", num_workers=0)
    assert isinstance(next(iter(loader))[0], torch.Tensor)


@pytest.mark.torch
@pytest.mark.gpu
def test_tensors_are_pinned(torch):
    if not torch.cuda.is_available():
        pytest.skip("needs a CUDA device")
    for batch in take("for", NESTED, output="torch", pin_memory=True, num_workers=0):
        assert all(all_of(torch, batch, lambda tensor: tensor.is_pinned()))


# --- JAX ---


@pytest.fixture
def jax():
    return pytest.importorskip("jax")


@pytest.mark.jax
@pytest.mark.parametrize("executor", ["inline", "process"])
def test_jax_shares_the_slab_and_it_is_not_used_again(jax, executor):
    kept, shared = [], []
    options = {**pool(executor, 2), "memory_limit": 1 << 20, "output": "jax"}
    with DataLoader(Numbers(200), 10, **options) as loader:
        for number, (images, _labels) in enumerate(loader):
            memory = loader._runtime._context.memory.memory
            start = np.frombuffer(memory, np.uint8).ctypes.data
            shared.append(start <= images.unsafe_buffer_pointer() < start + len(memory))
            if number % 3 == 0:
                kept.append(images)
        del images, _labels
        churn(loader)
        gc.collect()
        firsts = [np.asarray(images)[:, 0, 0].tolist() for images in kept]
        assert firsts == [list(range(s, s + 10)) for s in range(0, 200, 30)]
        assert all(shared)
        kept.clear()
        gc.collect()
        assert loader.stats().memory_bytes == 0


@pytest.mark.jax
def test_integers_that_jax_would_cut_off_are_an_error(jax):
    large = [2**40 + index for index in range(4)]
    with pytest.raises(OutputError, match="jax_enable_x64") as caught:
        take("for", large, output="jax", num_workers=0)
    assert caught.value.batch.tolist() == large
    jax.config.update("jax_enable_x64", True)
    try:
        (batch,) = take("for", large, output="jax", num_workers=0)
        assert batch.tolist() == large
    finally:
        jax.config.update("jax_enable_x64", False)


@pytest.mark.jax
def test_what_jax_lacks_stays_and_short_floats_do_not(jax):
    import ml_dtypes

    from aioloader.loader.outputs import jax_leaf

    leaf = jax_leaf()
    for other in NO_TENSORS:
        assert leaf(other) is other
    frozen = np.arange(6, dtype=np.float32)
    frozen.flags.writeable = False
    odd = [
        np.arange(3, dtype=ml_dtypes.bfloat16),
        frozen,
        np.arange(6, dtype=">i4"),
        np.arange(6, dtype="i4")[::-2],
    ]
    for array in odd:
        made = leaf(array)
        assert isinstance(made, jax.Array)
        assert np.array_equal(np.asarray(made), array)
