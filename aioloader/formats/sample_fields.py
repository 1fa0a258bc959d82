"""Description of the fields of a sample, as text that can be displayed. No code here performs I/O.

Fields are data of others: of each only a beginning is converted, a document that nests deeply is cut, and characters
that a page would not display, or that would change the order of others, are written as escapes.
"""

from __future__ import annotations

import json
import re
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.datasets.fields import FieldKind
from aioloader.errors import DecodeError
from aioloader.transforms.formats import read_header
from aioloader.transforms.raw import encode_raw

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

    from aioloader.foundation.types import Array

MOST_FIELDS = 200
"""Limit of the fields of a sample that are displayed."""
MOST_IMAGES = 24
"""Limit of the images of a sample that are displayed."""
MOST_NAME = 200
"""Limit of the characters of a key or of the name of a field."""
_MOST_TEXT = 20_000
_MOST_JSON_NBYTES = 1 << 20
_MOST_DEPTH = 32
_MOST_NUMBERS = 256
_HEX_NBYTES = 256
_HEX_ROW = 16
_WIDTH = 96
_MOST_WORDS = 300

_INVISIBLE = re.compile(
    "[\x00-\x08\x0b-\x1f\x7f-\x9f\u061c\u200b-\u200f\u2028-\u202e\u2060-\u206f\ud800-\udfff\ufeff\ufff9-\ufffb]"
)
_CONTROL = re.compile("[\x00-\x08\x0e-\x1a\x1c-\x1f\x7f]")


@dataclass(frozen=True, slots=True)
class SampleField:
    """Field of a sample.

    Attributes:
        number: number of the field in its sample.
        name: name of the field.
        kind: "image", "json", "text", "number", "array", "bytes" or "null"; with a dtype and a shape if it has them.
        nbytes: size in bytes; None if the format stores the value as part of something else.
        text: the value; of an image its format and size.
        cut: `text` is the beginning of a longer one.
        problem: why the field cannot be read, or why it is displayed in another way than its kind demands; or "".
        images: numbers of its images, see `SampleFields.images`.
        stored: it is one stretch of bytes, which can be saved.
    """

    number: int
    name: str
    kind: str
    nbytes: int | None = None
    text: str = ""
    cut: bool = False
    problem: str = ""
    images: tuple[int, ...] = ()
    stored: bool = False


@dataclass(frozen=True, slots=True)
class SampleFields:
    """Fields of one sample.

    Attributes:
        fields: at most `MOST_FIELDS`.
        images: the encoded images of all fields, at most `MOST_IMAGES`.
        main: number of the image that the sample is displayed by; None if it is not in `images`.
        left: number of further fields, which are not described.
    """

    fields: tuple[SampleField, ...] = ()
    images: tuple[Any, ...] = ()
    main: int | None = None
    left: int = 0


def printable(text: str) -> str:
    """Return a text with escapes in place of control characters, lone surrogates and marks of writing direction.

    Line feeds and tabs stay; a byte that is not UTF-8 (a surrogate of "surrogateescape") becomes ``\\xNN``.
    """
    return _INVISIBLE.sub(_escape, text.replace("\r\n", "\n"))


def _escape(found: re.Match[str]) -> str:
    code = ord(found[0])
    if 0xDC80 <= code <= 0xDCFF:
        return f"\\x{code - 0xDC00:02x}"
    return f"\\x{code:02x}" if code < 0x100 else f"\\u{code:04x}"


def name_text(name: str) -> str:
    """Return a key, or the name of a field, in one line of bounded length."""
    line = printable(name[: MOST_NAME + 1]).replace("\n", "\\n").replace("\t", "\\t")
    return line if len(line) <= MOST_NAME else f"{line[: MOST_NAME - 1]}\u2026"


