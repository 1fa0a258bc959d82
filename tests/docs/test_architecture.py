"""Tests that the diagram and the page of the architecture name all existing folders, and no others."""

from __future__ import annotations

import re
from pathlib import Path
from xml.etree import ElementTree

import aioloader
from tests.docs.blocks import PAGES, ROOT

PACKAGE = Path(aioloader.__file__).parent
DIAGRAM = ROOT / "docs" / "images" / "architecture.svg"
BESIDE = {"benchmarks", "tests", "examples", "recordio"}


def _named() -> set[str]:
    """Return the folders and files that the diagram names."""
    texts = [node.text or "" for node in ElementTree.parse(DIAGRAM).iter("{http://www.w3.org/2000/svg}text")]
    return {word for text in texts for word in re.findall(r"[a-z_]+(?:/[a-z_]+)*(?:/|\.py)", text)}


def _packages() -> set[str]:
    """Return the folders of the two packages that hold modules, as the diagram writes them."""
    found = {path.parent for path in PACKAGE.rglob("*.py")} - {PACKAGE}
    return {"recordio/", *(f"{path.relative_to(PACKAGE).as_posix()}/" for path in found)}


def _place(name: str) -> Path:
    """Return the path of ``aioloader/loader/`` or ``benchmarks/``; the packages may be installed ones."""
    top, _, rest = name.partition("/")
    if top == "aioloader":
        return PACKAGE / rest
    return (PACKAGE.parent if top == "recordio" else ROOT) / name


def test_every_place_in_the_diagram_exists() -> None:
    stations = {path.name for path in (PACKAGE / "pipeline").glob("*.py")}
    for name in _named():
        top = name.partition("/")[0]
        place = _place(name if top in BESIDE else f"aioloader/{name}")
        assert place.exists() or name in stations, name


def test_every_package_folder_is_in_the_diagram() -> None:
    # MXNet's names are a separate tree, which its guide describes; formats/ has one folder for each format.
    inner = {name for name in _packages() if name.startswith(("mxnet/", "formats/")) and name.count("/") > 1}
    assert _packages() - inner - _named() == set()


def test_the_page_about_the_path_shows_the_diagram_once() -> None:
    assert PAGES["path.md"].read_text(encoding="utf-8").count("images/architecture.svg") == 1


def test_the_architecture_page_names_what_there_is() -> None:
    text = (ROOT / "ARCHITECTURE.md").read_text(encoding="utf-8")
    named = set(re.findall(r"`((?:[a-z_]+/)*(?:[a-z_]+/|[a-z_]+\.py))`", text))
    tops = {f"aioloader/{name.partition('/')[0]}/" for name in _packages() if name != "recordio/"}
    assert tops - named == set()
    drawn = set(re.findall(r"[a-z_]+/", text[text.index("```text") :].partition("\n```\n")[0]))
    gone = {name for name in named | drawn if not (_place(name).exists() or (PACKAGE / name).exists())}
    assert gone == set()


def test_the_design_page_names_files_that_exist() -> None:
    text = PAGES["design.md"].read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", text))
    assert named
    missing = {name for name in named if not ((PACKAGE / name).exists() or _place(name).exists())}
    assert missing == set()
