"""Tests of the memory of datasets in workers of the torch-like DataLoader, and of finding what has changed in it."""

import mmap
import pickle
import random
from pathlib import PurePosixPath

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aioloader.executors.pickling import FilePlace
from aioloader.executors.transport import SharedPlace
from tests.aioloader.executors.test_sent_memory import needs_table, sent
from tests.aioloader.interop.torch_samples import MARKS

pytestmark = MARKS


@pytest.fixture(scope="module")
def ours(spawned):
    """Return our loader with workers that receive all they need; forks have it."""
    return spawned


COUNT = 1 << 15


@pytest.fixture
def numbers(torch):
    return torch.arange(COUNT, dtype=torch.float32)


def test_tensors_come_back_equal(torch, numbers):
    parts = [
        numbers,
        numbers[5:],
        numbers.reshape(-1, 8).T,
        numbers.to(torch.bfloat16),
        numbers > 3,
        torch.nn.Parameter(numbers),
        numbers[:3],
        torch.empty(0),
        torch.tensor(3),
    ]
    received, places = sent(parts)
    assert {type(place) for place in places} == {SharedPlace}
    assert len(places) == 2  # those over the memory of one have it once, and booleans are small
    for one, other in zip(parts, received, strict=True):
        assert torch.equal(one, other)
        assert (type(one), one.dtype, one.stride()) == (type(other), other.dtype, other.stride())
        assert one.requires_grad == other.requires_grad
    received[0][5] = -1
    assert received[1][0] == -1
    assert numbers[5] == 5


@needs_table
def test_mapped_tensors_are_sent_by_name(torch, numbers, tmp_path):
    numbers.numpy().tofile(tmp_path / "raw")
    torch.save({"numbers": numbers, "few": torch.ones(3)}, tmp_path / "saved")
    raw = str(tmp_path / "raw")
    for shared in (False, True):
        source = torch.from_file(raw, shared=shared, size=COUNT)
        received, places = sent(source)
        assert [type(place) for place in places] == ([] if shared else [FilePlace])
        assert torch.equal(received, numbers)
        received[0] = 7
        assert source[0] == (7 if shared else 0)
    loaded = torch.load(tmp_path / "saved", mmap=True)
    received, places = sent(loaded)
    assert [type(place) for place in places] == [FilePlace]
    assert torch.equal(received["numbers"], numbers)
    loaded["numbers"][3] = -1
    received, places = sent(loaded)
    assert [type(place) for place in places] == [SharedPlace]
    assert received["numbers"][3] == -1
    array = np.memmap(tmp_path / "raw", np.float32, "r+")
    received, places = sent(torch.from_numpy(array))
    assert [type(place) for place in places] == [FilePlace]
    received[1] = 8
    assert array[1] == 8


class Counting:
    """Dataset that counts in shared memory."""

    def __init__(self, counts, numbers):
        self.counts = counts
        self.numbers = numbers

    def __len__(self):
        return 8

    def __getitem__(self, index):
        self.counts[index] += 1
        return self.counts[index].clone(), self.numbers[index].clone()


@pytest.mark.parametrize("strategy", ["file_descriptor", "file_system"])
def test_shared_tensors_are_shared_with_workers(torch, ours, strategy):
    before = torch.multiprocessing.get_sharing_strategy()
    torch.multiprocessing.set_sharing_strategy(strategy)
    try:
        counts = torch.zeros(COUNT, dtype=torch.int64).share_memory_()
        small = torch.zeros(8).share_memory_()
        dataset = Counting(counts, small)
        loader = ours(dataset, 4, num_workers=1)
        assert sum(loader, [])[1].tolist() == [0] * 4
        engine = loader._engine
        small[:] = 5  # seen by the workers that exist
        assert sum(loader, [])[3].tolist() == [5] * 4
        assert loader._engine is engine
        loader.close()
    finally:
        torch.multiprocessing.set_sharing_strategy(before)
    assert counts[:8].tolist() == [2] * 8


# -- changes -----------------------------------------------------------------------------------------------------------


class Data:
    """Object with attributes."""


def replaced(values, place, value):
    values[place] = value


