"""Tests of the file of a crop index: what is written is read, and damage costs entries, never more."""

from __future__ import annotations

import os
import pickle
import random
import subprocess
import sys
import zlib
from pathlib import Path

import numpy as np
import pytest

from aioloader.crop_index.layout import FOLDER, HEADER_NBYTES, RECORDS, folder_key, read_frame
from aioloader.crop_index.reader import CropIndex
from aioloader.crop_index.writer import CropIndexWriter
from aioloader.errors import CropIndexBusyError, CropIndexError
from tests.cases import with_cases

IMAGES = {72: b"first", 8: b"second entry", 300: b"x" * 100, 2**63 + 5: b"far"}
REFUSED = {16: "progressive", 24: "too small", 32: "progressive"}


def write(path: Path, **options: int) -> None:
    writer = CropIndexWriter(path, kind=RECORDS, **options)
    for key, entry in IMAGES.items():
        writer.put(key, 1000, entry)
    for key, reason in REFUSED.items():
        writer.refuse(key, 50, reason)
    writer.finish()


@pytest.fixture
def made(tmp_path: Path) -> Path:
    path = tmp_path / "a.crops"
    write(path)
    return path


def contents(index: CropIndex) -> dict[int, bytes | None]:
    found = {key: index.find(key) for key in (*IMAGES, *REFUSED, 0, 9, 2**64 - 1)}
    return {key: None if entry is None else bytes(entry) for key, entry in found.items()}


def test_entries_are_found_by_their_keys(made: Path) -> None:
    index = CropIndex(str(made))
    assert contents(index) == IMAGES | dict.fromkeys((*REFUSED, 0, 9, 2**64 - 1))
    assert len(index) == 7
    assert index.header.jpeg_nbytes == 4000
    assert index.refused() == {"progressive": 2, "too small": 1}
    assert index.tables().keys.tolist() == sorted([*IMAGES, *REFUSED])
    assert [path.name for path in made.parent.iterdir()] == ["a.crops"]


def test_an_empty_index_has_no_entries(tmp_path: Path) -> None:
    path = tmp_path / "a.crops"
    CropIndexWriter(path, kind=FOLDER).finish()
    index = CropIndex(str(path))
    assert (len(index), index.find(0), index.refused()) == (0, None, {})


def test_the_last_of_several_entries_with_one_key_counts(tmp_path: Path) -> None:
    path = tmp_path / "a.crops"
    writer = CropIndexWriter(path, kind=RECORDS)
    writer.put(8, 10, b"old")
    writer.refuse(16, 10, "why")
    writer.put(8, 20, b"new")
    writer.put(16, 30, b"now")
    writer.finish()
    index = CropIndex(str(path))
    assert (bytes(index.find(8) or b""), bytes(index.find(16) or b"")) == (b"new", b"now")
    assert (len(index), index.header.jpeg_nbytes, index.refused()) == (2, 50, {})


def test_a_pickled_index_finds_the_same_entries(made: Path) -> None:
    index = CropIndex(str(made))
    index.find(8)
    data = pickle.dumps(index)
    assert len(data) < 1000
    assert contents(pickle.loads(data)) == contents(index)


def test_a_file_that_was_replaced_is_checked_again(made: Path) -> None:
    pickled = pickle.dumps(CropIndex(str(made)))
    data = bytearray(made.read_bytes())
    data[-3] ^= 1
    made.unlink()
    made.write_bytes(data)
    assert pickle.loads(pickled).find(8) is None
    made.unlink()
    assert pickle.loads(pickled).find(8) is None


def test_a_truncated_file_is_refused(made: Path) -> None:
    for length in (200, HEADER_NBYTES, 10, 0):
        os.truncate(made, length)
        with pytest.raises(CropIndexError, match="index --crops") as caught:
            CropIndex(str(made))
        assert caught.value.path == str(made)
        assert caught.value.reason


