"""Tests of datasets over tars: fields, labels, damage and indexes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tarfile
import zlib
from pathlib import Path

import numpy as np
import pytest

import aioloader
from aioloader import DataLoader, TarDataset
from aioloader.errors import MissingFieldError, SampleFormatError
from aioloader.sample_index import IndexState, index_beside, index_state, shard_state, write_index
from aioloader.storage.local import descriptors
from tests.aioloader.datasets.batches import assert_numbered, copies, faults_of
from tests.aioloader.datasets.conftest import pixels, png
from tests.aioloader.datasets.tars import as_json, members_of, npy, photo, write_photos, write_tar
from tests.aioloader.formats.tars import END, header, member, pax, pax_record
from tests.cases import with_cases
from tests.executors import pool

LONG = "a-folder/" * 30


def is_gnu_tar() -> bool:
    """Return whether the program tar is GNU tar."""
    if shutil.which("tar") is None:
        return False
    return "GNU" in subprocess.run(["tar", "--version"], capture_output=True, text=True, check=False).stdout


@pytest.fixture
def photos(tmp_path: Path) -> Path:
    """Write 23 samples as tars of 5."""
    return write_photos(tmp_path / "photos")


# -- samples ---------------------------------------------------------------------------------------------------------


def test_samples_follow_one_another(photos: Path) -> None:
    dataset = aioloader.open_dataset(photos)
    assert_numbered(dataset, 23)
    location = dataset.location(12)
    assert (location.key, location.path) == ("train/0012", str(photos / "train-2.tar"))
    with tarfile.open(photos / "train-2.tar") as archive:
        assert location.offset == archive.getmember("train/0012.png").offset


@pytest.mark.skipif(not is_gnu_tar(), reason="needs GNU tar")
@pytest.mark.parametrize("format", ["v7", "oldgnu", "gnu", "ustar", "pax"])
def test_hard_links_of_gnu_tar_are_read(tmp_path: Path, format: str) -> None:
    inside = "b" * 80 if format == "v7" else f"{'b' * 40}/{'c' * 40}" if format == "ustar" else LONG[:200]
    folder = tmp_path / inside
    folder.mkdir(parents=True)
    for number in range(3):
        for name, data in photo(number)[1].items():
            (folder / f"{number:04}.{name}").write_bytes(data)
    for number in (3, 4):  # one has only links, the other a label of its own
        os.link(folder / f"{number - 2:04}.png", folder / f"{number:04}.png")
    os.link(folder / "0001.cls", folder / "0003.cls")
    (folder / "0004.cls").write_bytes(b"4")
    (folder / "link.txt").symlink_to("0000.png")
    (folder / ".hidden.txt").write_bytes(b"x")
    path = tmp_path / "a.tar"
    # Directories, links and hidden files are members, too.
    subprocess.run(
        ["tar", f"--format={format}", "--sort=name", "-cf", path, "-C", tmp_path, inside], check=True
    )
    dataset = TarDataset(path)
    images, labels = [0, 1, 2, 1, 2], [0, 1, 2, 1, 4]
    assert dataset.labels().tolist() == labels
    assert faults_of(dataset) == ([], 5)
    joined = aioloader.ConcatDataset([TarDataset(path, cache="memory"), dataset])
    for source in (dataset, TarDataset(path, cache="memory"), joined):
        for options in (pool("inline", 0), pool("process", 1))[: 1 + (format == "pax")]:
            with DataLoader(source, 5, **options) as loader:
                for batch, found in [*copies(loader), *copies(loader)]:
                    assert found.tolist() == labels
                    np.testing.assert_array_equal(batch, [pixels(number) for number in images])
        np.testing.assert_array_equal([source[place][0] for place in range(5)], list(map(pixels, images)))
    whole = TarDataset(path, fields=("png", "cls", "__key__"))
    assert whole[3] == {"png": pytest.approx(pixels(1)), "cls": 1, "__key__": f"{inside}/0003"}


@with_cases(
    "members",
    [
        header(b"a.txt", kind=b"1", link=b"a.txt"),
        header(b"a.txt", kind=b"1", link=b"b.txt") + member(b"b.txt", b"behind it"),
        header(b"a.txt", kind=b"1", link=b"c.bin") + header(b"c.bin", kind=b"1", link=b"a.txt"),
        header(b"a.txt", kind=b"1"),
        header(b"c", kind=b"2", link=b"b.txt") + header(b"a.txt", kind=b"1", link=b"c"),
        header(b"c/", kind=b"5") + header(b"a.txt", kind=b"1", link=b"c"),
        header(b"c", kind=b"6") + header(b"a.txt", kind=b"1", link=b"c"),
        member(b"c", b"1", kind=b"S") + header(b"a.txt", kind=b"1", link=b"c"),
        member(b"c", b"1") + header(b"c", kind=b"2") + header(b"a.txt", kind=b"1", link=b"c"),
        member(b"c", b"1") + pax(pax_record(b"size", b"1")) + header(b"a.txt", kind=b"1", link=b"c"),
    ],
    ids=["itself", "behind", "cycle", "nowhere", "symbolic", "folder", "pipe", "sparse", "replaced", "size"],
)
def test_a_hard_link_to_no_file_is_an_error_of_its_field(tmp_path: Path, members: bytes) -> None:
    path = tmp_path / f"{zlib.crc32(members)}.tar"
    path.write_bytes(members + member(b"a.cls", b"7") + member(b"z.txt", b"text") + END)
    dataset = TarDataset(path, fields=("txt",))
    place = next(number for number in range(len(dataset)) if dataset.location(number).key == "a")
    with pytest.raises(SampleFormatError, match=r"'txt' is a hard link to a .*--hard-dereference") as caught:
        dataset[place]
    assert (caught.value.key, caught.value.path) == ("a", str(path))
    assert dataset[len(dataset) - 1] == {"txt": "text"}
    faults, valid = faults_of(dataset)
    assert valid >= 1
    assert ("a", True) in [
        (each.key, "'txt' of the sample 'a' is a hard link" in each.reason) for each in faults
    ]


@pytest.mark.parametrize("cache", [None, "memory"])
def test_a_piece_that_cannot_be_read_fails_its_samples(tmp_path: Path, cache: str | None) -> None:
    big = bytes(range(250)) * 400
    members = [("a.bin", b"a"), ("b.bin", "a.bin"), ("c.bin", big), ("d.bin", "a.bin"), ("e.bin", b"e")]
    path = write_tar(tmp_path / "a.tar", members)
    dataset = TarDataset(path, fields=("bin",), cache=cache)
    assert [dataset[place]["bin"] for place in range(5)] == [b"a", b"a", big, b"a", b"e"]
    dataset = TarDataset(path, fields=("bin",), cache=cache)
    assert len(dataset) == 5
    os.truncate(path, 50_000)
    with DataLoader(dataset, 1, on_error="skip", **pool("inline", 0)) as loader:
        assert [batch["bin"][0] for batch in loader] == [b"a", b"a"]
        assert [error.index for error in loader.errors] == [2, 3, 4]


@pytest.mark.skipif(not is_gnu_tar(), reason="needs GNU tar")
def test_a_sparse_member_is_an_error_of_its_field(tmp_path: Path) -> None:
    with open(tmp_path / "1.npy", "wb") as file:
        file.write(b"\x93NUMPY")
        file.truncate(1 << 20)
    (tmp_path / "1.cls").write_bytes(b"7")
    (tmp_path / "2.cls").write_bytes(b"8")
    path = tmp_path / "a.tar"
    names = ["1.npy", "1.cls", "2.cls"]
    subprocess.run(["tar", "--format=pax", "--sparse", "-cf", path, "-C", tmp_path, *names], check=True)
    if path.stat().st_size > 1 << 19:
        pytest.skip("needs a file system with holes")
    dataset = TarDataset(path, fields=("npy", "cls"))
    with pytest.raises(SampleFormatError, match=r"'npy' is a sparse file.*--sparse") as caught:
        dataset[0]
    assert (caught.value.path, caught.value.offset, caught.value.key) == (str(path), 0, "1")
    assert [TarDataset(path, fields="cls")[place]["cls"] for place in (0, 1)] == [7, 8]


def test_values_follow_from_the_last_part_of_a_name(tmp_path: Path) -> None:
    array = np.arange(6, dtype=">i2").reshape(2, 3, order="F")
    fields = {
        "png": png(1),
        "seg.PNG": png(2),
        "a.b.json": as_json({"x": [1, None]}),
        "txt": "\u00fc".encode(),
        "cls": b" 12\n",
        "Box.npy": npy(array),
        "bin": b"\0\xff",
        "": b"nothing",
    }
    path = write_tar(tmp_path / "a.tar", members_of([("/../k", fields)]))
    names = (
        "bin",
        "cls",
        "txt",
        "a.b.json",
        "box.npy",
        "seg.png",
        "",
        "__key__",
        "jpg;png",
        "cls;txt",
        "png;txt",
    )
    sample = TarDataset(path, fields=names)[0]
    assert tuple(sample) == names
    assert sample["__key__"] == "/../k"
    assert (sample["bin"], sample[""], sample["txt"]) == (b"\0\xff", b"nothing", "\u00fc")
    assert (sample["cls"], sample["cls"].dtype, sample["cls;txt"]) == (12, np.int64, 12)
    assert sample["png;txt"] == png(1)
    assert sample["a.b.json"] == {"x": [1, None]}
    np.testing.assert_array_equal(sample["box.npy"], array)
    assert sample["box.npy"].dtype == array.dtype
    for name, number in (("jpg;png", 1), ("seg.png", 2)):
        np.testing.assert_array_equal(sample[name], pixels(number))
    named = TarDataset(path, fields=("bin", "txt"), image=("txt",))
    with pytest.raises(aioloader.DecodeError):
        named[0]


def test_fields_that_were_not_asked_for_are_found_by_the_headers(tmp_path: Path) -> None:
    members = members_of(
        [(f"{LONG}{n}", {"txt": b"t%d" % n, "json": b"%d" % n, "png": png(n)}) for n in range(3)]
    )
    members.insert(4, (f"{LONG}.hidden.txt", b"between"))
    path = write_tar(tmp_path / "a.tar", members, tarfile.GNU_FORMAT)
    dataset = TarDataset(path)
    data = path.read_bytes()
    for place in range(3):
        spans = dataset.spans(np.array([place]))
        begin = int(spans.offset[0])
        sample = memoryview(data)[begin : begin + int(spans.length[0])]
        extra = dataset.extras(np.array([place]))[0]
        location = dataset.location(place)
        assert dataset.reader.names(sample, extra, location) == ("txt", "json", "png")
        (text, whole) = dataset.reader.read(sample, extra, location, ("txt", "png"))
        assert (bytes(text), bytes(whole)) == (b"t%d" % place, png(place))
        with pytest.raises(MissingFieldError) as caught:
            dataset.reader.read(sample, extra, location, ("nothing",))
        assert caught.value.found == ("txt", "json", "png")
        with pytest.raises(SampleFormatError, match="not a sample"):
            dataset.reader.names(sample[512:], extra, location)


def test_the_label_is_cls_or_a_number_in_json(tmp_path: Path) -> None:
    fields: list[dict[str, bytes]] = [
        {"cls": b"4", "json": b"{}", "png": png(0)},
        {"png": png(1), "json": b" 5 "},
        {"json": b"2.5", "png": png(2)},
    ]
    path = write_tar(tmp_path / "a.tar", members_of([(f"{n}", each) for n, each in enumerate(fields)]))
    dataset = TarDataset(path)
    labels = [dataset[place][1] for place in range(3)]
    assert (labels, [label.dtype for label in labels]) == ([4, 5, 2.5], [np.int64, np.int64, np.float32])
    assert dataset.labels().tolist() == [4, 5, 2.5]
    assert TarDataset(path, label_dtype="float64").labels().dtype == np.float64
    lists = write_tar(tmp_path / "b.tar", members_of([("k", {"jpeg": png(0), "json": b"[1, 2]"})]))
    assert TarDataset(lists)[0][1].tolist() == [1, 2]
    objects = write_tar(tmp_path / "c.tar", members_of([("k", {"png": png(0), "json": b'{"label": 1}'})]))
    with pytest.raises(SampleFormatError, match=r"not a label, but dict .*label=.*fields="):
        TarDataset(objects)[0]
    with pytest.raises(SampleFormatError, match="is not integer"):
        TarDataset(write_tar(tmp_path / "d.tar", members_of([("k", {"png": png(0), "cls": b"cat"})])))[0]


def test_labels_are_read_without_images(photos: Path) -> None:
    for options in ({}, {"fields": "png"}):
        dataset = TarDataset(photos / "train-*.tar", **options)
        assert dataset.label_nbytes == sum(len(str(label)) for label in range(23))
        assert dataset.labels().tolist() == list(range(23))


def test_the_label_of_a_sample_without_one_is_its_error(tmp_path: Path) -> None:
    samples = [("a", {"cls": b"1"}), ("b", {"txt": b"x", "png": b""}), ("c", {"cls": b"x"})]
    dataset = TarDataset(write_tar(tmp_path / "a.tar", members_of(samples)))
    source = dataset.open_source()
    one, missing, wrong = dataset.labels_at(np.arange(3), source)
    source.close()
    assert one == 1
    assert isinstance(missing, MissingFieldError)
    assert (missing.key, missing.found) == ("b", ("txt", "png"))
    assert isinstance(wrong, SampleFormatError)
    assert wrong.key == "c"


def test_a_field_that_no_sample_has_is_an_error_before_the_first_sample(photos: Path) -> None:
    for options, field in (
        ({"image": "jpg"}, "jpg"),
        ({"label": "txt"}, "txt"),
        ({"fields": ("png", "seg.png")}, "seg.png"),
    ):
        dataset = TarDataset(photos / "train-*.tar", **options)
        with pytest.raises(MissingFieldError) as caught, DataLoader(dataset, 2, on_error="skip") as loader:
            list(loader)
        assert (caught.value.field, caught.value.found) == (field, ("cls", "png"))
        assert caught.value.path == str(photos / "train-0.tar")


def test_names_of_images_are_checked(photos: Path) -> None:
    with pytest.raises(ValueError, match="one field unless fields are given"):
        TarDataset(photos / "train-0.tar", image=("jpg", "png"))
    with pytest.raises(FileNotFoundError):
        TarDataset(photos / "none.tar")


def test_tars_without_samples(tmp_path: Path, photos: Path) -> None:
    empty = write_tar(tmp_path / "empty.tar", [])
    assert len(TarDataset(empty)) == 0
    assert TarDataset(empty).labels().tolist() == []
    names = [("noextension", b"x"), (".hidden", b"x"), ("__meta__", b"x"), ("__meta__/a.txt", b"x")]
    none = write_tar(tmp_path / "none.tar", names)
    assert list(DataLoader(TarDataset(none), 2, num_workers=0)) == []
    between = [photos / "train-0.tar", empty, none, photos / "train-1.tar"]
    assert TarDataset(between).labels().tolist() == list(range(10))


def test_a_field_that_is_there_twice_is_an_error_of_its_sample(tmp_path: Path) -> None:
    members = [*members_of([photo(0)]), ("train/0000.png", png(5)), *members_of([photo(1)])]
    path = write_tar(tmp_path / "a.tar", members)
    with DataLoader(TarDataset(path), 2, on_error="skip") as loader:
        assert [labels.tolist() for _, labels in loader] == [[1]]
        (error,) = loader.errors
    assert "more than once" in str(error.__cause__)
    assert (error.key, error.path, error.offset) == ("train/0000", str(path), 0)
    assert TarDataset(path, fields="cls")[0] == {"cls": 0}


# -- damage ----------------------------------------------------------------------------------------------------------


def test_a_damaged_header_is_an_error_of_the_file(photos: Path) -> None:
    path = photos / "train-2.tar"
    with tarfile.open(path) as archive:
        offset = archive.getmember("train/0012.cls").offset
    data = bytearray(path.read_bytes())
    data[offset] ^= 1
    path.write_bytes(data)
    with pytest.raises(SampleFormatError, match="checksum") as caught:
        len(TarDataset(photos / "train-*.tar"))
    assert (caught.value.path, caught.value.offset) == (str(path), offset)
    assert "'train/0012.png'" in str(caught.value)


# -- indexes ---------------------------------------------------------------------------------------------------------


def test_an_index_next_to_the_tar_is_read(photos: Path, scans: list[str]) -> None:
    dataset = TarDataset(photos / "train-0.tar")
    path = dataset.paths[0]
    reached: list[int] = []
    state = shard_state(path)
    assert state is not None
    write_index(index_beside(path), dataset.scan_shard(0, reached.append), state)
    assert index_state(path, None, dataset.index_kind) is IndexState.BESIDE
    scans.clear()
    assert_numbered(TarDataset(path), 5)
    assert scans == []


def test_an_index_that_contradicts_itself_is_not_used(photos: Path, scans: list[str]) -> None:
    dataset = TarDataset(photos / "train-0.tar")
    path = dataset.paths[0]
    index = dataset.scan_shard(0)
    state = shard_state(path)
    assert state is not None
    for name in index.arrays:
        arrays = dict(index.arrays)
        del arrays[name]
        write_index(index_beside(path), index._replace(arrays=arrays), state)
        assert_numbered(TarDataset(path), 5)
        longer = np.append(index.arrays[name], index.arrays[name].dtype.type(0))
        write_index(index_beside(path), index._replace(arrays={**arrays, name: longer}), state)
        assert_numbered(TarDataset(path), 5)
    assert len(scans) == 2 * len(index.arrays) + 1


def test_a_scan_reads_headers_only(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    path = write_tar(tmp_path / "a.tar", [(f"{n:03}.bin", bytes(100_000)) for n in range(50)])
    nbytes: list[int] = []
    read = descriptors.read_at

    def counted(descriptor: int, length: int, offset: int) -> bytes:
        nbytes.append(length)
        return read(descriptor, length, offset)

    monkeypatch.setattr(descriptors, "read_at", counted)
    assert len(TarDataset(path, fields="bin")) == 50
    assert sum(nbytes) < 160_000


# -- checks ----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("block", [100, 5000])
def test_every_fault_of_a_tar_is_found(tmp_path: Path, block: int, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("aioloader.storage.cache.unpacked._BLOCK_NBYTES", block)
    samples = [photo(number) for number in range(8)]
    path = write_tar(tmp_path / "a.tar", [*members_of([*samples, photo(2)]), ("train/0002.cls", b"9")])
    assert faults_of(TarDataset(path))[1] == 8
    with tarfile.open(path) as archive:
        members = archive.getmembers()
    data = bytearray(path.read_bytes())
    data[members[7].offset] ^= 1  # 0003.cls
    data[members[10].offset + 130] = ord("x")  # 0005.png
    path.write_bytes(data)
    faults, valid = faults_of(TarDataset(path))
    assert [(fault.offset, fault.key) for fault in faults] == [
        (members[7].offset, None),
        (members[10].offset, None),
        (members[16].offset, "train/0002"),
        (members[17].offset_data, "train/0002"),
    ]
    assert {fault.path for fault in faults} == {str(path)}
    assert "not together" in faults[2].reason
    assert "'cls' of the sample 'train/0002' is there more than once" in faults[3].reason
    assert valid == 8


def test_a_valid_tar_has_no_faults(photos: Path, tmp_path: Path) -> None:
    reached: list[int] = []
    checking = TarDataset(photos / "train-*.tar").check_shard(2, reached.append)
    with pytest.raises(StopIteration) as stop:
        next(checking)
    assert stop.value.value == 5
    assert reached[-1] == (photos / "train-2.tar").stat().st_size
    assert faults_of(TarDataset(write_tar(tmp_path / "empty.tar", []))) == ([], 0)


def test_members_of_samples_that_are_not_together_are_named(tmp_path: Path) -> None:
    members = sorted(members_of([photo(number) for number in range(4)]), key=lambda each: each[0][-3:])
    dataset = TarDataset(write_tar(tmp_path / "a.tar", members))
    assert len(dataset) == 8
    with pytest.raises(SampleFormatError, match=r"'cls;json'.*--sort=name"):
        dataset[0]
    assert TarDataset(dataset.paths, fields="cls")[1] == {"cls": 1}
    faults, _ = faults_of(dataset)
    assert [fault.key for fault in faults] == [f"train/000{number}" for number in range(4)]
