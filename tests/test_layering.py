"""Tests of the import rules, of the cost of importing, and of the public names.

A module may import modules of the groups that `MAY_IMPORT` lists for its own group. A module that belongs to no group
fails the test, so that whoever adds one decides on its group. No modules import each other. Imports in functions and
imports for annotations count, and so do names of modules in strings.
"""

from __future__ import annotations

import ast
import importlib
import json
import subprocess
import sys

import pytest

from tests.import_scan import PACKAGES, SOURCES, Import, all_imports, imports_of, names_in, where


def _of(package: str, names: str) -> set[str]:
    return {f"{package}.{name}" for name in names.split()}


# Group: the modules in it. A package includes all its modules.
GROUPS = {
    # recordio
    "format": _of(
        "recordio",
        "errors _framing _index_text _parser _recovery _sansio",
    ),
    "format-files": {"recordio"},  # and all of recordio that is not listed above
    "lazy-names": {"recordio._lazy_names"},
    # aioloader, from the bottom to the top
    "native": {"aioloader._native"},  # compiled
    "errors": {"aioloader.errors"},
    "foundation": {"aioloader.foundation"},
    "waiting": _of("aioloader.foundation", "concurrency threads"),
    "contracts": {"aioloader.abc", "aioloader.rng", "aioloader.foundation.foreign_generators"},
    "observability": {"aioloader.observability", "aioloader.explain", "aioloader.metrics"},
    "samplers": {"aioloader.samplers"},
    "batchify": {"aioloader.batchify"},
    "jpeg": {"aioloader.jpeg"},
    "codecs": {"aioloader.jpeg.turbojpeg"},
    "transforms": {"aioloader.transforms"},
    "storage": {"aioloader.storage"},
    "storage-rules": {"aioloader.storage.cache.base"},
    "remote": {"aioloader.storage.remote"},
    "crop-index": {"aioloader.crop_index"},
    "parsers": {
        *_of("aioloader.formats.tar", "header members samples scan"),
        *_of("aioloader.formats.tfrecord", "example framing"),
        *_of("aioloader.formats.mds", "encodings index"),
    },
    "formats": {"aioloader.formats"},
    "sample-index": {"aioloader.sample_index"},
    "datasets": {"aioloader.datasets"},
    "executors": {"aioloader.executors"},
    "pipeline": {"aioloader.pipeline"},
    "outputs": {"aioloader.loader.outputs"},
    "receipts": {"aioloader.receipts"},
    "loader": {"aioloader.loader"},
    "service": {"aioloader.service"},
    "images": {"aioloader.loader.images"},
    "costs": {"aioloader.costs"},
    "package": {"aioloader"},
    "packing": {"aioloader.packing"},
    "tools": {"aioloader.tools"},
    "interop": {"aioloader.interop"},
    "mxnet": {"aioloader.mxnet"},
    "viewer": {"aioloader.viewer"},
    "cli": {"aioloader.cli", "aioloader.__main__"},
}

# The foundation and the contracts: nearly every group may import these.
BASE = {"errors", "foundation", "contracts", "lazy-names"}
WAITING = {*BASE, "waiting", "observability"}
FILES_OF_RECORDS = {"format", "format-files"}
# What a dataset of files is made of.
PARTS_OF_DATASETS = {
    *WAITING,
    *FILES_OF_RECORDS,
    "samplers",
    "jpeg",
    "transforms",
    "storage",
    "storage-rules",
    "remote",
    "crop-index",
    "sample-index",
}
ENGINE = {
    *(PARTS_OF_DATASETS - FILES_OF_RECORDS),
    "batchify",
    "codecs",
    "parsers",
    "formats",
    "datasets",
    "executors",
    "pipeline",
    "outputs",
    "receipts",
}
LIBRARY = {*ENGINE, "loader", "service", "images", "costs", "package", "format-files"}

