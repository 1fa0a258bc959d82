"""Tests that run every code block of the README and the site, page by page, in a folder with the files it names.

Python blocks of a page are one program. Lines of a shell block, and of a transcript those after ``$``, are commands:
they run in this process if the program is ours. A block with a title is saved under that name, for a later command.

Blocks that do not run here are in `NOT_RUN`, with the reason. A page with blocks for PyTorch or Ray runs once
without these blocks and once whole, in the suite that has these packages. Blocks for other packages run where these are
installed.
"""

from __future__ import annotations

import ast
import gc
import importlib.util
import os
import re
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

import pytest

from tests.cases import with_cases
from tests.docs.blocks import PAGES, ROOT, Block, blocks, commands
from tests.docs.worlds import WITH_FILES, WORDS, after, lay

LANGUAGES = {"python", "sh", "console", "text", "diff"}
"""Languages of fences; "diff" is one of `DIFFS`."""

DIFFS = {"torch.md": "tests/aioloader/interop/test_guides.py"}
"""Pages that show changes of a program, and the test that runs it before and after them."""

NOT_RUN = {
    "pip install": "installing: .ci/run does it, with the wheel and with every extra",
    "python3.11 -m venv": "the same",
    ".": "the same",
    "pytest": "the suite itself",
    "aioloader demo": ".ci/run runs it, from the wheel",
    "python examples/ray_train.py": "a separate cluster: tests/aioloader/interop/test_guides.py",
    "aws": "a bucket: tests/aioloader/remote/test_partial_reads.py reads indexes from servers",
    "aioloader pack s3://bucket/train.parquet": "a bucket: tests/aioloader/remote/test_every_format.py",
    "aioloader index s3://bucket/train/": "the same",
    "torchrun": "several processes: tests/aioloader/interop/test_end_to_end.py",
    "cp": "copies of the checkpoints of torchrun",
    "uvicorn": "a server that runs until Ctrl-C: tests/docs/worlds.py asks its application",
    "aioloader view train.rec": "a server that runs until Ctrl-C: tests/aioloader/viewer/test_app.py",
    "aioloader view shards/train-{000..127}.tar": "the same",
}
"""Beginnings of commands that do not run here, with the reason. A longer one in `RUN_ALL_THE_SAME` overrides it."""

RUN_ALL_THE_SAME = ("aioloader view train.rec --export",)

ELSEWHERE = {
    "end-to-end.md": "tests/aioloader/interop/test_end_to_end.py",
    "jax-and-ray.md": "tests/aioloader/interop/test_guides.py",
    "migrating-from-mxnet.md": "tests/aioloader/interop/test_insightface_guide.py",
    "remote.md": "tests/aioloader/remote/test_guide.py",
}
"""Pages whose Python blocks another test runs, because it checks their results."""

QUICK = {"sampling.md"}

EXIT_CODES = {
    "aioloader repair bad.rec": {1},  # the source is damaged, which is the page's subject
    "aioloader doctor": {0, 1},  # the machine of the tests may have a problem
}

SUITES = {"torch", "ray"}
OPTIONAL = {
    *SUITES,
    "albumentations",
    "datasets",
    "jax",
    "keras",
    "jinja2",
    "lightning",
    "opentelemetry",
    "prometheus_client",
    "rich",
    "starlette",
    "tqdm",
}

NEEDED_THROUGHOUT = {"torch.md": frozenset({"torch"})}
"""Pages whose Python blocks are one program that needs a package, which only the first block imports."""


class Case(NamedTuple):
    """Run of a page, with the blocks that need only these packages."""

    page: str
    needs: frozenset[str]


def needs(block: Block) -> frozenset[str]:
    """Return the optional packages that a block needs."""
    if block.language == "python":
        return frozenset(block.imports & OPTIONAL) | NEEDED_THROUGHOUT.get(block.page, frozenset())
    return frozenset({"jinja2"}) if "aioloader view" in block.code else frozenset()


