"""Parser of the ends of HTTP/1.1 heads and bodies. Pure; sufficient for a proxy between well-behaved peers."""

from __future__ import annotations

from dataclasses import dataclass

MOST_HEAD_BYTES = 64 * 1024


@dataclass(frozen=True)
class Head:
    """Head of a message.

    Attributes:
        raw: its bytes, with the blank line.
        first: the words of its first line.
        fields: header values by name in lower case; of repeated ones the last.
    """

    raw: bytes
    first: tuple[str, str, str]
    fields: dict[str, str]

    @property
    def closes(self) -> bool:
        """Return whether the connection ends after the message."""
        asked = self.fields.get("connection", "").lower()
        return "close" in asked or ("HTTP/1.0" in self.first and "keep-alive" not in asked)

    def with_length(self, nbytes: int) -> bytes:
        """Return the head's bytes with another Content-Length."""
        lines = self.raw[:-4].split(b"\r\n")
        kept = [line for line in lines if not line.lower().startswith(b"content-length:")]
        return b"\r\n".join([*kept, b"Content-Length: %d" % nbytes, b"", b""])


def parse_head(data: bytes | bytearray) -> Head | None:
    """Parse the head at the start of some bytes; return None if it is incomplete.

    Raises:
        ValueError: the bytes are not a head.
    """
    end = data.find(b"\r\n\r\n")
    if end < 0:
        if len(data) > MOST_HEAD_BYTES:
            raise ValueError("a head without an end")
        return None
    raw = bytes(data[: end + 4])
    lines = raw[:-4].decode("utf-8", "surrogateescape").split("\r\n")
    words = lines[0].split(" ", 2)
    if len(words) == 2:
        words.append("")
    first, second, third = words
    fields = {}
    for line in lines[1:]:
        name, _, value = line.partition(":")
        fields[name.strip().lower()] = value.strip()
    return Head(raw, (first, second, third), fields)


class Body:
    """Counter that follows a body to its end.

    Args:
        head: the head of the message.
        reply_to: the method that it answers; None for a request.

    Attributes:
        nbytes: its length if that is known beforehand, else None.
        done: it is complete.
    """

    def __init__(self, head: Head, reply_to: str | None) -> None:
        self.nbytes: int | None = None
        self._left = 0
        self._chunked = "chunked" in head.fields.get("transfer-encoding", "").lower()
        self._line = bytearray()
        self._in_trailer = False
        self._skip = 0
        empty = reply_to == "HEAD" or (reply_to is not None and head.first[1] in ("204", "304"))
        if empty:
            self._chunked = False
            self.nbytes = 0
        elif not self._chunked and "content-length" in head.fields:
            self.nbytes = self._left = int(head.fields["content-length"])
        elif not self._chunked and reply_to is None:
            self.nbytes = 0
        self.done = self.nbytes == 0

    def take(self, data: bytes) -> int:
        """Return the number of the next bytes that belong to the body."""
        if self.done:
            return 0
        if self._chunked:
            return self._take_chunks(data)
        if self.nbytes is None:  # up to the end of the connection
            return len(data)
        taken = min(self._left, len(data))
        self._left -= taken
        self.done = self._left == 0
        return taken

    def _take_chunks(self, data: bytes) -> int:
        at = 0
        while at < len(data) and not self.done:
            if self._skip:
                step = min(self._skip, len(data) - at)
                self._skip -= step
                at += step
                continue
            end = data.find(b"\n", at)
            if end < 0:
                self._line += data[at:]
                return len(data)
            line = bytes(self._line + data[at:end]).strip()
            self._line.clear()
            at = end + 1
            if self._in_trailer:
                self.done = not line
            elif line:
                size = int(line.split(b";")[0], 16)
                self._in_trailer = size == 0
                self._skip = size + 2 if size else 0
        return at
