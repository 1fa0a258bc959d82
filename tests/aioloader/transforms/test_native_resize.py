"""Tests of the compiled resize: the same bytes as without it for each set of instructions, and refused arguments."""

from __future__ import annotations

import os
import subprocess
import sys
from concurrent.futures import ThreadPoolExecutor
from typing import Any, NamedTuple
from unittest import mock

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from aioloader.foundation.native import NATIVE_VARIABLE, native
from aioloader.transforms import antialias
from aioloader.transforms.antialias import axis_table, resize_antialiased

if native is None:
    pytest.skip("aioloader._native is not built", allow_module_level=True)
LEVELS = native.resize_levels()
PARTS, CROPS = 20, 5_000
"""Tests of crops, and crops of each: together 100,000."""
GUARD = 64
kernels = st.sampled_from(["bilinear", "bicubic"])
sides = st.one_of(st.integers(1, 20), st.integers(1, 120))


class Level(NamedTuple):
    """The compiled part with one of its sets of instructions."""

    number: int

    def resize(self, *arguments: Any) -> None:
        native.resize(*arguments, self.number)


class Case(NamedTuple):
    """One resize."""

    x: Any
    size: tuple[int, int]
    kernel: str
    window: tuple[int, int, int, int]


def bytes_by(how: Level | None, case: Case) -> Any:
    """Return the result by a level, or by numpy; bytes around it must stay what they are."""
    shape = (*case.window[2:], case.x.shape[2])
    memory = np.full(int(np.prod(shape)) + 2 * GUARD, 7, np.uint8)
    out = memory[GUARD:-GUARD].reshape(shape)
    with mock.patch.object(antialias, "native", how):
        resize_antialiased(case.x, case.size, out, kernel=case.kernel, window=case.window)
    assert (memory[:GUARD] == 7).all()
    assert (memory[-GUARD:] == 7).all()
    return out


def all_equal(case: Case) -> bool:
    expected = bytes_by(None, case)
    return all(np.array_equal(bytes_by(Level(number), case), expected) for number in range(len(LEVELS)))


def drawn(rng: Any, rows: int, columns: int, channels: int) -> Any:
    """Return a view of a larger image: noise, only 0 and 255, or smooth."""
    kind = rng.integers(3)
    image = rng.integers(0, 256, (rows + 2, columns + 3, channels), np.uint8)
    if kind == 1:
        image = np.where(image > 127, np.uint8(255), np.uint8(0))
    elif kind == 2:
        image = (np.cumsum(image % 7, axis=1) % 256).astype(np.uint8)
    return image[1 : rows + 1, 2 : columns + 2]