@pytest.mark.skipif(sys.platform == "win32", reason="Windows does not truncate mapped files")
def test_a_large_file_truncated_after_it_was_opened_does_not_end_the_process(tmp_path: Path) -> None:
    path = tmp_path / "a.crops"
    writer = CropIndexWriter(path, kind=RECORDS)
    for key in range(1000):
        writer.put(8 * key, 100, b"entry" * 10)
    writer.finish()
    code = (
        "import os, sys\n"
        "from aioloader.crop_index.reader import CropIndex\n"
        "from aioloader.errors import CropIndexError\n"
        "for length in (20_000, 4096, 0):\n"
        "    open(sys.argv[2], 'wb').write(open(sys.argv[1], 'rb').read())\n"
        "    index = CropIndex(sys.argv[2])\n"
        "    assert index.find(80) is not None\n"
        "    os.truncate(sys.argv[2], length)\n"
        "    assert index.find(80) is None\n"
        "    try:\n"
        "        index.tables()\n"
        "    except CropIndexError as error:\n"
        "        assert 'truncated' in error.reason\n"
        "    else:\n"
        "        raise AssertionError\n"
    )
    subprocess.run([sys.executable, "-c", code, str(path), str(tmp_path / "b.crops")], check=True)


@with_cases("reasons", [b"[" * 900 + b"]" * 900, b"[1]", b"{}", b"\xff"], ids=range(4))
def test_a_list_of_reasons_that_is_not_one_is_refused(made: Path, reasons: bytes) -> None:
    """Somebody wrote it with right checksums."""
    header, data = CropIndex(str(made)).header, made.read_bytes()
    made = made.with_name("forged.crops")
    tables = data[header.tables_at : len(data) - header.reasons_nbytes] + reasons
    changed = header._replace(reasons_nbytes=len(reasons), tables_crc=zlib.crc32(tables)).packed()
    made.write_bytes(changed + data[HEADER_NBYTES : header.tables_at] + tables)
    with pytest.raises(CropIndexError, match="list of reasons"):
        CropIndex(str(made))


def test_any_changed_byte_of_header_and_tables_is_noticed(made: Path) -> None:
    data = made.read_bytes()
    tables_at = CropIndex(str(made)).header.tables_at
    for place in (*range(HEADER_NBYTES), *range(tables_at, len(data), 3)):
        made.write_bytes(data[:place] + bytes((data[place] ^ 0x10,)) + data[place + 1 :])
        with pytest.raises(CropIndexError):
            CropIndex(str(made))


def test_tables_that_lie_are_not_followed_outside_of_the_file(made: Path) -> None:
    """Somebody wrote tables whose checksums are right."""
    index = CropIndex(str(made))
    header, tables, data = index.header, index.tables(), made.read_bytes()
    for places in ([2**64 - 1] * 7, [len(data) - 2] * 7, [len(data)] * 7):
        lying = tables._replace(places=np.array(places, np.uint64), lengths=np.full(7, 50, np.uint32))
        packed = lying.packed()
        changed = header._replace(tables_crc=zlib.crc32(packed)).packed()
        made.write_bytes(changed + data[HEADER_NBYTES : header.tables_at] + packed)
        assert set(contents(CropIndex(str(made))).values()) == {None}


def test_other_files_are_refused(tmp_path: Path) -> None:
    path = tmp_path / "a.crops"
    path.write_bytes(os.urandom(500))
    with pytest.raises(CropIndexError, match="not a crop index"):
        CropIndex(str(path))
    with pytest.raises(IsADirectoryError):
        CropIndex(str(tmp_path))


def test_an_interrupted_writer_is_continued_wherever_it_stopped(tmp_path: Path) -> None:
    whole = tmp_path / "whole.crops"
    write(whole)
    path, partial = tmp_path / "a.crops", tmp_path / "a.crops.partial"
    stopped = CropIndexWriter(path, kind=RECORDS)
    items = list(IMAGES.items())
    for key, entry in items:
        stopped.put(key, 1000, entry)
    stopped.close()
    data = partial.read_bytes()
    continued = set()
    for length in (*range(0, len(data), 3), len(data)):
        partial.write_bytes(data[:length])
        writer = CropIndexWriter(path, kind=RECORDS)
        keys, sizes = writer.restored()
        continued.add(len(writer))
        assert keys.tolist() == sorted(key for key, _ in items[: len(writer)])
        assert set(sizes.tolist()) <= {1000}
        for key, entry in items[len(writer) :]:
            writer.put(key, 1000, entry)
        for key, reason in REFUSED.items():
            writer.refuse(key, 50, reason)
        writer.finish()
        assert path.read_bytes() == whole.read_bytes()
    assert continued == {0, 1, 2, 3, 4}