# Group: the groups of the project that it may import in addition to itself. Imports in functions and imports for
# annotations count too.
MAY_IMPORT = {
    "format": set(),
    "format-files": {"format", "lazy-names"},
    "lazy-names": set(),
    "native": set(),
    "errors": set(),
    "foundation": {"errors", "native"},
    "waiting": {"errors", "foundation"},
    "contracts": {"errors", "foundation"},
    "observability": BASE,
    "samplers": BASE,
    "batchify": BASE,
    "jpeg": {*BASE, "codecs"},
    "codecs": {"foundation"},
    "transforms": {*BASE, "jpeg", "codecs"},
    "storage": {*WAITING, *FILES_OF_RECORDS, "storage-rules"},
    "storage-rules": BASE,
    # Readers over the network; imported when a path is a URL.
    "remote": {*WAITING, *FILES_OF_RECORDS, "storage"},
    "crop-index": {*BASE, "jpeg", "storage", "remote", "format-files"},
    # Parsers of the formats of shards.
    "parsers": BASE,
    "sample-index": {*BASE, "observability", "storage", "remote", "format-files"},
    # What the datasets of all formats share.
    "datasets": PARTS_OF_DATASETS,
    # One folder for each format, and the registry that finds them.
    "formats": {*PARTS_OF_DATASETS, "parsers", "datasets"},
    "executors": WAITING,
    "receipts": {*BASE, "samplers"},
    # Datasets, executors and batchify functions are passed to the pipeline as arguments.
    "pipeline": {*WAITING, "receipts"},
    # PyTorch and JAX are imported lazily, only when a loader's `output` asks for them.
    "outputs": BASE,
    # The only group that chooses concrete parts.
    "loader": ENGINE,
    # Takes requests instead of an epoch's order, and chooses concrete parts as the loader does.
    "service": {*ENGINE, "loader"},
    "images": {"crop-index", "datasets", "formats", "foundation", "loader", "transforms"},
    "costs": {*BASE, "jpeg", "transforms", "storage", "remote", "datasets"},
    "package": {*ENGINE, "loader", "service", "images", "costs"},
    "packing": LIBRARY,
    "tools": {*LIBRARY, "packing", "viewer"},
    "interop": LIBRARY,
    "mxnet": {*LIBRARY, "tools"},
    "viewer": LIBRARY,
    "cli": {"errors", "foundation", "formats", "tools"},
}

# Outsiders: who may import them. "Lazily": inside a function only, so that importing aioloader stays cheap.
FILES = {"os", "io", "pathlib", "tempfile", "shutil", "mmap"}
LOOPS = {"anyio", "asyncio", "trio", "aiofiles"}
NOT_FOR = {
    "format": FILES | LOOPS | {"threading", "cv2", "simplejpeg"},
    "errors": LOOPS | {"cv2", "simplejpeg"},
    "foundation": LOOPS | {"cv2", "simplejpeg"},
    "contracts": LOOPS | {"cv2", "simplejpeg"},
    "observability": LOOPS | {"cv2", "simplejpeg"},
    "samplers": LOOPS,
    "batchify": LOOPS,
    "jpeg": FILES | LOOPS,
    "storage-rules": FILES | LOOPS,
    "parsers": FILES | LOOPS,
    "codecs": LOOPS | {"cv2", "simplejpeg"},
    "transforms": FILES | LOOPS,
    "pipeline": FILES | {"cv2", "simplejpeg", "cloudpickle"},
    "executors": {"cv2", "simplejpeg"},
}
# Pillow decodes from a file object; this one is in memory.
IN_MEMORY = {("aioloader.transforms.pillow", "io")}
LAZY = {
    "PIL",
    "aiofiles",
    "albumentations",
    "cv2",
    "h11",
    "idna",
    "hypothesis",
    "jax",
    "jinja2",
    "mxnet",
    "obstore",
    "opentelemetry",
    "prometheus_client",
    "pyarrow",
    "ray",
    "rich",
    "simplejpeg",
    "starlette",
    "torch",
    "tqdm",
    "trio",
    "uvicorn",
}
LAZY_EXCEPTIONS = {
    ("recordio.testing", "hypothesis"),  # strategies: nobody imports it without hypothesis
    ("aioloader.interop.ray", "pyarrow"),
    ("aioloader.interop.ray", "ray"),  # nobody imports a bridge without what it leads to
    ("aioloader.interop.opentelemetry", "opentelemetry"),
    ("aioloader.interop.prometheus", "prometheus_client"),
    *(
        (f"aioloader.interop.torch.{part}", "torch")
        for part in (
            "_dataset",
            "_device",
            "_generators",
            "_items",
            "_loader",
            "_order",
            "_samples",
            "_stream_parts",
            "_streams",
            "_sending",
            "_settings",
            "_state",
        )
    ),
    ("aioloader.viewer.app", "starlette"),
}


def _group(module: str) -> str | None:
    """The group that names the module, or else its nearest package."""
    owners = {name: group for group, names in GROUPS.items() for name in names}
    if module in owners:
        return owners[module]
    parent = module.rpartition(".")[0]
    if parent == "recordio":
        return "format-files"
    # "aioloader" means its __init__ only.
    return _group(parent) if "." in parent else None


def running_imports() -> list[Import]:
    """Return the imports that run, at import time or in a function."""
    return [found for found in all_imports() if not found.annotation]


def test_every_module_has_its_place() -> None:
    assert [name for name in SOURCES if _group(name) is None] == []


