"""Tests of the pages of every format of samples with fields, with the real server over a socket."""

from __future__ import annotations

import re
from html import unescape
from pathlib import Path

import pytest

from aioloader.tools.view import open_collection
from aioloader.viewer.shard_samples import ShardSamples
from tests.aioloader.format_sets import FORMATS, PARQUET, TAR, TFRECORD, SetFormat, is_readable
from tests.aioloader.viewer.sample_sets import BAD, sample
from tests.aioloader.viewer.sets import EVIL, Page, Serve, jpeg
from tests.cases import with_cases

pytest.importorskip("starlette", reason="`aioloader view` needs pip install 'aioloader[view]'")
pytest.importorskip("uvicorn", reason="`aioloader view` needs pip install 'aioloader[view]'")
pytest.importorskip("jinja2", reason="`aioloader view` needs pip install 'aioloader[view]'")

every_format = pytest.mark.parametrize("made", FORMATS)


def only(made: SetFormat) -> pytest.MarkDecorator:
    """Return the mark of a test of one format."""
    return pytest.mark.skipif(not is_readable(made), reason=f"{made.name} cannot be read here")


def keys(page: Page, path: str) -> list[str]:
    return [unescape(text) for text in re.findall(r"<b>([^<]*)</b>", page.get(path).text)]


def images_of(text: str, begin: str) -> list[str]:
    return [unescape(path) for path in re.findall(rf'src="({begin}[^"]*)"', text)]


@every_format
def test_every_format_has_pages_in_the_order_of_the_data_and_of_labels(
    serve: Serve, sets: Path, made: SetFormat
) -> None:
    page = serve(made.name)
    first, second = page.get("/"), page.get("/?page=2")
    assert (first.status, second.status) == (200, 200)
    assert first.text.count('<li class="tile image"') == 48
    assert second.text.count('<li class="tile image"') == 12
    assert "60 samples" in first.text
    for text in (first.text, second.text):
        assert "<script" not in text
    filtered = page.get("/?label=2").text
    assert filtered.count('<li class="tile image"') == 20
    counts = re.findall(r'href="/\?label=(\d)">.*?<td>(\d+)</td>', page.get("/labels").text, re.DOTALL)
    assert counts == [("0", "20"), ("1", "20"), ("2", "20")]
    # The images are those of the samples, in order.
    collection = open_collection(sets / made.name)
    collection.load()
    for position in (0, 21, 47, 59):
        assert bytes(collection.read(position).body) == jpeg(position)
        assert page.get(f"/original/{position}").body == jpeg(position)
    collection.close()


@every_format
def test_all_fields_of_a_sample_are_displayed(serve: Serve, made: SetFormat) -> None:
    page = serve(made.name)
    escaped = page.get("/?at=17").text
    assert "<script" not in escaped
    text = unescape(escaped)
    for words in ("80 \u00d7 60 pixels", "Displayed above.", 'href="/?label=2"'):
        assert words in text
    (large,) = images_of(text, r"/image/17\?v")
    assert page.get(large).headers["content-type"] == "image/png"
    assert len(images_of(page.get("/?at=17&view=train").text, "/draw/17")) == 8
    names = made.names(sample(17))
    kinds = dict(re.findall(r"<h3>([^<]+)</h3>\s*<p class=\"about\">([\w ]+)", text))
    assert kinds.keys() == set(names.values())
    assert (kinds[made.image], kinds[made.second]) == ("image", "image")
    assert kinds[made.text] == "text"
    assert kinds[made.label] in ("integer", "int64")
    assert f"<pre>Caption 17 {EVIL}</pre>" in text
    assert kinds[made.json] == "json"
    assert '  "box": [1, 2.5, 30, 40],\n' in text
    assert "0000  00 01 02" in text
    (further,) = images_of(text, r"/image/17\?number=")
    answer = page.get(further)
    assert (answer.status, answer.headers["content-type"]) == (200, "image/png")
    bodies = [sample(17).image, sample(17).second, sample(17).data]
    saved = [page.get(link) for link in re.findall(r'href="(/original/17\?field=\d+[^"]*)"', text)]
    assert [each for each in bodies if each not in [answer.body for answer in saved]] == []
    for answer in saved:
        assert answer.headers["content-type"] == "application/octet-stream"
        assert answer.headers["content-disposition"].startswith("attachment")
        assert answer.headers["x-content-type-options"] == "nosniff"


@every_format
def test_a_damaged_sample_is_one_tile_with_its_error(serve: Serve, made: SetFormat) -> None:
    page = serve(f"damaged-{made.name}")
    text = page.get("/").text
    assert (text.count('<li class="tile image"'), text.count('<li class="tile damaged"')) == (47, 1)
    tile = re.findall(r'<li class="tile.*?</li>', text, re.DOTALL)[BAD]
    assert "the first bytes match no image format" in tile
    shown = page.get(f"/?at={BAD}").text
    assert "Caption 25" in shown  # its other fields
    assert page.get("/?label=1").text.count('<li class="tile damaged"') == 1
    assert 'class="tile image"' in page.get("/?page=2").text


