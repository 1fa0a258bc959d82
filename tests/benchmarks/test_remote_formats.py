"""Tests of the figures of cold epochs over remote files of several formats."""

from __future__ import annotations

import pytest

from benchmarks.remote_formats import Epoch
from tests.servers.fault_proxy import Counts

COUNTS = Counts(7, 0, 7, 900, 100, 0, 1, 1, 0, {206: 7}, {})


def epoch(labels: list[int]) -> dict[str, object]:
    return {"labels": labels, "first_s": 1.0, "first_count": 2, "last_s": 3.0, "imports_cpu_s": 0.5}


def test_rates_count_from_the_opening_and_from_the_first_batch() -> None:
    found = Epoch.of(epoch([3, 0, 2, 5, 1, 4]), COUNTS, 6, cpu_s=3.5)
    assert found == Epoch(whole=2.0, later=2.0, first_s=1.0, requests=7, nbytes=1000, cpu_s=0.5)


@pytest.mark.parametrize("labels", [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 4], [0, 1, 2, 3, 4, 6]])
def test_an_epoch_with_other_samples_is_refused(labels: list[int]) -> None:
    with pytest.raises(SystemExit, match="of 6 samples"):
        Epoch.of(epoch(labels), COUNTS, 6, cpu_s=3.5)
