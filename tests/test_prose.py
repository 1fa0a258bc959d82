"""Tests of `.ci/prose.py`, the check of the project's English."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Iterator

SCRIPT = Path(__file__).parent.parent / ".ci" / "prose.py"


@pytest.fixture(scope="module")
def prose() -> Iterator[Any]:
    spec = importlib.util.spec_from_file_location("prose_check", SCRIPT)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    sys.modules["prose_check"] = module
    spec.loader.exec_module(module)
    yield module
    del sys.modules["prose_check"]


@pytest.mark.parametrize(
    "text",
    [
        "Return the number of items.",
        "Wait until a worker is free.",
        "Close.",
        "Re-read the index.",
        "Record that a worker died.",
        "Index the records of a file.",
    ],
)
def test_a_function_begins_with_a_verb(prose: Any, text: str) -> None:
    assert prose.first_line_problem(text, function=True) is None


@pytest.mark.parametrize(
    "text",
    [
        "Whether the file is open.",
        "What was read.",
        "The number of items.",
        "`data` as an array.",
        "Returns the number of items.",
        "Index of a record.",
        "Share in percent.",
        "(n, 3) boxes.",
    ],
)
def test_a_function_does_not_begin_otherwise(prose: Any, text: str) -> None:
    assert prose.first_line_problem(text, function=True) is not None


@pytest.mark.parametrize(
    "text",
    [
        "Iterator over batches.",
        "Record of one image.",
        "Transforms of images.",
        "The loader.",
        "`mx.io`: names.",
    ],
)
def test_a_class_begins_with_a_noun(prose: Any, text: str) -> None:
    assert prose.first_line_problem(text, function=False) is None


@pytest.mark.parametrize(
    "text", ["Reads the records of a file.", "Decodes images.", "Record the draws.", "How batches are made."]
)
def test_a_class_does_not_begin_with_a_verb(prose: Any, text: str) -> None:
    assert prose.first_line_problem(text, function=False) is not None


def found(prose: Any, path: Path, text: str) -> list[tuple[int, str]]:
    path.write_text(text)
    return [(problem.line, problem.text.partition('":')[0].lstrip('"')) for problem in prose.check_file(path)]


def test_phrases_are_found_in_python_across_line_breaks(prose: Any, tmp_path: Path) -> None:
    text = '"""A module.\n\nA thread of\nits own.\n"""\n\nx = 1  # a picture\n# It is no\n# list.\ny = "so many"\n'
    assert found(prose, tmp_path / "a.py", text) == [(3, "of its own"), (7, "picture"), (8, "is no list")]


def test_code_is_not_prose(prose: Any, tmp_path: Path) -> None:
    text = "A `picture` and\n\n```python\npicture = whatever\n```\n\n[a](https://picture.example/)\n\nA picture.\n"
    assert found(prose, tmp_path / "a.md", text) == [(9, "picture")]
    text = '"""A module.\n\nExample::\n\n    picture = anew()\n\n>>> picture\n"""\n'
    assert found(prose, tmp_path / "a.py", text) == []


def test_plain_english_passes(prose: Any, tmp_path: Path) -> None:
    text = "There is no limit. It is no longer open. A worker gives up. An understanding.\n"
    assert found(prose, tmp_path / "a.md", text) == []


def test_own_text_passes(prose: Any) -> None:
    assert prose.check_file(SCRIPT) == []
