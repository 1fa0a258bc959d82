"""Tests of references: what is accepted, how it is identified, and what is read."""

from __future__ import annotations

import base64
import hashlib
import io
import sys
import tracemalloc
from collections.abc import Callable
from pathlib import Path
from typing import Any
from urllib.parse import quote

import anyio
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import aioloader
from aioloader import errors
from aioloader.errors import (
    ImageFetchError,
    ImageNotAllowedError,
    ImageReferenceError,
    ImageServiceError,
    ImageTooLargeError,
    MissingPackageError,
)
from aioloader.service.references import (
    HEAD_NBYTES,
    ReadImage,
    Reference,
    ReferenceReader,
    _OpenDataset,
    decode_data_uri,
    most_characters,
)
from aioloader.service.web_urls import KINDS
from aioloader.transforms import decode_image, encode_raw
from tests.aioloader.format_sets import FORMATS, Sample, SetFormat
from tests.aioloader.service.images import by_key, data_uri, jpeg, saved
from tests.cases import on_both_loops, with_cases
from tests.conftest import RunOn
from tests.servers.raw_http import RawServer, answer

LIMIT = 1 << 20
SMALL = jpeg()


def reader(tmp_path: Path | None = None, **options: Any) -> ReferenceReader:
    """Return a reader that accepts all kinds; without a folder, all but paths."""
    kinds = [kind for kind in KINDS if tmp_path is not None or kind != "path"]
    return ReferenceReader(
        **{"allow": kinds, "root": tmp_path, "max_bytes": LIMIT, "timeout": 20.0, **options}
    )


Read = Callable[..., ReadImage]


def reading(run_on: Callable[..., Any]) -> Read:
    """Return a function that accepts and reads a reference with a new reader in a new event loop."""

    def run(
        ref: object, tmp_path: Path | None = None, *, head: bool = False, key: Any = None, **options: Any
    ) -> ReadImage:
        async def main() -> ReadImage:
            here = reader(tmp_path, **options)
            try:
                reference = await here.identify(here.accept(ref, key=key))
                return await (here.read_header(reference) if head else here.read(reference))
            finally:
                await here.aclose()

        found: ReadImage = run_on(main)
        return found

    return run


@pytest.fixture
def read(no_blocking: None, leftovers: object) -> Read:
    """Return such a function for references of which the event loop fetches nothing."""
    return reading(anyio.run)


@pytest.fixture
def fetch_on_both(run_on: RunOn, no_blocking: None, leftovers: object) -> Read:
    """Return such a function for either event loop."""
    return reading(run_on)


# -- what is accepted ------------------------------------------------------------------------------------------------


@with_cases(
    ("ref", "kind"),
    [
        (b"abc", "bytes"),
        (bytearray(b"abc"), "bytes"),
        (memoryview(b"abc"), "bytes"),
        (memoryview(np.zeros((3, 4), np.int32)), "bytes"),
        ("data:image/png;base64,AAAA", "data"),
        ("DATA:,x", "data"),
        ("a.jpg", "path"),
        ("/a/b.jpg", "path"),
        (Path("a.jpg"), "path"),
        ("file:///a.jpg", "path"),
        ("a:b.jpg", "path"),
        ("http://example.com/a", "http"),
        ("HTTPS://example.com/a", "https"),
        ("s3://bucket/a/b.jpg", "s3"),
        ("gs://bucket/a", "gs"),
        ("az://container/a", "az"),
        (np.zeros((2, 3, 3), np.uint8), "array"),
        (np.zeros((2, 3, 1), np.uint8), "array"),
        (np.zeros((2, 3), np.uint8), "array"),
        ((aioloader.ArrayDataset(np.zeros((2, 3, 4, 3), np.uint8)), 1), "dataset"),
        (([b"a", b"b"], np.int64(1)), "dataset"),
        ({"bytes": b"abc", "path": None}, "bytes"),
        ({"path": "../secret.jpg", "bytes": bytearray(b"abc")}, "bytes"),
        ({"bytes": None, "path": "a.jpg"}, "path"),
        ({"bytes": None, "path": "https://example.com/a"}, "https"),
    ],
)
def test_a_reference_has_a_kind_which_must_be_allowed(ref: object, kind: str, tmp_path: Path) -> None:
    reference = reader(tmp_path).accept(ref)
    assert reference.kind == kind
    others = [each for each in KINDS if each not in (kind, "path")]
    with pytest.raises(ImageNotAllowedError, match=f"'{kind}'") as found:
        ReferenceReader(allow=others).accept(ref)
    assert found.value.kind == kind
    assert isinstance(found.value, PermissionError)


