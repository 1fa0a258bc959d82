"""Tests of workers started from any program: without a main guard, from a string, standard input, or a cell."""

import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import aioloader
import recordio

SCRIPT = textwrap.dedent("""
    import numpy as np
    import aioloader

    class Local:
        def __len__(self):
            return 10
        def __getitem__(self, index):
            return np.full(3, index), scale(index)

    scale = lambda index: index * factor
    factor = 10

    dataset = aioloader.SimpleDataset(Local()).transform(lambda array, number: (array + 1, number))
    with aioloader.DataLoader(dataset, 4, num_workers=2) as loader:
        for array, numbers in loader:
            print(array[:, 0].tolist(), numbers.tolist())
""")
OUTPUT = "[1, 2, 3, 4] [0, 10, 20, 30]\n[5, 6, 7, 8] [40, 50, 60, 70]\n[9, 10] [80, 90]\n"


def run(arguments, cwd, text=None):
    command = [sys.executable, "-W", "error", *arguments]
    done = subprocess.run(command, input=text, capture_output=True, text=True, timeout=120, cwd=cwd)
    assert done.stderr == ""
    return done.stdout


@pytest.mark.slow
@pytest.mark.parametrize(
    ("argument", "text"), [(SCRIPT, None), ("-", SCRIPT)], ids=["string", "standard input"]
)
def test_a_program_that_is_no_file(argument, text, tmp_path):
    assert run(["-c", argument] if text is None else [argument], tmp_path, text) == OUTPUT


def test_a_script_without_a_main_guard_beside_its_module_and_a_link_to_the_package(tmp_path):
    """Workers find the module, and import the package through the same link as the script."""
    for package in (aioloader, recordio):
        folder = Path(package.__file__).parent
        (tmp_path / folder.name).symlink_to(folder)
    (tmp_path / "mine.py").write_text("def double(x):\n    return 2 * x\n")
    linked = textwrap.dedent("""
        import mine
        dataset = aioloader.SimpleDataset([1, 2, 3]).transform(mine.double)
        dataset = dataset.transform(lambda x: (x, __import__('aioloader').__file__))
        with aioloader.DataLoader(dataset, 3, num_workers=1) as loader:
            for numbers, paths in loader:
                print(numbers.tolist(), aioloader.__file__, {*paths})
    """)
    (tmp_path / "script.py").write_text(SCRIPT + linked)
    link = str(tmp_path / "aioloader" / "__init__.py")
    assert run(["script.py"], tmp_path) == f"{OUTPUT}[2, 4, 6] {link} { ({link}) }\n"


def test_an_async_loop_in_a_notebook_cell(tmp_path):
    """A notebook runs each cell's code in a module that is not a file, with a loop already running."""
    cell = textwrap.dedent("""
        import aioloader

        class Local:
            def __len__(self): return 6
            def __getitem__(self, index): return index
        seen = []
        async with aioloader.AsyncDataLoader(Local(), 3, num_workers=1) as loader:
            async for batch in loader:
                seen.append(batch.tolist())
        for batch in aioloader.DataLoader(Local(), 3, num_workers=1):
            seen.append(batch.tolist())
        print(seen)
    """)
    host = textwrap.dedent("""
        import ast, asyncio, inspect, sys
        code = compile(sys.stdin.read(), "<ipython-input-1>", "exec", flags=ast.PyCF_ALLOW_TOP_LEVEL_AWAIT)
        async def kernel():
            result = eval(code, sys.modules["__main__"].__dict__)
            if inspect.isawaitable(result):
                await result
        asyncio.run(kernel())
    """)
    assert run(["-c", host], tmp_path, cell) == "[[0, 1, 2], [3, 4, 5], [0, 1, 2], [3, 4, 5]]\n"
