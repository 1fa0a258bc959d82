"""A script may put this package under MXNet's own name, for libraries that import that."""

import subprocess
import sys
import textwrap

import pytest

LIBRARY = """
    import mxnet as mx
    from mxnet import gluon

    class Doubled(gluon.data.Dataset):
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


@pytest.mark.parametrize("how", ["alias", "package"])
def test_libraries_that_import_mxnet_run_in_workers(how, tmp_path):
    (tmp_path / "library.py").write_text(textwrap.dedent(LIBRARY))
    script = textwrap.dedent(SCRIPT)
    if how == "package":
        (tmp_path / "mxnet.py").write_text(
            "import sys, aioloader.mxnet; sys.modules[__name__] = aioloader.mxnet"
        )
        script = script.replace('sys.modules["mxnet"] = aioloader.mxnet', "")
    path = tmp_path / "script.py"
    path.write_text(script)
    done = subprocess.run([sys.executable, "-W", "error", path], capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    expected = [[[0.0, 0.0], [1.0, 2.0]], [[2.0, 4.0], [3.0, 6.0]]]
    assert done.stdout.splitlines() == [str(expected)] * 3