def test_only_bytes_and_data_are_allowed_by_default() -> None:
    here = ReferenceReader()
    assert here.accept(b"a").kind == "bytes"
    assert here.accept("data:,a").kind == "data"
    for ref in ("a.jpg", "http://example.com/", np.zeros((1, 1, 3), np.uint8), ([b"a"], 0)):
        with pytest.raises(ImageNotAllowedError):
            here.accept(ref)


@with_cases(
    "ref",
    [
        None,
        1,
        object(),
        [b"a"],
        ("a", 1),
        (b"a", 1),
        ([b"a"], "0"),
        ([b"a"], True),
        ([b"a"], 0, 1),
        {"url": "a"},
    ],
)
def test_what_is_not_a_reference_is_a_type_error(ref: object) -> None:
    with pytest.raises(TypeError):
        reader().accept(ref)


@with_cases(
    "array",
    [
        np.zeros((2, 3, 3)),
        np.zeros((2, 3, 4), np.uint8),
        np.zeros((2, 3, 2), np.uint8),
        np.zeros(3, np.uint8),
        np.zeros((1, 2, 3, 3), np.uint8),
        np.zeros((0, 3, 3), np.uint8),
        np.zeros((), np.uint8),
        np.array([None]),
    ],
)
def test_an_array_without_pixels_is_a_named_error(array: Any) -> None:
    with pytest.raises(ImageReferenceError) as found:
        reader().accept(array)
    assert found.value.kind == "array"


LONG = [("http://example.com/", 10_000), ("s3://bucket/", 3000)]


@with_cases(
    ("error", "ref"),
    [
        *by_key("refused references"),
        *(("ImageReferenceError", start + count * "a") for start, count in LONG),
    ],
)
def test_a_malformed_or_forbidden_reference_is_refused_at_once(error: str, ref: str, tmp_path: Path) -> None:
    for key in (None, "mine"):
        with pytest.raises(getattr(errors, error)) as found:
            reader(tmp_path).accept(ref, key=key)
        assert len(str(found.value)) < 600
        assert str(found.value).isprintable()


