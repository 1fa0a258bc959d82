"""Contenders of `benchmarks.resume_proof`: each is a file with its pinned requirements, as in `benchmarks.contenders`.

A file defines ``VARIANTS``, a tuple of names, and a class ``Rank``:

    Rank(variant, rank, world, batch, states)
        opens the loader of one rank for `SAMPLES` samples, in another random order in each of `EPOCHS` epochs, at the
        place of `states`, those that all ranks of an earlier world saved, or None
    iter(rank)
        the (epoch, ids, draws) of each batch, to the end of the last epoch; a draw is a random number of its sample, by
        the means that the loader's guide names
    rank.state()
        its state behind the latest batch: a JSON value
"""

SAMPLES = 1003
"""A prime, so that nothing divides it."""
EPOCHS = 2
