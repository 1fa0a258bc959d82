"""Tests of URLs of HTTP, of where redirects lead, and of names for messages."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.errors import ImageNotAllowedError, ImageReferenceError
from aioloader.service.web_urls import LONGEST_URL, parse_web_url, redirected, short_name
from tests.cases import with_cases


@with_cases(
    ("url", "authority", "target"),
    [
        ("http://example.com", "example.com", "/"),
        ("HTTP://EXAMPLE.com/A?b=C#d", "example.com", "/A?b=C"),
        ("https://example.com:443/a", "example.com", "/a"),
        ("https://example.com:80/a", "example.com:80", "/a"),
        ("http://example.com:/a", "example.com", "/a"),
        ("http://example.com:8080/a", "example.com:8080", "/a"),
        ("http://example.com./a", "example.com", "/a"),
        ("http://example.com?x", "example.com", "/?x"),
        ("http://a_b-c.example/%41%zz", "a_b-c.example", "/%41%zz"),
        ("http://127.0.0.1/", "127.0.0.1", "/"),
        ("http://[::1]:81/", "[::1]:81", "/"),
        ("http://[0:0::0001]/", "[::1]", "/"),
        ("http://bücher.example/ä?ö=ü", "xn--bcher-kva.example", "/%C3%A4?%C3%B6=%C3%BC"),
        ("http://faß.de/", "xn--fa-hia.de", "/"),
        ("http://STRAßE.example/", "xn--strae-oqa.example", "/"),
        ("http://ςίγμας.gr/", "xn--kxaef0b1ae.gr", "/"),
        ("http://example。com/", "example.com", "/"),
        ('http://example.com/<">{}|^`', "example.com", "/%3C%22%3E%7B%7D%7C%5E%60"),
        ("http://example.com//evil.example/a", "example.com", "//evil.example/a"),
        ("http://example.com/a@b", "example.com", "/a@b"),
    ],
)
def test_a_url_has_one_form(url: str, authority: str, target: str) -> None:
    address = parse_web_url(url)
    assert (address.authority, address.target) == (authority, target)
    assert parse_web_url(address.url) == address._replace(name=short_name(address.url))


@with_cases(
    "url",
    [
        "",
        "http:",
        "http:/example.com/a",
        "http:example.com",
        "//example.com/a",
        "ftp://example.com/a",
        "file:///etc/passwd",
        "http://",
        "http:///a",
        "http://?a",
        "http://:80/",
        "http://good.example@evil.example/",
        "http://a:b@evil.example/",
        "http://@evil.example/",
        "http://good.example\\@evil.example/",
        "http://good.example\\.evil.example/",
        "http://exam ple.com/",
        "http://a\u200db.example/",
        "http://a\u200cb.example/",
        "http://\u2764.example/",
        " http://example.com/",
        "http://example.com/a b",
        "http://example.com/\r\nHost: evil.example",
        "http://example.com/\n",
        "http://example.com\t/",
        "http://example.com/\x00",
        "http://example.com:0/",
        "http://example.com:65536/",
        "http://example.com:8o/",
        "http://example.com:80:80/",
        "http://example.com:-1/",
        "http://example.com:٨٠/",
        "http://exa%6dple.com/",
        "http://example..com/",
        "http://-a.example/",
        "http://" + "a" * 64 + ".example/",
        "http://" + "a." * 130 + "example/",
        "http://" + "ä" * 3000 + "/",
        "http://[::1/",
        "http://::1/",
        "http://[::1]x/",
        "http://[fe80::1%25eth0]/",
        "http://[v1.a]/",
        "http://[abc]/",
        "http://[127.0.0.1]/",
        "http://[]/",
        "http://\ud800/",
        "http://example.com/\ud800",
        "http://a\u200bb.exa\u2028mple/",
        "http://example.com/" + "a" * LONGEST_URL,
    ],
)
def test_an_unusual_url_is_refused(url: str) -> None:
    with pytest.raises(ImageReferenceError):
        parse_web_url(url)


@with_cases(
    "host",
    [
        "127.1",
        "2130706433",
        "0x7f.1",
        "0x7f000001",
        "0177.0.0.1",
        "127.0.0.1.",
        "①②⑦.0.0.1",
        "[::ffff:127.0.0.256]",
    ],
)
def test_an_address_in_an_odd_spelling_is_refused_or_read_as_what_it_is(host: str) -> None:
    try:
        address = parse_web_url(f"http://{host}/")
    except ImageReferenceError:
        return
    assert address.host == "127.0.0.1"


@given(
    st.text(max_size=60)
    | st.from_regex(r"https?://[a-z0-9.@:\[\]%\\-]{0,30}[/?#][ -~]{0,20}", fullmatch=True)
)
def test_every_text_is_a_url_or_a_named_error(text: str) -> None:
    for url in (text, f"http://{text}", f"http://example.com/{text}"):
        try:
            address = parse_web_url(url)
        except ImageReferenceError as error:
            assert error.reference.isprintable()
            continue
        assert address.target.isascii()
        assert address.target.startswith("/")
        assert address.host.isascii()
        assert not set("/@\\% \r\n") & set(address.host)
        assert parse_web_url(address.url).url == address.url


BASE = parse_web_url("https://example.com/a/b?c=d")


@with_cases(
    ("location", "url"),
    [
        ("/x", "https://example.com/x"),
        ("x", "https://example.com/a/x"),
        ("../x", "https://example.com/x"),
        ("../../../x", "https://example.com/x"),
        ("?y", "https://example.com/a/b?y"),
        ("//other.example/x", "https://other.example/x"),
        ("https://other.example:8443/x#y", "https://other.example:8443/x"),
        (" https://other.example/x\t", "https://other.example/x"),
        ("", "https://example.com/a/b?c=d"),
    ],
)
def test_a_redirect_leads_where_it_says(location: str, url: str) -> None:
    assert redirected(BASE, location).url == url


@with_cases(
    ("location", "error"),
    [
        ("http://example.com/", ImageNotAllowedError),
        ("file:///etc/passwd", ImageNotAllowedError),
        ("gopher://example.com/", ImageNotAllowedError),
        ("javascript:alert(1)", ImageNotAllowedError),
        ("data:image/png;base64,AAAA", ImageNotAllowedError),
        ("https://a:b@example.com/", ImageReferenceError),
        ("https://127.1/", ImageNotAllowedError),
        ("https://[::1/", ImageReferenceError),
        ("/a b", ImageReferenceError),
        ("/a\r\nX: y", ImageReferenceError),
        ("\\\\evil.example/", ImageReferenceError),
        ("/" + "a" * LONGEST_URL, ImageReferenceError),
    ],
)
def test_a_redirect_to_elsewhere_is_refused(location: str, error: type[Exception]) -> None:
    with pytest.raises(error):
        redirected(BASE, location)


def test_a_redirect_may_add_encryption() -> None:
    assert redirected(parse_web_url("http://example.com/"), "https://example.com/").scheme == "https"


@with_cases(
    ("text", "name"),
    [
        ("https://user:secret@example.com/a?token=secret#secret", "https://example.com/a"),
        ("https:/user:secret@example.com/a?token=secret", "https://example.com/a"),
        ("HTTPS:\\\\user:secret@example.com?secret", "HTTPS://example.com"),
        ("s3://key:secret@bucket/a?secret", "s3://bucket/a"),
        ("photos/a?b.jpg", "photos/a?b.jpg"),
        ("a@b.jpg", "a@b.jpg"),
        ("a\nb\x1b[31m\u202e", "a?b?[31m?"),
        ("x" * 500, "x" * 197 + "..."),
    ],
)
def test_a_name_for_messages_has_no_secrets(text: str, name: str) -> None:
    assert short_name(text) == name
