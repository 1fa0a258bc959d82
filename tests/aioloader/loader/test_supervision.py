"""Workers that die, hang or misbehave, and whatever else goes wrong around them: noticed, named, and put right."""

import asyncio
import contextlib
import ctypes
import os
import signal
import subprocess
import sys
import textwrap
import threading
import time

import anyio
import cloudpickle
import numpy as np
import psutil
import pytest

from aioloader import AsyncDataLoader, DataLoader, ImageFolderDataset, LoaderError, WorkerError
from tests.aioloader.loader.samples import Numbers, labels

EXECUTORS = ["inline", "thread", pytest.param("process", marks=pytest.mark.slow)]
# Workers need not import this module, and what it imports, whenever one is started.
cloudpickle.register_pickle_by_value(sys.modules[__name__])


# -- samples that end their worker -------------------------------------------------------------------------------------

DEATHS = {
    "SIGKILL": lambda: os.kill(os.getpid(), signal.SIGKILL),
    "SIGSEGV": lambda: ctypes.string_at(0),
    "SIGABRT": os.abort,
    "_exit": lambda: os._exit(3),
}
CODES = {"SIGKILL": -signal.SIGKILL, "SIGSEGV": -signal.SIGSEGV, "SIGABRT": -signal.SIGABRT, "_exit": 3}


class Deadly:
    """Numbers; item 25 ends the process that makes it, and leaves a line in a file before."""

    def __init__(self, how, tries):
        self.how = how
        self.tries = tries

    def __len__(self):
        return 60

    def __getitem__(self, index):
        if index == 25:
            with open(self.tries, "a") as file:
                file.write("one\n")
            DEATHS[self.how]()
        return index


@pytest.mark.slow
@pytest.mark.parametrize(
    ("how", "policy"),
    [(how, policy) for how in DEATHS for policy in ("skip", "replace")],
)
def test_a_sample_that_ends_its_worker_is_named_within_three_tries(how, policy, tmp_path, leftovers):
    tries = tmp_path / "tries"
    with DataLoader(Deadly(how, tries), 10, num_workers=2, on_error=policy) as loader:
        seen = [number for batch in loader for number in batch.tolist()]
        (error,) = loader.errors
        assert loader.stats().restarts == 3
    assert tries.read_text().count("one") == 3
    assert (error.index, type(error.__cause__), error.__cause__.exit_code) == (25, WorkerError, CODES[how])
    assert error.replaced_by == (None if policy == "skip" else 26)
    expected = [n for n in range(60) if n != 25]
    assert seen == (expected if policy == "skip" else sorted([*expected, 26]))


@pytest.mark.parametrize("executor", EXECUTORS)
def test_memory_that_is_not_there_fails_one_sample(executor):
    class Huge(Numbers):
        def __getitem__(self, index):
            return super().__getitem__(index) if index != 3 else np.ones(1 << 55)

    with DataLoader(Huge(8), 4, executor=executor, num_workers=2, on_error="skip") as loader:
        assert labels(loader) == [[0, 1, 2], [4, 5, 6, 7]]
        (error,) = loader.errors
        assert loader.stats().restarts == 0
    assert isinstance(error.__cause__, MemoryError)


# -- transforms that do what transforms should not ---------------------------------------------------------------------


@pytest.mark.parametrize("executor", EXECUTORS)
def test_sys_exit_fails_one_sample(executor):
    def leave(array, number):
        if number == 3:
            sys.exit("no more")
        return array, number

    dataset = Numbers(8)
    with DataLoader(
        transformed(dataset, leave), 4, executor=executor, num_workers=2, on_error="skip"
    ) as loader:
        assert labels(loader) == [[0, 1, 2], [4, 5, 6, 7]]
        (error,) = loader.errors
        assert loader.stats().restarts == 0
    assert (error.index, error.stage, str(error.__cause__)) == (3, "transform:leave", "no more")
    assert type(error.__cause__) is SystemExit


class Leaves(BaseException):
    """No error, as far as Python is concerned."""


@pytest.mark.parametrize("kind", [asyncio.CancelledError, GeneratorExit, KeyboardInterrupt, Leaves])
@pytest.mark.parametrize("executor", ["thread", pytest.param("process", marks=pytest.mark.slow)])
def test_whatever_a_batchify_function_raises_comes_in_its_place(executor, kind):
    def batchify(samples):
        numbers = [number for _, number in samples]
        if numbers[0] == 8:
            raise kind("not here")
        return numbers

    options = {"executor": executor, "num_workers": 1, "batchify_fn": batchify, "on_error": "skip"}
    seen = []
    with DataLoader(Numbers(20), 4, **options) as loader:
        with pytest.raises(LoaderError, match=f"the batchify function raised {kind.__name__}: not here"):
            seen.extend(loader)
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7]]


