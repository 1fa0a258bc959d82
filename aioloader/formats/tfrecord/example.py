"""Wire format of protobuf: integers, lengths and unknown fields. Pure.

The source is protobuf's guide "Encoding". A message is a sequence of fields; a field is a tag (its number and its wire
type, in one integer of variable length) and a value. The functions take places in the bytes, and return the place
behind what they read. They raise `MessageFault` where the message is damaged, and IndexError where the bytes end
although the message goes on, so that a caller with a part of a message can read more of it.
"""

from __future__ import annotations

from functools import lru_cache
from typing import TYPE_CHECKING, Any, Final

import numpy as np

if TYPE_CHECKING:
    from collections.abc import Sequence


VARINT: Final = 0
FIXED64: Final = 1
BYTES: Final = 2
GROUP: Final = 3
END_GROUP: Final = 4
FIXED32: Final = 5
"""Wire types."""

FIELD_1: Final = 1 << 3 | BYTES
FIELD_2: Final = 2 << 3 | BYTES
FIELD_3: Final = 3 << 3 | BYTES
"""Tags of fields whose value is bytes: also text, another message, and packed numbers."""

_MOST_DEPTH: Final = 100
_SHIFTS: Final = tuple(range(7, 70, 7))
_OF_64_BITS: Final = (1 << 64) - 1


class MessageFault(ValueError):
    """Error raised for bytes that are not the message expected, or a damaged one.

    Attributes:
        reason: the fault, in words.
        at: where in the bytes.
        expected, found: what should be there, and what is; None where the fault is of another kind.
    """

    def __init__(self, reason: str, at: int, expected: object = None, found: object = None) -> None:
        super().__init__(reason)
        self.reason = reason
        self.at = at
        self.expected = expected
        self.found = found


def varint(data: bytes | memoryview, at: int, end: int) -> tuple[int, int]:
    """Return an integer of variable length, of 64 bits, and the place behind it.

    Raises:
        MessageFault: it ends behind `end`, or has more than 10 bytes.
        IndexError: `data` ends before that.
    """
    if at >= end:
        raise MessageFault("a field ends behind its message", at)
    value = data[at]
    if value < 128:
        return value, at + 1
    for shift in _SHIFTS:
        at += 1
        if at >= end:
            raise MessageFault("a field ends behind its message", at)
        byte = data[at]
        value += byte - 1 << shift  # and without the upper bit of the byte before
        if byte < 128:
            return value & _OF_64_BITS, at + 1
    raise MessageFault("an integer has more than 10 bytes", at)


def extent(data: bytes | memoryview, at: int, end: int) -> tuple[int, int]:
    """Return the end of a field with a length, and its beginning; raise as `varint`."""
    nbytes, begin = varint(data, at, end)
    return begin + nbytes, begin


def skip_field(data: bytes | memoryview, at: int, end: int) -> int:
    """Return the place behind a field that is not known, with all fields in it.

    Raises:
        MessageFault: it ends behind `end`, or is not a field.
        IndexError: `data` ends before that is known.
    """
    groups: list[int] = []
    begin = at
    while True:
        tag, at = varint(data, at, end)
        number, wire = tag >> 3, tag & 7
        if not number or tag >> 32:
            raise MessageFault("a field has an invalid number", begin, found=number)
        if wire == VARINT:
            _, at = varint(data, at, end)
        elif wire == FIXED64:
            at += 8
        elif wire == BYTES:
            at, _ = extent(data, at, end)
        elif wire == FIXED32:
            at += 4
        elif wire == GROUP:
            groups.append(number)
            if len(groups) > _MOST_DEPTH:
                raise MessageFault("groups are nested too deeply", begin, f"at most {_MOST_DEPTH}", "more")
        elif wire != END_GROUP:
            raise MessageFault("a field has an invalid type", begin, found=wire)
        elif not groups or groups.pop() != number:
            raise MessageFault("a group ends that has not begun", begin, found=number)
        if at > end:
            raise MessageFault("a field ends behind its message", begin)
        if not groups:
            return at


Span = tuple[int, int]
"""Begin and end of some bytes."""

_BYTES_LIST: Final = FIELD_1
_FLOAT_LIST: Final = FIELD_2
_INT64_LIST: Final = FIELD_3
_INTEGER: Final = 1 << 3 | VARINT
_FLOAT: Final = 1 << 3 | FIXED32

_MOST_VALUES: Final = 1 << 20
# Bytes of packed integers that are decoded at a time: intermediate arrays take 25 bytes for each of them.
_PACKED_AT_A_TIME: Final = 1 << 18
_FEW: Final = 16
_FLOAT_NBYTES: Final = 5  # of a value that is not packed, with its tag
_FLOATS_AT_A_TIME: Final = 4096


