"""Tests of rendering in threads: nothing blocks the loop, and augmented images equal the trainer's."""

from __future__ import annotations

import io
import sys
import threading
from collections.abc import Awaitable, Callable
from itertools import islice
from pathlib import Path
from typing import Any

import anyio
import numpy as np
import pytest
from PIL import Image

import aioloader
from aioloader.formats.collection import Contents, NoSuchRecordError
from aioloader.rng import Rng
from aioloader.tools.view import open_collection
from aioloader.transforms import boxes
from aioloader.viewer import site as site_module
from aioloader.viewer.draws import Draws, as_pixels, named_transform
from aioloader.viewer.rendering import ImageRenderer, RenderedImage, box_table, fitted
from aioloader.viewer.site import IMAGE_SIDE, Options, Site
from tests.aioloader.viewer.sets import detection_label, jpeg, write_records
from tests.cases import with_cases
from tests.conftest import RunOn

pytestmark = pytest.mark.usefixtures("own_cache")


def work_with(site: Site, work: Callable[[Site], Awaitable[Any]], run: Callable[..., Any] = anyio.run) -> Any:
    """Return the result of `work`, run in an event loop together with the site's tasks."""

    async def main() -> Any:
        async with anyio.create_task_group() as tasks:
            site.start(tasks)
            result = await work(site)
            tasks.cancel_scope.cancel()
        return result

    try:
        return run(main)
    finally:
        site.close()


def made(path: Path, **options: Any) -> Site:
    """Make the site of a set, not started yet."""
    return Site(open_collection(path), Options(**options))


def pixels(image: RenderedImage | None) -> np.ndarray:
    assert image is not None
    return np.asarray(Image.open(io.BytesIO(image.content)))


@pytest.mark.usefixtures("no_blocking", "leftovers")
def test_pages_labels_and_images_without_blocking(sets: Path, run_on: RunOn) -> None:
    async def work(site: Site) -> None:
        everything = await site.everything(48)
        shown = await site.thumbs(everything.positions[:48])
        assert [each.record.position for each in shown] == [*range(48)]
        assert [each.record.position for each in shown if each.image is None] == [3, 7, 9]
        assert all(each.record.problem for each in shown if each.image is None)
        await site.loaded()
        listing = await site.labelled(2.0)
        assert listing.complete
        assert listing.positions[:3].tolist() == [2, 5, 8]  # type: ignore[union-attr]
        counts, looked_at = await site.label_counts()
        assert (dict(counts)[1.0], looked_at) == (20, (60, 60))
        assert await site.find("17", None) == 17
        with pytest.raises(NoSuchRecordError):
            await site.image(60)

    work_with(made(sets / "damaged.rec"), work, run_on)


@pytest.mark.parametrize(
    ("name", "position", "index"), [("classes.rec", 7, 7), ("shards/train-*.rec", 7, 7), ("faces", 8, 7)]
)
def test_draws_are_what_the_loader_gives(sets: Path, name: str, position: int, index: int) -> None:
    async def work(site: Site) -> list[np.ndarray]:
        await site.loaded()
        draws = await site.drawn(position, "train", range(3))
        return [pixels(draw.image) for draw in draws]

    path = sets / name
    found = work_with(made(path, size=96, seed=5), work)
    loader = aioloader.images(
        path, size=96, batch_size=1, blocking=True, seed=5, shuffle=False, executor="inline"
    )
    with loader:  # type: ignore[union-attr]
        for epoch, image in enumerate(found):
            loader.set_epoch(epoch)
            images, _ = next(islice(loader, index, None))  # type: ignore[arg-type]
            assert np.array_equal(images[0], image)