def test_imports_go_one_way() -> None:
    wrong = []
    for found in all_imports():
        if found.module.partition(".")[0] not in ("aioloader", "recordio"):
            continue
        # A package of public names imports what it names.
        mine = "package" if found.importer == "aioloader.datasets" else _group(found.importer)
        other = _group(found.module)
        if other != mine and other not in MAY_IMPORT.get(mine or "", ()):
            wrong.append(f"{where(found)}: {mine} may not import {other}")
    for importer in SOURCES:
        mine = "package" if importer == "aioloader.datasets" else _group(importer)
        others = {name: _group(name) for name in names_in(importer)}
        wrong += [
            f"{importer} names {name}: {mine} may not import {other}"
            for name, other in others.items()
            if other != mine and other not in MAY_IMPORT.get(mine or "", ())
        ]
    assert wrong == []


def test_the_table_has_no_cycle() -> None:
    left = {group: set(others) for group, others in MAY_IMPORT.items()}
    while left:
        free = [group for group, others in left.items() if not others & left.keys()]
        assert free, f"these import each other: {sorted(left)}"
        for group in free:
            del left[group]


def _circles(graph: dict[str, set[str]]) -> list[list[str]]:
    """Return the strongly connected components of more than one module (Tarjan's algorithm), sorted."""
    index: dict[str, int] = {}
    low: dict[str, int] = {}
    stack: list[str] = []
    found = []

    def visit(module: str) -> None:
        index[module] = low[module] = len(index)
        stack.append(module)
        for other in graph[module]:
            if other not in index:
                visit(other)
            if other in stack:
                low[module] = min(low[module], low[other])
        if low[module] == index[module]:
            at = stack.index(module)
            component = stack[at:]
            del stack[at:]
            if len(component) > 1:
                found.append(sorted(component))

    for module in graph:
        if module not in index:
            visit(module)
    return sorted(found)


def test_circles_are_found() -> None:
    graph = {"a": {"b"}, "b": {"c"}, "c": {"a", "d"}, "d": {"e"}, "e": {"d"}, "f": {"a", "e"}}
    assert _circles(graph) == [["a", "b", "c"], ["d", "e"]]
    assert _circles({"a": {"b", "c"}, "b": {"c"}, "c": set()}) == []


def test_imports_in_functions_and_for_annotations_are_seen() -> None:
    own = [found for found in all_imports() if found.module in SOURCES]
    assert any(found.annotation for found in own)
    assert any(found.lazy for found in own)


def test_no_modules_import_each_other() -> None:
    graph = {name: set(names_in(name)) for name in SOURCES}
    for found in all_imports():
        if found.module in SOURCES:
            graph[found.importer].add(found.module)
    assert _circles({name: others - {name} for name, others in graph.items()}) == []


def test_pure_parts_open_nothing_and_wait_for_nothing() -> None:
    wrong = [
        where(found)
        for found in running_imports()
        if found.module.partition(".")[0] in NOT_FOR.get(_group(found.importer) or "", ())
        and (found.importer, found.module) not in IN_MEMORY
    ]
    assert wrong == []


def test_heavy_and_optional_packages_are_imported_when_used() -> None:
    wrong = [
        where(found)
        for found in running_imports()
        if not found.lazy
        and (top := found.module.partition(".")[0]) in LAZY
        and (found.importer, top) not in LAZY_EXCEPTIONS
    ]
    assert wrong == []


def test_private_parts_of_recordio_stay_inside() -> None:
    # The local byte source reads whole batches of records by offset: it checks their heads with the format's functions.
    # So does the one over the network.
    allowed = {(f"aioloader.storage{part}", "recordio._framing") for part in ("", ".local", ".remote")}
    # Tools, downloads, files of archives and mean images are written under another name, as recordio writes its own.
    allowed |= {
        (f"aioloader.{part}", "recordio._partial_files")
        for part in ("crop_index", "packing", "tools", "mxnet", "mxnet.gluon.data.vision", "mxnet.io")
    }
    # Crop indexes of URLs, sample indexes and decompressed shards are in the same cache directory as copies of other
    # indexes.
    allowed |= {
        (f"aioloader.{part}", "recordio._index_cache")
        for part in ("crop_index", "sample_index", "storage.cache")
    }
    wrong = [
        where(found)
        for found in running_imports()
        if found.module.startswith("recordio._")
        and found.module not in ("recordio.__main__", "recordio._lazy_names")
        and not found.importer.startswith("recordio")
        and not {(found.importer, found.module), (found.importer.rpartition(".")[0], found.module)} & allowed
    ]
    assert wrong == []


def _fresh(code: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", code], capture_output=True, text=True, cwd=PACKAGES, check=False
    )
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.parametrize("package", ["aioloader", "recordio"])
def test_importing_starts_nothing_and_loads_nothing_heavy(package: str) -> None:
    code = f"""
import json, logging, signal, sys, threading
handlers = signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM)
import {package}
assert handlers == (signal.getsignal(signal.SIGINT), signal.getsignal(signal.SIGTERM))
print(json.dumps([sorted(sys.modules), threading.active_count(), len(logging.root.handlers)]))
"""
    modules, threads, handlers = json.loads(_fresh(code))
    heavy = {
        "cv2",
        "hypothesis",
        "jax",
        "multiprocessing",
        "mxnet",
        "pytest",
        "ray",
        "simplejpeg",
        "torch",
        "trio",
    }
    assert heavy & set(modules) == set()
    assert threads == 1
    assert handlers == 0
    if package == "recordio":
        assert {"anyio", "aiofiles", "asyncio", "aioloader"} & set(modules) == set()


