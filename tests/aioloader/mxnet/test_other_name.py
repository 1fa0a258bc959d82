"""Tests of this package registered under MXNet's name, for libraries that import it and define networks."""

import subprocess
import sys
import textwrap

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
    from mxnet.gluon.data.dataset import Dataset
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

    class Doubled(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return mx.nd.array([index, 2 * index])
"""
LOADED = """
    import library
    from mxnet import gluon

    for options in ({}, {"num_workers": 1}, {"num_workers": 1, "thread_pool": True}):
        with gluon.data.DataLoader(library.Doubled(), 2, **options) as loader:
            print([batch.asnumpy().tolist() for batch in loader])
"""
NAMES = """
    import sys
    import aioloader.mxnet as mx
    sys.modules["mxnet"] = mx

    import mxnet.ndarray as nd
    import mxnet.gluon.data.vision.transforms
    from mxnet.base import MXNetError
    from mxnet.gluon.data.dataset import Dataset
    from mxnet.gluon.data.vision.datasets import *
    from mxnet.gluon.data.dataloader import *
    from mxnet.test_utils import *
    import mxnet.numpy.random

    assert MXNetError is mx.MXNetError is mx.base.MXNetError
    assert nd is mx.nd and nd.NDArray is mx.nd.NDArray
    assert Dataset is mx.gluon.data.Dataset and MNIST is mx.gluon.data.vision.MNIST
    assert DataLoader is mx.gluon.data.DataLoader and DataLoaderV1.__name__ == "DataLoaderV1"
    assert same([1], [1])
    assert mxnet.numpy.random is mx.np.random
    import mxnet.gluon.nn, mxnet.gluon.loss, mxnet.autograd, mxnet.contrib.amp, mxnet.gluon.model_zoo.vision
    import mxnet.image.image, mxnet.io.io, mxnet.ndarray.sparse, mxnet.rnn.io
    assert mxnet.gluon.loss is mx.gluon.loss and mxnet.image.image is mx.image and mxnet.ndarray.sparse is mx.nd.sparse
    elsewhere = {"image.image", "io.io", "ndarray.sparse", "rnn.io"}
    for name, module in list(sys.modules.items()):
        if name.startswith("mxnet.") and name.removeprefix("mxnet.") not in elsewhere:
            own = "aioloader." + name
            assert module is sys.modules[own] and module.__name__ == module.__spec__.name == own, name
    try:
        import mxnet.nothing
    except ModuleNotFoundError as error:
        assert error.name == "mxnet.nothing"
"""
USES = """
    import mxnet
    from mxnet.base import OutsideError

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


def run(folder, *parts):
    """Run a script next to the library; check that it loads the library's data with workers of every kind."""
    (folder / "library.py").write_text(textwrap.dedent(LIBRARY))
    script = folder / "script.py"
    script.write_text("".join(map(textwrap.dedent, parts)))
    done = subprocess.run(
        [sys.executable, "-W", "error", script], capture_output=True, text=True, check=False
    )
    assert done.returncode == 0, done.stderr
    expected = [[[0.0, 0.0], [1.0, 2.0]], [[2.0, 4.0], [3.0, 6.0]]]
    assert done.stdout.splitlines() == [str(expected)] * 3


def test_modules_are_the_same_under_the_other_name_and_networks_are_outside(tmp_path):
    run(tmp_path, NAMES, LOADED, USES)


def test_a_package_of_that_name_does_the_same(tmp_path):
    (tmp_path / "mxnet.py").write_text("import sys, aioloader.mxnet; sys.modules[__name__] = aioloader.mxnet")
    run(tmp_path, LOADED)