def runnable(page: str) -> list[Block]:
    """Return the blocks of a page that this test runs."""
    languages = ("sh", "console") if page in ELSEWHERE else ("python", "sh", "console")
    return [block for block in blocks(page, *languages) if block.language == "python" or _kept(block)]


def _kept(block: Block) -> list[list[str]]:
    """Return the commands of a block that run here."""
    return [words for words in commands(block) if _reason(words) is None]


def _reason(words: list[str]) -> str | None:
    text = " ".join(words)
    if text.startswith(RUN_ALL_THE_SAME):
        return None
    return next((reason for start, reason in NOT_RUN.items() if f"{text} ".startswith(f"{start} ")), None)


def _cases() -> list[Any]:
    found = []
    for page in PAGES:
        kinds = {needs(block) for block in runnable(page)}
        here = (kind for kind in kinds if not kind & SUITES and all(map(importlib.util.find_spec, kind)))
        for wanted in sorted({frozenset().union(*here), frozenset().union(*kinds)}, key=len):
            # Without the extras a page runs only if some blocks remain.
            if any(kind <= wanted for kind in kinds):
                marks = [getattr(pytest.mark, name) for name in sorted(wanted & SUITES)]
                if not marks and page not in QUICK:
                    marks = [pytest.mark.slow]
                name = " ".join([page, *sorted(wanted)])
                found.append(pytest.param(Case(page, wanted), marks=marks, id=name))
    return found


# --- checks of all blocks, run or not ---


@with_cases("page", PAGES)
def test_every_block_names_its_language_and_parses(page: str) -> None:
    for block in blocks(page):
        assert block.language in LANGUAGES, f"{block.place}: one of {sorted(LANGUAGES)}"
        if block.language == "python":
            ast.parse(block.code, block.place)
        assert block.language != "diff" or page in DIFFS, f"{block.place}: no test runs it"


def test_no_program_hides_in_an_indented_block() -> None:
    # Commands of the benchmarks take minutes. .ci/run runs short ones.
    start = re.compile(r"^(?: {4}|\t)(?:\$ |pip |aioloader |import |from \w+ import )", re.MULTILINE)
    for page, path in PAGES.items():
        text = re.sub(r"^```.*?^```", "", path.read_text(encoding="utf-8"), flags=re.MULTILINE | re.DOTALL)
        outside = [line for line in text.splitlines() if start.match(line)]
        assert outside == [], page


@with_cases("page", PAGES)
def test_no_line_of_a_paragraph_begins_like_an_item_of_a_list(page: str) -> None:
    """A line "503. A word" makes a list of the rest of its paragraph."""
    item = re.compile(r" *(?:([0-9]+)\.|[-+*]) ")
    text = re.sub(r"^( *)```.*?^\1```", "", PAGES[page].read_text(encoding="utf-8"), flags=re.M | re.S)
    for paragraph in text.split("\n\n"):
        lines = paragraph.strip("\n").split("\n")
        begun = item.match(lines[0]) is not None
        last = 0
        for line in lines:
            found = item.match(line)
            if found is None:
                continue
            assert begun, f"{page}: {line}"
            if found[1]:
                assert int(found[1]) == last + 1, f"{page}: {line}"
                last = int(found[1])


def test_what_does_not_run_here_is_still_in_the_pages() -> None:
    every = [
        " ".join(words) for page in PAGES for b in blocks(page, "sh", "console") for words in commands(b)
    ]
    for begin in (*NOT_RUN, *EXIT_CODES, *RUN_ALL_THE_SAME):
        assert [text for text in every if f"{text} ".startswith(f"{begin} ")], f"no page has {begin!r}"
    for page, path in ELSEWHERE.items():
        assert blocks(page, "python"), f"{page} has nothing to run"
        assert page in (ROOT / path).read_text(encoding="utf-8"), f"{path} does not run {page}"
    for page, path in DIFFS.items():
        assert blocks(page, "diff"), f"{page} has no changes to run"
        assert page in (ROOT / path).read_text(encoding="utf-8"), f"{path} does not run {page}"
    for page, words in WORDS.items():
        # Blocks only: replacing a word that is only in the prose would have no effect.
        code = "".join(block.code for block in blocks(page))
        assert [word for word in words if word not in code] == [], page


