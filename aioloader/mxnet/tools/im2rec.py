"""``im2rec.py``: lists and record files of images; the program is `aioloader.tools.im2rec`."""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    runpy.run_module("aioloader.tools.im2rec", run_name="__main__", alter_sys=True)
