"""Tests of misbehaving samples, transforms, samplers and batchify functions: the damage stays small."""

import asyncio
import os

import numpy as np
import pytest

from aioloader import DataLoader, ImageFolderDataset, LoaderError, SimpleDataset
from aioloader.errors import UnprintableError
from tests.aioloader.loader.samples import Numbers, labels
from tests.cases import with_cases
from tests.executors import pool


class Leaves(BaseException):
    """Exception that is not an `Exception` subclass."""


@with_cases("kind", [asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, Leaves])
@pytest.mark.parametrize("executor", ["thread", pytest.param("process", marks=pytest.mark.slow)])
def test_any_error_of_a_batchify_function_comes_in_its_place(executor, kind):
    def batchify(samples):
        numbers = [number for _, number in samples]
        if numbers[0] == 8:
            raise kind("not here")
        return numbers

    options = {"executor": executor, "num_workers": 1, "batchify_fn": batchify, "on_error": "skip"}
    seen = []
    with DataLoader(Numbers(20), 4, **options) as loader:
        with pytest.raises(LoaderError, match=f"the batchify function raised {kind.__name__}: not here"):
            seen.extend(loader)
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7]]


@with_cases("kind", [asyncio.CancelledError, SystemExit, Leaves])
def test_any_error_of_a_sampler_comes_in_its_place(kind):
    class EpochCleanup:
        def __len__(self):
            return 20

        def __iter__(self):
            yield from range(9)
            raise kind("not here")

    seen = []
    with DataLoader(Numbers(20), 4, sampler=EpochCleanup(), executor="thread", num_workers=1) as loader:
        with pytest.raises(LoaderError, match=f"the sampler raised {kind.__name__}: not here") as caught:
            for _, numbers in loader:
                seen.append(numbers.tolist())
    assert type(caught.value.__cause__) is kind
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7]]


class Mute(Exception):
    def __str__(self):
        raise LookupError("no words")

    __repr__ = __str__


def test_an_exception_without_a_text_fails_one_sample(executor):
    def fail(array, number):
        if number == 3:
            raise Mute
        return array, number

    dataset = SimpleDataset(Numbers(8)).transform(fail)
    with DataLoader(dataset, 4, **pool(executor, 1), on_error="skip") as loader:
        assert labels(loader) == [[0, 1, 2], [4, 5, 6, 7]]
        (error,) = loader.errors
        assert loader.error_report()["by_reason"] == {"Mute": 1}
    assert error.index == 3
    assert isinstance(error.__cause__, (Mute, UnprintableError))  # a worker sends it in words
    assert "sample at index 3 failed in transform:fail: Mute: (no text: LookupError)" in str(error)


@pytest.mark.parametrize("executor", ["thread", "process"])
def test_what_a_transform_prints_disturbs_nothing(executor, capfd):
    def talk(array, number):
        print("sample", number, "x" * 100_000)
        os.write(2, b"to standard error\n")
        return array, number

    with DataLoader(SimpleDataset(Numbers(6)).transform(talk), 3, **pool(executor, 1)) as loader:
        assert labels(loader) == [[0, 1, 2], [3, 4, 5]]
    told = capfd.readouterr()
    assert sorted(line.split()[1] for line in told.out.splitlines()) == list("012345")
    assert told.err.count("to standard error") == 6


@pytest.mark.slow
def test_a_transform_that_changes_directory_does_not_move_the_loader(photo_folder, tmp_path, monkeypatch):
    with DataLoader(ImageFolderDataset(photo_folder), 1, num_workers=0) as loader:
        expected = [(images.copy(), numbers.tolist()) for images, numbers in loader]
    (tmp_path / "elsewhere").mkdir()

    def wander(image, number):
        os.chdir(tmp_path / "elsewhere")
        return image, number

    monkeypatch.chdir(photo_folder.parent)
    dataset = ImageFolderDataset(photo_folder.name).transform(wander)
    with DataLoader(dataset, 1, num_workers=2) as loader:
        found = [(images.copy(), numbers.tolist()) for images, numbers in loader]
        assert os.getcwd() == str(photo_folder.parent.resolve())
    assert len(found) == len(expected)
    for (images, numbers), (others, same) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(images, others)
        assert numbers == same
