"""Tests of the samples of shards, viewed one by one: fields, labels and damage, and shards that open slowly."""

from __future__ import annotations

import io
import tarfile
import threading
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aioloader.errors import SampleFormatError
from aioloader.formats.collection import NoSuchRecordError
from aioloader.foundation.types import IntArray, ItemLocation, Spans
from aioloader.loader.images import image_chain
from aioloader.tools.view import open_collection
from aioloader.viewer.shard_samples import ShardSamples, label_of
from aioloader.viewer.site import IMAGE_SIDE, Labels, NoLabelsError, Options, Site
from tests.aioloader.datasets.tars import write_tar
from tests.aioloader.datasets.toy_shards import ToyDataset, toy_sample, write_shard
from tests.aioloader.viewer.sets import EVIL, jpeg
from tests.aioloader.viewer.test_site import pixels, work_with
from tests.cases import with_cases

pytestmark = pytest.mark.usefixtures("own_cache")


class Fields(ToyDataset):
    """Dataset of samples with several images and labels in decimal digits, in the format of the tests."""

    def __init__(self, paths: Any, **options: Any) -> None:
        super().__init__(paths, image="main.jpg", label="label.cls", crop_index=None, **options)


class HugeLabels(Fields):
    """Dataset whose labels cost more reads than the viewer makes without asking."""

    def _label_spans(self, indices: IntArray) -> tuple[Spans, Any]:
        spans = self.spans(indices)
        return Spans(spans.file, spans.offset, spans.length + (1 << 31)), None


def sample_of(fields: dict[str, Any]) -> bytes:
    """Return a sample whose values are bytes, or of any class in fields without a suffix."""
    return toy_sample(
        **{name: body.decode("latin-1") if isinstance(body, bytes) else body for name, body in fields.items()}
    )


def write(path: Path, *samples: dict[str, Any]) -> Path:
    return write_shard(path, [sample_of(fields) for fields in samples])


# -- samples -----------------------------------------------------------------------------------------------------------


def collection(*paths: Path, dataset: type[Fields] = Fields) -> ShardSamples:
    return ShardSamples(dataset(list(paths)), path=str(paths[0]), kind="toy", max_pixels=10_000_000)


def loaded(*paths: Path, **options: Any) -> ShardSamples:
    found = collection(*paths, **options)
    found.load()
    return found


@pytest.fixture
def plain(tmp_path: Path) -> list[Path]:
    """Make three shards of five samples with images and labels."""
    return [
        write(
            tmp_path / f"{part}.toy",
            *(
                {"main.jpg": jpeg(5 * part + k), "label.cls": b"%d" % k, "a.txt": b"caption"}
                for k in range(5)
            ),
        )
        for part in range(3)
    ]


def all_labels(collection: ShardSamples) -> Labels:
    assert collection.count is not None
    labels = Labels(collection, collection.count)
    while not labels.complete:
        labels.add(labels.read())
    return labels


def test_samples_in_the_order_of_the_data(plain: list[Path]) -> None:
    found = loaded(*plain)
    assert (found.count, found.known, list(found.listing())) == (15, 15, [*range(15)])
    assert (found.kind, found.file_names()) == ("3 toy files", ["0.toy", "1.toy", "2.toy"])
    assert [found.key(place) for place in range(15)] == [str(k % 5) for k in range(15)]
    contents = found.read(7)
    record = contents.record
    assert (*record.location[:2], record.labels) == ("2", str(plain[1]), (2.0,))
    assert (record.kind, record.size, record.nbytes) == ("image", (80, 60), len(jpeg(7)))
    assert record.location.offset
    assert plain[1].read_bytes()[record.location.offset :][: record.sample_nbytes] == bytes(contents.data)
    assert bytes(contents.body) == jpeg(7)
    assert (found.index(7), found.file_of(7)) == (7, 1)
    found.close()