def field_of(number: int, name: str, kind: FieldKind, value: Any, images: list[Any]) -> SampleField:
    """Describe a field.

    Args:
        number: its number in the sample.
        name: its name.
        kind: its kind.
        value: from `FieldReader.read`: a memoryview of the field's bytes, or a value.
        images: the encoded images of the fields before; those of this field are appended, up to `MOST_IMAGES`.
    """
    described = _Field(images)
    described.add(kind, value)
    return SampleField(
        number,
        name_text(name),
        described.kind,
        described.nbytes,
        printable(described.text),
        described.cut,
        printable(described.problem),
        tuple(described.images),
        described.stored,
    )


def words_of(fields: Iterable[tuple[str, FieldKind, Any]]) -> str:
    """Return the beginning of the first text or JSON of some fields, or "".

    Args:
        fields: name, kind and value of each, as for `field_of`.
    """
    for name, kind, value in fields:
        found = field_of(0, name, kind, value, [])
        if found.kind in ("text", "json") and found.text:
            return found.text[:_MOST_WORDS]
    return ""


def unread_field(number: int, name: str, error: Exception) -> SampleField:
    """Describe a field that cannot be read."""
    return SampleField(
        number, name_text(name), "", problem=f"{type(error).__name__}: {printable(str(error))}"
    )


class _Field:
    """Description of a field, while its values are added."""

    def __init__(self, images: list[Any]) -> None:
        self.kind = ""
        self.nbytes: int | None = None
        self.text = ""
        self.cut = False
        self.problem = ""
        self.images: list[int] = []
        self.stored = False
        self._found = images

    def add(self, kind: FieldKind, value: Any) -> None:
        """Describe the value of a field."""
        if _is_bytes(value):
            self._bytes(kind, memoryview(value).cast("B"))
            self.stored = bool(self.nbytes)
        elif isinstance(value, list) and value and all(map(_is_bytes, value)):
            self._several(kind, [memoryview(each).cast("B") for each in value])
        elif kind is FieldKind.IMAGE and isinstance(value, np.ndarray):
            self._pixels(value)
        else:
            self._value(value)

    def _bytes(self, kind: FieldKind, data: memoryview) -> None:
        self.nbytes = len(data)
        self.kind = "bytes" if kind is FieldKind.VALUE else kind.value
        if kind is FieldKind.JSON:
            self._json(data)
        elif kind in (FieldKind.TEXT, FieldKind.INTEGER):
            self._text(data)
        elif kind is FieldKind.IMAGE:
            try:
                self.text = self._image(data)
            except DecodeError as error:
                self.problem = f"DecodeError: {error.reason}"
                self.text, self.cut = hex_text(data)
        else:
            self._any(data)

    def _any(self, data: memoryview) -> None:
        """Describe bytes of any content: an image, text or neither."""
        try:
            self.text = self._image(data)
            self.kind = "image"
        except DecodeError:
            if _is_text(data):
                self.kind = "text"
                self._text(data)
                self._maybe_json(bytes(data))
            else:
                self.text, self.cut = hex_text(data)

    def _image(self, data: Any) -> str:
        """Keep an encoded image, and return its format and size; raise DecodeError if it is none."""
        words = image_words(data)
        if len(self._found) < MOST_IMAGES:
            self.images.append(len(self._found))
            self._found.append(data)
        return words

    def _several(self, kind: FieldKind, values: Sequence[memoryview]) -> None:
        """Describe a list of bytes: of images, some of which may be damaged, or of other values."""
        self.nbytes = sum(map(len, values))
        shown = values[:MOST_IMAGES]
        lines, faults = [], []
        for number, each in enumerate(shown):
            try:
                lines.append(self._image(each))
            except DecodeError as error:
                lines.append(_line_of(each))
                faults.append(f"value {number}: DecodeError: {error.reason}")
        if not faults or kind is FieldKind.IMAGE:
            self.kind = f"{len(values):,} images"
            self.problem = "; ".join(faults)
        else:
            self.kind = f"{len(values):,} values"
            shown = values[:_MOST_NUMBERS]
            lines = list(map(_line_of, shown))
            self.cut = any(len(each) > _WIDTH for each in shown)
        self.text = "\n".join(lines)
        self.cut = self.cut or len(values) > len(shown)

    def _pixels(self, array: Array) -> None:
        self._value(array)
        try:
            self.text = self._image(encode_raw(array))
            self.cut = False
        except (ValueError, TypeError) as error:
            self.problem = f"{type(error).__name__}: {error}"

    def _text(self, data: memoryview) -> None:
        begin = bytes(data[: 4 * _MOST_TEXT])
        try:
            text = begin.decode()
        except UnicodeDecodeError as error:
            text = begin.decode("utf-8", "backslashreplace")
            # The last character may be cut.
            if len(begin) == len(data) or error.start < len(begin) - 4:
                self.problem = f"byte {error.start} is not UTF-8"
        self.text, self.cut = text[:_MOST_TEXT], len(text) > _MOST_TEXT or len(begin) < len(data)

    def _json(self, data: memoryview) -> None:
        if len(data) > _MOST_JSON_NBYTES:
            self._text(data)
            return
        try:
            self.text, self.cut = value_text(json.loads(bytes(data)))
        except (ValueError, RecursionError) as error:
            self._text(data)
            self.problem = f"not JSON: {error}"

    def _maybe_json(self, text: str | bytes) -> None:
        """Describe a text as JSON if it is a JSON object or list, in a format without a kind for JSON."""
        if len(text) <= _MOST_JSON_NBYTES and text[:1] in ("{", "[", b"{", b"["):
            try:
                self.text, self.cut = value_text(json.loads(text))
                self.kind = "json"
            except (ValueError, RecursionError):
                return

    def _value(self, value: Any) -> None:
        if value is None:
            self.kind = self.text = "null"
        elif isinstance(value, (np.ndarray, np.generic)):
            array = np.asarray(value)
            shape = " \u00d7 ".join(map(str, array.shape))
            self.kind = f"{array.dtype} {shape}".rstrip()
            self.nbytes = array.nbytes
            self.text, self.cut = _array_text(array)
        elif isinstance(value, str):
            self.kind = "text"
            self.text, self.cut = value[:_MOST_TEXT], len(value) > _MOST_TEXT
            self._maybe_json(value)
        elif isinstance(value, (bool, int, float)):
            self.kind = "number"
            self.text, self.cut = _leaf(value), False
        else:
            self.kind = "list" if isinstance(value, (list, tuple)) else "object"
            self.text, self.cut = value_text(value)