CHANGES = {
    "text in a list": (lambda: [f"path {n}" for n in range(5000)], lambda x: replaced(x, 4321, "other")),
    "one more": (lambda: [f"path {n}" for n in range(5000)], lambda x: x.append("other")),
    "order": (lambda: [f"path {n}" for n in range(5000)], lambda x: random.Random(1).shuffle(x)),
    "pair": (lambda: [(f"path {n}", n) for n in range(5000)], lambda x: replaced(x, 7, ("path 7", 8))),
    "class": (lambda: [(f"path {n}", n) for n in range(5000)], lambda x: replaced(x, 1, ("path 1", True))),
    "number": (lambda: list(range(5000)), lambda x: replaced(x, 1, 1.0)),
    "path": (lambda: [PurePosixPath(str(n)) for n in range(5000)], lambda x: x.pop()),
    "dict": (lambda: {str(n): n for n in range(5000)}, lambda x: replaced(x, "17", 18)),
    "key": (lambda: {str(n): n for n in range(5000)}, lambda x: replaced(x, "new", x.pop("17"))),
    "set": (lambda: set(range(5000)), lambda x: x.add(-1)),
    "nested": (lambda: [{"path": str(n), "boxes": [n]} for n in range(5000)], lambda x: x[9]["boxes"].append(1)),
    "inner list": (lambda: [list(range(2000))], lambda x: replaced(x[0], 5, 6)),
    "in a tuple": (lambda: [(n, [n]) for n in range(5000)], lambda x: x[9][1].append(1)),
    "array": (lambda: np.zeros(1 << 20), lambda x: replaced(x, 77777, 1)),
    "large array": (lambda: np.zeros(80 << 20, np.uint8), lambda x: replaced(x, slice(12345678, 12345678 + 65536), 1)),
    "end of a large array": (lambda: np.zeros((80 << 20) + 5, np.uint8), lambda x: replaced(x, -1, 1)),
    "swapped rows": (lambda: np.arange(1 << 20).reshape(64, -1), lambda x: replaced(x, [1, 2], x[[2, 1]])),
}  # fmt: skip


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_is_seen_and_nothing_else(torch, name):
    from aioloader.interop.torch._sending import Changes

    make, change = CHANGES[name]
    data, changes = Data(), Changes()
    data.values, data.others = make(), [f"{n}" for n in range(3000)]
    first = changes.checksum([data, None])
    assert changes.checksum([data, None]) == first
    data.others = [f"{n}" for n in range(3000)]  # equal, but made anew
    data.values = pickle.loads(pickle.dumps(data.values)) if isinstance(data.values, list) else data.values
    assert changes.checksum([data, None]) == first
    change(data.values)
    second = changes.checksum([data, None])
    assert second != first
    assert changes.checksum([data, None]) == second


ZEROS = st.sampled_from([0, 0.0, False, -0.0, "0", b"0", None, (0,), (0.0,)])


@settings(max_examples=60, deadline=None)
@given(st.lists(st.tuples(st.integers(0, 1999), ZEROS), max_size=6))
def test_any_replacement_in_a_long_list_is_seen(torch, replacements):
    from aioloader.interop.torch._sending import Changes

    values, changes = [0] * 2000, Changes()
    last = changes.checksum([values])
    for place, value in replacements:
        before = repr(values[place])
        values[place] = value
        now = changes.checksum([values])
        assert (now != last) or before == repr(value) or {before, repr(value)} == {"0.0", "-0.0"}
        if before == repr(value):
            assert now == last
        last = now


@needs_table
def test_maps_of_files_are_not_read(torch, tmp_path):
    from aioloader.interop.torch._sending import Changes

    path = tmp_path / "sparse"
    with path.open("wb") as file:
        file.truncate(1 << 40)  # reading this would take minutes
    data, changes = Data(), Changes()
    with path.open("rb") as file:
        data.values = np.memmap(path, np.uint8, "r")
        data.bytes = np.frombuffer(mmap.mmap(file.fileno(), 0, access=mmap.ACCESS_READ), np.uint8)
    data.tensor = torch.from_file(str(path), shared=True, size=1 << 39, dtype=torch.uint8)
    data.shared = torch.zeros(1 << 20).share_memory_()
    first = changes.checksum([data])
    assert first != [()]
    data.tensor[0] = data.shared[0] = 1  # workers see it
    assert changes.checksum([data]) == first
    data.values = data.values[1:]
    assert changes.checksum([data]) != first


def test_a_part_that_cannot_be_pickled_has_no_checksum(torch):
    from aioloader.interop.torch._sending import Changes

    assert Changes().checksum([(n for n in "x"), 1])[0] == ()
