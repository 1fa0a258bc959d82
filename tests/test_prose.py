"""Tests of `.ci/prose.py`, the check of the project's English."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from tests.cases import with_cases

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


@with_cases(
    ("text", "function", "right"),
    [
        ("Return the number of items.", True, True),
        ("Re-read the index.", True, True),
        ("Record that a worker died.", True, True),
        ("Whether the file is open.", True, False),
        ("The number of items.", True, False),
        ("`data` as an array.", True, False),
        ("Returns the number of items.", True, False),
        ("Index of a record.", True, False),
        ("Record of one image.", False, True),
        ("Transforms of images.", False, True),
        ("`mx.io`: names.", False, True),
        ("Reads the records of a file.", False, False),
        ("Record the draws.", False, False),
        ("How batches are made.", False, False),
    ],
)
def test_a_function_begins_with_a_verb_and_a_class_with_a_noun(
    prose: Any, text: str, function: bool, right: bool
) -> None:
    assert (prose.first_line_problem(text, function=function) is None) == right


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
