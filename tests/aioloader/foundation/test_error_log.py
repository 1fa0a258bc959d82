"""Tests of recorded errors: they describe the failure, and hold no large objects."""

import gc
import tracemalloc
import weakref

import numpy as np
import psutil
import pytest

from aioloader import DataLoader, SampleError
from aioloader.foundation.error_log import strip_exception
from tests.aioloader.loader.samples import Made
from tests.cases import with_cases
from tests.executors import pool

EXECUTORS = ["inline", "thread", "process"]
KINDS = ["argument", "attribute", "frame", "object", "cause", "context", "text", "decoding"]


class BadImageError(Exception):
    pass


def fail(kind, image):
    """Raise an exception that holds the image in one of several ways."""
    if kind == "argument":
        raise BadImageError("bad", [image])
    if kind == "attribute":
        error = BadImageError("bad")
        error.image = image
        raise error
    if kind == "object":
        image.nothing  # noqa: B018
    if kind == "cause":
        raise BadImageError("bad") from ValueError(image)
    if kind == "context":
        try:
            raise ValueError(image)
        except ValueError:
            raise BadImageError("bad")  # noqa: B904
    if kind == "text":
        raise BadImageError("x" * image.nbytes)
    if kind == "decoding":
        image.tobytes().decode()
    raise BadImageError("bad")


def raised(kind, image):
    try:
        fail(kind, image)
    except Exception as cause:
        error = SampleError("bad", dataset="Images", index=7, stage="decode", position=3, key=70)
        error.__cause__ = cause
        return error


class Watched(np.ndarray):
    """Array that supports weak references."""


@with_cases("kind", KINDS)
def test_what_an_exception_holds_is_let_go(kind):
    image = np.full((100, 100), 200, np.uint8).view(Watched)
    watch = weakref.ref(image)
    error = raised(kind, image)
    kinds = type(error), type(error.__cause__), type(error.__cause__.__cause__)
    del image
    if kind not in ("text", "decoding"):
        assert watch() is not None
    strip_exception(error)
    gc.collect()
    assert watch() is None
    assert (type(error), type(error.__cause__), type(error.__cause__.__cause__)) == kinds
    assert (error.index, error.key, error.stage) == (7, 70, "decode")
    assert len(str(error.__cause__)) < 1000


def test_a_traceback_becomes_a_note_that_is_there_once():
    def cause():
        return raised("frame", None).__cause__

    again = cause()
    errors = [cause(), again]
    for error in (*errors, again):
        strip_exception(error)
        assert error.__traceback__ is None
        (note,) = error.__notes__
        assert note.startswith("Traceback (most recent call last):")
        assert "in fail" in note
    assert errors[0].__notes__[0] is errors[1].__notes__[0]


def test_what_is_small_stays_as_it_is():
    error = OSError(2, "No such file", "/data/a.jpg")
    error.offset = 12
    error.add_note("while reading")
    strip_exception(error)
    assert (error.args, error.filename, error.offset) == ((2, "No such file"), "/data/a.jpg", 12)
    assert error.__notes__ == ["while reading"]


def test_chains_may_be_long_or_go_round():
    error = first = ValueError("0")
    for number in range(100):
        error.__context__ = ValueError(str(number))
        error = error.__context__
    error.__context__ = first
    strip_exception(first)
    assert first.args == ("0",)


def bad(length, kind, side=1024):
    """Return a dataset in which every item fails while it holds a megabyte of pixels."""
    return Made(length, lambda index: fail(kind, np.full((side, side), index % 256, np.uint8)))


def resident():
    """Return the memory of this process and its workers in bytes."""
    me = psutil.Process()
    return sum(each.memory_info().rss for each in (me, *me.children(recursive=True)))


@pytest.mark.parametrize(
    ("executor", "kind"), [("inline", "argument"), ("thread", "frame"), ("process", "object")]
)
def test_memory_stays_bounded_while_every_sample_fails(executor, kind):
    data = bad(64, kind)
    with DataLoader(data, 8, **pool(executor, 1), on_error="skip") as loader:
        assert list(loader) == []
        before = resident()
        for _ in range(3):
            assert list(loader) == []
        assert len(loader.errors) == 4 * 64
        assert resident() - before < 64 << 20  # 192 MiB of pixels failed


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_every_failure_is_recorded_and_light(executor):
    count = 60
    with DataLoader(bad(count, "attribute", 20), 30, **pool(executor, 1), on_error="skip") as loader:
        list(loader)  # lazily loaded modules do not count
        tracemalloc.start()
        try:
            gc.collect()
            before = tracemalloc.get_traced_memory()[0]
            list(loader)
            gc.collect()
            each = (tracemalloc.get_traced_memory()[0] - before) / count
        finally:
            tracemalloc.stop()
        errors = loader.errors
    assert len(errors) == 2 * count
    assert each < 2000
    assert sorted(error.index for error in errors[count:]) == list(range(count))
    last = errors[-1]
    assert isinstance(last.__cause__, BadImageError)
    assert any("in fail" in note for note in last.__cause__.__notes__)


def test_one_exception_object_may_fail_many_samples():
    error = ValueError("always the same")

    def fail_always(index):
        raise error

    for executor in EXECUTORS:
        with DataLoader(Made(40, fail_always), 8, **pool(executor, 1), on_error="skip") as loader:
            list(loader)
            list(loader)
            assert len(loader.errors) == 80
            assert 1 <= len(loader.errors[-1].__cause__.__notes__) <= 16
