"""Tests of interrupted or ending programs: no hang, and no process or file is left."""

import contextlib
import os
import signal
import subprocess
import sys
import textwrap
import time

import psutil
import pytest

from tests.aioloader.loader.programs import run_program
from tests.executors import pool

pytestmark = pytest.mark.own_workers

SCRIPT = """
    import asyncio, faulthandler, signal, sys, time
    import numpy.random  # its compiled modules turn an interrupt of their import into an ImportError
    import aioloader

    signal.signal(signal.SIGINT, signal.default_int_handler)  # a shell ignores it for what runs in its background
    faulthandler.dump_traceback_later(200)  # if it does not end, the stacks say where it is

    class Data:
        def __len__(self): return 100_000
        def __getitem__(self, i):
            time.sleep(0.002)
            return i

    def blocking():
        {begin}
        for number, batch in enumerate(aioloader.DataLoader(Data(), 5, **{options!r})):
            if number == 1:
                print("loading", flush=True)

    async def main():
        {begin}
        loader = aioloader.AsyncDataLoader(Data(), 5, **{options!r})
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


def ended(program):
    """Return what a program printed; if it does not end within some minutes, fail with that."""
    try:
        return program.communicate(timeout=240)
    except subprocess.TimeoutExpired:
        program.kill()
        out, err = program.communicate()
        pytest.fail(f"the program did not end\n{out}\n{err}")


@pytest.mark.parametrize(
    ("executor", "face", "group"),
    [
        ("process", "blocking", True),
        *(
            pytest.param(*case, marks=pytest.mark.slow)
            for case in [
                ("process", "async", False),
                ("fork", "async", True),
                ("fork", "blocking", False),
                ("thread", "async", True),
                ("thread", "blocking", False),
                ("inline", "async", False),
                ("inline", "blocking", True),
            ]
        ),
    ],
)
def test_ctrl_c_ends_a_program_that_loads(executor, face, group, leftovers):
    code = textwrap.dedent(SCRIPT).format(options=pool(executor, 1), begin="pass", call=CALLS[face])
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
        assert len(workers) == (executor in ("process", "fork"))
        # A terminal sends it to the whole foreground group.
        (os.killpg if group else os.kill)(program.pid, signal.SIGINT)
        out, err = ended(program)
        assert (program.returncode, out, err) == (0, "interrupted\n", "")
        _gone, there = psutil.wait_procs(workers, timeout=30)
        assert there == []
    finally:
        with contextlib.suppress(ProcessLookupError):
            os.killpg(program.pid, signal.SIGKILL)
        program.wait()
        program.stdout.close()
        program.stderr.close()


def workers_of(pid):
    """Return the worker processes of a program, running or not: their command line has its id."""
    found = []
    for process in psutil.process_iter(["cmdline"]):
        words = process.info["cmdline"] or ()
        if words and "process.worker import main" in words[-1] and f"parent={pid}," in words[-1]:
            found.append(process)
    return found


@pytest.mark.slow
@pytest.mark.parametrize(
    ("executor", "face"),
    [("process", "blocking"), ("process", "async"), ("thread", "async"), ("inline", "blocking")],
)
def test_ctrl_c_at_any_time_ends_it(executor, face, leftovers):
    # In the loop, if there is one: asyncio's messages at an earlier interrupt are not ours.
    begin = "print('begin', flush=True)"
    code = textwrap.dedent(SCRIPT).format(options=pool(executor, 2), begin=begin, call=CALLS[face])
    # From the first statement, through the start of the workers, to the middle of loading.
    for delay_s in (0, 0.02, 0.05, 0.1, 0.15, 0.25, 0.4, 0.8):
        with subprocess.Popen(
            [sys.executable, "-c", code], stdout=subprocess.PIPE, stderr=subprocess.PIPE, text=True
        ) as program:
            assert program.stdout.readline() == "begin\n"
            time.sleep(delay_s)
            program.send_signal(signal.SIGINT)
            out, err = program.communicate(timeout=60)
            assert (out.removeprefix("loading\n"), err) == ("interrupted\n", ""), delay_s
            # CPython ends itself by the signal, although the program caught the exception, if the signal arrived while
            # a string was executed, as dataclasses and named tuples do when a module is imported.
            assert program.returncode in (0, -signal.SIGINT), delay_s
            _gone, there = psutil.wait_procs(workers_of(program.pid), timeout=30)
            assert [each for each in there if each.status() != psutil.STATUS_ZOMBIE] == []


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
    done = run_program(code)
    assert (done.returncode, done.stdout) == (0, "{True} True\n"), done.stderr