def feature_value(data: memoryview, parts: Sequence[Span]) -> Any:
    """Return the value of a feature.

    Args:
        data: contains the feature.
        parts: of its `Feature` message, in `data`.

    Returns:
        a list of memoryviews of `data` for bytes; a numpy scalar for one number, int64 or float32; an array (n,) of
        these for none or several; None if the feature has no kind, which TensorFlow treats as missing.

    Raises:
        MessageFault: the bytes are not a feature, or it has more than 2**20 values that are bytes or not packed.
    """
    kind = 0
    values: list[Any] = []
    for begin, end in parts:
        at = begin
        while at < end:
            tag, next_at = varint(data, at, end)
            read = _LISTS.get(tag)
            if read is None:
                at = skip_field(data, at, end)
                continue
            stop, next_at = extent(data, next_at, end)
            if stop > end:
                raise MessageFault(
                    "a list ends behind its feature", at, f"{end - next_at} bytes", f"{stop - next_at}"
                )
            if tag != kind:
                kind, values = tag, []
            read(data, next_at, stop, values)
            at = stop
    if kind == _INT64_LIST:
        return _joined(values, np.int64)
    if kind == _FLOAT_LIST:
        return _joined(values, np.float32)
    return values if kind else None


@lru_cache(maxsize=4096)
def small_number(feature: bytes) -> Any:
    """Return the number of a feature that has one, as a scalar; None for any other feature. Labels repeat often."""
    try:
        value = feature_value(memoryview(feature), [(0, len(feature))])
    except MessageFault:
        return None
    return value if isinstance(value, np.generic) else None


def is_bytes(tag: int) -> bool:
    """Return whether a feature that begins with this byte has values of bytes, if it is in its usual form."""
    return tag == _BYTES_LIST


def only_value(data: bytes, at: int, end: int) -> int:
    """Return where the value of a feature with one value of bytes begins; 0 for any other feature.

    Args:
        data: contains the beginning of the feature: tags and lengths.
        at, end: of the feature; `end` may be behind `data`.
    """
    if data[at] == _BYTES_LIST:
        size, at = varint(data, at + 1, end)
        if at + size == end and at < end and data[at] == FIELD_1:
            size, at = varint(data, at + 1, end)
            if at + size == end:
                return at
    return 0


def _joined(values: list[Any], dtype: type[np.int64] | type[np.float32]) -> Any:
    """Return one number as a scalar, others as an array.

    Args:
        values: numbers, or arrays of numbers.
        dtype: of the result.
    """
    if len(values) == 1:
        value = values[0]
        if type(value) is not np.ndarray:
            return dtype(value)
        return value[0] if len(value) == 1 else value
    if all(type(value) is not np.ndarray for value in values):
        return np.array(values, dtype)
    return np.concatenate([np.atleast_1d(np.asarray(value, dtype)) for value in values])


def _check_count(values: list[Any], at: int) -> None:
    # Objects take a hundred bytes for each value of two bytes. Packed numbers are one object for many.
    if len(values) >= _MOST_VALUES:
        raise MessageFault("a feature has too many values", at, f"at most {_MOST_VALUES}", "more")


def _read_bytes(data: memoryview, at: int, end: int, values: list[Any]) -> None:
    while at < end:
        tag, next_at = varint(data, at, end)
        if tag != FIELD_1:
            at = skip_field(data, at, end)
            continue
        stop, next_at = extent(data, next_at, end)
        if stop > end:
            raise MessageFault(
                "a value ends behind its list", at, f"{end - next_at} bytes", f"{stop - next_at}"
            )
        _check_count(values, at)
        values.append(data[next_at:stop])
        at = stop


