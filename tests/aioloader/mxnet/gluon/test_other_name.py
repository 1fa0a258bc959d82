"""Tests of this package registered under MXNet's name, for libraries that import it."""

import subprocess
import sys
import textwrap

import pytest

LIBRARY = """
    import mxnet as mx
    from mxnet.gluon.data.dataset import Dataset

    class Doubled(Dataset):
        def __len__(self):
            return 4

        def __getitem__(self, index):
            return mx.nd.array([index, 2 * index])
"""

SCRIPT = """
    import sys
    import aioloader.mxnet
    sys.modules["mxnet"] = aioloader.mxnet
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


def run(script, path):
    path.write_text(textwrap.dedent(script))
    done = subprocess.run([sys.executable, "-W", "error", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    return done.stdout


def test_modules_are_the_same_under_the_other_name(tmp_path):
    run(NAMES, tmp_path / "script.py")


@pytest.mark.parametrize("how", ["alias", "package"])
def test_libraries_that_import_mxnet_run_in_workers(how, tmp_path):
    (tmp_path / "library.py").write_text(textwrap.dedent(LIBRARY))
    script = textwrap.dedent(SCRIPT)
    if how == "package":
        (tmp_path / "mxnet.py").write_text(
            "import sys, aioloader.mxnet; sys.modules[__name__] = aioloader.mxnet"
        )
        script = script.replace('sys.modules["mxnet"] = aioloader.mxnet', "")
    expected = [[[0.0, 0.0], [1.0, 2.0]], [[2.0, 4.0], [3.0, 6.0]]]
    assert run(script, tmp_path / "script.py").splitlines() == [str(expected)] * 3
