"""Maker of entries: ``python -m tests.aioloader.jpeg.make_entries``.

Those of the golden images and of the fuzz corpus must be made anew only if the layout changes, with another version
number.
"""

from __future__ import annotations

from tests.aioloader.jpeg.entries import GOLDEN, golden_images
from tests.fuzz.target import CORPUS


def main() -> None:
    """Write the golden images, and the entry of each image."""
    from aioloader.jpeg.crop_scan import build_entry

    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name, data in golden_images().items():
        (GOLDEN / f"{name}.jpg").write_bytes(data)
        (GOLDEN / f"{name}.entry").write_bytes(build_entry(data, interval=2))
    for number, path in enumerate(sorted((CORPUS / "crops").glob("*.jpg"))):
        path.with_suffix(".entry").write_bytes(build_entry(path.read_bytes(), interval=1 + number % 2))


if __name__ == "__main__":
    main()
