"""Tests of what is imported and what is declared: dependencies, extras, and errors that name the extra to install."""

from __future__ import annotations

import ast
import json
import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest

from aioloader.storage.urls import SCHEMES
from aioloader.tools.draw import draw_folder
from tests.import_scan import SOURCES, Import, all_imports, names_looked_up, where

ROOT = Path(__file__).parents[1]
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))["project"]
FOR_DEVELOPERS = {"all", "dev", "docs", "test"}
OWN = {"aioloader", "recordio"}

# Packages whose modules have another name.
DISTRIBUTION_OF = {
    "PIL": "pillow",
    "cv2": "opencv-python-headless",
    "opentelemetry": "opentelemetry-api",
}
# Imported only for a caller who uses the package already: the result, or the loop, is of that package.
CALLERS = {
    "trio": {"aioloader.foundation.concurrency", "recordio.aio"},
    "scipy": {"aioloader.mxnet.sparse"},
    "hypothesis": {"aioloader.testing", "recordio.testing"},
}
# Modules that import by a name which is no constant; a package of others among these names needs a case below.
BY_NAME = {
    "aioloader.executors.process.worker",  # the caller's main module
    "recordio._lazy_names",  # its own modules
    "aioloader.loader.outputs",  # torch, jax
    "aioloader.tools.view",  # jinja2, starlette, uvicorn
    "aioloader.interop.torch._items",  # modules that the script has imported
    "aioloader.mxnet.gluon.data.vision.datasets",  # its own modules
    "aioloader.mxnet.outside",  # its own modules
    "aioloader.service.options",  # torch, jax
    "aioloader.storage.cache.unpacked",  # brotli, cramjam, zstandard
    "aioloader.viewer.draws",  # the caller's transform
}


def distribution_of(module: str) -> str:
    top = module.partition(".")[0]
    return DISTRIBUTION_OF.get(top, top.replace("_", "-"))


def name_of(requirement: str) -> str:
    found = re.match(r"[A-Za-z0-9._-]+", requirement)
    assert found
    return found[0].lower().replace("_", "-")


CORE = {name_of(each) for each in PROJECT["dependencies"]}
EXTRAS = {
    extra: {name_of(each) for each in requirements}
    for extra, requirements in PROJECT["optional-dependencies"].items()
    if extra not in FOR_DEVELOPERS
}
OPTIONAL = {name for names in EXTRAS.values() for name in names}


@cache
def foreign() -> list[Import]:
    """The imports of packages of others, those for annotations and those by name included."""
    named = [
        Import(importer, name, True, False, line)
        for importer in SOURCES
        for name, line in names_looked_up(importer)
        if name is not None and not name.startswith(".")
    ]
    return [
        found
        for found in (*all_imports(), *named)
        if (top := found.module.partition(".")[0]) not in sys.stdlib_module_names
        # Type checkers bring the types of this one.
        and not (found.annotation and top == "typing_extensions")
        and top not in OWN
        and found.importer not in CALLERS.get(top, ())
    ]


def test_every_import_is_of_a_declared_package() -> None:
    wrong = [where(found) for found in foreign() if distribution_of(found.module) not in CORE | OPTIONAL]
    assert wrong == []


def test_imports_by_computed_names_are_known() -> None:
    computed = {importer for importer in SOURCES for name, _ in names_looked_up(importer) if not name}
    assert computed == BY_NAME


def test_what_a_module_cannot_be_imported_without_is_one_extra() -> None:
    """A module that needs two packages to be imported needs an extra that has both."""
    needed: dict[str, set[str]] = {}
    for found in foreign():
        if not found.lazy and not found.annotation and distribution_of(found.module) not in CORE:
            needed.setdefault(found.importer, set()).add(distribution_of(found.module))
    wrong = {
        importer: names for importer, names in needed.items() if not any(names <= e for e in EXTRAS.values())
    }
    assert wrong == {}


def test_modules_are_of_the_packages_that_this_file_says() -> None:
    of = metadata.packages_distributions()
    for found in foreign():
        top = found.module.partition(".")[0]
        if top in of and top != "cv2":  # several packages have a module cv2
            assert distribution_of(top) in {name_of(each) for each in of[top]}, where(found)