def test_a_partial_file_of_another_state_is_begun_again(tmp_path: Path) -> None:
    path = tmp_path / "a.crops"
    for options, count in (({"source": 7}, 1), ({"source": 8}, 0), ({"source": 8, "resume": False}, 0)):
        before = CropIndexWriter(path, kind=RECORDS, source=7)
        before.put(8, 10, b"entry")
        before.close()
        writer = CropIndexWriter(path, kind=RECORDS, **options)  # type: ignore[arg-type]
        assert len(writer) == count
        writer.close()
        (tmp_path / "a.crops.partial").unlink()
    (tmp_path / "a.crops.partial").write_bytes(b"something else" * 100)
    other = CropIndexWriter(path, kind=RECORDS)
    assert len(other) == 0
    other.finish()
    assert len(CropIndex(str(path))) == 0


def test_one_process_at_a_time_writes(tmp_path: Path) -> None:
    path = tmp_path / "a.crops"
    writer = CropIndexWriter(path, kind=RECORDS)
    with pytest.raises(CropIndexBusyError, match=r"a\.crops"):
        CropIndexWriter(path, kind=RECORDS)
    writer.finish()
    CropIndexWriter(path, kind=RECORDS).close()


def test_a_killed_writer_loses_nothing_that_it_flushed(tmp_path: Path) -> None:
    script = (
        "import os, signal, sys\n"
        "from aioloader.crop_index.writer import CropIndexWriter\n"
        "writer = CropIndexWriter(sys.argv[1], kind=1)\n"
        "for key in range(50): writer.put(key, 10, b'entry')\n"
        "writer.flush()\n"
        "writer.put(50, 10, bytes(2 << 20))\n"
        "os.kill(os.getpid(), signal.SIGKILL)\n"
    )
    path = tmp_path / "a.crops"
    assert subprocess.run([sys.executable, "-c", script, str(path)], check=False).returncode == -9
    assert not path.exists()
    writer = CropIndexWriter(path, kind=RECORDS)
    assert len(writer) >= 50
    writer.close()


def test_keys_of_folders_depend_on_the_relative_name_alone() -> None:
    assert folder_key("cats/1.jpg") == 0xBA360FC8CE306C3D
    assert len({folder_key(name) for name in ("a/b", "a/B", "ab", "a/b/", "\udcff")}) == 5


def test_a_damaged_frame_ends_what_is_continued(tmp_path: Path) -> None:
    path, partial = tmp_path / "a.crops", tmp_path / "a.crops.partial"
    stopped = CropIndexWriter(path, kind=RECORDS)
    for key, entry in IMAGES.items():
        stopped.put(key, 1000, entry)
    stopped.close()
    data = partial.read_bytes()
    first = read_frame(memoryview(data), HEADER_NBYTES)
    assert first is not None
    for place in range(first.end, len(data)):
        partial.write_bytes(data[:place] + bytes((data[place] ^ 1,)) + data[place + 1 :])
        writer = CropIndexWriter(path, kind=RECORDS)
        assert 1 <= len(writer) <= 4
        assert set(writer.restored()[0].tolist()) <= set(IMAGES)
        writer.close()


def test_damaged_files_are_refused_or_read_inside_the_file(made: Path, tmp_path: Path) -> None:
    """Damage, half of it with checksums that are right, causes no other error; and a writer begins again."""
    rng = random.Random(5)
    data = made.read_bytes()
    path, partial = tmp_path / "d.crops", tmp_path / "d.crops.partial"
    opened = 0
    for _ in range(400):
        changed = bytearray(data)
        for _ in range(rng.randint(1, 5)):
            place = rng.choice([rng.randrange(HEADER_NBYTES), rng.randrange(len(data))])
            changed[place] = rng.choice([0, 255, changed[place] ^ 1 << rng.randrange(8)])
        if rng.random() < 0.2:
            del changed[rng.randrange(HEADER_NBYTES, len(changed)) :]
        if rng.random() < 0.5:
            changed[:12] = data[:12]
            tables_at = int.from_bytes(changed[24:32], "little")
            changed[52:56] = zlib.crc32(changed[tables_at:]).to_bytes(4, "little")
            changed[60:64] = zlib.crc32(changed[:60]).to_bytes(4, "little")
        path.unlink(missing_ok=True)
        path.write_bytes(changed)
        try:
            index = CropIndex(str(path))
        except CropIndexError:
            pass
        else:
            opened += 1
            contents(index)
            assert sum(index.refused().values()) <= len(index)
            list(index.images())
        partial.write_bytes(changed)
        writer = CropIndexWriter(path, kind=RECORDS)
        writer.put(8, 10, b"entry")
        writer.finish()
        assert bytes(CropIndex(str(path)).find(8) or b"") == b"entry"
    assert opened > 20
