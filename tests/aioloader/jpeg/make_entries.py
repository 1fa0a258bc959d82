"""Maker of the golden entries: ``python -m tests.aioloader.jpeg.make_entries``. Needs numba.

An entry must be made anew only if the layout changes, with another version number.
"""

from __future__ import annotations

from tests.aioloader.jpeg.entries import GOLDEN, golden_images


def main() -> None:
    """Write the entry of each golden image."""
    from aioloader.jpeg.crop_scan import build_entry

    GOLDEN.mkdir(parents=True, exist_ok=True)
    for name, data in golden_images().items():
        (GOLDEN / f"{name}.jpg").write_bytes(data)
        (GOLDEN / f"{name}.entry").write_bytes(build_entry(data, interval=2))


if __name__ == "__main__":
    main()
