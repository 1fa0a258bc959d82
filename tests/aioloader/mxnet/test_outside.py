"""Tests of what stands in for MXNet's parts for training: importing, naming and deriving work, any use is one error."""

from __future__ import annotations

import abc
import subprocess
import sys
import textwrap
from pathlib import Path
from typing import Any, Optional, Union

import pytest

import aioloader.mxnet as mx
from aioloader.mxnet import autograd, init, metric, mod, sym
from aioloader.mxnet.base import OutsideError
from aioloader.mxnet.gluon import loss, nn
from tests.cases import with_cases

LIBRARY = """
    from typing import List, Optional, Union

    import mxnet as mx
    import mxnet.gluon.nn as nn
    import mxnet.gluon.contrib.nn.basic_layers
    import mxnet.gluon.model_zoo.vision
    import mxnet.module.base_module
    import mxnet.symbol as S
    from mxnet import autograd, init, metric, mod, operator, sym
    from mxnet.contrib import amp
    from mxnet.contrib.quantization import *
    from mxnet.gluon import Block, HybridBlock, Parameter, Trainer, loss
    from mxnet.gluon.contrib.nn import HybridConcurrent, SyncBatchNorm
    from mxnet.gluon.loss import Loss, SoftmaxCELoss, _apply_weighting
    from mxnet.gluon.model_zoo import model_store
    from mxnet.gluon.nn import BatchNorm, Dense
    from mxnet.initializer import Initializer
    from mxnet.module.base_module import BaseModule
    from mxnet.ndarray import sgd_update, softmax
    from mxnet.ndarray.contrib import adamw_update
    from mxnet.optimizer import Optimizer, register

    model_store._model_sha1.update({"name": "sha1"})
    ACTIVATIONS = {"relu": nn.LeakyReLU(0.1)}

    class Net(nn.HybridBlock):
        def __init__(self, act=nn.Activation("tanh"), weights: Optional[init.Xavier] = None):
            super().__init__()
            with self.name_scope():
                self.dense = nn.Dense(10)

        def hybrid_forward(self, F, x):
            return F.softmax(x)

    class Scaled(HybridBlock):
        def hybrid_forward(self, F, x):
            return F.broadcast_mul(x, F.array([2]))

    @register
    class Mine(Optimizer):
        pass

    @mx.init.register
    class Ones(Initializer):
        pass

    @operator.register("op")
    class Op(operator.CustomOpProp):
        pass

    class Both(BaseModule, metric.EvalMetric):
        pass

    def used(first: mx.sym.Symbol, second: "Union[mx.nd.NDArray, mx.sym.Symbol]", third: List[nn.Block]) -> mod.Module:
        with autograd.record():
            pass

    class Data(mx.gluon.data.Dataset):
        def __len__(self):
            return 2

        def __getitem__(self, index):
            return mx.nd.array([index])
"""
SCRIPT = """
    import sys
    import aioloader.mxnet
    sys.modules["mxnet"] = aioloader.mxnet
    import library, mxnet
    from mxnet.base import OutsideError

    assert [batch.asnumpy().tolist() for batch in mxnet.gluon.data.DataLoader(library.Data(), 2)] == [[[0], [1]]]
    assert library.Scaled()(mxnet.nd.ones((2,))).asnumpy().tolist() == [2, 2]
    uses = {
        library.Net: "mx.gluon.nn.Dense()",
        library.Mine: "mx.optimizer.Optimizer(), from which Mine is derived",
        library.Both: "mx.module.base_module.BaseModule(), from which Both is derived",
        lambda: library.used(1, 2, 3): "mx.autograd.record()",
        library.ACTIVATIONS["relu"]: "mx.gluon.nn.LeakyReLU()",
        lambda: library.softmax(1): "mx.nd.softmax()",
        lambda: library.adamw_update(1): "mx.ndarray.contrib.adamw_update()",
        lambda: library.Scaled().collect_params(): "Scaled.collect_params",
        lambda: library.Scaled().params: "Scaled.params",
    }
    for use, name in uses.items():
        try:
            use()
        except OutsideError as error:
            assert str(error).startswith(name + ": training is outside aioloader; hand its arrays"), error
        else:
            raise AssertionError(name)
"""


def test_a_library_with_networks_is_imported_and_loads_data(tmp_path: Path) -> None:
    (tmp_path / "library.py").write_text(textwrap.dedent(LIBRARY))
    script = tmp_path / "script.py"
    script.write_text(textwrap.dedent(SCRIPT))
    done = subprocess.run(
        [sys.executable, "-W", "error", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr


@with_cases("where", [mod, sym, autograd, init, metric, loss, nn, mx.gluon.contrib.nn, mx.contrib.amp])
def test_every_name_can_be_named_and_raises_when_used(where: Any) -> None:
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


def test_names_of_training_are_not_numbers_or_lists() -> None:
    for use in (lambda: sym.a + 1, lambda: 1 + sym.Symbol, lambda: [*sym.Symbol], lambda: len(sym.Symbol)):
        with pytest.raises((OutsideError, TypeError)):
            use()  # type: ignore[operator]
    assert not hasattr(sym, "__all__")
    assert not hasattr(sym.Symbol, "_private")


def test_the_modules_are_always_the_same() -> None:
    import aioloader.mxnet.gluon.model_zoo.vision as vision  # type: ignore[import-not-found]
    import aioloader.mxnet.module.base_module  # type: ignore[import-not-found]

    assert mx.gluon.model_zoo.vision is vision
    assert aioloader.mxnet.module is mx.module
    assert mx.mod is not None


def test_unknown_names_stay_errors() -> None:
    with pytest.raises(AttributeError, match="no attribute"):
        _ = mx.nothing
    with pytest.raises(ModuleNotFoundError):
        import aioloader.mxnet.nothing  # type: ignore[import-not-found]  # noqa: F401
    with pytest.raises(AttributeError, match=r"mx\.nd\.nothing is not part of aioloader\.mxnet$"):
        _ = mx.nd.nothing
    with pytest.raises(AttributeError, match=r"use numpy\.rot90$"):
        _ = mx.nd.rot90
    with pytest.raises(AttributeError, match=r"mx\.np\.random\.nothing is not part of aioloader\.mxnet$"):
        _ = mx.np.random.nothing
    with pytest.raises(AttributeError, match=r"use numpy\.random\.beta$"):
        _ = mx.np.random.beta


@pytest.mark.parametrize("name", ["softmax", "relu", "pad", "handle"])
def test_methods_of_networks_raise_the_same_error(name: str) -> None:
    array = mx.nd.ones(2)
    assert not hasattr(array, name)
    with pytest.raises(OutsideError, match=rf"NDArray\.{name}\(\): training is outside aioloader"):
        getattr(array, name)
    with pytest.raises(AttributeError, match="'NDArray' object has no attribute 'nothing'"):
        _ = array.nothing
