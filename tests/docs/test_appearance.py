"""Tests of the built site in Chromium: no page is wider than the window, and none loads from other servers.

$AIOLOADER_TEST_SCREENSHOTS names a folder for screenshots of all pages, $CHROMIUM the program, and
$AIOLOADER_TEST_SITE a site that is already built.
"""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path
from typing import Any

import pytest

from tests.docs.blocks import ROOT
from tests.docs.test_reference import MODULES, NO_ENTRY, exported

pytestmark = pytest.mark.browser

VIEWS = {"wide": (1280, "light"), "narrow": (390, "light"), "dark": (1280, "dark")}
"""Width of the window and colour scheme of each view."""

# Elements that leave the window to the right, and that no ancestor cuts or scrolls.
_WIDER = """
() => [...document.querySelectorAll("article *")].filter(each => {
    if (each.getBoundingClientRect().right <= innerWidth + 1) return false;
    for (let at = each; at && at.tagName != "ARTICLE"; at = at.parentElement)
        if (getComputedStyle(at).overflowX != "visible") return false;
    return each.getBoundingClientRect().width > 0;
}).map(each => each.tagName + "." + each.className + ": " + each.textContent.slice(0, 60))
"""


@pytest.fixture(scope="module")
def site(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """Build the site, and return its folder."""
    given = os.environ.get("AIOLOADER_TEST_SITE")
    if given:
        return Path(given)
    pytest.importorskip("mkdocs", reason="needs pip install 'aioloader[docs]'")
    folder = tmp_path_factory.mktemp("site")
    command = [
        sys.executable,
        "-m",
        "mkdocs",
        "build",
        "--quiet",
        "--no-directory-urls",
        "--site-dir",
        str(folder),
    ]
    subprocess.run(command, cwd=ROOT, check=True, capture_output=True)
    return folder


def test_the_reference_has_an_entry_for_every_name(site: Path) -> None:
    text = "".join(page.read_text(encoding="utf-8") for page in (site / "reference").rglob("*.html"))
    modules = [f"aioloader.{each}" for each in MODULES if not each.startswith("mxnet")]
    names = {f"{module}.{name}" for module in modules for name in exported(module) if name not in NO_ENTRY}
    assert [name for name in sorted(names) if f'id="{name}"' not in text] == []


def test_every_page_fits_the_window_and_loads_nothing_from_elsewhere(site: Path, chromium: Any) -> None:
    page = chromium.new_page()
    elsewhere: list[str] = []
    page.on(
        "request",
        lambda request: (
            None if request.url.startswith(("file:", "data:", "blob:")) else elsewhere.append(request.url)
        ),
    )
    shots = os.environ.get("AIOLOADER_TEST_SCREENSHOTS")
    wider = {}
    pages = sorted(path for path in site.rglob("*.html") if path.name != "404.html")
    assert len(pages) > 30
    for path in pages:
        page.goto(path.as_uri())
        name = path.relative_to(site).as_posix()
        for view, (width, scheme) in VIEWS.items():
            page.set_viewport_size({"width": width, "height": 900})
            page.emulate_media(color_scheme=scheme)
            if page.evaluate("document.documentElement.scrollWidth") > width:
                wider[name, view] = page.evaluate(_WIDER)
            if shots:
                target = Path(shots, view, name.removesuffix("/index.html").replace("/", "-") + ".png")
                target.parent.mkdir(parents=True, exist_ok=True)
                page.screenshot(path=target, full_page=True)
    page.close()
    assert not wider
    assert elsewhere == []