@pytest.mark.parametrize("module", ["aioloader.cli", "aioloader.observability.progress"])
def test_the_command_line_answers_before_it_loads_anything(module: str) -> None:
    # `aioloader --version` still runs aioloader/__init__; the module's own imports must add nothing.
    own = {
        found.module.partition(".")[0] for found in imports_of(module) if not (found.lazy or found.annotation)
    }
    assert own <= {*sys.stdlib_module_names, "aioloader", "__future__"}


def test_public_names_exist_and_are_sorted_tuples() -> None:
    code = """
import importlib, json
wrong = []
for name in NAMES:
    module = importlib.import_module(name)
    public = getattr(module, "__all__", None)
    if public is None:
        continue
    if not isinstance(public, tuple):
        wrong.append(f"{name}.__all__ is not a tuple")
    wrong += [f"{name}.{n} does not exist" for n in public if not hasattr(module, n)]
    if len(set(public)) != len(public):
        wrong.append(f"{name}.__all__ repeats itself")
print(json.dumps(wrong))
"""
    heavy = (
        "aioloader.__main__",
        "aioloader.interop.",
        "aioloader.viewer",
        "recordio.__main__",
    )
    names = [name for name in SOURCES if not name.startswith(heavy)]
    assert json.loads(_fresh(f"NAMES = {names!r}\n{code}")) == []


@pytest.mark.parametrize("package", ["aioloader", "recordio"])
def test_packages_export_what_they_import(package: str) -> None:
    tree = ast.parse((PACKAGES / package / "__init__.py").read_text(encoding="utf-8"))
    bound = {
        alias.asname or alias.name
        for node in ast.walk(tree)  # also imports for type checkers only, because the names are loaded lazily
        if isinstance(node, ast.ImportFrom)
        and (node.module or "").split(".")[0] == package
        and node.module != "recordio._lazy_names"
        for alias in node.names
    }
    exported = importlib.import_module(package).__all__
    assert {name for name in bound if not name.startswith("_")} == {
        n for n in exported if not n.startswith("_")
    }


def lazy_packages() -> list[str]:
    """Return the packages whose names are imported at their first use."""
    return [found.importer for found in all_imports() if found.module == "recordio._lazy_names"]


def test_names_of_packages_are_those_of_their_modules() -> None:
    packages = [name for name in lazy_packages() if name != "aioloader.interop.torch"]
    assert packages
    for package in packages:
        compare_names(package)


def compare_names(package: str) -> None:
    # What type checkers see, what `from package import *` gives, and what is loaded at the first use are the same.
    tree = ast.parse(SOURCES[package].read_text(encoding="utf-8"))
    typed = {
        alias.name: f"{node.module}.{alias.name}" if f"{node.module}.{alias.name}" in SOURCES else node.module
        for block in tree.body
        if isinstance(block, ast.If)
        for node in block.body
        if isinstance(node, ast.ImportFrom)
        for alias in node.names
    }
    module = importlib.import_module(package)
    assert {"__version__", *typed} >= set(module.__all__) >= set(typed)
    for name, origin in typed.items():
        defined = importlib.import_module(str(origin))
        assert getattr(module, name) is (defined if origin == f"{package}.{name}" else getattr(defined, name))
        assert name in dir(module)
    with pytest.raises(AttributeError, match=f"module '{package}' has no attribute 'nothing'"):
        _ = module.nothing


def test_parts_of_the_library_import_names_from_where_they_are_defined() -> None:
    # So that packages of names are in no circle; `recordio` imports nothing of the library.
    packages = [name for name in lazy_packages() if name != "recordio"]
    wrong = [
        where(found)
        for found in all_imports()
        if found.module in packages and found.importer not in packages and _group(found.importer) in LIBRARY
    ]
    assert wrong == []


@pytest.mark.parametrize("name", ["InsightFaceDataset", "MNIST", "FashionMNIST", "CIFAR10", "CIFAR100"])
def test_datasets_of_well_known_files_are_at_the_top_for_one_more_version(name: str) -> None:
    import aioloader

    with pytest.warns(
        DeprecationWarning, match=rf"aioloader 0\.2: use aioloader\.datasets\.{name}"
    ) as caught:
        found = getattr(aioloader, name)
    assert caught[0].filename == __file__
    assert found is getattr(aioloader.datasets, name)
    assert name not in dir(aioloader)