def test_pages_that_tests_name_are_there() -> None:
    named = {*ELSEWHERE, *DIFFS, *NEEDED_THROUGHOUT, *QUICK, *WORDS, *WITH_FILES}
    assert named - PAGES.keys() == set()


# --- the blocks ---


@pytest.fixture
def world(
    request: pytest.FixtureRequest,
    photo_rec: Path,
    photo_folder: Path,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
) -> dict[str, Any]:
    """Make the working directory of a page, and the names that it begins with."""
    place = tmp_path / "here"
    place.mkdir()
    monkeypatch.chdir(place)
    monkeypatch.setenv("AIOLOADER_CACHE_DIR", str(tmp_path / "cache"))
    monkeypatch.setenv("MXNET_HOME", str(place / "mxnet"))
    monkeypatch.setenv("OMP_NUM_THREADS", "1")
    case: Case = request.getfixturevalue("case")
    return {"__name__": "guide", **lay(case.page, place, photo_rec, photo_folder)}


@pytest.mark.filterwarnings("ignore:.*:DeprecationWarning:torch")
@pytest.mark.parametrize("case", _cases())
def test_the_blocks_of_a_page_run(
    case: Case, world: dict[str, Any], capfd: pytest.CaptureFixture[str]
) -> None:
    for package in sorted(case.needs):
        pytest.importorskip(package)
    for block in runnable(case.page):
        if not needs(block) <= case.needs:
            continue
        if block.language == "python":
            run_python(block, world)
        else:
            run_commands(block, capfd)
    if case.page not in ELSEWHERE:
        after(case.page, world)
    world.clear()
    gc.collect()  # loaders that a page leaves open stop their workers


def run_python(block: Block, names: dict[str, Any]) -> None:
    """Run a block with the names of the earlier blocks; a block with a title is saved for a command instead."""
    code = _settled(block.page, block.code)
    if block.title:
        Path(block.title).write_text(code, encoding="utf-8")
        return
    # Line numbers of an error are those of the page.
    exec(compile("\n" * (block.line - 1) + code, block.place, "exec"), names)
    _check_shapes(block, code, names)


def _check_shapes(block: Block, code: str, names: dict[str, Any]) -> None:
    """Compare arrays with their dtypes and shapes in comments, as in ``images = ...  # uint8 (8, 64, 64, 3)``.

    A word in the place of a number is any number.
    """
    for line in code.splitlines():
        assigned = re.fullmatch(r"\s*([\w\s,()]+?) = [^#]+#\s*((?:\w+ \([^)]*\)(?:, )?)+)", line)
        if assigned is None:
            continue
        arrays = re.findall(r"\w+", assigned[1])
        shapes = re.findall(r"(\w+) \(([^)]*)\)", assigned[2])
        for name, (dtype, shape) in zip(arrays, shapes, strict=True):
            wanted = [extent.strip() for extent in shape.split(",") if extent.strip()]
            found = names[name]
            if not hasattr(found, "dtype"):
                continue  # a transform, say, and what it makes
            assert str(found.dtype).removeprefix("torch.") == dtype, f"{block.place}: {name}"
            assert len(found.shape) == len(wanted), f"{block.place}: {name} {found.shape}"
            for extent, text in zip(found.shape, wanted, strict=True):
                assert not text.isdigit() or extent == int(text), f"{block.place}: {name} {found.shape}"


