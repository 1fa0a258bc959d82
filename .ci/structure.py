"""Print figures of the code's structure, for comparisons between revisions.

    python .ci/structure.py [ROOT]

Counted in aioloader and recordio:

- lookups by a literal name (`getattr`, `hasattr`), each listed, since foreign objects may need them;
- `isinstance` tests of abilities, each listed: of Protocols, and of classes above or below another one of the project.
  Errors, values (tuples, enums, dataclasses without a base class) and classes of aioloader.mxnet do not count;
- parts of the project that are annotated `Any`, each listed; calls with six or more positional arguments;
- classes of many attributes (annotated in the class, or assigned to self), functions of many parameters (overloads are
  one function) or of many lines of code;
- files, and lines of code, without docstrings, comments and blank lines; these in tests and benchmarks, too.

`.ci/prose.py` checks the first words of docstrings, `tests/test_layering.py` that there is no circle of imports.
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
VALUES = {"BaseException", "Exception", "Enum", "IntEnum", "NamedTuple", "TypedDict", "tuple"}
MOST_POSITIONAL, MOST_ATTRIBUTES, MOST_PARAMETERS, MOST_LINES = 5, 15, 8, 60
FUNCTION = ast.FunctionDef | ast.AsyncFunctionDef


def code_lines(text: str, tree: ast.AST) -> set[int]:
    """Return the lines with a token that is not a comment, a line break or part of a docstring."""
    lines: set[int] = set()
    for token in tokenize.generate_tokens(io.StringIO(text).readline):
        if token.type not in NOT_CODE:
            lines.update(range(token.start[0], token.end[0] + 1))
    for node in ast.walk(tree):
        if (
            isinstance(node, ast.Module | ast.ClassDef | FUNCTION)
            and ast.get_docstring(node, clean=False) is not None
        ):
            lines.difference_update(range(node.body[0].lineno, (node.body[0].end_lineno or 0) + 1))
    return lines


def calls(tree: ast.AST, *names: str) -> list[ast.Call]:
    """Return the calls of functions of these names with two arguments or more."""
    found = [node for node in ast.walk(tree) if isinstance(node, ast.Call) and len(node.args) > 1]
    return [node for node in found if isinstance(node.func, ast.Name) and node.func.id in names]


def lookups(tree: ast.AST) -> list[ast.Call]:
    """Return the calls of getattr and hasattr with a literal name that is not a name of Python's data model."""
    found = calls(tree, "getattr", "hasattr")
    literal = [node for node in found if isinstance(node.args[1], ast.Constant)]
    return [node for node in literal if not ast.literal_eval(node.args[1]).startswith("__")]


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


class Classes:
    """Classes by their full names.

    Args:
        trees: of all modules, by their names.
    """

    def __init__(self, trees: dict[str, ast.Module]) -> None:
        self._names: dict[str, dict[str, str]] = {}
        self._nodes: dict[str, ast.ClassDef] = {}
        for module, tree in trees.items():
            names = self._names[module] = {}
            for node in ast.walk(tree):
                if isinstance(node, ast.ClassDef):
                    names[node.name] = f"{module}.{node.name}"
                    self._nodes[names[node.name]] = node
                elif isinstance(node, ast.ImportFrom):
                    names |= {each.asname or each.name: f"{node.module}.{each.name}" for each in node.names}
        self._bases = {
            name: {self._full(name.rpartition(".")[0], base) for base in node.bases}
            for name, node in self._nodes.items()
        }
        above = {name: self._above(name) for name in self._nodes}
        parents = set[str]().union(*above.values())
        related = {name for name in above if name in parents or above[name].intersection(self._nodes)}
        self.protocols = {name for name in above if "typing.Protocol" in self._bases[name]}
        self._abilities = self.protocols | {
            name
            for name in related
            if not name.startswith("aioloader.mxnet.") and not any(map(self._is_value, (name, *above[name])))
        }

    def _full(self, module: str, node: ast.expr) -> str:
        """Return the full name of a class, which may be imported from a package that only passes it on."""
        first, *rest = ast.unparse(node.value if isinstance(node, ast.Subscript) else node).split(".")
        name = ".".join((self._names[module].get(first, first), *rest))
        package, _, last = name.rpartition(".")
        inside = (
            each for each in self._nodes if each.startswith(f"{package}.") and each.endswith(f".{last}")
        )
        return name if name in self._nodes else next(inside, name)

    def _above(self, name: str) -> set[str]:
        bases = self._bases.get(name, set())
        return bases.union(*map(self._above, bases))

    def _is_value(self, name: str) -> bool:
        node = self._nodes.get(name)
        if node is None:
            return name.rpartition(".")[2] in VALUES
        derived = self._bases[name].intersection(self._nodes)
        return not derived and any("dataclass" in ast.unparse(each) for each in node.decorator_list)

    def tests(self, module: str, tree: ast.AST) -> list[ast.Call]:
        """Return the tests of whether an object has an ability."""
        return [
            call
            for call in calls(tree, "isinstance", "issubclass")
            if any(
                isinstance(each, ast.Name | ast.Attribute) and self._full(module, each) in self._abilities
                for each in ast.walk(call.args[1])
            )
        ]