@given(sides, sides, sides, sides, st.sampled_from([1, 3, 4]), kernels, st.integers(0, 2**32 - 1))
def test_every_level_gives_the_bytes_of_numpy(
    rows: int, columns: int, height: int, width: int, channels: int, kernel: str, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    top, left = int(rng.integers(height)), int(rng.integers(width))
    part = (top, left, int(rng.integers(1, height - top + 1)), int(rng.integers(1, width - left + 1)))
    x = drawn(rng, rows, columns, channels)
    for window in ((0, 0, height, width), part):
        assert all_equal(Case(x, (height, width), kernel, window))


@pytest.mark.slow
@pytest.mark.parametrize("part", range(PARTS))
def test_a_hundred_thousand_crops_have_the_bytes_of_numpy(part: int) -> None:
    rng, differ = np.random.default_rng(part), 0
    images = {(channels, kind): drawn(rng, 512, 512, channels) for channels in (1, 3, 4) for kind in range(4)}
    for _ in range(CROPS):
        rows, columns, height, width = (
            np.exp(rng.uniform(0, np.log((400, 400, 240, 240)))).astype(int).tolist()
        )
        if rng.random() < 0.1:
            height = rows
        top, left = rng.integers(512 - rows), rng.integers(512 - columns)
        image = images[(1, 3, 3, 4)[rng.integers(4)], int(rng.integers(4))]
        x = image[top : top + rows, left : left + columns]
        kernel = "bicubic" if rng.random() < 0.5 else "bilinear"
        differ += not all_equal(Case(x, (height, width), kernel, (0, 0, height, width)))
    assert differ == 0


@pytest.mark.parametrize("level", range(len(LEVELS)), ids=LEVELS)
def test_rows_in_another_order_or_far_apart(level: int) -> None:
    image = drawn(np.random.default_rng(1), 90, 70, 3)
    views = [
        image[::-1],
        image[:, ::-1],
        image[:, :, ::-1],
        image[::3],
        image[:, ::2],
        image.transpose(1, 0, 2),
    ]
    views.append(np.broadcast_to(image[:1], image.shape))
    for x in views:
        case = Case(x, (41, 57), "bicubic", (0, 0, 41, 57))
        assert np.array_equal(bytes_by(Level(level), case), bytes_by(None, case))


def test_threads_do_not_disturb_each_other() -> None:
    cases = [
        Case(drawn(np.random.default_rng(i), 64 + i, 80, 3), (40, 40), "bilinear", (0, 0, 40, 40))
        for i in range(8)
    ]
    expected = [bytes_by(None, case) for case in cases]
    outs = [np.empty((40, 40, 3), np.uint8) for _ in cases]

    def many(number: int) -> None:
        for _ in range(50):
            resize_antialiased(cases[number].x, (40, 40), outs[number], kernel="bilinear")

    with ThreadPoolExecutor(len(cases)) as threads:
        list(threads.map(many, range(len(cases))))
    assert all(map(np.array_equal, outs, expected))


# -- what is refused -------------------------------------------------------------------------------------------------

SOURCE, OUT = np.zeros((20, 30, 3), np.uint8), np.zeros((8, 9, 3), np.uint8)
COLUMNS = axis_table(30, 9, 0, 9, kernel="bilinear")
ROWS = axis_table(20, 8, 0, 8, kernel="bilinear")
TALL = np.lib.stride_tricks.as_strided(SOURCE, (1 << 40, 30, 3), (0, 3, 1))


def edited(table: Any, row: int, column: int, value: int) -> Any:
    table = table.copy()
    table[row, column] = value
    return table


REFUSED: dict[str, tuple[tuple[Any, ...], type[Exception]]] = {
    "no array": ((None, OUT, COLUMNS, ROWS), TypeError),
    "floats": ((SOURCE.astype(np.float32), OUT, COLUMNS, ROWS), ValueError),
    "a signed result": ((SOURCE, OUT.astype(np.int8), COLUMNS, ROWS), ValueError),
    "two axes": ((SOURCE[0], OUT, COLUMNS, ROWS), ValueError),
    "two channels": ((SOURCE[..., :2].copy(), OUT[..., :2].copy(), COLUMNS, ROWS), ValueError),
    "other channels": ((SOURCE[..., :1].copy(), OUT, COLUMNS, ROWS), ValueError),
    "no rows": ((SOURCE[:0], OUT, COLUMNS, ROWS), ValueError),
    "no result": ((SOURCE, OUT[:, :0].copy(), COLUMNS, ROWS), ValueError),
    "a mirrored source": ((SOURCE[:, ::-1], OUT, COLUMNS, ROWS), ValueError),
    "an upturned source": ((SOURCE[::-1], OUT, COLUMNS, ROWS), ValueError),
    "a row many times": ((TALL[:20], OUT, COLUMNS, ROWS), ValueError),
    "more rows than a number holds": ((TALL, OUT, COLUMNS, ROWS), ValueError),
    "a read-only result": (
        (SOURCE, np.broadcast_to(OUT, OUT.shape), COLUMNS, ROWS),
        (ValueError, BufferError),
    ),
    "a result with gaps": (
        (SOURCE, np.zeros((8, 18, 3), np.uint8)[:, ::2], COLUMNS, ROWS),
        (ValueError, BufferError),
    ),
    "no tables": ((SOURCE, OUT, None, None), ValueError),
    "no tables for the same extents": ((SOURCE, SOURCE.copy(), None, None), ValueError),
    "one table too few": ((SOURCE, OUT, COLUMNS, None), ValueError),
    "exchanged tables": ((SOURCE, OUT, ROWS, COLUMNS), ValueError),
    "a table of int64": ((SOURCE, OUT, COLUMNS.astype(np.int64), ROWS), ValueError),
    "a flat table": ((SOURCE, OUT, COLUMNS.ravel(), ROWS), ValueError),
    "a table without weights": ((SOURCE, OUT, COLUMNS[:, :1].copy(), ROWS), ValueError),
    "more weights than pixels": ((SOURCE, OUT, np.zeros((9, 32), np.int32), ROWS), ValueError),
    "a start before the first pixel": ((SOURCE, OUT, edited(COLUMNS, 0, 0, -1), ROWS), ValueError),
    "a start behind the last one": ((SOURCE, OUT, edited(COLUMNS, -1, 0, 30), ROWS), ValueError),
    "the greatest start": ((SOURCE, OUT, COLUMNS, edited(ROWS, -1, 0, 2**31 - 1)), ValueError),
    "starts that go back": ((SOURCE, OUT, COLUMNS, edited(ROWS, 5, 0, 0)), ValueError),
    "the greatest weight": ((SOURCE, OUT, edited(COLUMNS, 3, 1, 2**31 - 1), ROWS), ValueError),
    "the least weight": ((SOURCE, OUT, COLUMNS, edited(ROWS, 3, 1, -(2**31))), ValueError),
    "a level too many": ((SOURCE, OUT, COLUMNS, ROWS, len(LEVELS)), ValueError),
    "a negative level": ((SOURCE, OUT, COLUMNS, ROWS, -1), ValueError),
    "no integer": ((SOURCE, OUT, COLUMNS, ROWS, "avx2"), TypeError),
    "too few arguments": ((SOURCE, OUT, COLUMNS), TypeError),
}


def test_arguments_that_do_not_fit_are_refused() -> None:
    for name, (arguments, kind) in REFUSED.items():
        try:
            native.resize(*arguments)
        except kind as error:
            assert str(error), name
        else:
            pytest.fail(f"{name}: accepted")


def test_the_environment_can_forbid_it() -> None:
    code = "from aioloader.foundation.native import native, absence; print(native, absence)"
    done = subprocess.run(
        [sys.executable, "-c", code],
        env={**os.environ, NATIVE_VARIABLE: "0", "PYTHONPATH": os.pathsep.join(sys.path)},
        capture_output=True,
        text=True,
        check=True,
    )
    assert done.stdout == "None AIOLOADER_NATIVE=0 is set\n"
