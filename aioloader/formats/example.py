"""Walk over a `tf.train.Example` in protobuf's wire format. Pure.

The messages, of TensorFlow's example.proto and feature.proto:

    Example  { Features features = 1; }
    Features { map<string, Feature> feature = 1; }   which is: repeated Entry { string key = 1; Feature value = 2; }

Unknown fields, and known ones of another wire type, are skipped. Of several entries with one key the last one counts.
Parts of one message are merged (protobuf's guide "Encoding").

An entry that is not asked for, or that a later one replaces, is skipped as a whole, because most of an example is one
image: its length is checked, its content is not. A walk for all features checks everything else.
"""

from __future__ import annotations

from functools import lru_cache
from typing import Any, Final

from aioloader.formats.example_feature import Span, feature_value, is_bytes, only_value, small_number
from aioloader.formats.protobuf import FIELD_1, FIELD_2, MessageFault, extent, skip_field, varint

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