@pytest.mark.parametrize("kind", [asyncio.CancelledError, SystemExit, Leaves])
def test_whatever_a_sampler_raises_comes_in_its_place(kind):
    class Ending:
        def __len__(self):
            return 20

        def __iter__(self):
            yield from range(9)
            raise kind("not here")

    seen = []
    with DataLoader(Numbers(20), 4, sampler=Ending(), executor="thread", num_workers=1) as loader:
        with pytest.raises(LoaderError, match=f"the sampler raised {kind.__name__}: not here") as caught:
            for _, numbers in loader:
                seen.append(numbers.tolist())
    assert type(caught.value.__cause__) is kind
    assert seen == [[0, 1, 2, 3], [4, 5, 6, 7]]


class Mute(Exception):
    def __str__(self):
        raise LookupError("no words")

    __repr__ = __str__


@pytest.mark.parametrize("executor", EXECUTORS)
def test_an_exception_without_a_text_fails_one_sample(executor):
    def fail(array, number):
        if number == 3:
            raise Mute
        return array, number

    dataset = transformed(Numbers(8), fail)
    with DataLoader(dataset, 4, executor=executor, num_workers=1, on_error="skip") as loader:
        assert labels(loader) == [[0, 1, 2], [4, 5, 6, 7]]
        (error,) = loader.errors
        assert loader.error_report()["by_reason"] == {"Mute": 1}
    assert (error.index, type(error.__cause__)) == (3, Mute)
    assert "sample at index 3 failed in transform:fail: Mute: (no text: LookupError)" in str(error)


class Closing(Numbers):
    """Item 5 closes files that are not its own; its worker cannot answer any more."""

    def __getitem__(self, index):
        if index == 5:
            os.closerange(3, 1000)
        return super().__getitem__(index)


@pytest.mark.slow
@pytest.mark.parametrize("whole", [False, True], ids=["rows", "whole"])
def test_a_sample_after_which_its_worker_cannot_answer_is_named(whole, leftovers):
    batchify = (lambda samples: ([], np.array([number for _, number in samples]))) if whole else None
    with DataLoader(Closing(24), 4, num_workers=2, on_error="skip", batchify_fn=batchify) as loader:
        assert labels(loader) == [[n for n in range(s, s + 4) if n != 5] for s in range(0, 24, 4)]
        (error,) = loader.errors
    assert (error.index, type(error.__cause__)) == (5, WorkerError)


@pytest.mark.slow
def test_a_death_does_not_end_a_program_that_ends_at_broken_pipes():
    code = """
        import os, signal
        import aioloader
        signal.signal(signal.SIGPIPE, signal.SIG_DFL)
        class Data:
            def __len__(self): return 2000
            def __getitem__(self, i): return i
        with aioloader.DataLoader(Data(), 10, num_workers=2) as loader:
            seen = []
            for batch in loader:
                seen += batch.tolist()
                if len(seen) % 100 == 0:
                    for pid in loader._core.open().executor.pids[:1]:
                        os.kill(pid, signal.SIGKILL)
            print(seen == list(range(2000)), loader.stats().restarts > 0, loader.errors)
    """
    done = run_script(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "True True []\n", "")


def transformed(dataset, transform):
    from aioloader import SimpleDataset

    return SimpleDataset(dataset).transform(transform)


@pytest.mark.parametrize("executor", EXECUTORS)
def test_what_a_transform_prints_disturbs_nothing(executor, capfd):
    def talk(array, number):
        print("sample", number, "x" * 100_000)
        os.write(2, b"to standard error\n")
        return array, number

    with DataLoader(transformed(Numbers(6), talk), 3, executor=executor, num_workers=1) as loader:
        assert labels(loader) == [[0, 1, 2], [3, 4, 5]]
    told = capfd.readouterr()
    assert sorted(line.split()[1] for line in told.out.splitlines()) == list("012345")
    assert told.err.count("to standard error") == 6


