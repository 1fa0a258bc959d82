"""Addresses of pages and images, on the server and in an export. No code here performs I/O."""

from __future__ import annotations

from urllib.parse import urlencode


class ServerLinks:
    """Addresses of the server's routes.

    Args:
        token: part of the addresses of images, so that a browser does not display those of another session.

    Attributes:
        static: the pages are files without a server, so forms cannot work.
    """

    static = False

    def __init__(self, token: str) -> None:
        self._token = token

    def style(self) -> str:
        """Return the address of the style sheet."""
        return f"/view.css?v={self._token}"

    def icon(self) -> str:
        """Return the address of the icon."""
        return f"/icon.svg?v={self._token}"

    def page(self, number: int, label: str = "") -> str:
        """Return the address of a page of records, from 1; with `label`, of the records with this label."""
        query = {"label": label} if label else {}
        if number != 1:
            query["page"] = str(number)
        return f"/?{urlencode(query)}" if query else "/"

    def record(self, position: int, view: str = "", epoch: int = 0) -> str:
        """Return the address of a record; with `view`, as augmented by this chain from an epoch on."""
        query = {"at": str(position)}
        if view:
            query["view"] = view
        if epoch:
            query["epoch"] = str(epoch)
        return f"/?{urlencode(query)}"

    def labels(self, number: int = 1) -> str:
        """Return the address of a page of the list of labels, from 1."""
        return "/labels" if number == 1 else f"/labels?page={number}"

    def thumb(self, position: int) -> str:
        """Return the address of the small image."""
        return f"/thumb/{position}?v={self._token}"

    def image(self, position: int) -> str:
        """Return the address of the large image."""
        return f"/image/{position}?v={self._token}"

    def further(self, position: int, number: int) -> str:
        """Return the address of an image in the fields of a sample."""
        return f"/image/{position}?{urlencode({'number': number, 'v': self._token})}"

    def original(self, position: int, field: int | None = None) -> str:
        """Return the address of the stored bytes: of the image, or of one field of a sample."""
        return f"/original/{position}" if field is None else f"/original/{position}?field={field}"

    def draw(self, position: int, view: str, epoch: int) -> str:
        """Return the address of the result of a chain in an epoch."""
        return f"/draw/{position}?{urlencode({'view': view, 'epoch': epoch, 'v': self._token})}"


class StaticLinks:
    """Names of the files of an export, all in one folder; the same methods as `ServerLinks`.

    An empty name means that the page does not exist: no link is displayed.

    Args:
        positions: positions of the exported records.

    Attributes:
        suffixes: extensions of the written images, by name without extension.
    """

    static = True

    def __init__(self, positions: set[int]) -> None:
        self.suffixes: dict[str, str] = {}
        self._positions = positions

    def style(self) -> str:
        return "view.css"

    def icon(self) -> str:
        return "icon.svg"

    def page(self, number: int, label: str = "") -> str:
        if label:
            return f"label-{label}.html" if number == 1 else f"label-{label}-page-{number}.html"
        return "index.html" if number == 1 else f"page-{number}.html"

    def record(self, position: int, view: str = "", epoch: int = 0) -> str:
        if position not in self._positions or epoch:
            return ""
        return f"record-{position}-{view}.html" if view else f"record-{position}.html"

    def labels(self, number: int = 1) -> str:
        return "labels.html" if number == 1 else f"labels-page-{number}.html"

    def _image_file(self, name: str) -> str:
        return name + self.suffixes.get(name, ".jpg")

    def thumb(self, position: int) -> str:
        return self._image_file(f"pictures/{position}-thumb")

    def image(self, position: int) -> str:
        return self._image_file(f"pictures/{position}")

    def further(self, position: int, number: int) -> str:
        return self._image_file(f"pictures/{position}-image-{number}")

    def original(self, position: int, field: int | None = None) -> str:
        return ""

    def draw(self, position: int, view: str, epoch: int) -> str:
        return self._image_file(f"pictures/{position}-{view}-{epoch}")