def run_commands(block: Block, capfd: pytest.CaptureFixture[str]) -> None:
    """Run the commands of a block; their output must equal the transcript except for figures."""
    capfd.readouterr()
    for words in _kept(block._replace(code=_settled(block.page, block.code))):
        text = " ".join(words)
        allowed = next((codes for begin, codes in EXIT_CODES.items() if text.startswith(begin)), {0})
        try:
            code = _program(words)
        except SystemExit as stop:
            code = stop.code or 0
        assert code in allowed, f"{block.place}: {text}: exit code {code}"
        printed = capfd.readouterr()
        shown = _shown(block, text)
        if shown is not None:
            assert _outline(printed.out + printed.err) == _outline(shown), f"{block.place}: {text}"


def _program(words: list[str]) -> Any:
    """Run one command; return its exit code."""
    for begin, main in _programs().items():
        if words[: len(begin)] == list(begin):
            return main(words[len(begin) :])
    assert words[0] == "python", f"no such program here: {words}; is it to be in NOT_RUN?"
    environment = {**os.environ, "PYTHONPATH": str(ROOT)}
    done = subprocess.run([sys.executable, *words[1:]], env=environment, check=False, timeout=280)
    return done.returncode


def _programs() -> dict[tuple[str, ...], Callable[[list[str]], Any]]:
    import aioloader.cli
    import aioloader.tools.draw
    import aioloader.tools.im2rec
    import aioloader.tools.insightface
    import aioloader.tools.rec2idx
    import recordio.__main__

    return {
        ("aioloader",): aioloader.cli.main,
        ("python", "-m", "aioloader"): aioloader.cli.main,
        ("python", "-m", "recordio"): recordio.__main__.main,
        ("python", "-m", "aioloader.tools.draw"): aioloader.tools.draw.main,
        ("python", "-m", "aioloader.tools.im2rec"): aioloader.tools.im2rec.main,
        ("python", "-m", "aioloader.tools.insightface"): aioloader.tools.insightface.main,
        ("python", "-m", "aioloader.tools.rec2idx"): aioloader.tools.rec2idx.main,
    }


def _settled(page: str, code: str) -> str:
    for word, other in WORDS.get(page, {}).items():
        code = code.replace(word, other)
    return code


def _shown(block: Block, command: str) -> str | None:
    """Return a transcript's output after a command; None without output, or if it depends on the photographs."""
    if block.language != "console" or block.title != "Transcript":
        return None
    parts = re.split(r"^\$ (.*)\n", block.code, flags=re.MULTILINE)
    for shell, output in zip(parts[1::2], parts[2::2], strict=True):
        if shell == command:
            return output
    return None


def _outline(text: str) -> list[str]:
    """Return lines without figures, units of bytes and blanks. Of a redrawn line the last state counts."""
    lines = [line.rpartition("\r")[2] for line in text.strip().splitlines()]
    figures = [re.sub(r"[0-9][0-9.,]*(?: [kMG](?=B\b))?", "N", line) for line in lines]
    return [" ".join(line.split()) for line in figures if line.strip()]


def test_the_outline_of_a_transcript_keeps_its_words() -> None:
    assert _outline("epoch 0:  1,234 images\r\n\n x 0.5\n") == ["epoch N: N images", "x N"]
    assert _outline("4.8 MB") == _outline("48 kB") != _outline("48 ms")
    assert _outline("a 1") != _outline("b 1")


def test_optional_packages_are_known() -> None:
    """Packages that neither aioloader nor the tests need are listed in `OPTIONAL`."""
    always = {
        *sys.stdlib_module_names,
        "aioloader",
        "anyio",
        "cv2",
        "numpy",
        "PIL",
        "recordio",
        "simplejpeg",
        "trio",
    }
    for page in PAGES:
        own = {Path(block.title).stem for block in blocks(page, "python") if block.title}
        for block in blocks(page, "python"):
            unknown = block.imports - always - OPTIONAL - own
            assert not unknown, f"{block.place}: {sorted(unknown)}"
    assert [name for name in ("numpy", "cv2") if importlib.util.find_spec(name) is None] == []
