"""Tests of the page in a real browser: Chromium without JavaScript, used like a person.

$AIOLOADER_TEST_SCREENSHOTS names a folder for screenshots. $CHROMIUM names the program.
"""

from __future__ import annotations

import os
import subprocess
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from tests.aioloader.format_sets import FORMATS, PARQUET, TAR, TFRECORD, SetFormat, is_readable
from tests.aioloader.viewer.sample_sets import BAD
from tests.aioloader.viewer.sets import EVIL, ROOT, Serve, view_command

pytestmark = pytest.mark.browser


@pytest.fixture
def page(chromium: Any) -> Iterator[Any]:
    """Return a page that fails the test after a failed request or a browser error."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900}, java_script_enabled=False)
    found = context.new_page()
    complaints: list[str] = []
    found.on("console", lambda message: complaints.append(message.text))

    def failed(request: Any) -> None:
        # Leaving a page cancels its pending requests, for example that of its icon.
        if request.failure != "net::ERR_ABORTED":
            complaints.append(f"{request.url} failed: {request.failure}")

    found.on("requestfailed", failed)
    found.on("response", lambda answer: complaints.append(answer.url) if answer.status >= 400 else None)
    yield found
    context.close()
    assert complaints == []


See = Callable[[str], None]


@pytest.fixture
def see(page: Any) -> See:
    """Return `see(name)`: checks that all images of the page are loaded, and that nothing is wider than the window."""

    def look(name: str) -> None:
        page.wait_for_load_state("networkidle")
        for image in page.locator("img").all():
            image.wait_for()  # until it has a box
            box = image.bounding_box()
            assert box is not None
            assert min(box["width"], box["height"]) > 10
        # No script runs, so the browser is queried through its protocol.
        size = page.context.new_cdp_session(page).send("Page.getLayoutMetrics")
        assert size["cssContentSize"]["width"] <= page.viewport_size["width"]
        folder = os.environ.get("AIOLOADER_TEST_SCREENSHOTS")
        for scheme in ("light", "dark") if folder else ():
            page.emulate_media(color_scheme=scheme)
            page.screenshot(path=str(Path(str(folder)) / f"{name}-{scheme}.png"))

    return look


def keys(page: Any) -> list[str]:
    return [str(text) for text in page.locator(".tile .caption b").all_inner_texts()]


def click(page: Any, name: str, role: str = "link", *, exact: bool = False) -> None:
    page.get_by_role(role, name=name, exact=exact).first.click()


def test_from_page_to_page_to_records_labels_and_draws(serve: Serve, page: Any, see: See) -> None:
    page.goto(serve("damaged.rec").address)
    see("grid")
    assert keys(page) == [str(k) for k in range(48)]
    assert page.locator(".tile.damaged").count() == 3
    assert "magic number" in page.locator(".tile.damaged").first.inner_text()
    click(page, "Next")
    assert keys(page) == [str(k) for k in range(48, 60)]
    page.get_by_label("Key").fill("17")
    click(page, "Go", "button")
    assert page.locator("h1").inner_text() == "Record 17"
    assert page.locator(".stored-image img").get_attribute("width") == "80"
    see("record")
    page.get_by_label("Label").fill("2")
    click(page, "Filter", "button")
    assert keys(page) == [str(k) for k in range(2, 60, 3)]
    click(page, "Labels")
    click(page, "1", exact=True)
    assert keys(page)[:2] == ["1", "4"]
    see("label")
    page.goto(f"{serve('damaged.rec').address}?at=3")
    assert "the magic number is missing" in page.locator(".trouble").inner_text()
    assert page.locator(".tabs").count() == 0
    see("damaged")
    page.goto(f"{serve('damaged.rec').address}?key=17")
    click(page, "training", exact=True)
    assert page.locator(".draws img").count() == 8
    see("draws")
    click(page, "Later epochs")
    assert "epoch 8" in page.locator(".draws").inner_text()
    click(page, "evaluation")
    assert page.locator(".draws img").count() == 1
    click(page, "As stored")
    assert page.locator(".stored-image img").count() == 1


def test_boxes_lie_over_their_image(serve: Serve, page: Any, see: See) -> None:
    page.goto(serve("boxes.rec").address)
    assert page.locator(".tile svg.boxes").count() == 6
    page.locator(".tile a").nth(1).click()
    picture = page.locator(".stored-image img").bounding_box()
    first = page.locator("rect.line").first.bounding_box()
    # Class 2 at 0.3, 0.3 to 0.9, 0.8, within the width of a line.
    for edge, extent, share in (("x", "width", 0.3), ("y", "height", 0.3)):
        assert first[edge] == pytest.approx(picture[edge] + share * picture[extent], abs=3)
    assert first["width"] == pytest.approx(0.6 * picture["width"], abs=5)
    assert page.locator("svg.boxes text").all_text_contents() == ["2", "4"]
    see("boxes")
    click(page, "training with boxes")
    assert page.locator(".draws svg.boxes").count() == 8
    see("boxes-draws")


def test_names_are_text(serve: Serve, page: Any, see: See) -> None:
    page.goto(serve("folder").address)
    name = page.locator(".caption span").first
    assert name.inner_text() == EVIL
    see("folder")
    page.set_viewport_size({"width": 360, "height": 900})
    assert name.bounding_box()["height"] > 30  # of several lines, and not cut
    see("folder-narrow")
    page.locator(".tile a").first.click()
    assert page.locator("h1").inner_text() == f"Record {EVIL}/<i>.jpg"


def test_it_can_be_used_by_keys_alone(serve: Serve, page: Any) -> None:
    page.goto(serve("damaged.rec").address)
    page.keyboard.press("Tab")
    assert page.locator(":focus").inner_text() == "Skip to the content"
    for _ in range(40):
        page.keyboard.press("Tab")
        if page.locator(".tile a:focus").count():
            break
    page.keyboard.press("Enter")
    page.wait_for_url("**/?at=0")


def test_it_fits_small_windows(serve: Serve, page: Any, see: See) -> None:
    for width in (360, 768):
        page.set_viewport_size({"width": width, "height": 740})
        for name, path in (("grid", ""), ("record", "?key=1"), ("draws", "?key=1&view=boxes")):
            page.goto(f"{serve('boxes.rec').address}{path}")
            see(f"small-{width}-{name}")


def test_an_export_opens_from_its_file(sets: Path, tmp_path: Path, page: Any, see: See) -> None:
    pytest.importorskip("jinja2", reason="`aioloader view` needs pip install 'aioloader[view]'")
    words = (sets / "boxes.rec", "--export", tmp_path / "out", "--per-page", "4", "--size", "64")
    # A separate process: Playwright runs an event loop in this one.
    subprocess.run(view_command(*words), cwd=ROOT, check=True, capture_output=True)
    page.goto((tmp_path / "out" / "index.html").as_uri())
    see("export")
    click(page, "Next")
    assert keys(page) == ["4", "5"]
    page.locator(".tile a").first.click()
    click(page, "training with boxes")
    assert page.locator(".draws img").count() == 4
    see("export-draws")


# -- samples of shards


@pytest.mark.parametrize("made", FORMATS)
def test_samples_of_every_format(serve: Serve, page: Any, see: See, made: SetFormat) -> None:
    for name, queries in (
        ("damaged", ("", f"?at={BAD}", "?label=1", f"?at={BAD + 1}")),
        ("texts", ("", "?at=0")),
    ):
        for query in queries:
            page.goto(f"{serve(f'{name}-{made.name}').address}{query}")
            see(f"{made.name}-{name}{query}")
    page.goto(f"{serve(f'damaged-{made.name}').address}?at={BAD + 1}")
    assert page.locator(".fields img").count() == 1
    (key,) = page.locator("dt:text-is('key') + dd").all_inner_texts()
    page.get_by_label("Key").fill(key)
    page.get_by_label("File").select_option(index=2)
    click(page, "Go", "button")
    assert page.locator("h1").inner_text() == f"Sample {key}"
    assert f"index\n{BAD + 1}" in page.locator("dl").inner_text()


HOSTILE = [("hostile.tar", TAR), ("keys.tar", TAR), ("lists.tfrecord", TFRECORD), ("named.parquet", PARQUET)]


@pytest.mark.parametrize(("name", "made"), HOSTILE)
def test_hostile_and_long_fields_fit(serve: Serve, page: Any, see: See, name: str, made: SetFormat) -> None:
    if not is_readable(made):
        pytest.skip(f"{made.name} cannot be read here")
    for width in (360, 1280):
        page.set_viewport_size({"width": width, "height": 900})
        page.goto(serve(name).address)
        see(f"{name}-{width}")
        for position in range(page.locator(".tile").count()):
            page.goto(f"{serve(name).address}?at={position}")
            assert page.locator(".fields article").count()
            see(f"{name}-{width}-{position}")
