"""Statistical checks of draws."""

import numpy as np


def uniform(values, low, high):
    """Return whether values look uniform in [low, high): Kolmogorov and Smirnov at a level of one in 10,000."""
    ordered = (np.sort(values) - low) / (high - low)
    assert -1e-6 <= ordered[0] <= ordered[-1] <= 1 + 1e-6
    steps = np.arange(len(ordered) + 1) / len(ordered)
    distance = max(np.abs(ordered - steps[1:]).max(), np.abs(ordered - steps[:-1]).max())
    return distance < 2.23 / np.sqrt(len(ordered))


def even(values, low, high):
    """Return whether integers in [low, high] are equally frequent: chi-squared, about one in 10,000."""
    counts = np.bincount(np.asarray(values) - low, minlength=high - low + 1)
    assert len(counts) == high - low + 1
    expected = len(values) / len(counts)
    freedom = len(counts) - 1
    return ((counts - expected) ** 2 / expected).sum() < freedom + 4 * np.sqrt(2 * freedom) + 8
