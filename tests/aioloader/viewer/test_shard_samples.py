"""Tests of the samples of shards, viewed one by one: fields, labels and damage, and shards that open slowly."""

from __future__ import annotations

import io
import json
import struct
import threading
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from PIL import Image

from aioloader.datasets.fields import FieldKind, FieldReader
from aioloader.datasets.shard_dataset import ShardDataset, ShardTable, TextKeys
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.formats.collection import NoSuchRecordError
from aioloader.foundation.types import IntArray, ItemLocation, Spans
from aioloader.loader.images import image_chain
from aioloader.viewer.shard_samples import ShardSamples, label_of
from aioloader.viewer.site import IMAGE_SIDE, Labels, NoLabelsError, Options, Site
from tests.aioloader.viewer.sets import EVIL, jpeg
from tests.aioloader.viewer.test_site import pixels, work_with
from tests.cases import with_cases

# -- a format of samples with fields -----------------------------------------------------------------------------------
#
# It is as simple as possible, because what the viewer shows does not depend on a real one.
#
# A shard is a sequence of samples; a sample is its length and that of its head, the head (JSON: the key, and the name
# and the size of each field) and the fields.

_LENGTHS = struct.Struct("<II")
_KINDS = {
    "jpg": FieldKind.IMAGE,
    "json": FieldKind.JSON,
    "txt": FieldKind.TEXT,
    "cls": FieldKind.INTEGER,
    "npy": FieldKind.VALUE,
}


@dataclass(frozen=True)
class PlainReader:
    """Reader of such a sample; a field named ``*.npy`` becomes an array of bytes."""

    def _fields(self, data: memoryview, location: ItemLocation) -> dict[str, memoryview]:
        _, length = _LENGTHS.unpack_from(data)
        if bytes(data[8:9]) != b"{":
            raise SampleFormatError(
                "the head of the sample is damaged",
                path=location.path,
                offset=location.offset,
                key=location.key,
            )
        found = {}
        begin = 8 + length
        for name, nbytes in json.loads(bytes(data[8:begin]))["fields"]:
            found[name] = data[begin : begin + nbytes]
            begin += nbytes
        return found

    def read(self, data: memoryview, extra: Any, location: ItemLocation, names: tuple[str, ...]) -> list[Any]:
        fields = self._fields(data, location)
        for name in names:
            if name not in fields:
                raise MissingFieldError(name, tuple(fields), path=location.path, key=location.key)
        return [
            np.frombuffer(fields[name], np.uint8) if name.endswith("npy") else fields[name] for name in names
        ]

    def names(self, data: memoryview, extra: Any, location: ItemLocation) -> tuple[str, ...]:
        return tuple(self._fields(data, location))

    def kind(self, name: str) -> FieldKind:
        return _KINDS.get(name.rpartition(".")[2], FieldKind.BYTES)


class PlainDataset(ShardDataset):
    """Dataset of such shards.

    Attributes:
        opened: paths of the shards whose tables were opened.
    """

    def __init__(
        self, paths: Sequence[str | Path], *, image: str = "jpg", label: str = "cls", **options: Any
    ) -> None:
        self.opened: list[str] = []
        super().__init__([str(path) for path in paths], image=image, label=label, fields=None, **options)

    def _reader(self) -> FieldReader:
        return PlainReader()

    def _open_table(self, path: str, version: Any) -> ShardTable:
        self.opened.append(path)
        data = Path(path).read_bytes()
        offsets, keys, begin = [], [], 0
        while begin < len(data):
            if begin + 8 > len(data) or data[begin] == 0xFF:
                raise SampleFormatError("a sample begins with wrong bytes", path=path, offset=begin)
            nbytes, length = _LENGTHS.unpack_from(data, begin)
            offsets.append(begin)
            head = data[begin + 8 : begin + 8 + length]
            key = json.loads(head)["key"] if head[:1] == b"{" else "?"
            keys.append(key.encode("utf-8", "surrogateescape"))
            begin += nbytes
        found: IntArray = np.array(offsets, np.int64)
        ends: IntArray = np.cumsum([len(key) for key in keys], dtype=np.int64)
        return ShardTable(
            path=path,
            nbytes=len(data),
            offset=found,
            length=np.diff(found, append=len(data)),
            keys=TextKeys(np.frombuffer(b"".join(keys), np.uint8), ends),
        )


