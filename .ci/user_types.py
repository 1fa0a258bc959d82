"""Check the types of users' code: examples/, and the Python blocks of the README and of docs/.

Pyright, in its standard mode, checks all of them as an editor would show them. ``mypy --strict`` checks examples/ and
the typed program `tests/user_types.py`, and the pages without the rules that functions have annotations and that a name
has one type. The blocks of a page are one program, in a file whose line numbers are those of the page. So are the cells
of the notebook; mypy cannot read them, because they await. Names that the reader has, such as ``step``, may have any
type.

    python .ci/user_types.py            # needs the extra dev
"""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
import tempfile
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent
sys.path.insert(0, str(ROOT))

from tests.docs.blocks import PAGES, blocks  # noqa: E402 - found by the path above

READERS = (
    "captions classes dataset gather image masks more_photos pairs photos points rank rows scenes step texts "
    "tokenise"
)
"""Names that the text of a page introduces, or that its reader has."""

RULES = {
    "typeCheckingMode": "standard",
    "reportMissingImports": False,  # optional packages
    "reportMissingModuleSource": False,
    "reportPossiblyUnboundVariable": False,  # after a loop over a data set that is not empty
    "reportUnusedExpression": False,  # a block may end with a value to look at
    "reportRedeclaration": False,  # a page has several variants of a function
}

# A name of two blocks may have two types, and no annotation says what an empty list of the reader will hold.
UNTYPED = (
    *("--allow-untyped-defs", "--allow-incomplete-defs", "--allow-untyped-calls", "--check-untyped-defs"),
    *("--allow-untyped-decorators", "--allow-subclassing-any", "--allow-any-generics"),
    *("--allow-redefinition", "--ignore-missing-imports"),
    *(
        f"--disable-error-code={code}"
        for code in ("import-untyped", "no-redef", "assignment", "var-annotated")
    ),
)
"""Options of mypy for the pages, whose functions have no annotations, as in most scripts."""

PARTS_OF_AN_EXAMPLE = "end-to-end.md"
"""Page that shows parts of a program of examples/, which is checked whole."""

KNOWN = {
    "cells of a notebook await outside of functions": re.compile(
        r'"await" allowed only within async function|Use of "async" not allowed outside of async function'
    ),
    "mypy gives a dict of options one type of values": re.compile(
        r'"\*\*dict\[str, (object|int)\]"|No overload variant of "images" .*"dict\[str, object\]"'
    ),
    "names of the reader": re.compile(rf'(Name|Cannot determine type of) "({"|".join(READERS.split())})"'),
    "torch's Dataset is a class, no protocol: other datasets need a cast": re.compile(
        r'"Dataset.*" cannot be assigned to parameter "dataset" of type "Dataset\[_T'
    ),
}
"""Findings that no annotation here can avoid, with the reason."""


def lay(folder: Path) -> dict[str, str]:
    """Write the programs of the pages into a folder and return the page of each file."""
    pages = {}
    for page in PAGES.keys() - {PARTS_OF_AN_EXAMPLE}:
        parts: dict[str, str] = {}
        for block in blocks(page, "python"):
            name = re.sub(r"\W", "_", f"{page} {block.title}".removesuffix(".py").strip())
            code = parts.get(name, "")
            parts[name] = code + "\n" * (block.line - 1 - code.count("\n")) + block.code
        for name, code in parts.items():
            (folder / f"{name}.py").write_text(code, encoding="utf-8")
            pages[f"{name}.py"] = PAGES[page].relative_to(ROOT).as_posix()
    for path in sorted((ROOT / "examples").glob("*.ipynb")):
        name = f"{path.stem}_cells.py"
        (folder / name).write_text(cells(path), encoding="utf-8")
        pages[name] = path.relative_to(ROOT).as_posix()
    return pages


def cells(path: Path) -> str:
    """Return the cells of a notebook as one program, without the lines that are not Python."""
    found = json.loads(path.read_text(encoding="utf-8"))["cells"]
    code = "\n".join("".join(cell["source"]) for cell in found if cell["cell_type"] == "code")
    return "\n".join("" if line.startswith(("%", "!")) else line for line in code.splitlines()) + "\n"