def is_image(data: Any) -> bool:
    """Return whether some bytes begin as an encoded image."""
    try:
        return data is not None and bool(read_header(data))
    except DecodeError:
        return False


def _is_bytes(value: Any) -> bool:
    return isinstance(value, (bytes, bytearray, memoryview))


def image_words(data: Any) -> str:
    """Return the format and the size of an encoded image.

    Raises:
        DecodeError: it is none.
    """
    header = read_header(data)
    name = "raw pixels" if header.format == "raw" else header.format.upper()
    return f"{name}, {header.width:,} \u00d7 {header.height:,} pixels"


def _line_of(data: memoryview) -> str:
    if _is_text(data):
        return name_text(bytes(data[:_WIDTH]).decode("utf-8", "replace"))
    return f"{len(data):,} bytes: {bytes(data[:_HEX_ROW]).hex(' ')}"


def _is_text(data: memoryview) -> bool:
    """Return whether the beginning of some bytes is UTF-8 without control characters."""
    begin = bytes(data[:4096])
    try:
        text = begin.decode()
    except UnicodeDecodeError as error:
        if len(begin) == len(data) or error.start < len(begin) - 4:
            return False
        text = begin[: error.start].decode()
    return bool(text) and not _CONTROL.search(text)


def hex_text(data: memoryview) -> tuple[str, bool]:
    """Return the first bytes in rows of hexadecimal digits and ASCII, and whether there are more."""
    rows = []
    for begin in range(0, min(len(data), _HEX_NBYTES), _HEX_ROW):
        row = bytes(data[begin : begin + _HEX_ROW])
        ascii_text = "".join(chr(byte) if 32 <= byte < 127 else "." for byte in row)
        rows.append(f"{begin:04x}  {row.hex(' '):<{3 * _HEX_ROW - 1}}  {ascii_text}")
    return "\n".join(rows), len(data) > _HEX_NBYTES


