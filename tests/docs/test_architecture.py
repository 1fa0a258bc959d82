"""Tests that the diagram and the table of the folders name all existing folders, and no others."""

from __future__ import annotations

import re
from xml.etree import ElementTree

from tests.docs.blocks import PAGES, ROOT

DIAGRAM = ROOT / "docs" / "images" / "architecture.svg"
BESIDE = {"benchmarks", "tests", "examples", "recordio"}


def _named() -> set[str]:
    """Return the folders and files that the diagram names."""
    texts = [node.text or "" for node in ElementTree.parse(DIAGRAM).iter("{http://www.w3.org/2000/svg}text")]
    return {word for text in texts for word in re.findall(r"[a-z_]+(?:/[a-z_]+)*(?:/|\.py)", text)}


def _packages() -> set[str]:
    """Return the folders of the two packages that hold modules, as the diagram writes them."""
    found = {path.parent for path in (ROOT / "aioloader").rglob("*.py")} - {ROOT / "aioloader"}
    return {"recordio/", *(f"{path.relative_to(ROOT / 'aioloader').as_posix()}/" for path in found)}


def test_every_place_in_the_diagram_exists() -> None:
    stations = {path.name for path in (ROOT / "aioloader" / "pipeline").glob("*.py")}
    for name in _named():
        top = name.partition("/")[0]
        place = (ROOT if top in BESIDE else ROOT / "aioloader") / name
        assert place.exists() or name in stations, name


def test_every_package_folder_is_in_the_diagram() -> None:
    # MXNet's names are a separate tree, which its guide describes.
    inner = {name for name in _packages() if name.startswith("mxnet/") and name != "mxnet/"}
    assert _packages() - inner - _named() == set()


def test_the_page_about_the_path_shows_the_diagram_once() -> None:
    assert PAGES["path.md"].read_text(encoding="utf-8").count("images/architecture.svg") == 1


def test_the_table_of_the_folders_names_what_there_is() -> None:
    text = (ROOT / "CONTRIBUTING.md").read_text(encoding="utf-8")
    table = text[text.index("## Source layout") : text.index("## Rules")]
    named = re.findall(r"`([a-z_]+(?:/[a-z_]+)*(?:/|\.py))`", table)
    assert named
    for name in named:
        place = name if name.startswith(("recordio", "benchmarks", "aioloader")) else f"aioloader/{name}"
        assert (ROOT / place).exists(), name
    tops = {f"aioloader/{name.partition('/')[0]}/" for name in _packages() if name != "recordio/"}
    shown = {*named, *(f"aioloader/{name}" for name in named)}
    assert tops - shown == set()


def test_the_design_page_names_files_that_exist() -> None:
    text = PAGES["design.md"].read_text(encoding="utf-8")
    named = set(re.findall(r"`([a-z_]+(?:/[a-z_]+)*\.py)`", text))
    assert named
    missing = {name for name in named if not ((ROOT / "aioloader" / name).exists() or (ROOT / name).exists())}
    assert missing == set()


def test_the_tree_of_the_design_page_names_every_folder() -> None:
    text = PAGES["design.md"].read_text(encoding="utf-8")
    tree = text[text.index("```text\naioloader/") :].partition("\n```\n")[0]
    named = set(re.findall(r"(?<![\w/])([a-z_]+)/", tree))
    tops = {name.partition("/")[0] for name in _packages()}
    assert tops - named == set()
    gone = {name for name in named - {"aioloader"} if not _is_folder(name)}
    assert gone == set()


def _is_folder(name: str) -> bool:
    """Return whether a folder of this name is in one of the two packages."""
    return (ROOT / name).is_dir() or any(path.is_dir() for path in (ROOT / "aioloader").rglob(name))
