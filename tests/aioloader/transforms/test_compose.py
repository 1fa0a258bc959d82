"""Tests of Compose, RandomApply and foreign callables."""

import pickle
from functools import partial

import numpy as np
import pytest

from aioloader import transforms as t
from aioloader.foundation.types import ArraySpec
from aioloader.rng import Rng
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


class OwnApply(t.Transform):
    def apply(self, x, rng, out=None):
        return x + rng.integers(100)


class OwnCall(t.Transform):
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
        pytest.param(t.CenterCrop(3), True, id="ours"),
    ],
)
def test_who_is_given_draws(fn, takes):
    assert t.accepts_rng(fn) is takes


@pytest.mark.parametrize("fn", [plus_draw, OwnApply(), OwnCall()], ids=["function", "apply", "call"])
def test_bound_callables_get_the_draws_of_the_sample(fn):
    expected = IMAGE + Rng(3).integers(100)
    assert np.array_equal(t.bind(fn)(IMAGE, Rng(3), None), expected)
    assert np.array_equal(t.Compose([fn]).apply(IMAGE, Rng(3)), expected)


def test_bound_plain_callables_are_just_called():
    assert np.array_equal(t.bind(plus_one)(IMAGE, Rng(0), np.empty_like(IMAGE)), IMAGE + 1)
    assert t.bind(float)("3", Rng(0), None) == 3.0


def test_the_list_passed_in_is_neither_kept_nor_altered():
    parts = [plus_one]
    transform = t.Compose(parts)
    parts.append(plus_one)
    assert transform.transforms == (plus_one,)
    assert np.array_equal(transform(IMAGE), IMAGE + 1)


def test_nothing_composed_is_identity():
    assert t.Compose([])(IMAGE) is IMAGE
    assert repr(t.Compose([])) == "Compose([])"
    assert t.Compose(()).out_spec(ArraySpec((2, 3), IMAGE.dtype)) == ArraySpec((2, 3), IMAGE.dtype)


@pytest.mark.parametrize("place", range(4))
def test_foreign_parts_may_keep_what_they_see(place):
    parts = [t.Resize((8, 8)), t.RandomHorizontalFlip(1.0), t.ToTensor(), t.Normalize(0.5, 0.5)]
    keeper = Keeper()
    transform = t.Compose([*parts[:place], keeper, *parts[place:]])
    expected = [t.Compose(parts).apply(image, Rng(0)) for image in (IMAGE, IMAGE[::-1])]
    out = np.empty((3, 8, 8), np.float32)
    for image, result in zip((IMAGE, IMAGE[::-1]), expected, strict=True):
        # A keeper in the middle receives no row, one at the start receives the caller's image.
        assert np.array_equal(transform.apply(image, Rng(0), out), result)
        keeper.check()
    nested = t.Compose([t.Compose(parts[:place]), t.RandomApply(keeper, 1.0), t.Compose(parts[place:])])
    for image, result in zip((IMAGE, IMAGE[::-1]), expected, strict=True):
        assert np.array_equal(nested.apply(image, Rng(0), out), result)
        keeper.check()


def test_the_last_part_writes_into_out():
    out = np.empty((3, 8, 8), np.float32)
    transform = t.Compose(
        [plus_one, t.Resize((8, 8)), t.RandomHorizontalFlip(), t.ToTensor(), t.Normalize(0.5, 0.5)]
    )
    assert transform.apply(IMAGE, Rng(0), out) is out


def test_native_is_what_consists_of_ours_only():
    assert t.is_native(t.Compose([t.Resize((3, 3)), t.Compose([t.RandomApply([t.ToTensor()])])]))
    for foreign in (
        plus_one,
        OwnApply(),
        t.Compose([plus_one]),
        t.RandomApply(plus_one),
        t.Compose([t.Compose([OwnCall()])]),
    ):
        assert not t.is_native(foreign)


def test_copies_bind_again():
    transform = t.Compose([plus_draw, t.RandomApply(plus_draw, 1.0), t.ToTensor()])
    copy = pickle.loads(pickle.dumps(transform))
    assert np.array_equal(copy(IMAGE, rng=Rng(5)), transform(IMAGE, rng=Rng(5)))


def test_specs_are_chained_and_end_at_foreign_parts():
    spec = ArraySpec((None, None, 3), np.dtype(np.uint8))
    assert t.Compose([t.CenterCrop((4, 5)), t.ToTensor()]).out_spec(spec) == ArraySpec(
        (3, 4, 5), np.dtype(np.float32)
    )
    assert t.Compose([t.CenterCrop(4), plus_one, t.ToTensor()]).out_spec(spec) is None
    assert t.RandomApply(t.RandomHorizontalFlip()).out_spec(spec) == spec
    assert t.RandomApply(t.CenterCrop(4)).out_spec(spec) is None


def test_repr_is_nested():
    text = repr(t.Compose([t.Resize((3, 3)), t.Compose([t.ToTensor()])]))
    assert text == (
        "Compose([\n    Resize(size=(3, 3), interpolation='bilinear', max_size=None, antialias=True),\n"
        "    Compose([\n        ToTensor(),\n    ]),\n])"
    )


@pytest.mark.parametrize(("p", "share"), [(0.0, 0), (1.0, 2000), (0.3, 600)])
def test_random_apply_applies_with_its_probability(p, share):
    transform = t.RandomApply(plus_one, p)
    applied = sum(transform(0, rng=Rng(0, 0, index)) for index in range(2000))
    assert abs(applied - share) <= 4 * (2000 * p * (1 - p)) ** 0.5


def test_a_list_is_applied_together_or_not_at_all():
    transform = t.RandomApply([plus_one, plus_one], 0.5)
    assert {transform(0, rng=Rng(0, 0, index)) for index in range(100)} == {0, 2}