def _array_text(array: Array) -> tuple[str, bool]:
    if not array.ndim:
        return str(array.item() if array.dtype.kind in "OSU" else array[()])[:_MOST_TEXT], False
    cut = array.size > _MOST_NUMBERS
    shown = array.ravel()[:_MOST_NUMBERS] if cut else array
    text = np.array2string(shown, max_line_width=_WIDTH, threshold=_MOST_NUMBERS + 1, separator=", ")
    return text[:_MOST_TEXT], cut or len(text) > _MOST_TEXT


class _FullError(Exception):
    """Error raised when a text has reached its limit."""


class _ValueText:
    """Text of a JSON value: indented, with short lists and objects of scalars on one line."""

    def __init__(self) -> None:
        self.parts: list[str] = []
        self._left = _MOST_TEXT

    def _add(self, text: str) -> None:
        self.parts.append(text[: self._left])
        self._left -= len(text)
        if self._left < 0:
            raise _FullError

    def value(self, value: Any, depth: int = 0) -> None:
        """Add a value.

        Raises:
            _FullError: the text has reached its limit.
        """
        if not isinstance(value, (dict, list, tuple)) or not value:
            self._add(_leaf(value))
            return
        opening, closing = ("{", "}") if isinstance(value, dict) else ("[", "]")
        line = _one_line(value)
        if line is not None and len(line) + 2 * depth <= _WIDTH:
            self._add(line)
        elif depth >= _MOST_DEPTH:
            self._add(f"{opening} \u2026 {closing}")
        elif isinstance(value, (list, tuple)) and all(isinstance(each, (int, float)) for each in value):
            self._numbers(value, "  " * depth)
        else:
            self._add(opening)
            items = value.items() if isinstance(value, dict) else ((None, each) for each in value)
            indent = "\n" + "  " * (depth + 1)
            for number, (key, each) in enumerate(items):
                self._add(f",{indent}" if number else indent)
                if isinstance(value, dict):
                    self._add(f"{_leaf(str(key))}: ")
                self.value(each, depth + 1)
            self._add(f"\n{'  ' * depth}{closing}")

    def _numbers(self, values: Sequence[float], indent: str) -> None:
        """Add a list of numbers, as many of them in a line as fit."""
        self._add("[\n")
        line = f"{indent}  "
        for number, each in enumerate(values):
            text = _leaf(each) + ("" if number == len(values) - 1 else ",")
            if line.strip() and len(line) + 1 + len(text) > _WIDTH:
                self._add(f"{line}\n")
                line = f"{indent}  "
            line += f" {text}" if line.strip() else text
        self._add(f"{line}\n{indent}]")


def _one_line(value: Any) -> str | None:
    """Return a list or object of few short scalars in one line; None for any other."""
    if len(value) > _WIDTH // 2:
        return None
    items = list(value.items()) if isinstance(value, dict) else [("", each) for each in value]
    for _, each in items:
        if (isinstance(each, (dict, list, tuple)) and each) or (isinstance(each, str) and len(each) > _WIDTH):
            return None
    if isinstance(value, dict):
        return f"{{{', '.join(f'{_leaf(str(key))}: {_leaf(each)}' for key, each in items)}}}"
    return f"[{', '.join(_leaf(each) for _, each in items)}]"


def _leaf(value: Any) -> str:
    if _is_bytes(value):
        return f"<{len(value):,} bytes>"
    if value is None or isinstance(value, (str, bool, int, float, dict, list, tuple)):
        try:
            return json.dumps(value, ensure_ascii=False)
        except ValueError:  # an integer of too many digits
            return "<a number of too many digits>"
    return str(value)


def value_text(value: Any) -> tuple[str, bool]:
    """Return a JSON value as indented text of bounded length, and whether it is cut."""
    text = _ValueText()
    try:
        text.value(value)
    except _FullError:
        return "".join(text.parts), True
    return "".join(text.parts), False
