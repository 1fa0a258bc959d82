"""Tests of the names of ``import aioloader.mxnet as mx``: data loading, and one clear error for the rest."""

import pickle
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

import aioloader.mxnet as mx
from aioloader.mxnet.base import OutsideError
from aioloader.mxnet.context import current_context
from tests.cases import with_cases

ROOT = Path(__file__).parents[3]


def test_the_usual_imports_work_and_are_light():
    code = (
        "import sys, threading\n"
        "import aioloader.mxnet as mx\n"
        "from aioloader.mxnet import gluon, autograd, ndarray, nd, io, image, recordio\n"
        "from aioloader.mxnet.gluon import data\n"
        "from aioloader.mxnet.io import NDArrayIter\n"
        "assert nd is ndarray is mx.nd and mx.img is image and mx.nd.random is mx.random\n"
        "gluon.data.DataLoader([1, 2], 1)\n"
        "heavy = {'cv2', 'simplejpeg', 'torch', 'scipy', 'multiprocessing', 'urllib.request', 'mxnet'}\n"
        "print(sorted(heavy & set(sys.modules)), threading.active_count())\n"
    )
    command = [sys.executable, "-W", "error", "-c", code]
    done = subprocess.run(command, check=True, cwd=ROOT, capture_output=True, text=True)
    assert done.stdout == "[] 1\n"


def test_every_public_name_is_there():
    for name in mx.__all__:
        assert getattr(mx, name) is not None
        assert name in dir(mx)


@with_cases(
    ("use", "name"),
    [
        (lambda: mx.sym.Variable("data"), r"mx\.sym\.Variable"),
        (lambda: mx.mod.Module(symbol=None), r"mx\.mod\.Module"),
        (lambda: mx.init.Xavier(), r"mx\.init\.Xavier"),
        (lambda: mx.autograd.record(), r"mx\.autograd\.record"),
        (lambda: mx.optimizer.SGD(), r"mx\.optimizer\.SGD"),
        (lambda: mx.metric.Accuracy(), r"mx\.metric\.Accuracy"),
        (lambda: mx.gluon.nn.Dense(10), r"gluon\.nn\.Dense"),
        (lambda: mx.gluon.loss.L2Loss(), r"gluon\.loss\.L2Loss"),
        (lambda: mx.gluon.Trainer({}, "sgd"), r"gluon\.Trainer"),
        (lambda: mx.gluon.Parameter("weight"), r"gluon\.Parameter"),
        (lambda: mx.gluon.model_zoo(), r"gluon\.model_zoo"),
    ],
    ids=[
        "sym",
        "mod",
        "init",
        "autograd",
        "optimizer",
        "metric",
        "nn",
        "loss",
        "Trainer",
        "Parameter",
        "zoo",
    ],
)
def test_training_raises_one_clear_error(use, name):
    with pytest.raises(
        OutsideError, match=rf"{name}.*training is outside aioloader.*torch\.from_numpy"
    ) as caught:
        use()
    assert isinstance(caught.value, mx.MXNetError | NotImplementedError)
    again = pickle.loads(pickle.dumps(caught.value))
    assert (str(again), again.used) == (str(caught.value), caught.value.used)
    assert again.instead == caught.value.instead


def test_what_stands_in_for_training_can_be_asked_about():
    assert hasattr(mx.sym, "Variable")
    assert not hasattr(mx.sym, "__all__")
    assert repr(mx.symbol) == "<mx.symbol: training is outside aioloader>"


def test_contexts():
    assert [str(c) for c in (mx.cpu(), mx.cpu_pinned(), mx.gpu(1))] == ["cpu(0)", "cpu_pinned(0)", "gpu(1)"]
    assert mx.num_gpus() == mx.context.num_gpus() == 0
    assert {mx.cpu(), mx.cpu(0), mx.Context(mx.cpu())} == {mx.cpu()}
    assert mx.cpu() != mx.gpu()
    assert mx.cpu() != "cpu(0)"
    assert [mx.Context(kind).device_typeid for kind in ("cpu", "gpu", "cpu_pinned")] == [1, 2, 3]
    assert pickle.loads(pickle.dumps(mx.gpu(2))) == mx.gpu(2)
    mx.gpu().empty_cache()
    with pytest.raises(ValueError, match="device_type must be one of"):
        mx.Context("tpu")


def test_a_context_can_be_made_the_current_one():
    with mx.cpu(1):
        assert mx.nd.zeros(1).context == mx.cpu(1)
        with mx.cpu(2) as inner:
            assert current_context() == inner
        assert current_context() == mx.cpu(1)
    assert mx.current_context() == mx.cpu()


def test_random_numbers_repeat_with_their_seed():
    def draw():
        return [
            mx.random.uniform(-1, 1, shape=(3, 2)),
            mx.nd.random.normal(5, 0.1, shape=4),
            mx.random.randn(2, 2),
            mx.random.randint(0, 10, shape=(5,)),
            mx.random.uniform(),
        ]

    mx.random.seed(42)
    first = draw()
    mx.random.seed(42)
    second = draw()
    mx.random.seed(43)
    third = draw()
    assert mx.random.current_seed() == 43
    for one, same, other in zip(first, second, third, strict=True):
        assert isinstance(one, mx.nd.NDArray)
        assert np.array_equal(one, same)
        assert not np.array_equal(one, other)
    assert [one.shape for one in first] == [(3, 2), (4,), (2, 2), (5,), (1,)]
    assert [one.dtype for one in first] == [np.float32] * 3 + [np.int32, np.float32]
    assert (abs(first[0]) <= 1).all()


def test_random_numbers_go_where_they_are_wanted():
    out = mx.nd.zeros((2, 2))
    assert mx.random.uniform(1, 2, shape=(2, 2), out=out) is out
    assert (out >= 1).all()