class HugeLabels(PlainDataset):
    """Dataset whose labels cost more reads than the viewer makes without asking."""

    def _label_spans(self, indices: IntArray) -> tuple[Spans, Any]:
        spans = self.spans(indices)
        return Spans(spans.file, spans.offset, spans.length + (1 << 31)), None


def sample_bytes(key: str, fields: dict[str, bytes]) -> bytes:
    """Return a sample."""
    head = json.dumps({"key": key, "fields": [[name, len(body)] for name, body in fields.items()]}).encode()
    body = b"".join(fields.values())
    return _LENGTHS.pack(8 + len(head) + len(body), len(head)) + head + body


def write_shard(path: Path, samples: Sequence[tuple[str, dict[str, bytes]]]) -> Path:
    """Write a shard of (key, fields)."""
    path.write_bytes(b"".join(sample_bytes(key, fields) for key, fields in samples))
    return path


# -- samples -----------------------------------------------------------------------------------------------------------


def collection(*paths: Path, dataset: type[PlainDataset] = PlainDataset, **options: Any) -> ShardSamples:
    made = dataset(paths, crop_index=None, **options)
    return ShardSamples(made, path=str(paths[0]), kind="plain", max_pixels=10_000_000)


def loaded(*paths: Path, **options: Any) -> ShardSamples:
    found = collection(*paths, **options)
    found.load()
    return found