@pytest.mark.slow
def test_a_transform_that_changes_directory_does_not_move_the_loader(photo_folder, tmp_path, monkeypatch):
    with DataLoader(ImageFolderDataset(photo_folder), 1, num_workers=0) as loader:
        expected = [(images.copy(), numbers.tolist()) for images, numbers in loader]
    (tmp_path / "elsewhere").mkdir()

    def wander(image, number):
        os.chdir(tmp_path / "elsewhere")
        return image, number

    monkeypatch.chdir(photo_folder.parent)
    dataset = ImageFolderDataset(photo_folder.name).transform(wander)
    with DataLoader(dataset, 1, num_workers=2) as loader:
        found = [(images.copy(), numbers.tolist()) for images, numbers in loader]
        assert os.getcwd() == str(photo_folder.parent.resolve())
    assert len(found) == len(expected)
    for (images, numbers), (others, same) in zip(found, expected, strict=True):
        np.testing.assert_array_equal(images, others)
        assert numbers == same


@pytest.mark.slow
def test_a_fork_that_comes_back_from_a_transform_does_not_answer_for_its_worker(leftovers):
    def fork(array, number):
        if number == 3 and os.fork() == 0:
            return array + 1000, -1
        return array, number

    with DataLoader(transformed(Numbers(40), fork), 4, num_workers=2) as loader:
        for _ in range(2):
            batches = [(array.copy(), numbers.tolist()) for array, numbers in loader]
            assert [numbers for _, numbers in batches] == [list(range(n, n + 4)) for n in range(0, 40, 4)]
            for array, numbers in batches:
                assert array[:, 0, 0].tolist() == numbers
        assert loader.stats().restarts == 0


class Forking:
    """Item 5 starts a process that stays, writes both numbers down, and waits to be killed."""

    def __init__(self, told):
        self.told = told

    def __len__(self):
        return 12

    def __getitem__(self, index):
        if index == 5 and not os.path.exists(self.told):
            child = os.fork()
            if child == 0:
                signal.pause()
            with open(f"{self.told}.new", "w") as file:
                file.write(f"{os.getpid()} {child}")
            os.rename(f"{self.told}.new", self.told)
            signal.pause()
        return index


@pytest.mark.slow
def test_a_death_is_noticed_although_a_child_of_the_worker_lives_on(tmp_path, leftovers):
    told = tmp_path / "numbers"
    found = []

    def kill():
        while not told.exists():
            stop.wait(0.01)
            if stop.is_set():
                return
        worker, child = map(int, told.read_text().split())
        found.append(psutil.Process(child))
        os.kill(worker, signal.SIGKILL)

    stop = threading.Event()
    killer = threading.Thread(target=kill)
    with DataLoader(Forking(told), 4, num_workers=1) as loader:
        killer.start()
        try:
            assert [batch.tolist() for batch in loader] == [[0, 1, 2, 3], [4, 5, 6, 7], [8, 9, 10, 11]]
        finally:
            stop.set()
            killer.join()
        assert loader.stats().restarts == 1
        psutil.wait_procs(found, timeout=5)
        assert not found[0].is_running() or found[0].status() == psutil.STATUS_ZOMBIE


# -- more than one thread, loop or process -----------------------------------------------------------------------------


def test_two_loops_at_once_are_refused_clearly(leftovers):
    entered, tried = threading.Event(), threading.Event()
    results = []

    async def first(loader):
        async for batch in loader:
            results.append(batch[1].tolist())
            entered.set()
            while not tried.is_set():
                await anyio.sleep(0.01)

    async def second(loader):
        async for _ in loader:
            pass

    loader = AsyncDataLoader(Numbers(20), 5, num_workers=1)
    thread = threading.Thread(target=lambda: asyncio.run(first(loader)))
    thread.start()
    entered.wait()
    try:
        with pytest.raises(RuntimeError, match="make a loader for each loop"):
            asyncio.run(second(loader))
    finally:
        tried.set()
        thread.join()
    assert results == [list(range(n, n + 5)) for n in range(0, 20, 5)]
    asyncio.run(second(loader))  # one after the other they may
    asyncio.run(loader.aclose())


