"""Print figures of the code's structure, for comparisons between revisions.

    python .ci/structure.py [ROOT]

Counted in aioloader and recordio: modules at the top of aioloader; lookups by a literal name (`getattr`, `hasattr`),
each listed, since foreign objects may need them; parts of the project that are annotated `Any`, each listed; calls with
six or more positional arguments; and lines of code, without docstrings, comments and blank lines. `.ci/prose.py` checks
the first words of docstrings, `tests/test_layering.py` that there is no circle of imports.
"""

from __future__ import annotations

import ast
import io
import sys
import tokenize
from pathlib import Path

# Names of parts that have a class or a Protocol.
PARTS = {
    *("dataset", "source", "executor", "memory", "loader", "slab", "program", "inner", "engine", "pipeline"),
}
NOT_CODE = {
    *(tokenize.COMMENT, tokenize.NL, tokenize.NEWLINE, tokenize.INDENT, tokenize.DEDENT, tokenize.ENDMARKER),
}
MOST_POSITIONAL = 5


def code_lines(text: str, tree: ast.AST) -> int:
    """Count the lines with a token that is not a comment, a line break or part of a docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | ast.FunctionDef | ast.AsyncFunctionDef)
            and ast.get_docstring(node, clean=False) is not None
        ):
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return len(lines)


def lookups(tree: ast.AST) -> list[ast.Call]:
    """Return the calls of getattr and hasattr with a literal name that is not a name of Python's data model."""
    return [
        node
        for node in ast.walk(tree)
        if isinstance(node, ast.Call)
        and ast.unparse(node.func) in ("getattr", "hasattr")
        and len(node.args) > 1
        and isinstance(node.args[1], ast.Constant)
        and not str(node.args[1].value).startswith("__")
    ]


def untyped_parts(tree: ast.AST) -> list[tuple[int, str]]:
    """Return line and name of parameters and attributes of `PARTS` that are annotated `Any`."""
    found = []
    for node in ast.walk(tree):
        if isinstance(node, ast.arg):
            name, annotation = node.arg, node.annotation
        elif isinstance(node, ast.AnnAssign):
            name, annotation = ast.unparse(node.target).rpartition(".")[2], node.annotation
        else:
            continue
        if (
            annotation is not None
            and ast.unparse(annotation) in ("Any", "Any | None")
            and name.strip("_") in PARTS
        ):
            found.append((node.lineno, name))
    return sorted(found)


def main() -> None:
    """Run from the command line."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    lines = wide = by_name = 0
    untyped = []
    for package in ("aioloader", "recordio"):
        for path in sorted((root / package).rglob("*.py")):
            text = path.read_text(encoding="utf-8")
            tree = ast.parse(text)
            where = path.relative_to(root)
            lines += code_lines(text, tree)
            wide += sum(
                isinstance(node, ast.Call) and len(node.args) > MOST_POSITIONAL for node in ast.walk(tree)
            )
            for call in lookups(tree):
                by_name += 1
                print(f"{where}:{call.lineno}: {ast.unparse(call)}")
            untyped += [f"{where}:{line}: {name}: Any" for line, name in untyped_parts(tree)]
    print("", *untyped, "", sep="\n")
    print(f"modules at the top of aioloader: {len(list((root / 'aioloader').glob('*.py')))}")
    print(f"lookups by a literal name, on any object: {by_name}")
    print(f"parts annotated Any: {len(untyped)}")
    print(f"calls with more than {MOST_POSITIONAL} positional arguments: {wide}")
    print(f"lines of code: {lines}")


if __name__ == "__main__":
    main()
