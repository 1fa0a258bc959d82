"""Tests of the advice for torchvision's transforms that receive numpy arrays. Stand-ins: torchvision is not needed."""

import sys
import types

import numpy as np
import pytest

import aioloader
from aioloader.transforms import Compose

IMAGES = aioloader.ArrayDataset(np.zeros((4, 6, 6, 3), np.uint8), np.arange(4))

SOURCE = """
class Tensor: pass

class Flip:
    _transformed_types = (Tensor,)
    def __call__(self, x): return x

class ToImage:
    _transformed_types = (Tensor, ndarray)
    def __call__(self, x): return x + 1

class Lambda:
    _transformed_types = (object,)
    def __call__(self, x): return x + 2

class Compose:
    _transformed_types = (Tensor,)
    def __init__(self, transforms): self.transforms = transforms
    def __call__(self, x):
        for each in self.transforms: x = each(x)
        return x

class Strict:
    def __call__(self, x): raise TypeError("Unexpected type")
"""


def stand_in(name):
    module = types.ModuleType(name)
    module.ndarray = np.ndarray
    exec(SOURCE, module.__dict__)
    return module


@pytest.fixture
def v2(monkeypatch):
    module = stand_in("torchvision.transforms.v2._geometry")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


@pytest.fixture
def v1(monkeypatch):
    module = stand_in("torchvision.transforms.transforms")
    monkeypatch.setitem(sys.modules, module.__name__, module)
    return module


def first(transform, **options):
    with aioloader.DataLoader(IMAGES.transform_first(transform), 4, executor="inline", **options) as loader:
        return next(iter(loader))[0]


def cause(transform):
    with pytest.raises(aioloader.SampleError) as caught:
        first(transform)
    return caught.value.__cause__


@pytest.mark.parametrize("wrap", [lambda v2, t: t, lambda v2, t: v2.Compose([t]), lambda v2, t: Compose([t])])
def test_a_transform_that_would_leave_arrays_unchanged_is_refused(v2, wrap):
    error = cause(wrap(v2, v2.Flip()))
    assert isinstance(error, TypeError)
    assert "Flip takes tensors" in str(error)
    assert "put v2.ToImage() first" in str(error)


def test_transforms_that_take_arrays_are_called(v2):
    assert (first(v2.Compose([v2.ToImage(), v2.Flip()])) == 1).all()
    assert (first(v2.Lambda()) == 2).all()


def test_errors_of_torchvision_have_a_note_also_within_other_code(v1, v2):
    class Preset:
        def __init__(self, transform):
            self.transform = transform

        def __call__(self, image):
            return self.transform(image)

    assert any("put v2.ToImage() first" in note for note in cause(Preset(v2.Strict())).__notes__)
    assert any("ToPILImage() first" in note for note in cause(Preset(v1.Strict())).__notes__)
    assert any("ToPILImage() first" in note for note in cause(v1.Strict()).__notes__)


def test_errors_of_other_code_have_none():
    def fail(image):
        raise TypeError("no")

    assert not getattr(cause(fail), "__notes__", [])
