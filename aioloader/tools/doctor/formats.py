"""Formats of data sets that can be read here, by the packages that are installed. Pure."""

from __future__ import annotations

from typing import TYPE_CHECKING, Final, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping


class _Optional(NamedTuple):
    """Format, or a part of one, that needs a package.

    Attributes:
        what: the format.
        package: that reads it.
        extra: of this package that installs it.
    """

    what: str
    package: str
    extra: str


_ALWAYS: Final = ("RecordIO", "tar", "TFRecord", "MDS", "folders of images")
_OPTIONAL: Final = (
    _Optional("checksums of TFRecord", "google-crc32c", "tfrecord"),
    _Optional("Parquet", "pyarrow", "parquet"),
    _Optional("MDS with zstd", "zstandard", "mds"),
    _Optional("MDS with br", "brotli", "mds"),
    _Optional("MDS with snappy", "cramjam", "mds"),
    _Optional("URLs", "obstore", "remote"),
)
PACKAGES: Final = tuple(each.package for each in _OPTIONAL)
"""Packages that formats need."""


def format_rows(packages: Mapping[str, str | None]) -> Iterator[tuple[str, str]]:
    """Yield the lines of the report about formats: name and text.

    Args:
        packages: versions of packages by name, None for one that is not installed.
    """
    present = [
        f"{each.what} ({each.package} {packages[each.package]})"
        for each in _OPTIONAL
        if packages.get(each.package)
    ]
    yield "formats", ", ".join((*_ALWAYS, *present))
    absent: dict[str, list[str]] = {}
    for each in _OPTIONAL:
        if not packages.get(each.package):
            absent.setdefault(each.extra, []).append(each.what)
    if absent:
        yield (
            "not readable",
            "; ".join(
                f"{', '.join(names)}: pip install 'aioloader[{extra}]'" for extra, names in absent.items()
            ),
        )
