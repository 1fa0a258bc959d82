"""Target: references of strangers to an image service."""

from __future__ import annotations

import base64
import re
import string

from aioloader.errors import ImageServiceError
from aioloader.service.references import Reference, ReferenceReader, decode_data_uri
from aioloader.service.root_folder import RootFolder
from aioloader.service.web_urls import KINDS, kind_of_address, literal_address, parse_web_url
from tests.fuzz.target import Draw, Finding, change, dictionary, pick, scratch_folder

_LIMIT = 3000
_IMAGE = bytes(range(256)) * 4
_BASES = (
    b"http://example.com/a/b.jpg?token=SECRET#c",
    b"https://images.example.com:443/%41?SECRET",
    b"http://good.example:8080/a?SECRET",
    b"http://[2606:4700::1111]/a?SECRET",
    b"http://1.1.1.1/?SECRET",
    "http://bücher.example/ä?SECRET".encode(),
    b"data:image/png;base64," + base64.b64encode(_IMAGE),
    b"data:image/png;base64,aGVsbG8%3D",
    b"data:,%00%ff",
    b"inner/a.jpg",
    b"file:///inner/../a.jpg",
    b"s3://bucket/folder/a.jpg",
)
_PIECES = dictionary("reference")


class References:
    """Texts: accepted, and what can be read without a network read. Checked for properties of every result."""

    def __init__(self) -> None:
        root = scratch_folder(self)
        (root / "secret").write_bytes(b"secret")
        self._root = root / "root"
        (self._root / "inner").mkdir(parents=True)
        for name in ("a.jpg", "inner/a.jpg"):
            (self._root / name).write_bytes(b"fine")
        (self._root / "out").symlink_to("..")
        self._folder = RootFolder(self._root, _LIMIT)
        self._reader = ReferenceReader(allow=KINDS, root=self._root, max_bytes=_LIMIT)

    def make(self, draw: Draw) -> bytes:
        """See `Target.make`."""
        data = bytearray(pick(draw, _BASES))
        for _ in range(int(draw() * 2) + 1):
            change(data, 7 if draw() < 0.9 else 0, draw, _PIECES)
        return bytes(data)

    def check(self, data: bytes) -> bool:
        """See `Target.check`."""
        text = data.decode("utf-8", "surrogateescape")
        try:
            reference = self._reader.accept(text)
        except ImageServiceError as error:
            check_shown(str(error), text)
            return False
        check_shown(reference.name, text)
        try:
            self._check_accepted(reference)
        except ImageServiceError as error:
            check_shown(str(error), text)
        return True

    def _check_accepted(self, reference: Reference) -> None:
        kind, value = reference.kind, reference.value
        if kind in ("http", "https"):
            address = parse_web_url(value)
            host = address.host
            plain = set(host) <= set(string.ascii_lowercase + string.digits + ".-_:")
            if address.url != value or not plain or address.port not in (80, 443):
                raise Finding(f"a URL in another form: {value!r}")
            if literal_address(host) is not None and kind_of_address(host) != "public":
                raise Finding(f"an address inside: {value!r}")
            if not address.target.isascii() or not address.target.isprintable() or " " in address.target:
                raise Finding(f"a target that is none: {address.target!r}")
        elif kind == "data":
            if len(decode_data_uri(value, "it", _LIMIT)) > _LIMIT:
                raise Finding("more bytes than allowed")
        elif kind == "path" and bytes(self._folder.read(value, "it").data) != b"fine":
            raise Finding(f"a file outside: {value!r}")


def check_shown(shown: str, text: str) -> None:
    """Raise `Finding` if what is shown of a reference has secrets or control characters."""
    if not shown.isprintable() or len(shown) > 600:
        raise Finding(f"a text that cannot be shown: {shown!r}")
    beginning = re.split("[?#]", text, maxsplit=1)[0]
    credentials = re.match(r"[a-z]+:[\\\\/]*[^\\\\/]*@", beginning, re.IGNORECASE)
    visible = beginning[credentials.end() :] if credentials else beginning
    # Of paths, which have no scheme, the question mark is a part.
    if "SECRET" in shown and "SECRET" not in visible and re.match("[a-z]+:", text, re.IGNORECASE):
        raise Finding(f"a secret is shown: {shown!r}")
