"""Tests of MXNet's iterators, stopped and resumed: the same batches as without a stop."""

import contextlib
import json
from pathlib import Path

import numpy as np
import pytest

import aioloader
import aioloader.mxnet as mx
from aioloader import ResumeError
from tests.aioloader.mxnet.image_records import make, numbered, write
from tests.cases import with_cases

LIBSVM = "1 0:0.5 2:1.2\n-2\n-3 0:0.6 1:2.4 2:1.2\n4 2:-1.2\n5 1:1\n"
ROWS = np.arange(20).reshape(10, 2)
MORE = 7


class Files:
    """Paths of the iterators' files."""

    def __init__(self, folder):
        self.csv = str(folder / "ten.csv")
        np.savetxt(self.csv, ROWS, delimiter=",")
        self.longer = str(folder / "twelve.csv")
        np.savetxt(self.longer, np.arange(24).reshape(12, 2), delimiter=",")
        self.libsvm = str(folder / "data.t")
        Path(self.libsvm).write_text(LIBSVM)
        self.rec = write(folder / "ten.rec", numbered(10), first_id=100)
        images = numbered(11)
        images[4] = images[5] = images[8] = b"never an image"
        self.bad = write(folder / "bad.rec", images)


@pytest.fixture(scope="module")
def files(tmp_path_factory):
    """Write small files of all kinds."""
    return Files(tmp_path_factory.mktemp("states"))


def csv(files, **more):
    return mx.io.CSVIter(data_csv=files.csv, data_shape=(2,), batch_size=4, **more)


def arrays(**more):
    np.random.seed(4)
    return mx.io.NDArrayIter({"a": ROWS, "b": -ROWS}, np.arange(10), 4, **more)


def loader_iter():
    rows = np.arange(12, dtype=np.float32).reshape(6, 2)
    dataset = aioloader.ArrayDataset(rows, rows[:, 0].copy())
    return mx.contrib.io.DataLoaderIter(aioloader.DataLoader(dataset, 2, shuffle=True, seed=1))


KINDS = {
    "csv": csv,
    "csv-without-rounds": lambda files: csv(files, round_batch=False),
    "libsvm": lambda files: mx.io.LibSVMIter(data_libsvm=files.libsvm, data_shape=(3,), batch_size=3),
    "records": lambda files: make(files.rec),
    "records-shuffled": lambda files: make(files.rec, shuffle=True, seed=5, max_random_illumination=30),
    "records-without-rounds": lambda files: make(files.rec, shuffle=True, round_batch=False),
    "records-part": lambda files: make(files.rec, shuffle=True, num_parts=3, part_index=1, batch_size=2),
    "records-skipped": lambda files: make(files.bad, batch_size=2, on_error="skip"),
    "arrays": lambda files: arrays(),
    "arrays-shuffled": lambda files: arrays(shuffle=True),
    "arrays-discard": lambda files: arrays(shuffle=True, last_batch_handle="discard"),
    "arrays-rolled": lambda files: arrays(last_batch_handle="roll_over"),
    "arrays-rolled-shuffled": lambda files: arrays(shuffle=True, last_batch_handle="roll_over"),
    "resized": lambda files: mx.io.ResizeIter(make(files.rec, shuffle=True), 5),
    "resized-on": lambda files: mx.io.ResizeIter(csv(files), 4, reset_internal=False),
    "prefetched": lambda files: mx.io.PrefetchingIter(make(files.rec, shuffle=True)),
    "prefetched-two": lambda files: mx.io.PrefetchingIter(
        [csv(files, round_batch=False), make(files.rec, round_batch=False)]
    ),
    "prefetched-arrays": lambda files: mx.io.PrefetchingIter(arrays(shuffle=True)),
    "loader": lambda files: loader_iter(),
}
DRAWN = ("arrays-shuffled", "arrays-discard", "arrays-rolled-shuffled", "prefetched-arrays")
each_kind = with_cases("kind", KINDS.values(), ids=KINDS)


@contextlib.contextmanager
def apart():
    """Restore the state of numpy.random after the block."""
    state = np.random.get_state()
    try:
        yield
    finally:
        np.random.set_state(state)


def told(batch):
    index = None if batch.index is None else np.asarray(batch.index).tolist()
    return [array.asnumpy().tolist() for array in (*batch.data, *batch.label)], batch.pad, index


def run(iterator, count):
    """Return `count` batches, with a reset at every end of an epoch."""
    found = []
    while len(found) < count:
        try:
            found.append(told(iterator.next()))
        except StopIteration:
            iterator.reset()
    return found


def saved(iterator):
    text = json.dumps(iterator.state_dict())
    assert len(text) < 1000
    return json.loads(text)