@pytest.fixture(scope="module")
def plain(tmp_path_factory: pytest.TempPathFactory) -> list[Path]:
    """Make three shards of five samples with images and labels."""
    root = tmp_path_factory.mktemp("plain")
    return [
        write_shard(
            root / f"{part}.plain",
            [
                (f"s{5 * part + k}", {"jpg": jpeg(5 * part + k), "cls": str(k).encode(), "txt": b"caption"})
                for k in range(5)
            ],
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
    assert (found.kind, found.file_names()) == ("3 plain files", ["0.plain", "1.plain", "2.plain"])
    assert [found.key(place) for place in range(15)] == [f"s{k}" for k in range(15)]
    contents = found.read(7)
    record = contents.record
    assert (record.key, record.path, record.labels) == ("s7", str(plain[1]), (2.0,))
    assert (record.kind, record.width, record.height, record.nbytes) == ("image", 80, 60, len(jpeg(7)))
    assert record.offset == 2 * record.sample_nbytes or record.offset
    assert plain[1].read_bytes()[record.offset :][: record.sample_nbytes] == bytes(contents.data)
    assert bytes(contents.body) == jpeg(7)
    assert (found.index(7), found.file_of(7)) == (7, 1)
    found.close()


def test_samples_by_their_keys(plain: list[Path]) -> None:
    found = loaded(*plain)
    assert [found.find(key) for key in ("s0", "s9", "s14")] == [0, 9, 14]
    assert found.find("s9", 1) == 9
    for key, file in (("s9", 0), ("s15", None), ("", None), ("S9", None), ("\ud800", None), ("s9", 7)):
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
        "cls": b"3",
        "left.jpg": jpeg(1),
        "json": b'{"a": 1}',
        "jpg": jpeg(2),
        "txt": b"<script>",
        "vector.npy": b"\1\2",
        "bin": b"\0\1",
        "wrong.json": b"{",
    }
    found = loaded(write_shard(tmp_path / "a", [("k", sample)]))
    contents = found.read(0)
    assert bytes(contents.body) == jpeg(2)
    fields = found.fields(contents)
    assert [field.name for field in fields.fields] == list(sample)
    assert [field.kind for field in fields.fields] == [
        *("integer", "image", "json", "image", "text", "uint8 2", "bytes", "json")
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
    found = loaded(write_shard(tmp_path / "a", [("k", sample)]))
    fields = found.fields(found.read(0))
    assert (len(fields.fields), fields.left) == (200, 800)


@pytest.mark.parametrize(
    ("fields", "kind", "note", "body"),
    [
        ({"jpg": jpeg(1), "cls": b"1"}, "image", "", jpeg(1)),
        ({"txt": b"words", "cls": b"1"}, "foreign", "", None),
        ({}, "foreign", "the label", None),
        ({"cls": b"1", "right.jpg": jpeg(2)}, "image", "this image is its field 'right.jpg'", jpeg(2)),
        ({"data": jpeg(3), "b.jpg": jpeg(2)}, "image", "'b.jpg'", jpeg(2)),
        ({"data": b"no", "blob": jpeg(3)}, "image", "'blob'", jpeg(3)),
        ({"jpg": jpeg(1), "cls": b"x"}, "image", "the label cannot be read: SampleFormatError", jpeg(1)),
        ({"jpg": b"", "cls": b"1"}, "damaged", "", b""),
        ({"jpg": jpeg(1)[:12]}, "damaged", "the label", jpeg(1)[:12]),
    ],
)
def test_samples_with_and_without_an_image(
    tmp_path: Path, fields: dict[str, bytes], kind: str, note: str, body: bytes | None
) -> None:
    contents = loaded(write_shard(tmp_path / "a", [("k", fields)])).read(0)
    assert contents.record.kind == kind
    assert note in " ".join(contents.record.notes)
    assert bool(note) == bool(contents.record.notes)
    assert (None if contents.body is None else bytes(contents.body)) == body
    if kind == "foreign":
        assert all(name in str(contents.record.problem) for name in fields)


def test_a_damaged_sample_has_the_name_of_its_error(tmp_path: Path) -> None:
    good = sample_bytes("a", {"jpg": jpeg(1), "cls": b"1"})
    bad = bytearray(good)
    bad[8] = 0
    (tmp_path / "a").write_bytes(good + bad + good)
    found = loaded(tmp_path / "a")
    record = found.read(1).record
    assert (record.kind, record.error) == ("damaged", "SampleFormatError")
    assert record.problem == "the head of the sample is damaged"
    assert found.fields(found.read(1)).fields == ()
    assert [found.read(place).record.kind for place in (0, 2)] == ["image", "image"]
    assert all_labels(found).counts() == [(1.0, 2)]


def test_a_shard_that_became_shorter(plain: list[Path], tmp_path: Path) -> None:
    path = tmp_path / "a"
    path.write_bytes(plain[0].read_bytes())
    found = loaded(path)
    path.write_bytes(path.read_bytes()[:-100])
    assert [found.read(place).record.kind for place in range(5)] == ["image"] * 4 + ["damaged"]
    assert found.read(4).record.error == "ShortReadError"
    assert all_labels(found).counts() == [(0, 1), (1, 1), (2, 1), (3, 1)]


def test_a_sample_that_is_too_large_is_not_read(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    found = loaded(write_shard(tmp_path / "a", [("k", {"jpg": jpeg(1)})]))
    monkeypatch.setattr("aioloader.viewer.shard_samples.MOST_RECORD_NBYTES", 100)
    assert "bytes are too many to display; the limit is 100" in str(found.read(0).record.problem)


def test_keys_that_are_hostile_are_text(tmp_path: Path) -> None:
    keys = [EVIL, "a\udcff", "../../etc/passwd", "x" * 5000, "\u202egpj", "line\nline"]
    found = loaded(write_shard(tmp_path / "a", [(key, {"jpg": jpeg(1), "cls": b"1"}) for key in keys]))
    shown = [found.key(place) for place in range(len(keys))]
    assert shown[:3] == [EVIL, "a\\xff", "../../etc/passwd"]
    assert len(shown[3]) == 200
    assert shown[4:] == ["\\u202egpj", "line\\nline"]
    assert [found.find(key) for key in keys] == [*range(len(keys))]


# -- shards, one after the other


def test_a_damaged_shard_ends_the_list(plain: list[Path], tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"\xff" * 40)
    found = collection(plain[0], plain[1], tmp_path / "bad", plain[2])
    with pytest.raises(SampleFormatError, match="wrong bytes"):
        found.load()
    assert (found.known, found.count) == (10, None)
    assert found.read(9).record.key == "s9"
    labels = Labels(found, found.known)
    while not labels.complete:
        labels.add(labels.read())
    assert labels.matches(4.0).tolist() == [4, 9]


def test_a_first_shard_that_is_damaged_leaves_nothing(tmp_path: Path) -> None:
    (tmp_path / "bad").write_bytes(b"\xff" * 40)
    found = collection(tmp_path / "bad")
    with pytest.raises(SampleFormatError):
        found.load()
    assert (found.known, list(found.listing())) == (0, [])


def test_the_first_shard_is_shown_while_the_others_are_opened(plain: list[Path]) -> None:
    opening, going_on = threading.Event(), threading.Event()

    class Slow(PlainDataset):
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
        assert found.read(4).record.key == "s4"
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

    class Slow(PlainDataset):
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
    fields = {"jpg": jpeg(1), "cls": b"1", "right.jpg": jpeg(2, 700, 900), "broken.jpg": jpeg(3)[:300]}
    return Site(loaded(write_shard(tmp_path / "a", [("k", fields)])), Options(size=64))


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
