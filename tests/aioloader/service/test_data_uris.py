"""Tests of ``data:`` URIs."""

from __future__ import annotations

import base64
import tracemalloc
from urllib.parse import quote

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.errors import ImageReferenceError, ImageTooLargeError
from aioloader.service.references import decode_data_uri, most_characters
from tests.aioloader.service.images import by_key
from tests.cases import with_cases

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


LONG = {
    "data:" + ";" * 1000 + ",AAAA": "comma",
    "data:image/png;base64," + "A" * ((1 << 19) - 4) + "AA==" + "AAAA": "base64",
    "data:image/png," + "%41" * 70_000: "escaped",
}


@with_cases(("says", "uri"), [*by_key("wrong data URIs"), *((says, uri) for uri, says in LONG.items())])
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