@each_kind
def test_a_resumed_iterator_goes_on_as_if_it_had_not_stopped(kind, files):
    expected = run(kind(files), 2 * MORE)
    for stop in (0, 3, 5):
        first = kind(files)
        assert run(first, stop) == expected[:stop]
        second = kind(files)
        second.load_state_dict(saved(first))
        assert run(second, MORE) == expected[stop : stop + MORE], stop


@each_kind
def test_at_the_end_of_a_pass_and_behind_a_reset(kind, files):
    first = kind(files)
    for _ in range(2):
        list(first)
        at_end = saved(first)
        first.reset()
        at_begin = saved(first)
        with apart():
            second = kind(files)
            second.load_state_dict(at_end)
            if not isinstance(first, mx.contrib.io.DataLoaderIter):  # its loader has only the next epoch
                assert list(second) == []
            second.reset()
            rest = run(second, 4)
            third = kind(files)
            third.load_state_dict(at_begin)
            assert run(third, 4) == rest
    assert run(first, 4) == rest


# Orders that were drawn from numpy.random cannot be repeated.
@with_cases("name", [name for name in KINDS if name not in DRAWN])
def test_a_state_may_be_loaded_into_an_iterator_that_was_used(name, files):
    first, second = KINDS[name](files), KINDS[name](files)
    run(first, 5)
    expected = saved(first)
    rest = run(first, 4)
    run(second, 1)
    second.load_state_dict(expected)
    assert run(second, 4) == rest


@with_cases(
    ("field", "other"),
    [
        ("rows", lambda files: mx.io.CSVIter(data_csv=files.longer, data_shape=(2,), batch_size=4)),
        ("batch_size", lambda files: mx.io.CSVIter(data_csv=files.csv, data_shape=(2,), batch_size=5)),
        ("round_batch", lambda files: csv(files, round_batch=False)),
        ("iterator", lambda files: arrays()),
        ("fingerprint", lambda files: csv(files, label_csv=files.csv, label_shape=(2,))),
    ],
)
def test_a_state_of_something_else_is_refused_by_name(field, other, files):
    with pytest.raises(ResumeError) as caught:
        csv(files).load_state_dict(other(files).state_dict())
    assert caught.value.field == field


@with_cases(
    ("kind", "field", "value"),
    [
        ("csv", "taken", 4),
        ("csv", "taken", -1),
        ("csv", "taken", "1"),
        ("csv", "began", 10),
        ("csv", "version", 2),
        ("records", "order", None),
        ("records", "borrowed", 10),
        ("records", "pass", True),
        ("records", "part", [0, 5, 5]),
        ("arrays", "cursor", 99),
        ("arrays-rolled", "rolled", 4),
        ("arrays-shuffled", "order", "0" * 16),
        ("arrays-shuffled", "shuffles", 0),
        ("resized", "taken", 6),
        ("resized", "inner", 3),
        ("prefetched", "inner", []),
    ],
)
def test_a_damaged_state_is_refused_by_name(kind, field, value, files):
    state = {**KINDS[kind](files).state_dict(), field: value}
    with pytest.raises(ResumeError) as caught:
        KINDS[kind](files).load_state_dict(state)
    assert caught.value.field == ("state" if value == 3 else field)
    with pytest.raises(ResumeError, match=r"it is not a state of an iterator$"):
        csv(files).load_state_dict({"model": {}})


def test_an_order_drawn_after_another_seed_is_refused():
    state = arrays(shuffle=True).state_dict()
    np.random.seed(5)
    other = mx.io.NDArrayIter({"a": ROWS, "b": -ROWS}, np.arange(10), 4, shuffle=True)
    with pytest.raises(ResumeError, match=r"numpy\.random was not seeded") as caught:
        other.load_state_dict(state)
    assert caught.value.field == "order"


def test_an_iterator_that_cannot_tell_says_so():
    class Own(mx.io.DataIter):
        """Iterator of two batches."""

        provide_data = provide_label = (mx.io.DataDesc("data", (1, 1)),)
        left = 2

        def next(self):
            """Return the next batch."""
            if not self.left:
                raise StopIteration
            self.left -= 1
            return mx.io.DataBatch([mx.nd.zeros((1, 1))], [], pad=0)

    with pytest.raises(NotImplementedError, match="Own cannot report its position"):
        Own(1).state_dict()
    with pytest.raises(NotImplementedError, match="load_state_dict"):
        Own(1).load_state_dict({})
    round_it = mx.io.PrefetchingIter(Own(1))
    assert len(list(round_it)) == 2
    with pytest.raises(NotImplementedError, match="Own"):
        round_it.state_dict()
    resized = mx.io.ResizeIter(Own(1), 2)
    resized.data_iter = []
    with pytest.raises(NotImplementedError, match="list has no state_dict"):
        resized.state_dict()
