"""Tests of resources that run out or disappear during loading: memory, disks, files, descriptors."""

import contextlib
import errno
import os
import resource
import signal
import subprocess

import psutil
import pytest

import recordio
from aioloader import DataLoader, RecordFileDataset
from aioloader.executors.shared_memory import SlabMemory, default_memory_limit
from aioloader.packing.lists import Listed, write_list
from aioloader.tools.pack import pack
from tests.aioloader.loader.programs import run_program
from tests.aioloader.loader.samples import Numbers, labels
from tests.aioloader.packing.sample_sets import files, write_folder

pytestmark = pytest.mark.own_workers


@contextlib.contextmanager
def limited(which, value):
    """Set a limit of this process for a while."""
    soft, hard = resource.getrlimit(which)
    resource.setrlimit(which, (value, hard))
    try:
        yield
    finally:
        resource.setrlimit(which, (soft, hard))


# -- memory ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("which", "option"), [(resource.RLIMIT_FSIZE, "-f"), (resource.RLIMIT_AS, "-v")])
def test_limits_of_the_process_bound_the_memory_of_batches(which, option, leftovers):
    there = psutil.Process().memory_info().vms if which == resource.RLIMIT_AS else 0
    with limited(which, there + (1 << 30)):
        assert default_memory_limit() <= (there + (1 << 30)) // 4
        with DataLoader(Numbers(8), 4, executor="thread", num_workers=1, memory_limit=1 << 26) as loader:
            assert labels(loader) == [[0, 1, 2, 3], [4, 5, 6, 7]]
        with pytest.raises(OSError, match=rf"lower memory_limit.*ulimit {option}") as caught:
            SlabMemory(1 << 33)
        assert caught.value.errno in (errno.EFBIG, errno.ENOMEM)


def can_mount():
    try:
        done = subprocess.run(
            ["unshare", "--mount", "mount", "-t", "tmpfs", "none", "/mnt"], capture_output=True, check=False
        )
    except OSError:
        return False
    return done.returncode == 0


def on_small_disk(place, size):
    """Return the start of a command that mounts a small separate disk at `place`."""
    if not can_mount():
        pytest.skip("nothing can be mounted here: that needs Linux, and root or a user namespace")
    return (
        "unshare",
        "--mount",
        "sh",
        "-c",
        f'mount -t tmpfs -o size={size} none "{place}" && exec "$@"',
        "sh",
    )


@pytest.mark.slow
def test_shared_memory_of_four_megabytes_is_enough(tmp_path):
    code = """
        import os
        import numpy as np
        import aioloader
        assert os.statvfs("/dev/shm").f_blocks * os.statvfs("/dev/shm").f_frsize == 4 << 20
        class Data:
            def __len__(self): return 64
            def __getitem__(self, i): return np.full(1 << 20, i, np.uint8)
        with aioloader.DataLoader(Data(), 16, num_workers=2) as loader:
            held = [batch for batch in loader]
            assert os.listdir("/dev/shm") == []
        print([batch[:, -1].tolist() == batch[:, 0].tolist() for batch in held], held[3][15, 0])
    """
    done = run_program(code, *on_small_disk("/dev/shm", "4m"))
    assert (done.returncode, done.stdout, done.stderr) == (0, "[True, True, True, True] 63\n", "")


# -- disks -------------------------------------------------------------------------------------------------------------


def test_packing_on_a_full_disk_is_an_error_and_what_was_there_stays(tmp_path):
    out = tmp_path / "out"
    report = pack(write_folder(tmp_path / "few", count=2), out / "images")
    before = files(out)
    more = write_folder(tmp_path / "more", count=300)
    with limited(resource.RLIMIT_FSIZE, 140_000), pytest.raises(OSError, match="File too large") as caught:
        pack(more, report.rec)
    assert caught.value.errno == errno.EFBIG
    assert files(out) == before
    assert len(before) == 4


