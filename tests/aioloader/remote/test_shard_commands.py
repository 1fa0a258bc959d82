"""Tests of the commands over shards of every format at URLs: results are those of local files."""

from __future__ import annotations

import json
import uuid
from pathlib import Path
from typing import Any

import cv2
import numpy as np
import pytest

from aioloader.cli import main
from tests.aioloader.format_sets import FORMATS, MDS, Sample, SetFormat

pytestmark = pytest.mark.remote


def jpeg(seed: int) -> bytes:
    """Return a JPEG that is large enough for a crop index."""
    noise = np.random.default_rng(seed).integers(0, 256, (40, 60, 3), dtype=np.uint8)
    return bytes(cv2.imencode(".jpg", cv2.resize(noise, (300, 200)))[1])


@pytest.mark.parametrize("made", FORMATS)
def test_commands_read_urls(
    made: SetFormat,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capfd: pytest.CaptureFixture[str],
    served_folder: Path,
    nginx: Any,
    nginx_proxy: Any,
) -> None:
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(tmp_path / "user-cache"))
    name = uuid.uuid4().hex
    samples = [Sample(key=f"s{number}", image=jpeg(number), label=number) for number in range(6)]
    folder = made.write(served_folder / name, samples)
    first, second, third = sorted(path for path in folder.iterdir() if path.name != "index.json")
    second.write_bytes(second.read_bytes()[: second.stat().st_size // 2])
    base = f"http://{nginx_proxy.address}/{name}"
    urls = [base] if made is MDS else [f"{base}/{path.name}" for path in (first, second, third)]

    def run(*words: str) -> tuple[int, Any]:
        capfd.readouterr()
        code = main([*words, "--json"])
        return code, json.loads(capfd.readouterr().out)

    code, found = run("verify", "--decode", "--num-workers", "0", *urls)
    assert code == 1
    assert [each["path"] for each in found["files"]] == [
        f"{base}/{path.name}" for path in (first, second, third)
    ]
    assert [each["ok"] for each in found["files"]] == [True, False, True]
    assert [found["files"][number]["images"] for number in (0, 2)] == [2, 2]
    assert found["files"][1]["problems"][0]["message"]

    pattern = urls[0] if made is MDS else f"{base}/train-{{00000..00002}}-of-00003{first.suffix}"
    code, found = run("inspect", pattern)
    assert (code, found["records"], len(found["damage"])) == (0, 4, 1)
    assert found["images"]["looked_at"] == 4

    code, found = run("index", *urls)
    assert code == int(made is not MDS)
    assert all(
        each["index"] == "" or each["index"].startswith(str(tmp_path / "user-cache"))
        for each in found["files"]
    )
    code, found = run("index", "--crops", "--num-workers", "0", *urls)
    assert code == 1
    assert [each["indexed"] for each in found["files"]] == [2, 0, 2]
