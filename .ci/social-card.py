"""Drawing of the site's raster images from their SVG sources, with Chromium.

    python .ci/social-card.py            docs/images/social-card.png and docs/images/favicon.png
    CHROMIUM=/path python .ci/social-card.py

Run it after one of the sources has changed. Only the standard library and Chromium are used.
"""

from __future__ import annotations

import os
import shutil
import subprocess
import sys
import tempfile
from pathlib import Path

IMAGES = Path(__file__).resolve().parent.parent / "docs" / "images"
# Name of the source and of the image, width and height in pixels.
DRAWN = (("social-card", 1280, 640), ("favicon", 64, 64))


def draw(name: str, width: int, height: int, chromium: str) -> Path:
    """Draw ``NAME.svg`` as ``NAME.png``; return its path."""
    source, target = IMAGES / f"{name}.svg", IMAGES / f"{name}.png"
    page = (
        "<style>*{margin:0}html,body{background:transparent}svg{display:block;width:"
        f"{width}px;height:{height}px}}</style>{source.read_text(encoding='utf-8')}"
    )
    with tempfile.TemporaryDirectory() as folder:
        html = Path(folder, "page.html")
        html.write_text(page, encoding="utf-8")
        command = [chromium, "--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars"]
        command += [f"--user-data-dir={folder}/profile", "--default-background-color=00000000"]
        command += [f"--window-size={width},{height}", f"--screenshot={target}", html.as_uri()]
        subprocess.run(command, check=True, capture_output=True, timeout=120)
    return target


def main() -> int:
    """Draw all images."""
    chromium = os.environ.get("CHROMIUM") or shutil.which("chromium") or shutil.which("chromium-browser")
    if chromium is None:
        print("Chromium is missing; CHROMIUM names its program", file=sys.stderr)
        return 1
    for name, width, height in DRAWN:
        print(draw(name, width, height, chromium))
    return 0


if __name__ == "__main__":
    sys.exit(main())