def attributes(node: ast.ClassDef) -> set[str]:
    """Return the attributes that are annotated in a class, or assigned to self."""
    stored = (each for each in ast.walk(node) if isinstance(each, ast.Attribute))
    found = {
        each.attr for each in stored if isinstance(each.ctx, ast.Store) and ast.unparse(each.value) == "self"
    }
    annotated = [each for each in node.body if isinstance(each, ast.AnnAssign)]
    return found | {
        ast.unparse(each.target) for each in annotated if "ClassVar" not in ast.unparse(each.annotation)
    }


def parameters(node: ast.FunctionDef | ast.AsyncFunctionDef) -> int:
    """Return the number of parameters of a function, without self and cls; 0 for an overload."""
    if any("overload" in ast.unparse(each) for each in node.decorator_list):
        return 0
    names = [each.arg for each in ast.walk(node.args) if isinstance(each, ast.arg)]
    return len([name for name in names if name not in ("self", "cls")])


def modules(root: Path, *folders: str) -> dict[Path, str]:
    """Return the texts of the modules in some folders."""
    paths = [path for folder in folders for path in sorted((root / folder).rglob("*.py"))]
    return {path.relative_to(root): path.read_text(encoding="utf-8") for path in paths}


def main() -> None:
    """Run from the command line."""
    root = Path(sys.argv[1] if len(sys.argv) > 1 else ".").resolve()
    lines = dict.fromkeys(("aioloader", "recordio", "tests", "benchmarks"), 0)
    for path, text in modules(root, "tests", "benchmarks").items():
        lines[path.parts[0]] += len(code_lines(text, ast.parse(text)))
    texts = modules(root, "aioloader", "recordio")
    trees = {
        ".".join(path.with_suffix("").parts).removesuffix(".__init__"): ast.parse(texts[path])
        for path in texts
    }
    classes = Classes(trees)
    wide = by_name = tests = fat = many = long = 0
    untyped = []
    for (path, text), (module, tree) in zip(texts.items(), trees.items(), strict=True):
        code = code_lines(text, tree)
        lines[path.parts[0]] += len(code)
        nodes = list(ast.walk(tree))
        functions = [node for node in nodes if isinstance(node, FUNCTION)]
        wide += sum(isinstance(node, ast.Call) and len(node.args) > MOST_POSITIONAL for node in nodes)
        fat += sum(
            isinstance(node, ast.ClassDef) and len(attributes(node)) > MOST_ATTRIBUTES for node in nodes
        )
        many += sum(parameters(node) > MOST_PARAMETERS for node in functions)
        for node in functions:
            long += len(code.intersection(range(node.lineno, (node.end_lineno or 0) + 1))) > MOST_LINES
        named, asked = lookups(tree), classes.tests(module, tree)
        by_name, tests = by_name + len(named), tests + len(asked)
        for call in named + asked:
            print(f"{path}:{call.lineno}: {ast.unparse(call)}")
        untyped += [f"{path}:{line}: {name}: Any" for line, name in untyped_parts(tree)]
    print("", *untyped, "", sep="\n")
    print(f"modules at the top of aioloader: {len(list((root / 'aioloader').glob('*.py')))}")
    print(f"lookups by a literal name, on any object: {by_name}")
    print(f"isinstance tests of abilities: {tests}")
    print(
        f"Protocols in aioloader.abc: {sum(name.startswith('aioloader.abc') for name in classes.protocols)}"
    )
    print(f"parts annotated Any: {len(untyped)}")
    print(f"calls with more than {MOST_POSITIONAL} positional arguments: {wide}")
    print(f"classes with more than {MOST_ATTRIBUTES} attributes: {fat}")
    print(f"functions with more than {MOST_PARAMETERS} parameters: {many}")
    print(f"functions with more than {MOST_LINES} lines of code: {long}")
    print(f"files: {len(texts)}")
    print(*(f"lines of code of {folder}: {count}" for folder, count in lines.items()), sep="\n")


if __name__ == "__main__":
    main()