@with_cases("start", ["s3://bucket/", "http://example.com/", "/", "data:,", "x:"])
def test_a_long_text_is_refused_without_a_look_at_all_of_it(start: str, tmp_path: Path) -> None:
    text = start + "/" * (4 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(ImageServiceError):
            reader(tmp_path, max_bytes=LIMIT).accept(text)
        assert tracemalloc.get_traced_memory()[1] < 1 << 20
    finally:
        tracemalloc.stop()


@given(st.text(max_size=80) | st.from_regex(r"(https?|s3|file|data):[/]{0,3}[ -~]{0,40}", fullmatch=True))
def test_every_text_is_a_reference_or_a_named_error(text: str) -> None:
    here = reader(Path("/nowhere"))
    try:
        reference = here.accept(text)
    except ImageServiceError as error:
        assert str(error).isprintable()
    else:
        assert len(reference.name) <= 200
        assert reference.name.isprintable()


@with_cases(
    "ref",
    [
        bytes(LIMIT + 1),
        bytearray(LIMIT + 1),
        memoryview(bytes(LIMIT + 1)),
        np.zeros((LIMIT, 1, 3), np.uint8),
        "data:;base64," + "A" * (2 * LIMIT),
    ],
    ids=["bytes", "bytearray", "memoryview", "array", "data"],
)
def test_too_many_bytes_are_refused_at_once(ref: object) -> None:
    with pytest.raises(ImageTooLargeError) as found:
        reader().accept(ref)
    assert (found.value.what, found.value.limit) == ("bytes", LIMIT)


def test_options_are_checked(tmp_path: Path) -> None:
    for options in (
        {"allow": ["path"]},
        {"root": tmp_path},
        {"allow": ["nonsense"]},
        {"hosts": ["http://x"]},
        {"max_bytes": 0},
        {"timeout": 0},
    ):
        with pytest.raises(ValueError, match=r"allow|root|hosts|max_bytes|timeout"):
            ReferenceReader(**options)
    with pytest.raises(TypeError):
        ReferenceReader(allow="bytes")


# -- identities and keys ---------------------------------------------------------------------------------------------


def test_equal_bytes_have_equal_identities() -> None:
    here = reader()
    same = [here.accept(ref).identity for ref in (SMALL, bytearray(SMALL), memoryview(SMALL))]
    assert same[0] is not None
    assert same == [same[0]] * 3
    assert here.accept(SMALL + b"1").identity != same[0]
    assert here.accept(data_uri(SMALL)).identity == here.accept(data_uri(SMALL)).identity


def test_a_caller_may_change_a_bytearray_at_once() -> None:
    data = bytearray(SMALL)
    reference = reader().accept(data)
    view = reader().accept(memoryview(data).toreadonly())
    data[:] = bytes(len(data))
    assert reference.value == view.value == SMALL


@with_cases("kind", ["bytes", "data"])
@on_both_loops
async def test_many_bytes_are_identified_in_a_thread(kind: str, no_blocking: None) -> None:
    data = bytes(range(256)) * 3000

    here = reader()
    ref = data if kind == "bytes" else data_uri(data)
    first, second = here.accept(ref), here.accept(ref)
    assert first.identity is None
    identities = [(await here.identify(each)).identity for each in (first, second)]
    assert identities[0] == identities[1]
    assert identities[0] is not None
    await here.aclose()


def test_a_key_of_the_caller_is_identity_and_key(read: Read, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(SMALL)
    for ref in (SMALL, data_uri(SMALL), "a.jpg", np.zeros((2, 3, 3), np.uint8)):
        assert reader(tmp_path).accept(ref, key="mine").identity == ("key", "mine")
        assert read(ref, tmp_path, key="mine").key == ("key", "mine")


def test_urls_in_one_form_are_one_image() -> None:
    here = reader()
    urls = ("http://example.com/a", "HTTP://EXAMPLE.com:80/a#b", "http://example.com./a")
    assert len({here.accept(url).identity for url in urls}) == 1


# -- what is read ----------------------------------------------------------------------------------------------------


def test_the_bytes_of_an_image_are_read(fetch_on_both: Read, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(SMALL)
    for ref in (
        SMALL,
        bytearray(SMALL),
        data_uri(SMALL),
        "a.jpg",
        tmp_path / "a.jpg",
        f"file://{tmp_path}/a.jpg",
    ):
        for head in (False, True):
            found = fetch_on_both(ref, tmp_path, head=head)
            assert bytes(found.payload) == SMALL
            assert found.complete
            assert found.key is not None


def test_a_row_is_its_bytes_or_else_its_path(read: Read, tmp_path: Path) -> None:
    (tmp_path / "a.jpg").write_bytes(SMALL)
    other = jpeg(seed=1)
    assert bytes(read({"bytes": other, "path": "a.jpg"}, tmp_path).payload) == other
    assert bytes(read({"bytes": None, "path": "a.jpg"}, tmp_path).payload) == SMALL
    assert reader().accept({"bytes": other, "path": "a.jpg"}).name == "a.jpg"
    with pytest.raises(ImageReferenceError, match="neither bytes nor a path"):
        read({"bytes": None, "path": None}, tmp_path)
    with pytest.raises(ImageReferenceError, match="outside"):
        read({"bytes": None, "path": "../a.jpg"}, tmp_path)


def test_of_a_file_the_beginning_is_read(read: Read, tmp_path: Path) -> None:
    data = SMALL + bytes(HEAD_NBYTES)
    (tmp_path / "a.jpg").write_bytes(data)
    found = read("a.jpg", tmp_path, head=True)
    assert (bytes(found.payload), found.complete) == (data[:HEAD_NBYTES], False)
    assert read("a.jpg", tmp_path).key == found.key


@with_cases("shape", [(4, 5, 3), (4, 5, 1), (4, 5)])
def test_pixels_become_a_raw_image(read: Read, shape: tuple[int, ...]) -> None:
    pixels = np.random.default_rng(1).integers(0, 256, shape, dtype=np.uint8)
    for array in (pixels, pixels[::-1, ::-1], np.asfortranarray(pixels)):
        found = read(array)
        assert bytes(found.payload) == encode_raw(array)
        assert found.key is None


@with_cases("mode", ["RGB", "L", "RGBA", "P", "CMYK", "1", "LA", "YCbCr", "HSV"])
def test_a_pillow_image_becomes_pixels(read: Read, mode: str) -> None:
    pillow = pytest.importorskip("PIL.Image")
    noise = np.random.default_rng(1).integers(0, 256, (900, 701, 3), dtype=np.uint8)  # converted in strips
    image = pillow.fromarray(noise)
    if mode == "LA":
        image = image.convert("L")
    image = image.convert(mode)
    found = read(image, max_bytes=4 << 20)
    assert np.array_equal(decode_image(found.payload), np.asarray(image.convert("RGB")))
    assert found.key is None


def test_a_large_pillow_image_is_refused_before_it_is_decoded() -> None:
    pillow = pytest.importorskip("PIL.Image")
    with pytest.raises(ImageTooLargeError):
        reader().accept(pillow.open(io.BytesIO(saved(pillow.new("1", (600, 600)), "PNG"))))


def test_a_damaged_pillow_image_is_a_named_error(read: Read) -> None:
    pillow = pytest.importorskip("PIL.Image")
    with pillow.open(io.BytesIO(SMALL[:-40])) as image:
        with pytest.raises(ImageReferenceError, match="Pillow"):
            read(image)


# -- URLs ------------------------------------------------------------------------------------------------------------


def test_a_url_is_read(fetch_on_both: Read) -> None:
    pytest.importorskip("h11", reason="needs h11: pip install 'aioloader[service]'")
    long = SMALL + bytes(HEAD_NBYTES)
    with RawServer() as server:
        server.answers["/a"] = answer(long, ETag='"1"')
        found = fetch_on_both(server.url("/a?b"), hosts=[f"127.0.0.1:{server.port}"])
        assert (bytes(found.payload), found.complete) == (long, True)
        assert found.key == ("url", server.url("/a?b"), '"1"')
        found = fetch_on_both(server.url("/a"), hosts=[f"127.0.0.1:{server.port}"], head=True)
        assert (bytes(found.payload), found.complete) == (long[:HEAD_NBYTES], False)


def test_a_function_of_the_caller_may_fetch(fetch_on_both: Read) -> None:
    asked = []

    async def fetch(url: str) -> bytes:
        asked.append(url)
        await anyio.sleep(0)
        return SMALL

    for head in (False, True):
        found = fetch_on_both("HTTPS://EXAMPLE.com:443/a?b#c", fetch=fetch, head=head)
        assert (found.payload, found.key, found.complete) == (SMALL, None, True)
    assert asked == ["https://example.com/a?b"] * 2
    for url in (
        "http://127.0.0.1/",
        "http://169.254.169.254/",
        "http://[::1]/",
        "http://2130706433/",
        "http://a:22/",
    ):
        with pytest.raises(ImageNotAllowedError):
            fetch_on_both(url, fetch=fetch, key="mine")
    with pytest.raises(ImageNotAllowedError):
        fetch_on_both("http://evil.example/", fetch=fetch, hosts=["good.example"])
    assert len(asked) == 2


def test_a_function_that_fails_is_a_named_error_without_the_query(fetch_on_both: Read) -> None:
    async def fetch(url: str) -> bytes:
        raise OSError(f"no connection to {url}")

    with pytest.raises(ImageFetchError, match="fetch= raised OSError") as found:
        fetch_on_both("http://example.com/?secret", fetch=fetch)
    assert "secret" not in str(found.value)
    assert isinstance(found.value.__cause__, OSError)


def test_a_function_has_the_limits_of_the_service(fetch_on_both: Read) -> None:
    async def much(url: str) -> bytes:
        return bytes(LIMIT + 1)

    async def slow(url: str) -> bytes:
        await anyio.sleep_forever()
        return b""

    async def wrong(url: str) -> Any:
        return "text"

    with pytest.raises(ImageTooLargeError):
        fetch_on_both("http://example.com/", fetch=much)
    with pytest.raises(ImageFetchError, match="within"):
        fetch_on_both("http://example.com/", fetch=slow, timeout=0.05)
    with pytest.raises(TypeError, match="fetch= must return bytes"):
        fetch_on_both("http://example.com/", fetch=wrong)


# -- cancellation ----------------------------------------------------------------------------------------------------


REFS = {"fetch": "http://example.com/", "data": data_uri(SMALL), "array": np.zeros((9, 9, 3), np.uint8)}


@with_cases("ref", REFS)
@on_both_loops
async def test_reading_can_be_cancelled(leftovers: object, ref: str) -> None:
    async def fetch(url: str) -> bytes:
        scope.cancel()
        await anyio.sleep_forever()
        return b""

    here = reader(fetch=fetch)
    reference = here.accept(REFS[ref])
    with anyio.CancelScope() as scope:
        if ref != "fetch":
            scope.cancel()
        await here.read(reference)
    await here.aclose()
    assert scope.cancelled_caught


def test_names_and_digests_are_short() -> None:
    reference: Reference = reader().accept(SMALL)
    assert reference.name == f"an image of {len(SMALL):,} bytes"
    assert reference.source == "memory"
    assert reference.identity == ("bytes", len(SMALL), hashlib.sha256(SMALL).digest())


def test_the_package_for_urls_is_asked_for_at_once(monkeypatch: pytest.MonkeyPatch) -> None:
    async def fetch(url: str) -> bytes:
        return SMALL

    monkeypatch.setitem(sys.modules, "h11", None)
    with pytest.raises(MissingPackageError, match=r"aioloader\[service\]"):
        ReferenceReader(allow=["https"])
    ReferenceReader(allow=["https"], fetch=fetch)
    ReferenceReader()


# -- data: URIs --------------------------------------------------------------------------------------------------------


TYPES = ("", "image/png", "IMAGE/JPEG;q=1", "application/octet-stream", "image/svg+xml;charset=utf-8")


@given(
    st.binary(max_size=200), st.sampled_from(TYPES), st.sampled_from(("base64", "escaped base64", "percent"))
)
def test_the_bytes_come_back(data: bytes, kind: str, coding: str) -> None:
    text = base64.b64encode(data).decode()
    if coding == "escaped base64":
        text = quote(text, safe="")
    body = quote(data, safe="") if coding == "percent" else text
    uri = f"data:{kind}{'' if coding == 'percent' else ';base64'},{body}"
    assert decode_data_uri(uri, "it", 200) == data
    assert len(uri) <= most_characters(len(data))


@with_cases("nbytes", [393_215, 393_216, 393_217, 786_432, 1_000_000])
def test_long_base64_is_decoded_in_pieces(nbytes: int) -> None:
    data = bytes(range(251)) * (nbytes // 251 + 1)
    uri = "data:;base64," + base64.b64encode(data[:nbytes]).decode()
    assert decode_data_uri(uri, "it", nbytes) == data[:nbytes]
    with pytest.raises(ImageTooLargeError) as found:
        decode_data_uri(uri, "it", nbytes - 1)
    assert (found.value.what, found.value.limit, found.value.found) == ("bytes", nbytes - 1, nbytes)


LONG_URIS = {
    "data:" + ";" * 1000 + ",AAAA": "comma",
    "data:image/png;base64," + "A" * ((1 << 19) - 4) + "AA==" + "AAAA": "base64",
    "data:image/png," + "%41" * 70_000: "escaped",
}


@with_cases(("says", "uri"), [*by_key("wrong data URIs"), *((says, uri) for uri, says in LONG_URIS.items())])
def test_a_wrong_uri_is_a_named_error(says: str, uri: str) -> None:
    with pytest.raises(ImageReferenceError, match=says) as found:
        decode_data_uri(uri, "it", 1 << 20)
    assert found.value.kind == "data"
    assert found.value.reference == "it"
    assert len(str(found.value)) < 300


def test_escapes_take_no_memory_out_of_proportion() -> None:
    uri = "data:," + "%" * (8 << 20)
    tracemalloc.start()
    try:
        with pytest.raises(ImageReferenceError):
            decode_data_uri(uri, "it", 64 << 20)
        assert tracemalloc.get_traced_memory()[1] < 2 << 20
    finally:
        tracemalloc.stop()


@given(st.text(max_size=100))
def test_every_text_is_data_or_a_named_error(text: str) -> None:
    try:
        assert len(decode_data_uri(f"data:{text}", "it", 50)) <= 50
    except ImageReferenceError as error:
        assert str(error).isprintable()


# -- items of datasets -------------------------------------------------------------------------------------------------


IMAGES = [jpeg(20 + number, 30, number) for number in range(5)]


def read_all(run_on: Callable[..., Any], pairs: list[tuple[Any, int]], **options: Any) -> list[bytes]:
    async def main() -> list[bytes]:
        reader = ReferenceReader(allow=["dataset"], **options)
        found: dict[int, bytes] = {}

        async def one(number: int) -> None:
            found[number] = bytes((await reader.read(reader.accept(pairs[number]))).payload)

        try:
            async with anyio.create_task_group() as tasks:
                for number in range(len(pairs)):
                    tasks.start_soon(one, number)
        finally:
            await reader.aclose()
        return [found[number] for number in range(len(pairs))]

    every: list[bytes] = run_on(main)
    return every


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    for number, image in enumerate(IMAGES):
        path = tmp_path / "images" / f"class-{number % 2}" / f"{number}.jpg"
        path.parent.mkdir(parents=True, exist_ok=True)
        path.write_bytes(image)
    return tmp_path / "images"


def test_the_files_of_a_folder_are_read_as_they_are(
    run_on: RunOn, folder: Path, no_blocking: None, leftovers: object
) -> None:
    dataset = aioloader.ImageFolderDataset(folder)
    encoded = [IMAGES[number] for number in (0, 2, 4, 1, 3)]
    assert read_all(run_on, [(dataset, number) for number in range(5)] * 4) == encoded * 4
    assert read_all(run_on, [(dataset.take(2), 1), (dataset.shard(2, 1), 0)]) == [encoded[1], encoded[3]]


def test_the_images_of_records_are_read_without_their_headers(
    run_on: RunOn, photo_rec: Path, photo_folder: Path
) -> None:
    dataset = aioloader.ImageRecordDataset(str(photo_rec))
    first = sorted(path for path in photo_folder.rglob("*") if path.is_file())[0]
    assert read_all(run_on, [(dataset, 0)]) == [first.read_bytes()]


@pytest.mark.parametrize("made", FORMATS)
def test_the_images_of_every_format_of_shards_are_read(tmp_path: Path, made: SetFormat) -> None:
    samples = [Sample(key=f"{number:03}", image=image, label=number) for number, image in enumerate(IMAGES)]
    dataset = made.open(made.write(tmp_path / "set", samples))
    assert read_all(anyio.run, [(dataset, number) for number in range(5)]) == IMAGES


def test_pixels_of_other_datasets_are_read(run_on: RunOn) -> None:
    pixels = np.random.default_rng(0).integers(0, 256, (3, 4, 5, 3), dtype=np.uint8)
    arrays = aioloader.ArrayDataset(pixels, np.arange(3))
    assert read_all(run_on, [(arrays, 1)]) == [encode_raw(pixels[1])]
    assert read_all(run_on, [([pixels[0], IMAGES[0]], 0), ([pixels[0], IMAGES[0]], 1)]) == [
        encode_raw(pixels[0]),
        IMAGES[0],
    ]


def test_transforms_of_a_dataset_are_applied(run_on: RunOn, folder: Path) -> None:
    dataset = aioloader.ImageFolderDataset(folder).transform_first(lambda image: image[:2, :3])
    (found,) = read_all(run_on, [(dataset, 0)])
    assert found == encode_raw(dataset[0][0])


@pytest.mark.parametrize("index", [-1, 5, 10**30])
def test_an_item_that_does_not_exist_is_a_named_error(run_on: RunOn, folder: Path, index: int) -> None:
    with pytest.raises(BaseExceptionGroup) as found:
        read_all(run_on, [(aioloader.ImageFolderDataset(folder), index)])
    assert found.group_contains(ImageReferenceError, match="no item")


@pytest.mark.parametrize("dataset", [[1.5], ["text"], [None], [np.zeros(3, np.uint8)]])
def test_an_item_that_is_not_an_image_is_a_named_error(run_on: RunOn, dataset: list[Any]) -> None:
    with pytest.raises(BaseExceptionGroup) as found:
        read_all(run_on, [(dataset, 0)])
    assert found.group_contains(ImageReferenceError, match="not an image")


def test_an_item_that_cannot_be_read_is_a_named_error(run_on: RunOn, folder: Path) -> None:
    dataset = aioloader.ImageFolderDataset(folder)
    (folder / "class-0" / "0.jpg").unlink()
    with pytest.raises(BaseExceptionGroup) as found:
        read_all(run_on, [(dataset, 0)])
    assert found.group_contains(ImageFetchError, match="FileNotFoundError")


def test_a_large_item_is_refused(run_on: RunOn, folder: Path) -> None:
    with pytest.raises(BaseExceptionGroup) as found:
        read_all(run_on, [(aioloader.ImageFolderDataset(folder), 0)], max_bytes=10)
    assert found.group_contains(ImageTooLargeError)


def test_sources_of_many_datasets_do_not_stay_open(run_on: RunOn, folder: Path, leftovers: Any) -> None:
    """More than stay open, all in use at the same time and in turns."""
    datasets = [aioloader.ImageFolderDataset(folder) for _ in range(40)]
    pairs = [(dataset, number) for number in range(3) for dataset in datasets]
    assert read_all(run_on, pairs) == [IMAGES[number] for number in (0, 2, 4) for _ in datasets]


def test_a_read_that_begins_after_the_source_was_closed_returns_the_encoded_image(
    folder: Path, leftovers: Any
) -> None:
    """It began late because its thread was busy; the pixels of the image would be another result."""
    opened = _OpenDataset(aioloader.ImageFolderDataset(folder))
    opened.close()
    for _ in range(2):
        assert opened.read(0, "item 0") == IMAGES[0]
        assert opened._source is None