def test_samples_by_their_keys(plain: list[Path]) -> None:
    found = loaded(*plain)
    assert [found.find(key) for key in ("0", "4")] == [0, 4]  # of those with a key the first
    assert [found.find("4", file) for file in range(3)] == [4, 9, 14]
    for key, file in (("5", None), ("", None), ("x", None), ("\ud800", None), ("4", 7)):
        with pytest.raises(NoSuchRecordError, match="no sample has the key"):
            found.find(key, file)


@with_cases("position", [-1, 15, 2**62])
def test_places_where_no_sample_is(plain: list[Path], position: int) -> None:
    with pytest.raises(NoSuchRecordError, match="the dataset has 15"):
        loaded(*plain).read(position)
    with pytest.raises(NoSuchRecordError):
        collection(*plain).read(0)


def test_the_fields_of_a_sample(tmp_path: Path) -> None:
    sample = {
        "label.cls": b"3",
        "left.jpg": jpeg(1),
        "a.json": b'{"a": 1}',
        "main.jpg": jpeg(2),
        "a.txt": b"<script>",
        "vector": [1, 2],
        "a.bin": b"\0\1",
        "wrong.json": b"{",
    }
    found = loaded(write(tmp_path / "a.toy", sample))
    contents = found.read(0)
    assert bytes(contents.body) == jpeg(2)
    fields = found.fields(contents)
    assert [field.name for field in fields.fields] == list(sample)
    assert [field.kind for field in fields.fields] == [
        *("integer", "image", "json", "image", "text", "list", "bytes", "json")
    ]
    assert ([bytes(each) for each in fields.images], fields.main, fields.left) == ([jpeg(1), jpeg(2)], 1, 0)
    assert [field.stored for field in fields.fields] == [True] * 5 + [False] + [True] * 2
    assert fields.fields[7].problem
    assert bytes(found.field_bytes(contents, 6)) == b"\0\1"
    for number in (5, 8, 10**15):
        with pytest.raises(NoSuchRecordError, match="no bytes in a field"):
            found.field_bytes(contents, number)


def test_fields_beyond_the_limit_are_counted(tmp_path: Path) -> None:
    sample = {f"{number}.txt": b"x" for number in range(1000)}
    found = loaded(write(tmp_path / "a.toy", sample))
    fields = found.fields(found.read(0))
    assert (len(fields.fields), fields.left) == (200, 800)


@pytest.mark.parametrize(
    ("fields", "kind", "note", "body"),
    [
        ({"main.jpg": jpeg(1), "label.cls": b"1"}, "image", "", jpeg(1)),
        ({"a.txt": b"words", "label.cls": b"1"}, "foreign", "", None),
        ({}, "foreign", "the label", None),
        ({"label.cls": b"1", "right.jpg": jpeg(2)}, "image", "this image is its field 'right.jpg'", jpeg(2)),
        ({"a.bin": jpeg(3), "b.jpg": jpeg(2)}, "image", "'b.jpg'", jpeg(2)),
        ({"a.bin": b"no", "b.bin": jpeg(3)}, "image", "'b.bin'", jpeg(3)),
        (
            {"main.jpg": jpeg(1), "label.cls": b"x"},
            "image",
            "the label cannot be read: SampleFormatError",
            jpeg(1),
        ),
        ({"main.jpg": b"", "label.cls": b"1"}, "damaged", "", b""),
        ({"main.jpg": jpeg(1)[:12]}, "damaged", "the label", jpeg(1)[:12]),
    ],
)
def test_samples_with_and_without_an_image(
    tmp_path: Path, fields: dict[str, bytes], kind: str, note: str, body: bytes | None
) -> None:
    contents = loaded(write(tmp_path / "a.toy", fields)).read(0)
    assert contents.record.kind == kind
    assert note in " ".join(contents.record.notes)
    assert bool(note) == bool(contents.record.notes)
    assert (None if contents.body is None else bytes(contents.body)) == body
    if kind == "foreign":
        assert all(name in str(contents.record.problem) for name in fields)


