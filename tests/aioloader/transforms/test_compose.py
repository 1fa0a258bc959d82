"""Tests of Compose, RandomApply and foreign callables."""

import pickle
from functools import partial

import numpy as np
import pytest

from aioloader.foundation.types import ArraySpec
from aioloader.rng import Rng
from aioloader.transforms import (
    CenterCrop,
    Compose,
    Normalize,
    RandomApply,
    RandomHorizontalFlip,
    Resize,
    ToTensor,
    Transform,
    accepts_rng,
    bind,
    is_native,
)
from tests.cases import with_cases

IMAGE = np.random.default_rng(1).integers(0, 256, (12, 10, 3), dtype=np.uint8)


def plus_one(x):
    return x + 1


def plus_draw(x, rng):
    return x + rng.integers(100)


class Keeper:
    """Transform that keeps its input, which must never change afterwards."""

    def __init__(self):
        self.kept = []

    def __call__(self, x):
        self.kept.append((x, x.copy()))
        return x

    def check(self):
        assert self.kept
        assert all(np.array_equal(x, copy) for x, copy in self.kept)


class OwnApply(Transform):
    def apply(self, x, rng, out=None):
        return x + rng.integers(100)


class OwnCall(Transform):
    def __call__(self, x, /, *, rng=None):
        return x + rng.integers(100)


class PositionalOnly:
    def __call__(self, x, rng=0, /):
        return x + rng


@with_cases(
    ("fn", "takes"),
    [
        pytest.param(plus_one, False, id="without"),
        pytest.param(plus_draw, True, id="with"),
        pytest.param(lambda x, *, rng=None: x, True, id="keyword-only"),
        pytest.param(lambda x, **options: x, False, id="any-keywords"),
        pytest.param(lambda *rng: rng, False, id="star"),
        pytest.param(PositionalOnly(), False, id="positional-only"),
        pytest.param(partial(plus_draw), True, id="partial"),
        pytest.param(np.asarray, False, id="builtin"),
        pytest.param(np.negative, False, id="ufunc"),
        pytest.param(CenterCrop(3), True, id="ours"),
    ],
)
def test_who_is_given_draws(fn, takes):
    assert accepts_rng(fn) is takes


@pytest.mark.parametrize("fn", [plus_draw, OwnApply(), OwnCall()], ids=["function", "apply", "call"])
def test_bound_callables_get_the_draws_of_the_sample(fn):
    expected = IMAGE + Rng(3).integers(100)
    assert np.array_equal(bind(fn)(IMAGE, Rng(3), None), expected)
    assert np.array_equal(Compose([fn]).apply(IMAGE, Rng(3)), expected)


def test_bound_plain_callables_are_just_called():
    assert np.array_equal(bind(plus_one)(IMAGE, Rng(0), np.empty_like(IMAGE)), IMAGE + 1)
    assert bind(float)("3", Rng(0), None) == 3.0


def test_what_cannot_be_called_is_refused_early():
    with pytest.raises(TypeError, match="must be callable, got 7"):
        Compose([7])


def test_the_list_passed_in_is_neither_kept_nor_altered():
    parts = [plus_one]
    transform = Compose(parts)
    parts.append(plus_one)
    assert transform.transforms == (plus_one,)
    assert np.array_equal(transform(IMAGE), IMAGE + 1)


def test_nothing_composed_is_identity():
    assert Compose([])(IMAGE) is IMAGE
    assert repr(Compose([])) == "Compose([])"
    assert Compose(()).out_spec(ArraySpec((2, 3), IMAGE.dtype)) == ArraySpec((2, 3), IMAGE.dtype)


@pytest.mark.parametrize("place", range(4))
def test_foreign_parts_may_keep_what_they_see(place):
    parts = [Resize((8, 8)), RandomHorizontalFlip(1.0), ToTensor(), Normalize(0.5, 0.5)]
    keeper = Keeper()
    transform = Compose([*parts[:place], keeper, *parts[place:]])
    expected = [Compose(parts).apply(image, Rng(0)) for image in (IMAGE, IMAGE[::-1])]
    out = np.empty((3, 8, 8), np.float32)
    for image, result in zip((IMAGE, IMAGE[::-1]), expected, strict=True):
        # A keeper in the middle receives no row, one at the start receives the caller's image.
        assert np.array_equal(transform.apply(image, Rng(0), out), result)
        keeper.check()
    nested = Compose([Compose(parts[:place]), RandomApply(keeper, 1.0), Compose(parts[place:])])
    for image, result in zip((IMAGE, IMAGE[::-1]), expected, strict=True):
        assert np.array_equal(nested.apply(image, Rng(0), out), result)
        keeper.check()


def test_the_last_part_writes_into_out():
    out = np.empty((3, 8, 8), np.float32)
    transform = Compose([plus_one, Resize((8, 8)), RandomHorizontalFlip(), ToTensor(), Normalize(0.5, 0.5)])
    assert transform.apply(IMAGE, Rng(0), out) is out


def test_native_is_what_consists_of_ours_only():
    assert is_native(Compose([Resize((3, 3)), Compose([RandomApply([ToTensor()])])]))
    for foreign in (
        plus_one,
        OwnApply(),
        Compose([plus_one]),
        RandomApply(plus_one),
        Compose([Compose([OwnCall()])]),
    ):
        assert not is_native(foreign)


def test_copies_bind_again():
    transform = Compose([plus_draw, RandomApply(plus_draw, 1.0), ToTensor()])
    copy = pickle.loads(pickle.dumps(transform))
    assert np.array_equal(copy(IMAGE, rng=Rng(5)), transform(IMAGE, rng=Rng(5)))


def test_specs_are_chained_and_end_at_foreign_parts():
    spec = ArraySpec((None, None, 3), np.dtype(np.uint8))
    assert Compose([CenterCrop((4, 5)), ToTensor()]).out_spec(spec) == ArraySpec(
        (3, 4, 5), np.dtype(np.float32)
    )
    assert Compose([CenterCrop(4), plus_one, ToTensor()]).out_spec(spec) is None
    assert RandomApply(RandomHorizontalFlip()).out_spec(spec) == spec
    assert RandomApply(CenterCrop(4)).out_spec(spec) is None


def test_repr_is_nested():
    text = repr(Compose([Resize((3, 3)), Compose([ToTensor()])]))
    assert text == (
        "Compose([\n    Resize(size=(3, 3), interpolation='bilinear', max_size=None, antialias=True),\n"
        "    Compose([\n        ToTensor(),\n    ]),\n])"
    )


@pytest.mark.parametrize(("p", "share"), [(0.0, 0), (1.0, 2000), (0.3, 600)])
def test_random_apply_applies_with_its_probability(p, share):
    transform = RandomApply(plus_one, p)
    applied = sum(transform(0, rng=Rng(0, 0, index)) for index in range(2000))
    assert abs(applied - share) <= 4 * (2000 * p * (1 - p)) ** 0.5


def test_a_list_is_applied_together_or_not_at_all():
    transform = RandomApply([plus_one, plus_one], 0.5)
    assert {transform(0, rng=Rng(0, 0, index)) for index in range(100)} == {0, 2}


@pytest.mark.parametrize("p", [-0.1, 1.1, float("nan")])
def test_bad_probabilities_are_refused(p):
    with pytest.raises(ValueError, match=r"0 <= p <= 1, got"):
        RandomApply(plus_one, p)
