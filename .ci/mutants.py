"""Put seeded faults into a copy of the tree, one at a time, and print the share that tests notice.

A fault is another operator, another constant, or a dropped statement. They are drawn from all packages in turn; the
same seed and sources give the same faults. For each fault those test files run that import the package of its module,
until one fails: first those in the folder of the package, because collecting the others takes longer than most faults
need. What stays unnoticed is listed: an equal program, or a test that is missing.

    python .ci/mutants.py --count 300 --seed 1 [--only aioloader.samplers] [--list] [-- OPTIONS OF PYTEST]
"""

import argparse
import ast
import copy
import importlib
import os
import random
import shutil
import subprocess
import sys
import tempfile
from collections import defaultdict
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
_BOTH_WAYS = (
    (ast.Eq, ast.NotEq),
    (ast.Is, ast.IsNot),
    (ast.In, ast.NotIn),
    (ast.And, ast.Or),
    (ast.Add, ast.Sub),
)
_BOTH_WAYS += ((ast.Lt, ast.LtE), (ast.Gt, ast.GtE), (ast.LShift, ast.RShift), (ast.FloorDiv, ast.Mult))
OTHER = {one: other for pair in _BOTH_WAYS for one, other in (pair, pair[::-1])}
DROPPED = (ast.Assign, ast.AugAssign, ast.Expr, ast.Raise, ast.Return, ast.Break, ast.Continue)


def changed(node):
    """Return a node with another meaning to put in the place of this one; None for nodes that stay."""
    new = copy.deepcopy(node)
    if isinstance(node, ast.Compare) and type(node.ops[0]) in OTHER:
        new.ops[0] = OTHER[type(node.ops[0])]()
    elif isinstance(node, (ast.BinOp, ast.BoolOp)) and type(node.op) in OTHER:
        new.op = OTHER[type(node.op)]()
    elif isinstance(node, ast.Constant) and isinstance(node.value, int):
        new.value = not node.value if isinstance(node.value, bool) else node.value + 1
    elif isinstance(node, DROPPED) and not isinstance(getattr(node, "value", None), ast.Constant):
        return ast.Pass()
    else:
        return None
    return new


def places(node):
    """Yield the nodes below a node that can be changed, without annotations, imports and texts."""
    for name, value in ast.iter_fields(node):
        for child in value if isinstance(value, list) else [value]:
            skipped = name in ("annotation", "returns", "decorator_list") or isinstance(child, ast.JoinedStr)
            if isinstance(child, ast.AST) and not skipped and "__all__" not in ast.dump(child)[:60]:
                if hasattr(child, "lineno") and changed(child):
                    yield child
                yield from places(child)


def drawn(count, seed, only):
    """Return `count` faults from the packages in turn: path, node and text in its place."""
    draws = random.Random(seed)
    packages = defaultdict(list)
    for path in sorted(path for top in ("aioloader", "recordio") for path in (ROOT / top).rglob("*.py")):
        package = ".".join(path.relative_to(ROOT).parent.parts)
        if package.startswith(only):
            nodes = places(ast.parse(path.read_text(encoding="utf-8")))
            packages[package] += [(path.relative_to(ROOT), node) for node in nodes]
    for faults in packages.values():
        draws.shuffle(faults)
    found = []
    while len(found) < count and any(packages.values()):
        found += [faults.pop() for faults in packages.values() if faults]
    return [(path, node, ast.unparse(changed(node))) for path, node in found[:count]]


def with_fault(source, node, text):
    """Return the bytes of a module with a text in the place of a node."""
    starts = [0]
    for line in source.splitlines(keepends=True):
        starts.append(starts[-1] + len(line))
    text = f"({text})" if isinstance(node, ast.expr) else text
    begin, end = starts[node.lineno - 1] + node.col_offset, starts[node.end_lineno - 1] + node.end_col_offset
    return source[:begin] + text.encode() + source[end:]


