"""Tests of brace patterns: against bash, and in the names of record files."""

from __future__ import annotations

import shutil
import subprocess
from pathlib import Path

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import aioloader
import recordio
from aioloader.datasets.shards import expand_braces, has_braces, is_pattern, record_files
from tests.cases import with_cases


@with_cases(
    ("text", "expected"),
    [
        ("a.rec", ["a.rec"]),
        ("{b,a,b}", ["b", "a", "b"]),
        ("{8..011}", ["008", "009", "010", "011"]),
        ("{-01..1}", ["-01", "000", "001"]),
        ("{10..0..5}", ["10", "5", "0"]),
        ("{0..10..-5}", ["0", "5", "10"]),
        ("{1..2..0}", ["1", "2"]),
        ("{a,{1..2},c}x", ["ax", "1x", "2x", "cx"]),
        # Ordinary characters.
        ("{}", ["{}"]),
        ("{a}", ["{a}"]),
        ("{a", ["{a"]),
        ("a}", ["a}"]),
        ("{1..a}", ["{1..a}"]),
        ("{1...3}", ["{1...3}"]),
        ("{a{b,c}}", ["{ab}", "{ac}"]),
        ("{{a,b}", ["{a", "{b"]),
        ("{a,b}}", ["a}", "b}"]),
        ("{\u0663..\u0665}", ["{\u0663..\u0665}"]),
    ],
)
def test_names_of_a_pattern(text: str, expected: list[str]) -> None:
    assert expand_braces(text) == expected
    assert has_braces(text) is (expected != [text])


@with_cases(
    ("text", "reason"),
    [
        ("{0..999999999999}", "means 1,000,000,000,000 names"),
        ("{0..99999}{a,b}", "means 200,000 names"),
        ("{a,b}" * 60, "names; 100,000 are allowed"),
        ("{a," * 40 + "b" + "}" * 40, "nested too deeply"),
        ("{" * 5000, "5,000 characters"),
    ],
)
def test_a_pattern_is_bounded(text: str, reason: str) -> None:
    with pytest.raises(ValueError, match=reason):
        expand_braces(text)


@settings(max_examples=3 * settings().max_examples)
@given(st.text("{}a1,.-0", max_size=40))
def test_any_text_is_expanded_or_refused(text: str) -> None:
    try:
        names = expand_braces(text, most=1000)
    except ValueError as error:
        assert "allowed" in str(error)
        return
    assert 1 <= len(names) <= 1000
    if "{" not in text:
        assert names == [text]


_words = st.text("ab01-_", max_size=3)
_numbers = st.integers(-30, 30).flatmap(lambda n: st.sampled_from([str(n), f"{n:03d}", f"{n:02d}"]))
_ranges = st.one_of(
    st.builds("{{{}..{}}}".format, _numbers, _numbers),
    st.builds("{{{}..{}..{}}}".format, _numbers, _numbers, st.integers(-9, 9)),
    st.builds("{{{}..{}}}".format, st.sampled_from("abxyz"), st.sampled_from("abxyz")),
)
# Balanced: bash has rules of its own for braces without partners, and for "{}".
_patterns = st.recursive(
    _words | _ranges,
    lambda inner: st.one_of(
        st.lists(inner, min_size=1, max_size=3).map("".join),
        st.lists(inner, min_size=2, max_size=3).map(lambda parts: f"{{{','.join(parts)}}}"),
        inner.map(lambda part: f"{{{part}x}}"),
    ),
    max_leaves=6,
)


@settings(max_examples=15)
@given(st.lists(_patterns, min_size=10, max_size=30))
def test_bash_agrees(patterns: list[str]) -> None:
    bash = shutil.which("bash")
    if bash is None:
        pytest.skip("needs bash")
    few = [text for text in patterns if _count(text) <= 2000]
    script = "".join(f"printf '%s\\n' :{text}; printf '\\0'\n" for text in few)
    said = subprocess.run(
        [bash, "-c", script], capture_output=True, text=True, check=True, env={"LC_ALL": "C"}, timeout=60
    )
    for text, lines in zip(few, said.stdout.split("\0")[:-1], strict=True):
        assert expand_braces(f":{text}") == lines.splitlines(), text


def _count(text: str) -> int:
    try:
        return len(expand_braces(text, most=2000))
    except ValueError:
        return 2001


# --- names of record files ---


def _write(folder: Path, *names: str) -> None:
    for name in names:
        with recordio.RecordWriter(folder / name) as writer:
            writer.write(name.encode())


def _names(paths: tuple[str, ...]) -> list[str]:
    return [Path(path).name for path in paths]


def test_braces_name_local_files_in_their_order(tmp_path: Path) -> None:
    _write(tmp_path, "b.rec", "a.rec", "x-1.rec", "x-2.rec", "x-3.rec")
    assert _names(record_files(tmp_path / "{b,a}.rec")) == ["b.rec", "a.rec"]
    assert _names(record_files(f"{tmp_path}/x-{{3..2}}.rec")) == ["x-3.rec", "x-2.rec"]
    assert _names(record_files(f"{tmp_path}/{{x-*,a}}.rec")) == ["x-1.rec", "x-2.rec", "x-3.rec", "a.rec"]
    assert _names(record_files([tmp_path / "b.rec", f"{tmp_path}/x-{{1,3}}.rec"])) == [
        "b.rec",
        "x-1.rec",
        "x-3.rec",
    ]
    dataset = aioloader.RecordFileDataset(f"{tmp_path}/x-{{1..3}}.rec")
    assert [bytes(payload) for payload in dataset] == [b"x-1.rec", b"x-2.rec", b"x-3.rec"]


def test_each_file_of_braces_must_exist(tmp_path: Path) -> None:
    _write(tmp_path, "x-1.rec")
    with pytest.raises(FileNotFoundError, match=r"there is no file .*x-2\.rec"):
        record_files(f"{tmp_path}/x-{{1..2}}.rec")
    with pytest.raises(FileNotFoundError, match=r"no file matches the pattern .*y-\*\.rec"):
        record_files(f"{tmp_path}/{{x,y}}-*.rec")


def test_a_file_of_exactly_that_name_wins(tmp_path: Path) -> None:
    _write(tmp_path, "{a,b}.rec", "a.rec", "b.rec", "[ab]{1..2}.rec")
    for name in ("{a,b}.rec", "[ab]{1..2}.rec"):
        assert _names(record_files(tmp_path / name)) == [name]
        assert not is_pattern(str(tmp_path / name))
    assert is_pattern(f"{tmp_path}/{{b,a}}.rec")


@with_cases(
    ("url", "expected"),
    [
        ("http://host/x-{1..2}.rec", ["http://host/x-1.rec", "http://host/x-2.rec"]),
        (
            "https://host/{a,b}.rec?sig={1,2}",
            ["https://host/a.rec?sig={1,2}", "https://host/b.rec?sig={1,2}"],
        ),
        ("https://host/a.rec?x={1..3}&y=*", ["https://host/a.rec?x={1..3}&y=*"]),
        ("s3://bucket/{b,a}?.{rec}", None),
        ("gs://bucket/x-{09..10}.rec", ["gs://bucket/x-09.rec", "gs://bucket/x-10.rec"]),
        ("S3://{b,c}/a.rec", ["S3://b/a.rec", "S3://c/a.rec"]),
    ],
)
def test_braces_in_urls(url: str, expected: list[str] | None) -> None:
    if expected is None:  # it has to be listed
        assert is_pattern(url)
    else:
        assert list(record_files(url)) == expected
        assert is_pattern(url) is (expected != [url])