def test_a_damaged_sample_has_the_name_of_its_error(tmp_path: Path) -> None:
    good = {"main.jpg": jpeg(1), "label.cls": b"1"}
    path = write(tmp_path / "a.toy", good, good, good)
    found = loaded(path)
    data = bytearray(path.read_bytes())
    data[len(data) // 3] ^= 1  # the length of the second one's values
    path.write_bytes(data)
    record = found.read(1).record
    assert (record.kind, record.error) == ("damaged", "SampleFormatError")
    assert "the lengths of the sample are wrong" in str(record.problem)
    assert found.fields(found.read(1)).fields == ()
    assert [found.read(place).record.kind for place in (0, 2)] == ["image", "image"]
    assert all_labels(found).counts() == [(1.0, 2)]


def test_a_shard_that_became_shorter(plain: list[Path]) -> None:
    found = loaded(plain[0])
    plain[0].write_bytes(plain[0].read_bytes()[:-100])
    assert [found.read(place).record.kind for place in range(5)] == ["image"] * 4 + ["damaged"]
    assert found.read(4).record.error == "ShortReadError"
    assert all_labels(found).counts() == [(0, 1), (1, 1), (2, 1), (3, 1)]


def test_a_sample_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = loaded(write(tmp_path / "a.toy", {"main.jpg": jpeg(1)}))
    monkeypatch.setattr("aioloader.viewer.shard_samples.MOST_RECORD_NBYTES", 100)
    assert "bytes are too many to display; the limit is 100" in str(found.read(0).record.problem)


def test_keys_that_are_hostile_are_text(tmp_path: Path) -> None:
    keys = [EVIL.replace("/", ""), "a\udcff", "../../etc/passwd", "x" * 5000, "\u202egpj", "line\nline"]
    write_tar(tmp_path / "a.tar", [(f"{key}.jpg", jpeg(1)) for key in keys], tarfile.PAX_FORMAT)
    found = open_collection(tmp_path / "a.tar")
    found.load()
    shown = [found.key(place) for place in range(len(keys))]
    assert shown[:3] == [keys[0], "a\\xff", "../../etc/passwd"]
    assert len(shown[3]) == 200
    assert shown[4:] == ["\\u202egpj", "line\\nline"]
    assert [found.find(key) for key in keys] == [*range(len(keys))]


# -- shards, one after the other


def test_a_damaged_shard_ends_the_list(plain: list[Path], tmp_path: Path) -> None:
    (tmp_path / "bad.toy").write_bytes(b"cut")
    found = collection(plain[0], plain[1], tmp_path / "bad.toy", plain[2])
    with pytest.raises(SampleFormatError, match="ends inside a sample"):
        found.load()
    assert (found.known, found.count) == (10, None)
    assert found.read(9).record.location.key == "4"
    labels = Labels(found, found.known)
    while not labels.complete:
        labels.add(labels.read())
    assert labels.matches(4.0).tolist() == [4, 9]


def test_a_first_shard_that_is_damaged_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad.toy").write_bytes(b"cut")
    found = collection(tmp_path / "bad.toy")
    with pytest.raises(SampleFormatError):
        found.load()
    assert (found.known, list(found.listing())) == (0, [])


def test_the_first_shard_is_shown_while_the_others_are_opened(plain: list[Path]) -> None:
    opening, going_on = threading.Event(), threading.Event()

    class Slow(Fields):
        def _open_table(self, path: str, version: Any) -> Any:
            if path != str(plain[0]):
                opening.set()
                assert going_on.wait(20)
            return super()._open_table(path, version)

    found = collection(*plain, dataset=Slow)
    loading = threading.Thread(target=found.load)
    loading.start()
    try:
        assert opening.wait(20)
        while found.known == 0:
            assert loading.is_alive()
        assert (found.known, found.count) == (5, None)
        assert found.read(4).record.location.key == "4"
    finally:
        going_on.set()
        loading.join()
    assert found.count == 15


def test_closing_ends_the_opening(plain: list[Path]) -> None:
    found = collection(*plain)
    found.close()
    found.load()
    assert found.count is None


@pytest.mark.usefixtures("no_blocking", "leftovers")
def test_pages_while_shards_are_opened(plain: list[Path]) -> None:
    going_on = threading.Event()

    class Slow(Fields):
        def _open_table(self, path: str, version: Any) -> Any:
            if path != str(plain[0]):
                assert going_on.wait(20)
            return super()._open_table(path, version)

    async def work(site: Site) -> None:
        listing = await site.everything(49, least=1)
        assert (len(listing.positions), listing.complete) == (5, False)
        going_on.set()
        await site.loaded()
        assert len((await site.everything(49, least=1)).positions) == 15

    work_with(Site(collection(*plain, dataset=Slow), Options()), work)


# -- labels


def test_labels_of_all_samples(plain: list[Path]) -> None:
    labels = all_labels(loaded(*plain))
    assert labels.counts() == [(float(k), 3) for k in range(5)]
    assert labels.matches(2.0).tolist() == [2, 7, 12]


def test_labels_that_cost_too_much_are_not_read(plain: list[Path]) -> None:
    found = loaded(*plain, dataset=HugeLabels)
    assert "would read 32.21 GB" in found.no_labels

    async def work(site: Site) -> None:
        await site.loaded()
        for ask in (site.labelled(1.0), site.label_counts()):
            with pytest.raises(NoLabelsError, match="GB"):
                await ask
        assert (await site.image(2)).record.labels == (2.0,)

    work_with(Site(found, Options()), work)


@with_cases(
    ("label", "numbers", "text"),
    [
        (3, (3.0,), ""),
        (np.int64(-2), (-2.0,), ""),
        (True, (1.0,), ""),
        (0.5, (0.5,), ""),
        (np.float32(0.1), (float(np.float32(0.1)),), ""),
        ([1, 2], (1.0, 2.0), ""),
        (np.array([[0.5, 1.0]]), (0.5, 1.0), ""),
        (2**24 + 1, (), "16777217"),
        (-(2**63), (), "-9223372036854775808"),
        (2**70, (), str(2**70)),
        (np.zeros((300, 2)), (), "float64 300 \u00d7 2"),
        (np.array([]), (), "float64 0"),
        ([], (), "float64 0"),
        ("cat", (), "cat"),
        (b"cat\xff", (), "cat\\xff"),
        ({"a": [1]}, (), "{'a': [1]}"),
        ([[1], [2, 3]], (), "[[1], [2, 3]]"),
        (None, (), "None"),
        ("x" * 100, (), "x" * 59 + "\u2026"),
    ],
)
def test_a_label_is_numbers_or_a_text(label: Any, numbers: tuple[float, ...], text: str) -> None:
    assert label_of(label) == (numbers, text)


# -- the pages' content


@pytest.fixture
def rich(tmp_path: Path) -> Site:
    fields = {
        "main.jpg": jpeg(1),
        "label.cls": b"1",
        "right.jpg": jpeg(2, 700, 900),
        "broken.jpg": jpeg(3)[:300],
    }
    return Site(loaded(write(tmp_path / "a.toy", fields)), Options(size=64))


def test_further_images_are_encoded_again_and_small(rich: Site) -> None:
    async def work(site: Site) -> None:
        (thumb,) = await site.thumbs([0])
        assert (thumb.fields, thumb.further) == ((), ())
        shown = await site.image(0)
        assert (shown.main, shown.further[0]) == (0, "")
        further = shown.further[1]
        assert not isinstance(further, str)
        assert Image.open(io.BytesIO(further.content)).size == (480, 373)
        assert further.content != jpeg(2, 700, 900)
        assert "DecodeError" in str(shown.further[2])
        assert shown.nbytes > len(further.content)
        assert (await site.image(0)) is shown
        assert max(shown.image.width, shown.image.height) <= IMAGE_SIDE if shown.image else False

    work_with(rich, work)


def test_the_trainers_view_of_a_sample(rich: Site) -> None:
    async def work(site: Site) -> None:
        (draw,) = await site.drawn(0, "eval", [0])
        contents = site.collection.read(0)
        image = site.collection.decoder(contents.data, contents.extra, ItemLocation())[0]
        assert np.array_equal(pixels(draw.image), image_chain(64, train=False)(image))

    work_with(rich, work)