def test_boxes_follow_their_image(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.rec", [(detection_label((3, 0.25, 0.25, 0.75, 1)), jpeg(1, 120, 160))])
    flip = boxes.RandomHorizontalFlip(p=1)

    async def work(site: Site) -> None:
        names = [each.name for each in site.draws.pipelines((await site.image(0)).record)]
        assert names[0] == "custom"
        assert {"train", "eval", "boxes", "expand"} < set(names)
        (draw,) = await site.drawn(0, "custom", [0])
        assert [tuple(box) for box in draw.boxes] == [(3, 0.25, 0.25, 0.75, 1)]
        image = aioloader.ImageRecordDataset(path)[0][0]
        shown = await site.image(0)
        assert np.array_equal(pixels(draw.image), image[:, ::-1])
        crop = await site.drawn(0, "boxes", range(4))
        assert len({draw.image.content for draw in crop if draw.image}) == 4
        for epoch, drawn in enumerate(crop):
            chain = site.draws.pipeline("boxes", shown.record)
            assert chain is not None
            _, table = chain.stage.fn(image, box_table(shown.record.boxes, 160, 120), rng=Rng(0, epoch, 0))
            assert np.allclose([box[1:] for box in drawn.boxes], table[:, :4] / 224, atol=1e-6)

    work_with(made(path, custom=(flip, "a:flip")), work)


def test_a_transform_that_fails_is_reported_and_not_raised(sets: Path) -> None:
    def fails(image: object) -> object:
        raise RuntimeError("<b>no</b>")

    async def work(site: Site) -> None:
        (draw,) = await site.drawn(0, "custom", [0])
        assert (draw.image, draw.problem) == (None, "RuntimeError: <b>no</b>")

    work_with(made(sets / "plain.rec", custom=(fails, "a:fails")), work)


def test_large_images_are_made_smaller_and_upright(tmp_path: Path) -> None:
    from tests.conftest import with_orientation

    turned = with_orientation(jpeg(1, 600, 2600), 6)
    path = write_records(tmp_path / "a.rec", [(1.0, turned)])

    async def work(site: Site) -> None:
        shown = await site.image(0)
        assert shown.record.size == (600, 2600)
        assert pixels(shown.image).shape == (IMAGE_SIDE, round(600 * IMAGE_SIDE / 2600), 3)

    work_with(made(path), work)


def test_too_many_pixels_are_a_problem_of_their_record(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.rec", [(1.0, jpeg(1, 60, 80)), (1.0, jpeg(1, 20, 20))])

    async def work(site: Site) -> None:
        first, second = await site.thumbs([0, 1])
        assert first.image is None
        assert "max_pixels" in (first.record.problem or "")
        assert second.image is not None

    work_with(made(path, max_pixels=1000), work)


def test_an_index_that_is_damaged_behind_its_head_is_reported(tmp_path: Path) -> None:
    path = write_records(tmp_path / "a.rec", [(1.0, jpeg(k, 16, 16)) for k in range(8)])
    lines = path.with_suffix(".idx").read_text().splitlines()
    path.with_suffix(".idx").write_text("\n".join(lines * 2000 + ["no offset"]))

    async def work(site: Site) -> None:
        assert len(await site.thumbs([0, 1])) == 2
        await site.loaded()
        assert "line 16001" in site.failure
        assert (await site.image(1)).image is not None

    work_with(made(path), work)


@with_cases(
    ("image", "shape", "note"),
    [
        (np.zeros((4, 6, 3), np.uint8), (4, 6, 3), ""),
        (np.zeros((4, 6), np.uint8), (4, 6, 1), ""),
        (np.zeros((3, 4, 6), np.float32), (4, 6, 3), "channels first"),
        (np.linspace(-2, 2, 72, dtype=np.float32).reshape(3, 4, 6), (4, 6, 3), "-2 to 2"),
        (np.full((4, 6, 1), np.nan), (4, 6, 1), "0 to 1"),
        (np.array([[True, False]]), (1, 2, 1), "0 to 1"),
    ],
    ids=["pixels", "grey", "tensor", "normalised", "nan", "mask"],
)
def test_arrays_are_shown(image: np.ndarray, shape: tuple[int, ...], note: str) -> None:
    found, words = as_pixels(image)
    assert (found.shape, found.dtype) == (shape, np.uint8)
    assert note in words


def test_values_become_shades() -> None:
    assert as_pixels(np.array([[0.0, 0.5, 1.0]]))[0].ravel().tolist() == [0, 128, 255]
    assert as_pixels(np.array([[-1.0, 0.0, 3.0]]))[0].ravel().tolist() == [0, 64, 255]


@with_cases("image", [np.zeros(3), np.zeros((2, 2, 2)), np.zeros((0, 4, 3)), "text", None], ids=str)
def test_what_is_no_image_is_refused(image: object) -> None:
    with pytest.raises(ValueError, match="not an image"):
        as_pixels(image)


def test_a_named_transform(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    (tmp_path / "my_augment.py").write_text(
        "class Twice:\n    def __call__(self, x):\n        return x\nonce = Twice()\nthree = 3\n"
    )
    monkeypatch.chdir(tmp_path)
    monkeypatch.setattr(sys, "path", [*sys.path])
    assert type(named_transform("my_augment:Twice")).__name__ == "Twice"
    assert callable(named_transform("my_augment:once"))
    for name in ("my_augment", "my_augment:", ":once", "nothing_here:x", "my_augment:x", "my_augment:three"):
        with pytest.raises(ValueError, match="--transform"):
            named_transform(name)


@with_cases(
    ("width", "height", "wanted"), [(100, 50, (100, 50)), (1000, 500, (320, 160)), (1, 10_000, (1, 320))]
)
def test_images_fit(width: int, height: int, wanted: tuple[int, int]) -> None:
    assert fitted(height, width, 320) == wanted[::-1]


def test_a_page_does_not_wait_for_images_that_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.conftest import with_orientation

    images = [
        jpeg(1, 60, 80),
        with_orientation(jpeg(2, 600, 2600), 6),
        b"no image",
        *(jpeg(k, 20, 20) for k in range(9)),
    ]
    path = write_records(tmp_path / "a.rec", [(1.0, image) for image in images])
    opened = threading.Event()
    made_images: list[int] = []
    make = ImageRenderer.make

    def slow(renderer: ImageRenderer, contents: Contents, side: int) -> Any:
        made_images.append(contents.record.position)
        if contents.record.position < 4 and side < IMAGE_SIDE:
            assert opened.wait(60)
        return make(renderer, contents, side)

    monkeypatch.setattr(ImageRenderer, "make", slow)

    async def work(site: Site) -> None:
        await site.thumbs(range(4, 12))
        monkeypatch.setattr(site_module, "_IMAGES_S", 0.05)
        shown = await site.page(range(12))
        # The small ones that are there, the slow ones by their sizes, upright; and no place for what is no image.
        assert [each.size for each in shown] == [(80, 60), (74, 320), None, *[(20, 20)] * 9]
        assert [each.image is None for each in shown] == [True] * 4 + [False] * 8
        assert shown[2].record.problem
        # Other pages go on meanwhile.
        assert (await site.image(1)).image is not None
        again = await site.page([0, 1])
        assert all(each.image is None for each in again)
        async with anyio.create_task_group() as tasks:
            thumbs: list[Any] = []

            async def thumb() -> None:
                thumbs.append(await site.thumbs([1]))

            for _ in range(3):
                tasks.start_soon(thumb)
            await anyio.wait_all_tasks_blocked()
            opened.set()
        assert {each[0].size for each in thumbs} == {(74, 320)}
        assert made_images.count(1) == 2  # large and small, once each

    work_with(made(path), work)


async def page_of(site: Site, query: str) -> tuple[int, str]:
    """Return status and text of the page with a query, of the application without a server."""
    app = pytest.importorskip("aioloader.viewer.app", reason="needs pip install 'aioloader[view]'")
    links = pytest.importorskip("aioloader.viewer.site").ServerLinks("token")
    sent: list[Any] = []
    scope = {"type": "http", "method": "GET", "path": "/", "query_string": query.encode(), "headers": []}

    async def receive() -> Any:
        return {"type": "http.request"}

    async def send(message: Any) -> None:
        sent.append(message)

    await app.make_app(site, links, "token")(scope, receive, send)
    return sent[0]["status"], b"".join(each.get("body", b"") for each in sent).decode()


def test_a_record_page_does_not_wait_for_images_that_take_long(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    from tests.aioloader.datasets.tars import write_tar
    from tests.conftest import with_orientation

    # In the test itself: the group of tasks would make an error of it.
    pytest.importorskip("starlette", reason="needs pip install 'aioloader[view]'")
    large = with_orientation(jpeg(2, 600, 2600), 6)
    members = [("a.jpg", large), ("a.second.jpg", jpeg(1, 50, 50)), ("a.cls", b"1"), ("a.txt", b"some words")]
    write_tar(tmp_path / "a.tar", members)
    opened = threading.Event()

    def slow(make: Any) -> Any:
        def wait_and_make(*args: Any) -> Any:
            assert opened.wait(60)
            return make(*args)

        return wait_and_make

    async def work(site: Site) -> None:
        await site.loaded()
        monkeypatch.setattr(site_module, "_IMAGES_S", 0.05)
        monkeypatch.setattr("aioloader.viewer.app.PATIENCE_S", 0.05)
        shown = await site.record(0)
        # Upright, and with all that takes no decoding.
        assert (shown.image, shown.size) == (None, (295, 1280))
        assert shown.record.size == (600, 2600)
        assert len(shown.fields) == 4
        status, text = await page_of(site, "at=0")
        assert status == 200
        assert '<img src="/image/0?v=token" width="295" height="1280"' in text
        assert "some words" in text
        assert "load this page again" in text
        view = site.draws.pipelines(shown.record)[0].name
        status, text = await page_of(site, f"at=0&view={view}")
        assert (status, "still being made" in text) == (503, True)
        opened.set()
        made_image = await site.image(0)
        assert (made_image.size, made_image.fields) == (shown.size, shown.fields)
        assert made_image.record == shown.record
        await site.drawn(0, view, range(site.options.draws))
        status, text = await page_of(site, "at=0")
        assert (status, text.count("/image/0?"), "load this page again" in text) == (200, 2, False)
        assert (await page_of(site, f"at=0&view={view}"))[0] == 200

    monkeypatch.setattr(ImageRenderer, "make", slow(ImageRenderer.make))
    monkeypatch.setattr(Draws, "make", slow(Draws.make))
    work_with(made(tmp_path / "a.tar"), work)
