"""``rec2idx.py``: the index of a record file; the program is `aioloader.tools.rec2idx`."""

from __future__ import annotations

import runpy

if __name__ == "__main__":
    runpy.run_module("aioloader.tools.rec2idx", run_name="__main__", alter_sys=True)