def check_with_pyright() -> list[str]:
    """Return the findings of pyright, each in a line."""
    with tempfile.TemporaryDirectory() as name:
        folder = Path(name)
        pages = lay(folder)
        # Pyright adds the names of such a file to the built-in ones.
        names = "".join(f"{word}: Any\n" for word in READERS.split())
        (folder / "__builtins__.pyi").write_text(f"from typing import Any\n{names}", encoding="utf-8")
        for path in (*sorted((ROOT / "examples").glob("*.py")), ROOT / "tests" / "user_types.py"):
            (folder / path.name).write_bytes(path.read_bytes())
            pages[path.name] = path.relative_to(ROOT).as_posix()
        rules = {"include": ["*.py"], "extraPaths": [str(ROOT)], "pythonVersion": "3.11", **RULES}
        (folder / "pyrightconfig.json").write_text(json.dumps(rules), encoding="utf-8")
        command = [sys.executable, "-m", "pyright", "--outputjson", "--pythonpath", sys.executable]
        done = subprocess.run(
            [*command, "--project", name], capture_output=True, text=True, check=False, cwd=folder
        )
        try:
            report = json.loads(done.stdout)
        except ValueError:
            return [f"pyright did not run: {done.stdout}{done.stderr}"]
    found = []
    for each in report["generalDiagnostics"]:
        if each["severity"] != "error" or any(known.search(each["message"]) for known in KNOWN.values()):
            continue
        line = each["range"]["start"]["line"] + 1
        found.append(
            f"{pages[Path(each['file']).name]}:{line}: {each['message']} ({each.get('rule', 'syntax')})"
        )
    if report["summary"]["filesAnalyzed"] < len(pages):
        found.append(f"pyright looked at {report['summary']['filesAnalyzed']} files of {len(pages)}")
    return sorted(found)


def check_with_mypy(cache: str) -> list[str]:
    """Return the findings of mypy in examples/ and the typed program, each in a line."""
    command = [sys.executable, "-m", "mypy", "--strict", "--no-error-summary", "--cache-dir", cache]
    # Optional packages may be absent, or have no types.
    command += ["--ignore-missing-imports", "--allow-subclassing-any", "--allow-untyped-decorators"]
    command += ["--disable-error-code", "import-untyped", "examples", "tests/user_types.py"]
    done = subprocess.run(command, capture_output=True, text=True, check=False, cwd=ROOT)
    # Findings in the packages depend on what is installed; a user of an installed wheel sees none of them.
    own = [line for line in done.stdout.splitlines() if line.startswith(("examples", "tests"))]
    return own + done.stderr.splitlines()


def check_pages_with_mypy(cache: str) -> list[str]:
    """Return the findings of mypy in the programs of the pages, each in a line."""
    with tempfile.TemporaryDirectory() as name:
        pages = lay(Path(name))
        command = [
            sys.executable,
            "-m",
            "mypy",
            "--strict",
            "--no-error-summary",
            "--cache-dir",
            cache,
            *UNTYPED,
        ]
        done = subprocess.run(
            [*command, *sorted(name for name, page in pages.items() if page.endswith(".md"))],
            env={**os.environ, "MYPYPATH": str(ROOT)},
            capture_output=True,
            text=True,
            check=False,
            cwd=name,
        )
    found = []
    for line in done.stdout.splitlines():
        file, _, rest = line.partition(":")
        if file in pages and ": error: " in line and not any(known.search(line) for known in KNOWN.values()):
            found.append(f"{pages[file]}:{rest}")
    return found + done.stderr.splitlines()


def main() -> int:
    """Print what was found and return the exit status."""
    cache = sys.argv[1] if len(sys.argv) > 1 else str(ROOT / ".mypy_cache")
    found = check_with_pyright() + check_with_mypy(cache) + check_pages_with_mypy(cache)
    print("\n".join(found) or "users' code: no findings of pyright or mypy")
    return bool(found)


if __name__ == "__main__":
    sys.exit(main())
