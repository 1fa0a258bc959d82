"""Tests of the figures of cold epochs over remote files of several formats."""

from __future__ import annotations

import pytest

from benchmarks.remote_formats import Epochs
from tests.servers.fault_proxy import Counts

COUNTS = Counts(7, 0, 7, 900, 100, 0, 1, 1, 0, {206: 7}, {})


def epoch(labels: list[int]) -> dict[str, object]:
    return {"labels": labels, "first_s": 1.0, "first_count": 2, "last_s": 3.0}


def test_rates_count_from_the_opening_and_from_the_first_batch() -> None:
    epochs = Epochs()
    epochs.add(epoch([3, 0, 2, 5, 1, 4]), COUNTS, 6)
    assert (epochs.whole, epochs.later, epochs.first_s) == ([2.0], [2.0], [1.0])
    assert (epochs.requests, epochs.nbytes) == ([7], [1000])


@pytest.mark.parametrize("labels", [[0, 1, 2, 3, 4], [0, 1, 2, 3, 4, 4], [0, 1, 2, 3, 4, 6]])
def test_an_epoch_with_other_samples_is_refused(labels: list[int]) -> None:
    with pytest.raises(SystemExit, match="of 6 samples"):
        Epochs().add(epoch(labels), COUNTS, 6)
