"""Tests of what stands in for MXNet's parts for training: importing, naming and deriving work, any use is one error."""

import abc
from typing import Optional, Union

import pytest

import aioloader.mxnet as mx
from aioloader.mxnet import autograd, init, metric, mod, sym
from aioloader.mxnet.base import OutsideError
from aioloader.mxnet.gluon import loss, nn
from tests.cases import with_cases

GLUON = loss, nn, mx.gluon.rnn, mx.gluon.model_zoo, mx.gluon.contrib.nn, mx.gluon.contrib.data.text


@with_cases("where", [mod, sym, autograd, init, metric, mx.contrib.amp, *GLUON])
def test_every_name_can_be_named_and_raises_when_used(where):
    kind = where.Anything
    assert where.Anything is kind
    assert Optional[kind]  # noqa: UP045 - as libraries write it
    assert Union[int, kind]  # noqa: UP007
    assert kind | None
    assert not isinstance(1, kind)
    assert kind in {kind}
    for use in (
        kind,
        kind.nested.more,
        lambda: kind["x"],
        lambda: list(kind),
        type("Mine", (kind, abc.ABC), {}),
    ):
        with pytest.raises(OutsideError, match=r"Anything.*: training is outside aioloader; hand its arrays"):
            use()
    with pytest.raises(OutsideError), kind:
        pass


def test_names_of_training_are_not_numbers_or_lists():
    for use in (lambda: sym.a + 1, lambda: 1 + sym.Symbol, lambda: [*sym.Symbol], lambda: len(sym.Symbol)):
        with pytest.raises((OutsideError, TypeError)):
            use()
    assert not hasattr(sym.Symbol, "_private")


def test_the_modules_are_always_the_same():
    import aioloader.mxnet.gluon.model_zoo.vision as vision
    import aioloader.mxnet.module.base_module

    assert mx.gluon.model_zoo.vision is vision
    assert aioloader.mxnet.module is mx.module
    assert mx.mod is not None


def test_unknown_names_stay_errors():
    gluon = mx.gluon, mx.gluon.contrib, mx.gluon.contrib.data, mx.gluon.data.dataloader
    for module in (mx, mx.contrib, *gluon):
        with pytest.raises(AttributeError, match=f"module '{module.__name__}' has no attribute 'nothing'"):
            _ = module.nothing
    assert {"data", "utils", "Block"} <= set(dir(mx.gluon))
    with pytest.raises(ModuleNotFoundError):
        import aioloader.mxnet.nothing  # noqa: F401
    with pytest.raises(AttributeError, match=r"mx\.nd\.nothing is not part of aioloader\.mxnet$"):
        _ = mx.nd.nothing
    with pytest.raises(AttributeError, match=r"use numpy\.rot90$"):
        _ = mx.nd.rot90
    with pytest.raises(AttributeError, match=r"mx\.np\.random\.nothing is not part of aioloader\.mxnet$"):
        _ = mx.np.random.nothing
    with pytest.raises(AttributeError, match=r"use numpy\.random\.beta$"):
        _ = mx.np.random.beta


@with_cases("name", ["softmax", "relu", "pad", "handle"])
def test_methods_of_networks_raise_the_same_error(name):
    array = mx.nd.ones(2)
    assert not hasattr(array, name)
    with pytest.raises(OutsideError, match=rf"NDArray\.{name}\(\): training is outside aioloader"):
        getattr(array, name)
    with pytest.raises(AttributeError, match="'NDArray' object has no attribute 'nothing'"):
        _ = array.nothing