# What each package is for, and the extra that is to be named where it is missing: code that runs where no optional
# package can be imported.
USES = {
    ("pillow", "service"): "aioloader.transforms.Qwen2VLImageProcessor()(PIXELS)",
    ("h11", "service"): "asyncio.run(opened(allow=('https',), hosts=('example.com',)))",
    ("google-crc32c", "tfrecord"): "aioloader.TFRecordDataset(FILE, check_crc=True)",
    ("pyarrow", "parquet"): "len(aioloader.ParquetDataset(FILE))",
    ("obstore", "remote"): "aioloader.RecordFileDataset('http://127.0.0.1:9/a.rec')",
    ("jinja2", "view"): "main(['view', '--export', FILE + '-pages', FOLDER])",
    ("starlette", "view"): "main(['view', FOLDER])",
    ("uvicorn", "view"): "main(['view', FOLDER])",
    ("torch", "torch"): "importlib.import_module('aioloader.interop.torch')",
    ("jax", "jax"): "aioloader.DataLoader(range(4), 2, output='jax')",
    ("ray", "ray"): "aioloader.executors.RayExecutor().workers",
    ("rich", "progress"): "list(aioloader.DataLoader(NUMBERS, 2, num_workers=0, progress='rich'))",
    ("opentelemetry-api", "metrics"): "importlib.import_module('aioloader.interop.opentelemetry')",
    ("prometheus-client", "metrics"): "importlib.import_module('aioloader.interop.prometheus')",
    ("brotli", "mds"): "list(decompressed(BlockStream(iter([b'abc']), id), 'br', 3, extra='mds'))",
    ("cramjam", "mds"): "list(decompressed(BlockStream(iter([b'abc']), id), 'snappy', 3, extra='mds'))",
    ("zstandard", "mds"): "list(decompressed(BlockStream(iter([b'abc']), id), 'zstd', 3, extra='mds'))",
    ("turbojpeg", "turbojpeg"): "RectangleDecoder()",
}
PROGRAM = """
import asyncio, contextlib, importlib, io, json, sys
hidden, uses, FOLDER, FILE = json.loads(sys.argv[1])
for name in hidden:
    sys.modules[name] = None
import numpy
import aioloader, aioloader.executors
from aioloader.cli import main
from aioloader.jpeg.cut import RectangleDecoder
from aioloader.storage.cache.unpacked import BlockStream, decompressed
PIXELS = numpy.zeros((60, 90, 3), numpy.uint8)
NUMBERS = aioloader.ArrayDataset(numpy.arange(4))
async def opened(**options):
    async with aioloader.AsyncImageService(**options):
        pass
errors = {}
for name, use in uses.items():
    text = io.StringIO()
    try:
        with contextlib.redirect_stderr(text):
            found = ["exit", str(eval(use))]
    except Exception as error:
        found = [type(error).__name__, str(error)]
    errors[name] = [*found, text.getvalue()]
print(json.dumps(errors))
"""


def test_every_optional_package_has_a_use_in_this_file() -> None:
    names = {distribution_of(found.module) for found in foreign()}
    assert {name for name, _ in USES} >= names - CORE
    for name, extra in USES:
        assert name in EXTRAS[extra], f"{extra} does not install {name}"


@pytest.fixture(scope="module")
def errors(tmp_path_factory: pytest.TempPathFactory) -> dict[str, tuple[str, str, str]]:
    """Outcome of each use where all optional packages are missing."""
    folder = tmp_path_factory.mktemp("images")
    draw_folder(folder, count=2)
    file = folder.parent / "framed"
    file.write_bytes(b"PAR1\0\0\0\0\x04\0\0\0PAR1")  # what is looked at before a Parquet footer is parsed
    hidden = sorted(
        {
            top
            for found in foreign()
            if distribution_of(top := found.module.partition(".")[0]) in OPTIONAL - CORE
        }
        | {"brotli", "cramjam", "zstandard", "jax"}  # imported by computed names
    )
    uses = {name: use for (name, _), use in USES.items()}
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, json.dumps([hidden, uses, str(folder), str(file)])],
        capture_output=True,
        text=True,
        cwd=ROOT,
        check=False,
        env={**os.environ, "AIOLOADER_TURBOJPEG": ""},
    )
    assert done.returncode == 0, done.stderr
    return json.loads(done.stdout)


@pytest.mark.parametrize(("package", "extra"), USES)
def test_errors_name_the_extra_that_installs_what_is_missing(
    package: str, extra: str, errors: dict[str, tuple[str, str, str]]
) -> None:
    kind, said, printed = errors[package]
    if kind == "exit":
        assert said == "1"
    else:
        assert kind == ("RuntimeError" if package == "turbojpeg" else "MissingPackageError"), said
    text = f"{said} {printed}"
    assert re.search(rf"pip install ['\"]aioloader\[{extra}\]['\"]", text), text
    if package != "turbojpeg":  # found by its file
        assert package in text


# -- the programs for each extra ---


def _table(name: str) -> Any:
    """A table of tests/extras/smokes.py, which imports things that are not installed here."""
    tree = ast.parse((ROOT / "tests" / "extras" / "smokes.py").read_text(encoding="utf-8"))
    (value,) = (
        node.value
        for node in tree.body
        if isinstance(node, ast.Assign) and ast.unparse(node.targets[0]) == name
    )
    return ast.literal_eval(value)


def test_each_extra_has_a_program_and_its_modules_are_listed() -> None:
    modules = _table("MODULES")
    assert set(modules) == set(EXTRAS)
    for extra, names in modules.items():
        tops = {distribution_of(name) for name in names}
        assert tops >= {name for name in EXTRAS[extra] if name != "opentelemetry-sdk"}, extra
    text = (ROOT / "tests" / "extras" / "smokes.py").read_text(encoding="utf-8")
    programs = re.search(r"for program in \((.*?)\n    \)\n", text, re.DOTALL)
    assert programs
    assert set(re.findall(r"\w+", programs[1])) == {*EXTRAS, "core"}


def test_all_schemes_are_tried() -> None:
    assert set(_table("SCHEMES")) == set(PROJECT["entry-points"]["recordio.openers"]) == set(SCHEMES)