def _read_floats(data: memoryview, at: int, end: int, values: list[Any]) -> None:
    while at < end:
        _check_count(values, at)
        if data[at] == _FLOAT and at + _FLOAT_NBYTES <= end:
            count = min((end - at) // _FLOAT_NBYTES, _FLOATS_AT_A_TIME)
            rows = np.frombuffer(data[at : at + count * _FLOAT_NBYTES], np.uint8).reshape(
                count, _FLOAT_NBYTES
            )
            others = np.flatnonzero(rows[:, 0] != _FLOAT)
            rows = rows[: others[0] if len(others) else count]
            values.append(np.ascontiguousarray(rows[:, 1:]).view("<f4")[:, 0].astype(np.float32))
            at += rows.size
            continue
        tag, next_at = varint(data, at, end)
        if tag == FIELD_1:
            stop, next_at = extent(data, next_at, end)
        elif tag == _FLOAT:
            stop = next_at + 4
        else:
            at = skip_field(data, at, end)
            continue
        if stop > end:
            raise MessageFault(
                "a value ends behind its list", at, f"{end - next_at} bytes", f"{stop - next_at}"
            )
        if (stop - next_at) % 4:
            raise MessageFault(
                "a packed list of floats has a fraction of a value", at, found=f"{stop - next_at} bytes"
            )
        # Through an array and not by way of a Python float, which would change the bits of a NaN.
        if stop > next_at:
            values.append(np.frombuffer(data[next_at:stop], "<f4").astype(np.float32))
        at = stop


def _read_integers(data: memoryview, at: int, end: int, values: list[Any]) -> None:
    while at < end:
        _check_count(values, at)
        tag, next_at = varint(data, at, end)
        if tag == _INTEGER:
            value, at = varint(data, next_at, end)
            values.append(value - (value >> 63 << 64))
        elif tag == FIELD_1:
            stop, next_at = extent(data, next_at, end)
            if stop > end:
                raise MessageFault(
                    "a value ends behind its list", at, f"{end - next_at} bytes", f"{stop - next_at}"
                )
            if stop - next_at > _FEW:
                _read_packed(data, next_at, stop, values)
            else:
                while next_at < stop:
                    value, next_at = varint(data, next_at, stop)
                    values.append(value - (value >> 63 << 64))
            at = stop
        else:
            at = skip_field(data, at, end)


def _read_packed(data: memoryview, at: int, end: int, values: list[Any]) -> None:
    """Decode many packed integers."""
    while at < end:
        raw = np.frombuffer(data[at : min(at + _PACKED_AT_A_TIME, end)], np.uint8)
        lasts = np.flatnonzero(raw < 128)
        if not len(lasts):
            raise MessageFault("an integer has more than 10 bytes, or is cut off", at)
        raw = raw[: lasts[-1] + 1]
        firsts = np.concatenate(([0], lasts[:-1] + 1))
        nbytes = lasts - firsts + 1
        if (nbytes > 10).any():
            raise MessageFault("an integer has more than 10 bytes", at + int(firsts[np.argmax(nbytes > 10)]))
        place = np.arange(len(raw)) - np.repeat(firsts, nbytes)
        bits = (raw & 127).astype(np.uint64) << (7 * place).astype(np.uint64)
        values.append(np.bitwise_or.reduceat(bits, firsts).view(np.int64))
        at += len(raw)


_LISTS: Final = {_BYTES_LIST: _read_bytes, _FLOAT_LIST: _read_floats, _INT64_LIST: _read_integers}


_SEQUENCE: Final = (
    "it is a tf.train.SequenceExample, which is not read: write a tf.train.Example for each of its steps"
)

_WINDOW: Final = 1024
_LEAST_ENTRY: Final = 4
_MOST_HEADS: Final = 1024
_SMALL: Final = 24
# Bytes of an entry in its usual form that are looked at: tags and lengths, a key of 127 bytes, a small feature.
_LONGEST_HEAD: Final = 180


class _TooShort(IndexError):
    """Error raised when a window has to have `nbytes` bytes."""

    def __init__(self, nbytes: int) -> None:
        super().__init__()
        self.nbytes = nbytes


class Wanted:
    """Names of features, for walks.

    Args:
        names: of the features; None: all.

    Attributes:
        keys: the names in UTF-8, in their order.
        every: all features are wanted.
        sizes: bytes of entries that are not wanted, by their head, which is all before the feature. Examples of one set
            have the same heads, and to look one up takes less time than to parse it.
        numbers: key and bytes of entries with a wanted number, by their head.
    """

    def __init__(self, names: tuple[str, ...] | None) -> None:
        self.keys = () if names is None else tuple(name.encode("utf-8", "surrogateescape") for name in names)
        self.every = names is None
        self.known = frozenset(self.keys)
        self.sizes: dict[bytes, int] = {}
        self.numbers: dict[bytes, tuple[bytes, int]] = {}


@lru_cache(maxsize=64)
def wanted_features(names: tuple[str, ...] | None) -> Wanted:
    """Return the names of features for a walk; see `Wanted`."""
    return Wanted(names)


class ExampleWalk:
    """Walk over the entries of one example, of which the caller shows one window after the other.

    Args:
        nbytes: of the example.
        wanted: names of features.

    Attributes:
        at: where the next window begins, bytes.
        least: bytes that it needs; it may have more.
        found: parts of the `Feature` message of each wanted feature: usually one.
    """

    __slots__ = ("_end", "_nbytes", "_wanted", "at", "found", "least")

    def __init__(self, nbytes: int, wanted: Wanted) -> None:
        self.at = 0
        self.least = 1
        self.found: dict[bytes, list[Span]] = {}
        self._nbytes = nbytes
        self._wanted = wanted
        self._end = 0  # of the `Features` message that the walk is in

    def take(self, window: bytes) -> bool:
        """Walk on, as far as a window shows the example.

        Args:
            window: bytes of the example from `at` on, at least `least` of them, or all up to its end.

        Returns:
            True at the end of the example.

        Raises:
            MessageFault: the bytes are not an example.
        """
        begin = self.at
        try:
            while True:
                if self.at < self._end:
                    self._walk_entries(window, begin)
                    if self.at < self._end:
                        break
                if self.at >= self._nbytes:
                    return True
                if not self._walk_field(window, begin):
                    break
        except MessageFault as fault:
            fault.at += begin
            raise
        return False

    def _walk_entries(self, window: bytes, begin: int) -> None:
        """Walk over the entries of a `Features` message, as far as the window shows their beginnings."""
        at, end = self.at - begin, self._end - begin
        try:
            while at < end:
                at = self._walk_entry(window, at, end, begin)
        except IndexError as error:
            self._need_more(window, at, begin, error.nbytes if isinstance(error, _TooShort) else 0)
        self.at = at + begin

    def _walk_entry(self, window: bytes, at: int, end: int, begin: int) -> int:
        """Walk over an entry, or an unknown field next to entries; return the place behind it.

        An entry in its usual form is: tag, length, tag, length, key, tag, length, feature.

        Raises:
            MessageFault: it is damaged.
            IndexError: the window does not have its beginning, or all of it where that is needed.
        """
        tag, key = varint(window, at, end)
        if tag != FIELD_1:
            return skip_field(window, at, end)
        stop, key = extent(window, key, end)
        if stop > end:
            raise MessageFault(
                "an entry ends behind the features", at, f"{end - key} bytes", f"{stop - key} bytes"
            )
        if stop - key >= _LEAST_ENTRY and window[key] == FIELD_1 and (size := window[key + 1]) < 128:
            split = key + 2 + size
            if split + 1 < stop and window[split] == FIELD_2:
                size, first = varint(window, split + 1, stop)
                if first + size == stop:
                    name = window[key + 2 : split]
                    if self._wanted.every or name in self._wanted.known:
                        self.found[name] = [(first + begin, stop + begin)]
                    return stop
        if stop > len(window):
            raise _TooShort(stop - at)
        self._walk_unusual(window, key, stop, begin)
        return stop

    def _need_more(self, window: bytes, at: int, begin: int, nbytes: int = 0) -> None:
        """Ask for more bytes from a place of the window on than the window has.

        Args:
            window, begin: the window, and its place in the example.
            at: in the window.
            nbytes: how many are needed; 0: that is not known.
        """
        if begin + len(window) >= self._nbytes:
            raise MessageFault("the example ends inside a field", at) from None
        self.least = nbytes or min(max(2 * (len(window) - at), _WINDOW), self._nbytes - begin - at)

    def _walk_unusual(self, window: bytes, at: int, end: int, begin: int) -> None:
        """Walk over the fields of an entry in another form than the usual one; the window has all of it."""
        key = b""
        parts: list[Span] = []
        while at < end:
            tag, next_at = varint(window, at, end)
            if tag in (FIELD_1, FIELD_2):
                stop, next_at = extent(window, next_at, end)
                if stop > end:
                    raise MessageFault(
                        "a field ends behind its entry", at, f"{end - next_at} bytes", f"{stop - next_at}"
                    )
                if tag == FIELD_1:
                    key = window[next_at:stop]
                else:
                    parts.append((next_at + begin, stop + begin))
                at = stop
            else:
                at = skip_field(window, at, end)
        if self._wanted.every or key in self._wanted.known:
            self.found[key] = parts

    def _walk_field(self, window: bytes, begin: int) -> bool:
        """Walk over a field of the example, or into its features; return False if the window is too short."""
        at, end = self.at - begin, self._nbytes - begin
        try:
            tag, next_at = varint(window, at, end)
            if tag == FIELD_1:
                stop, next_at = extent(window, next_at, end)
                if stop > end:
                    raise MessageFault(
                        "the features end behind the example",
                        at,
                        f"{end - next_at} bytes",
                        f"{stop - next_at}",
                    )
                self.at, self._end = next_at + begin, stop + begin
            elif tag == FIELD_2:
                raise MessageFault(_SEQUENCE, at)
            else:
                self.at = skip_field(window, at, end) + begin
        except IndexError:
            self._need_more(window, at, begin)
            return False
        return True


def find_features(data: memoryview, wanted: Wanted) -> dict[bytes, list[Span]]:
    """Return the parts of the `Feature` message of each wanted feature that an example has.

    Args:
        data: the example.
        wanted: names of features.

    Raises:
        MessageFault: the bytes are not an example.
    """
    walk = ExampleWalk(len(data), wanted)
    if not len(data):
        return walk.found
    # Bytes are faster to look at than a memoryview.
    while not walk.take(bytes(data[walk.at : walk.at + max(_WINDOW, walk.least)])):
        pass
    return walk.found


def feature_values(data: memoryview, wanted: Wanted) -> dict[bytes, Any]:
    """Return the values of the wanted features that an example has.

    Args:
        data: the example.
        wanted: names of features.

    Returns:
        see `feature_value`; features without a kind are left out, as if they did not exist.

    Raises:
        MessageFault: the bytes are not an example; or all features are wanted, and the name of one is not UTF-8.
    """
    if not wanted.every:
        values = _usual_values(data, wanted)
        if values is not None:
            return values
    values = {}
    for key, parts in find_features(data, wanted).items():
        if wanted.every:
            _check_name(key, parts)
        value = feature_value(data, parts)
        if value is not None:
            values[key] = value
    return values


def _check_name(key: bytes, parts: list[Span]) -> None:
    try:
        key.decode()
    except UnicodeDecodeError:
        at = parts[0][0] if parts else 0
        raise MessageFault(f"the name of a feature is not UTF-8: {key[:80]!r}", at) from None


def _usual_values(data: memoryview, wanted: Wanted) -> dict[bytes, Any] | None:
    """Return the same as `feature_values` for an example in its usual form; None for any other, also a damaged one.

    Nearly all examples have this form: one `Features` message with entries of key and feature, as serializers write
    them. Every place is compared with the ends of the messages around it, as in `ExampleWalk`.
    """
    window = bytes(data[:_WINDOW])
    size_of, number_of, known = wanted.sizes.get, wanted.numbers.get, wanted.known
    values: dict[bytes, Any] = {}
    begin, end = 0, len(data)  # of the window in the example, and of the example in the window
    try:
        size, at = varint(window, 1, end)
        if window[0] != FIELD_1 or at + size != end:
            return None
        safe = len(window) - _LONGEST_HEAD if end > _WINDOW else end
        while at < end:
            if at > safe:
                begin += at
                window = bytes(data[begin : begin + _WINDOW])
                at, end = 0, end - at
                safe = len(window) - _LONGEST_HEAD if end > _WINDOW else end
            head = window[at : at + window[at + 3] + 6]
            skipped = size_of(head)
            if skipped is not None:
                at += skipped
                continue
            number = number_of(head)
            if number is not None:
                name, first, stop = number[0], at + len(head), at + number[1]
                if stop > end:
                    return None
            else:
                entry = _usual_entry(window, at, end)
                if entry is None:
                    return None
                name, first, stop = entry
                if name not in known:
                    if first == at + len(head):
                        _remember(wanted.sizes, head, stop - at)
                    at = stop
                    continue
                if stop - first > _SMALL:
                    place = only_value(window, first, stop)
                    if place:
                        values[name] = [data[begin + place : begin + stop]]
                        at = stop
                        continue
                elif first == at + len(head) and not is_bytes(window[first]):
                    _remember(wanted.numbers, head, (name, stop - at))
            value = small_number(window[first:stop]) if stop - first <= _SMALL else None
            if value is None:
                value = feature_value(data, [(begin + first, begin + stop)])
                if value is None:
                    return None
            values[name] = value
            at = stop
    except (IndexError, MessageFault):
        return None
    return values if at == end else None


def _usual_entry(window: bytes, at: int, end: int) -> tuple[bytes, int, int] | None:
    """Return key, beginning and end of the feature of an entry in its usual form; None for any other."""
    key = at + 2
    size = window[at + 1]
    if size >= 128:
        size, key = varint(window, at + 1, end)
    stop = key + size
    size = window[key + 1]
    split = key + 2 + size
    if (
        window[at] != FIELD_1
        or window[key] != FIELD_1
        or size >= 128
        or stop > end
        or window[split] != FIELD_2
    ):
        return None
    size, first = varint(window, split + 1, stop)
    return (window[key + 2 : split], first, stop) if first + size == stop else None


def _remember(memory: dict[bytes, Any], head: bytes, value: Any) -> None:
    # Examples of one set have few heads. Those of made-up ones must not fill the memory.
    if len(memory) >= _MOST_HEADS:
        memory.clear()
    memory[head] = value
