"""Python programs that tests run in separate processes."""

import subprocess
import sys
import textwrap


def run_program(code, *before, **options):
    """Run a program to its end, with warnings as errors.

    Args:
        code: its text; it may be indented as a whole.
        before: another program and its arguments, which starts this one.
        options: of `subprocess.run`.

    Returns:
        What `subprocess.run` returns, with both outputs as texts.
    """
    return subprocess.run(
        [*before, sys.executable, "-W", "error", "-c", textwrap.dedent(code)],
        **{"capture_output": True, "text": True, "timeout": 120, **options},
    )