def tests_by_package():
    """Return for each package the test files that import it, or a public name that is defined in it."""
    found = defaultdict(set)
    for path in sorted((ROOT / "tests").rglob("test_*.py")):
        for node in ast.walk(ast.parse(path.read_text(encoding="utf-8"))):
            modules = [alias.name for alias in node.names] if isinstance(node, ast.Import) else []
            if isinstance(node, ast.ImportFrom) and node.module.startswith(("aioloader", "recordio")):
                modules = [node.module, *(f"{node.module}.{alias.name}" for alias in node.names)]
                for alias in node.names:
                    try:
                        value = getattr(importlib.import_module(node.module), alias.name)
                    except (AttributeError, ImportError):
                        continue
                    modules.append(getattr(value, "__module__", None) or "")
            for module in modules:
                package = module if (ROOT / module.replace(".", "/")).is_dir() else module.rpartition(".")[0]
                found[package].add(str(path.relative_to(ROOT)))
    return found


def fails(command, tree, environment, timeout):
    """Return whether tests fail, or take longer than that many seconds."""
    try:
        run = subprocess.run(command, cwd=tree, env=environment, capture_output=True, timeout=timeout)
    except subprocess.TimeoutExpired:
        return True
    return run.returncode not in (0, 5)


def main():
    """Run it."""
    parser = argparse.ArgumentParser(
        description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter
    )
    parser.add_argument("--count", type=int, default=300)
    parser.add_argument("--seed", type=int, default=1)
    parser.add_argument("--only", default="", help="beginning of the packages' names")
    parser.add_argument("--timeout", type=float, default=600, help="seconds for the tests of one fault")
    parser.add_argument(
        "--list", action="store_true", help="print the faults and how many test files each has"
    )
    parser.add_argument("options", nargs="*", help="options of pytest")
    options = parser.parse_args()
    sys.path.insert(0, str(ROOT))
    tests, faults, noticed = tests_by_package(), drawn(options.count, options.seed, options.only), 0
    command = [
        sys.executable,
        "-m",
        "pytest",
        "-n",
        "0",
        "-x",
        "-q",
        "-p",
        "no:cacheprovider",
        *options.options,
    ]
    with tempfile.TemporaryDirectory() as folder:
        tree = Path(folder, "tree")
        if not options.list:
            shutil.copytree(ROOT, tree, ignore=shutil.ignore_patterns(".git", "__pycache__", ".*_cache"))
        environment = {**os.environ, "PYTHONPATH": str(tree), "PYTHONPYCACHEPREFIX": f"{folder}/bytecode"}
        environment.pop("PYTHONDONTWRITEBYTECODE", None)
        for number, (path, node, text) in enumerate(faults, 1):
            package = ".".join(path.parent.parts)
            while not tests[package] and "." in package:  # it is tested by a package around it
                package = package.rpartition(".")[0]
            home = next(
                folder for folder in [path.parent, *path.parents] if (ROOT / "tests" / folder).is_dir()
            )
            near = [
                file
                for file in sorted(tests[package])
                if Path(file).parent == "tests" / home or path.stem in Path(file).stem
            ]
            far = sorted(tests[package].difference(near))
            what = f"{path}:{node.lineno}: {ast.unparse(node)[:80]} -> {text[:80]}"
            if options.list:
                print(len(near), len(far), what)
                continue
            source = (ROOT / path).read_bytes()
            (tree / path).write_bytes(with_fault(source, node, text))
            seen = any(
                fails([*command, *files], tree, environment, options.timeout)
                for files in (near, far)
                if files
            )
            (tree / path).write_bytes(source)
            noticed += seen
            print(f"{'noticed' if seen else 'UNNOTICED'} ({noticed} of {number}) {what}", flush=True)
    if not options.list:
        print(f"{noticed} of {len(faults)} faults noticed: {noticed / len(faults):.1%}")


if __name__ == "__main__":
    main()
