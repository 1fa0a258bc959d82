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


def never():
    raise LookupError("there is no such thing here")


class OneWay:
    """Can be pickled, and not be unpickled."""

    def __reduce__(self):
        return never, ()


class Souvenirs:
    """Texts, and here and there what cannot come back from a worker process."""

    def __init__(self, n, bad):
        self.n = n
        self.bad = frozenset(bad)

    def __len__(self):
        return self.n

    def __getitem__(self, index):
        return f"sample {index}", OneWay() if index in self.bad else index
