"""Datasets that the loader's tests share."""

import time

import numpy as np


class Numbers:
    """Item i: a small array of the number i, and i itself."""

    def __init__(self, n=100, pause_s=0.0, fail=()):
        self.n = n
        self.pause_s = pause_s
        self.fail = tuple(fail)

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        if index in self.fail:
            raise LookupError(f"no item {index}")
        if self.pause_s:
            time.sleep(self.pause_s)
        return np.full((4, 4), index, np.int32), index


def labels(batches):
    """The numbers of all batches, one list each."""
    return [batch[1].tolist() for batch in batches]