@pytest.mark.slow
def test_packing_and_reading_on_a_disk_without_room(tmp_path):
    source = write_folder(tmp_path / "in", count=16)
    disk = tmp_path / "disk"
    disk.mkdir()
    code = f"""
        import errno, os
        import numpy as np
        import aioloader, recordio
        from aioloader.tools.pack import pack
        os.environ["XDG_CACHE_HOME"] = {str(disk)!r}
        report = pack({str(source)!r}, {str(disk / "images")!r})
        report.idx.unlink()
        before = sorted(os.listdir({str(disk)!r}))
        with open({str(disk / "filling")!r}, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError as error:
                assert error.errno == errno.ENOSPC
        try:
            pack({str(source)!r}, report.rec)
        except OSError as error:
            print(errno.errorcode[error.errno])
        print(sorted(set(os.listdir({str(disk)!r})) - {{"filling"}}) == before)
        # Without an index the file is scanned, and nothing can be kept of that.
        with aioloader.DataLoader(aioloader.ImageRecordDataset(report.rec), 4, num_workers=2) as loader:
            print([labels.tolist() for _, labels in loader])
    """
    done = run_program(code, *on_small_disk(disk, "64k"))
    assert done.stderr == ""
    assert done.stdout.splitlines() == ["ENOSPC", "True", str([[0] * 4, [0] * 4, [1] * 4, [1] * 4])]


def test_lists_on_a_full_disk_leave_what_was_there(tmp_path):
    images = [Listed(number, (1.0,), f"{number}.jpg") for number in range(100)]
    write_list(tmp_path / "images.lst", images[:2])
    before = files(tmp_path)
    with limited(resource.RLIMIT_FSIZE, 100), pytest.raises(OSError, match="File too large"):
        write_list(tmp_path / "images.lst", images)
    assert files(tmp_path) == before


# -- files and descriptors ---------------------------------------------------------------------------------------------


def test_a_record_file_that_is_deleted_is_read_to_its_end_by_new_workers_too(tmp_path, leftovers):
    path = tmp_path / "numbers.rec"
    with recordio.RecordWriter(path) as writer:
        for number in range(400):
            writer.write(b"%d" % number)
    with DataLoader(RecordFileDataset(path), 20, num_workers=1, prefetch=1) as loader:
        batches = iter(loader)
        found = [next(batches)]
        path.unlink()
        os.kill(loader._runtime.open().executor.pids[0], signal.SIGKILL)
        found += batches
        assert loader.stats().restarts == 1
    assert [int(bytes(record)) for batch in found for record in batch] == list(range(400))


@pytest.mark.slow
def test_a_program_without_standard_streams_loads(tmp_path):
    """A service may be started so. The first opened files would get the numbers 0, 1 and 2."""
    told = tmp_path / "told"
    code = f"""
        import os
        import numpy as np
        import aioloader
        class Data:
            def __len__(self): return 40
            def __getitem__(self, i):
                if i == 7: print("hello", flush=True)
                return np.full(100, i)
        for executor in "thread", "process":
            options = {{"executor": executor, "num_workers": 1, "on_error": "skip", "progress": True}}
            with aioloader.DataLoader(Data(), 10, **options) as loader:
                found = [batch[:, 0].tolist() for batch in loader]
                restarts = loader.stats().restarts
            with open({str(told)!r}, "a") as file:
                print((found, restarts), file=file)
    """
    done = run_program(code, "sh", "-c", 'exec "$@" <&- >&- 2>&-', "sh")
    assert done.returncode == 0
    found = [list(range(n, n + 10)) for n in range(0, 40, 10)]
    assert told.read_text() == f"{(found, 0)}\n" * 2


def test_without_any_room_on_its_disk_a_loader_goes_on_without_a_cache(tmp_path):
    place = tmp_path / "small"
    place.mkdir()
    with recordio.RecordWriter(tmp_path / "a.rec", tmp_path / "a.idx") as writer:
        for number in range(8):
            writer.write(bytes([number]) * 100, number)
    code = f"""
        import aioloader
        with open({str(place / "fill")!r}, "wb", buffering=0) as file:
            try:
                while True:
                    file.write(bytes(4096))
            except OSError as error:
                print(error.strerror)
        dataset = aioloader.RecordFileDataset({str(tmp_path / "a.rec")!r}, cache={str(place / "cache")!r})
        with aioloader.DataLoader(dataset, 4, batchify_fn=list, num_workers=0) as loader:
            print([[item[0] for item in batch] for _ in range(2) for batch in loader])
    """
    done = run_program(code, *on_small_disk(str(place), "64k"))
    assert done.returncode == 0, done.stderr
    assert done.stdout.splitlines() == ["No space left on device", str([[0, 1, 2, 3], [4, 5, 6, 7]] * 2)]
    assert done.stderr.count("continues without a cache") == 1