@every_format
def test_a_set_without_images_lists_its_fields(serve: Serve, made: SetFormat) -> None:
    page = serve(f"texts-{made.name}")
    text = unescape(page.get("/").text)
    assert text.count('<li class="tile foreign"') == 3
    words = re.findall(r'<p class="words">([^<]*)', page.get("/").text)
    assert [unescape(each) for each in words] == [f"Caption {number} {EVIL}" for number in range(3)]
    shown = unescape(page.get("/?at=1").text)
    assert f"<pre>Caption 1 {EVIL}</pre>" in shown
    assert "No field of the sample is an image; its fields: " in shown
    assert images_of(shown, "/") == []
    assert page.get("/?label=2").text.count("<li class=") == 1
    assert page.get("/original/1").status == 404


@every_format
def test_a_set_without_labels_says_so(serve: Serve, made: SetFormat) -> None:
    page = serve(f"unlabelled-{made.name}")
    assert page.get("/").text.count('<li class="tile image"') == 3
    shown = unescape(page.get("/?at=1").text)
    # In a tar any of several fields is the label.
    assert re.search(f"The sample has no field '{made.label}(;[^']*)?', the label", shown)
    assert "No sample has a label that is a number." in page.get("/labels").text


@every_format
def test_keys_are_searched_in_one_shard_or_all(serve: Serve, sets: Path, made: SetFormat) -> None:
    page = serve(made.name)
    collection = open_collection(sets / made.name)
    collection.load()
    key = collection.key(50)
    collection.close()
    assert key == ("0050" if made is TAR else "10")
    position = 50 if made is TAR else 10  # the first sample with this key
    sample_page = page.get(f"/?key={key}").text
    assert f"<h1>Sample {key}</h1>" in sample_page
    assert f"/image/{position}" in sample_page
    assert "/image/50" in page.get(f"/?key={key}&file=2").text
    assert page.get(f"/?key={key}&file=1").status == (404 if made is TAR else 200)
    assert page.get("/?key=none").status == 404


@every_format
def test_a_tile_has_key_label_shard_and_offset(serve: Serve, sets: Path, made: SetFormat) -> None:
    text = serve(made.name).get("/").text
    tile = re.findall(r'<li class="tile.*?</li>', text, re.DOTALL)[21]
    place = re.search(r'<p class="place" title="([^,"]*)(?:, byte ([^"]*))?">', tile)
    assert place
    data = (sets / made.name / place[1]).read_bytes()
    if place[2] is None:  # a row of Parquet has no bytes to itself
        assert made.name == "parquet"
    else:
        begin = int(place[2].replace("\u202f", ""))
        assert 0 <= data.find(jpeg(21)) - begin < 10 * len(jpeg(21))
    assert "<span>label 0</span>" in tile


@only(TFRECORD)
def test_features_with_several_values(serve: Serve) -> None:
    text = unescape(serve("lists.tfrecord").get("/?at=0").text)
    assert len(images_of(text, r"/image/0\?number=")) == 3
    assert "3 images" in text
    assert "float32 4" in text
    assert "int64 1005" in text
    assert "Only the beginning is displayed." in text
    assert EVIL not in serve("lists.tfrecord").get("/?at=0").text


@only(PARQUET)
def test_classes_have_the_names_in_the_file(serve: Serve) -> None:
    page = serve("named.parquet")
    tiles = [unescape(tile) for tile in re.findall(r'<li class="tile.*?</li>', page.get("/").text, re.DOTALL)]
    assert [EVIL in tiles[0], "second" in tiles[1], "third" in tiles[2]] == [True] * 3
    assert page.get("/?label=second").text.count("<li class=") == 2
    text = unescape(page.get("/?at=1").text)
    assert "float64 2" in text
    assert "null" in text


@only(TAR)
def test_keys_with_any_characters_have_pages(serve: Serve) -> None:
    page = serve("keys.tar")
    text = page.get("/").text
    assert text.count('<li class="tile image"') == 8
    links = [unescape(each) for each in re.findall(r'<a href="(/\?at=[^"]*)"', text)]
    for link in links:
        assert page.get(link).status == 200


@only(TAR)
def test_hostile_samples_are_text(serve: Serve) -> None:
    page = serve("hostile.tar")
    shown = keys(page, "/")
    assert EVIL + "a" in shown
    assert any("etc/passwd" in key for key in shown)
    for path in ("/", *(f"/?at={position}" for position in range(7))):
        text = page.get(path).text
        assert len(text) < 100_000
        for forbidden in ("<script", "<html><", "<svg xmlns='", "\x00", "\x1b", "\u202e", "root:"):
            assert forbidden not in text
    for position in range(7):
        for number in range(4):
            answer = page.get(f"/original/{position}?field={number}")
            assert answer.headers["content-type"] in ("application/octet-stream", "text/html; charset=utf-8")
            assert (answer.status == 404) == answer.headers["content-type"].startswith("text/html")


@with_cases(("name", "option"), [("plain.rec", "image"), ("folder", "label"), ("faces", "image")])
def test_records_have_no_named_fields(sets: Path, name: str, option: str) -> None:
    with pytest.raises(TypeError, match=r"no option|no named fields|no fields with names"):
        open_collection(sets / name, **{option: "x"})


@every_format
@pytest.mark.usefixtures("own_cache")
def test_fields_are_chosen_by_their_names(sets: Path, made: SetFormat) -> None:
    found = open_collection(sets / made.name, image=made.second, label=made.label)
    assert isinstance(found, ShardSamples)
    found.load()
    contents = found.read(3)
    assert bytes(contents.body) == jpeg(103, 50, 50)
    assert contents.record.labels == (0.0,)
    found.close()