@pytest.mark.parametrize("executor", ["thread", pytest.param("process", marks=pytest.mark.slow)])
def test_a_loop_that_was_closed_in_the_middle_of_a_pass_is_no_hang(executor):
    loader = AsyncDataLoader(Numbers(400), 5, executor=executor, num_workers=1)
    loop = asyncio.new_event_loop()
    batches = aiter(loader)
    loop.run_until_complete(anext(batches))
    tasks = asyncio.all_tasks(loop)

    async def another():
        async for _ in loader:
            return

    with pytest.raises(RuntimeError, match="make a loader for each loop"):
        asyncio.run(another())
    # What a program that does so leaves behind is put right here.
    for task in tasks:
        task.cancel()
    loop.run_until_complete(asyncio.gather(*tasks, return_exceptions=True))
    loop.run_until_complete(loader.aclose())
    loop.close()


def test_two_threads_in_a_loader_without_workers_are_refused_clearly():
    inside, tried = threading.Event(), threading.Event()

    class Waiting(Numbers):
        def __getitem__(self, index):
            if index == 7:
                inside.set()
                tried.wait()
            return super().__getitem__(index)

    loader = DataLoader(Waiting(20), 5, num_workers=0)
    results = []
    thread = threading.Thread(target=lambda: results.extend(labels(loader)))
    thread.start()
    inside.wait()
    try:
        with pytest.raises(RuntimeError, match="each thread needs a loader of its own"):
            next(iter(loader))
    finally:
        tried.set()
        thread.join()
    assert results == [list(range(n, n + 5)) for n in range(0, 20, 5)]
    assert len(labels(loader)) == 4


def test_uvloop():
    uvloop = pytest.importorskip("uvloop")

    async def main():
        async with AsyncDataLoader(Numbers(40), 5, num_workers=2) as loader:
            seen = [numbers.tolist() async for _, numbers in loader]
            os.kill(loader._core.open().executor.pids[0], signal.SIGKILL)
            seen += [numbers.tolist() async for _, numbers in loader]
            async for _ in loader:
                break
        return seen

    with asyncio.Runner(loop_factory=uvloop.new_event_loop) as runner:
        assert runner.run(main()) == 2 * [list(range(n, n + 5)) for n in range(0, 40, 5)]


@pytest.mark.slow
@pytest.mark.parametrize("leave", ["os._exit(0)", "del loader, batches, held; gc.collect(); sys.exit()"])
def test_a_fork_of_the_parent_while_it_loads_and_holds_batches(leave):
    code = f"""
        import gc, os, sys, warnings
        import numpy as np
        import aioloader
        warnings.filterwarnings("ignore", "This process", DeprecationWarning)  # of threads and forks, from 3.12 on
        class Data:
            def __len__(self): return 400
            def __getitem__(self, i): return np.full(1000, i)
        loader = aioloader.DataLoader(Data(), 10, num_workers=2)
        batches = iter(loader)
        held = [next(batches) for _ in range(3)]
        child = os.fork()
        if child == 0:
            assert [batch[:, 0].tolist() for batch in held] == [list(range(n, n + 10)) for n in (0, 10, 20)]
            try:
                next(batches)
            except aioloader.LoaderClosedError as error:
                print(error, flush=True)
            {leave}
        seen = [batch[:, 0].tolist() for batch in held]
        del held
        seen += [batch[:, 0].tolist() for batch in batches]
        print(os.waitpid(child, 0)[1], seen == [list(range(n, n + 10)) for n in range(0, 400, 10)])
        loader.close()
    """
    done = run_script(code)
    assert done.stderr == ""
    assert done.stdout == (
        "this loader belongs to the process that was forked; make a new one here\n0 True\n"
    )


