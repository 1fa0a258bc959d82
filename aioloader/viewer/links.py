"""Addresses of pages and pictures: of the server, and of the files of an export. Pure."""

from __future__ import annotations

from typing import Protocol
from urllib.parse import urlencode

__all__ = ("Links", "ServerLinks", "StaticLinks")


class Links(Protocol):
    """Where everything is found. A link that is empty leads nowhere and is not shown.

    Attributes:
        static: there is no server: forms would lead nowhere.
    """

    static: bool

    def style(self) -> str:
        """The style sheet."""
        ...

    def icon(self) -> str:
        """The icon of all pages."""
        ...

    def page(self, number: int, label: str = "") -> str:
        """A page of records, counted from 1; of those with a label."""
        ...

    def record(self, position: int, view: str = "", epoch: int = 0) -> str:
        """A record; as a chain makes it, from an epoch on."""
        ...

    def labels(self, number: int = 1) -> str:
        """A page of the list of labels, counted from 1."""
        ...

    def thumb(self, position: int) -> str:
        """The small picture."""
        ...

    def image(self, position: int) -> str:
        """The large picture."""
        ...

    def original(self, position: int) -> str:
        """The stored bytes."""
        ...

    def draw(self, position: int, view: str, epoch: int) -> str:
        """What a chain made in an epoch."""
        ...


class ServerLinks:
    """Addresses that `app` answers.

    Args:
        token: stands in the addresses of pictures, so that a browser does not show those of another session.
    """

    static = False

    def __init__(self, token: str) -> None:
        self._token = token

    def style(self) -> str:
        """See `Links.style`."""
        return f"/view.css?v={self._token}"

    def icon(self) -> str:
        """See `Links.icon`."""
        return f"/icon.svg?v={self._token}"

    def page(self, number: int, label: str = "") -> str:
        """See `Links.page`."""
        query = {"label": label} if label else {}
        if number != 1:
            query["page"] = str(number)
        return f"/?{urlencode(query)}" if query else "/"

    def record(self, position: int, view: str = "", epoch: int = 0) -> str:
        """See `Links.record`."""
        query = {"at": str(position)}
        if view:
            query["view"] = view
        if epoch:
            query["epoch"] = str(epoch)
        return f"/?{urlencode(query)}"

    def labels(self, number: int = 1) -> str:
        """See `Links.labels`."""
        return "/labels" if number == 1 else f"/labels?page={number}"

    def thumb(self, position: int) -> str:
        """See `Links.thumb`."""
        return f"/thumb/{position}?v={self._token}"

    def image(self, position: int) -> str:
        """See `Links.image`."""
        return f"/image/{position}?v={self._token}"

    def original(self, position: int) -> str:
        """See `Links.original`."""
        return f"/original/{position}"

    def draw(self, position: int, view: str, epoch: int) -> str:
        """See `Links.draw`."""
        return f"/draw/{position}?{urlencode({'view': view, 'epoch': epoch, 'v': self._token})}"


class StaticLinks:
    """Names of the files of an export, all in one folder.

    Args:
        positions: the records that are exported.
        suffixes: endings of the names of the pictures that were written, by name without it.
        labels: whether there is a list of labels.
    """

    static = True

    def __init__(self, positions: set[int], *, labels: bool) -> None:
        self.suffixes: dict[str, str] = {}
        self._positions = positions
        self._labels = labels

    def style(self) -> str:
        """See `Links.style`."""
        return "view.css"

    def icon(self) -> str:
        """See `Links.icon`."""
        return "icon.svg"

    def page(self, number: int, label: str = "") -> str:
        """See `Links.page`."""
        if label:
            return f"label-{label}.html" if number == 1 else f"label-{label}-page-{number}.html"
        return "index.html" if number == 1 else f"page-{number}.html"

    def record(self, position: int, view: str = "", epoch: int = 0) -> str:
        """See `Links.record`."""
        if position not in self._positions or epoch:
            return ""
        return f"record-{position}-{view}.html" if view else f"record-{position}.html"

    def labels(self, number: int = 1) -> str:
        """See `Links.labels`."""
        if not self._labels:
            return ""
        return "labels.html" if number == 1 else f"labels-page-{number}.html"

    def _picture(self, name: str) -> str:
        return name + self.suffixes.get(name, ".jpg")

    def thumb(self, position: int) -> str:
        """See `Links.thumb`."""
        return self._picture(f"pictures/{position}-thumb")

    def image(self, position: int) -> str:
        """See `Links.image`."""
        return self._picture(f"pictures/{position}")

    def original(self, position: int) -> str:
        """See `Links.original`: an export holds none."""
        return ""

    def draw(self, position: int, view: str, epoch: int) -> str:
        """See `Links.draw`."""
        return self._picture(f"pictures/{position}-{view}-{epoch}")