def run_script(code, **options):
    return subprocess.run(
        [sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        capture_output=True,
        text=True,
        timeout=60,
        **options,
    )


# -- ends --------------------------------------------------------------------------------------------------------------

SCRIPT = """
    import asyncio, sys, time
    import aioloader

    class Data:
        def __len__(self): return 100_000
        def __getitem__(self, i):
            time.sleep(0.002)
            return i

    def blocking():
        {begin}
        for number, batch in enumerate(aioloader.DataLoader(Data(), 5, executor={executor!r}, num_workers=2)):
            if number == 1:
                print("loading", flush=True)

    async def main():
        {begin}
        loader = aioloader.AsyncDataLoader(Data(), 5, executor={executor!r}, num_workers=2)
        number = 0
        async for batch in loader:
            number += 1
            if number == 2:
                print("loading", flush=True)

    try:
        {call}
    except KeyboardInterrupt:
        print("interrupted", flush=True)
"""
CALLS = {"blocking": "blocking()", "async": "asyncio.run(main())"}


@pytest.mark.parametrize("face", ["blocking", pytest.param("async", marks=pytest.mark.slow)])
@pytest.mark.parametrize(
    "executor", [*[pytest.param(name, marks=pytest.mark.slow) for name in ("inline", "thread")], "process"]
)
@pytest.mark.parametrize(
    "group", [True, pytest.param(False, marks=pytest.mark.slow)], ids=["terminal", "kill"]
)
def test_ctrl_c_ends_a_program_that_loads(executor, face, group, leftovers):
    code = textwrap.dedent(SCRIPT).format(executor=executor, begin="pass", call=CALLS[face])
    program = subprocess.Popen(
        [sys.executable, "-c", code],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        start_new_session=True,
    )
    try:
        assert program.stdout.readline() == "loading\n"
        workers = psutil.Process(program.pid).children(recursive=True)
        assert len(workers) == (2 if executor == "process" else 0)
        # A terminal sends it to the whole foreground group.
        (os.killpg if group else os.kill)(program.pid, signal.SIGINT)
        out, err = program.communicate(timeout=20)
        assert (program.returncode, out, err) == (0, "interrupted\n", "")
        _gone, there = psutil.wait_procs(workers, timeout=2)
        assert there == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        program.stdout.close()
        program.stderr.close()


def workers_of(pid):
    """Worker processes that a program has started, be it gone or not: their command line names it."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or ()
        if "aioloader_worker" in words and f", {pid}, " in words[-1]:
            found.append(process)
    return found


@pytest.mark.slow
@pytest.mark.parametrize("face", CALLS)
@pytest.mark.parametrize("executor", EXECUTORS)
def test_ctrl_c_at_any_time_ends_it(executor, face, leftovers):
    # In the loop, where there is one: what asyncio says when it is interrupted before is not ours.
    begin = "print('begin', flush=True)"
    code = textwrap.dedent(SCRIPT).format(executor=executor, begin=begin, call=CALLS[face])
    # From the first statement on, over the start of the workers, to the middle of loading.
    for delay_s in (0, 0.02, 0.05, 0.1, 0.15, 0.25, 0.4, 0.8):
        with subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as program:
            assert program.stdout.readline() == "begin\n"
            time.sleep(delay_s)
            program.send_signal(signal.SIGINT)
            out, err = program.communicate(timeout=20)
            assert (program.returncode, out.removeprefix("loading\n"), err) == (0, "interrupted\n", ""), (
                delay_s
            )
            _gone, there = psutil.wait_procs(workers_of(program.pid), timeout=2)
            assert [each for each in there if each.status() != psutil.STATUS_ZOMBIE] == []


@pytest.mark.slow
@pytest.mark.parametrize("executor", ["thread", "process"])
def test_an_interpreter_that_ends_with_a_live_async_loader_just_ends(executor):
    code = f"""
        import asyncio
        import aioloader
        class Data:
            def __len__(self): return 1000
            def __getitem__(self, i): return i
        kept = []
        async def main():
            loader = aioloader.AsyncDataLoader(Data(), 4, executor={executor!r}, num_workers=2)
            batches = aiter(loader)
            print((await anext(batches)).tolist())
            kept.extend([loader, batches])
        asyncio.run(main())
    """
    done = run_script(code)
    assert (done.returncode, done.stdout, done.stderr) == (0, "[0, 1, 2, 3]\n", "")


@pytest.mark.slow
def test_without_descriptors_the_error_says_so_and_the_loader_can_be_used_later():
    code = """
        import gc, os, resource
        import aioloader
        class Data:
            def __len__(self): return 20
            def __getitem__(self, i): return i
        def use():
            with aioloader.DataLoader(Data(), 10, num_workers=2) as loader:
                return [batch.tolist() for batch in loader]
        expected = use()
        before = sorted(os.listdir("/proc/self/fd"))
        soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
        named = set()
        for spare in range(1, 34, 3):
            resource.setrlimit(resource.RLIMIT_NOFILE, (len(before) + spare, hard))
            try:
                assert use() == expected
            except (OSError, aioloader.WorkerError) as error:
                named.add("Too many open files" in str(error))
            resource.setrlimit(resource.RLIMIT_NOFILE, (soft, hard))
            gc.collect()
            after = sorted(os.listdir("/proc/self/fd"))
            assert len(after) == len(before), (spare, before, after)
        print(named, use() == expected)
    """
    done = run_script(code)
    assert (done.returncode, done.stdout) == (0, "{True} True\n"), done.stderr
