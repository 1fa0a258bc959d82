"""`mx.rnn`: sentences as batches of numbers, in buckets of similar length. Cells of networks raise when used."""

from __future__ import annotations

import bisect
import random
from typing import TYPE_CHECKING, Any

import numpy as np

from aioloader.mxnet import ndarray
from aioloader.mxnet.io.iterator import DataBatch, DataDesc, DataIter
from aioloader.mxnet.outside import module_elsewhere, outside_class

if TYPE_CHECKING:
    from collections.abc import Iterable, Sequence

__all__ = ("BucketSentenceIter", "encode_sentences")

_OUTSIDE = frozenset(("rnn", "rnn_cell"))

__path__: list[str] = []


def encode_sentences(
    sentences: Iterable[Iterable[str]],
    vocab: dict[str, int] | None = None,
    invalid_label: int = -1,
    invalid_key: str = "\n",
    start_label: int = 0,
    unknown_token: str | None = None,
) -> tuple[list[list[int]], dict[str, int]]:
    """Return sentences as numbers, and the number of each word.

    Args:
        sentences: lists of words.
        vocab: numbers of known words; None: number the words in the order of their first use.
        invalid_label, invalid_key: a number that no word gets, and its name in the new `vocab`.
        start_label: the first number.
        unknown_token: replaces words that are not in `vocab`.

    Raises:
        AssertionError: a word is not in the given `vocab`, and there is no `unknown_token`.
    """
    new = vocab is None
    known = {invalid_key: invalid_label} if vocab is None else vocab
    following = start_label
    encoded = []
    for sentence in sentences:
        numbers = []
        for word in sentence:
            if word not in known:
                if not new and not unknown_token:
                    raise AssertionError(f"Unknown token {word}")
                following += following == invalid_label
                word = unknown_token or word
                known[word] = following
                following += 1
            numbers.append(known[word])
        encoded.append(numbers)
    return encoded, known


class BucketSentenceIter(DataIter):
    """Batches of sentences of similar length; the label of a word is the next word.

    The order is drawn from `random` and `numpy.random`, as in MXNet. Sentences longer than the largest bucket, and
    those that fill no batch, are left out.

    Args:
        sentences: lists of numbers.
        batch_size: sentences of a batch.
        buckets: lengths of batches; default: all that at least `batch_size` sentences have.
        invalid_label: the number after the end of a sentence.
        data_name, label_name: names of both.
        dtype: of both.
        layout: "NT", (batch_size, length), or "TN".

    Attributes:
        buckets: lengths that occur.
        default_bucket_key: the longest.
        discarded: number of sentences that are longer.

    Raises:
        ValueError: another layout.
    """

    def __init__(
        self,
        sentences: Sequence[Sequence[int]],
        batch_size: int,
        buckets: list[int] | None = None,
        invalid_label: int = -1,
        data_name: str = "data",
        label_name: str = "softmax_label",
        dtype: str = "float32",
        layout: str = "NT",
    ) -> None:
        super().__init__(batch_size)
        if layout.find("N") not in (0, 1):
            raise ValueError(f"Invalid layout {layout}: Must by NT (batch major) or TN (time major)")
        lengths = [len(sentence) for sentence in sentences]
        if not buckets:
            buckets = [n for n, count in enumerate(np.bincount(lengths)) if count >= batch_size]
        buckets = sorted(buckets)
        rows: list[list[Any]] = [[] for _ in buckets]
        self.discarded = 0
        for sentence, length in zip(sentences, lengths, strict=True):
            bucket = bisect.bisect_left(buckets, length)
            if bucket == len(buckets):
                self.discarded += 1
                continue
            row = np.full(buckets[bucket], invalid_label, dtype)
            row[:length] = sentence
            rows[bucket].append(row)
        if self.discarded:
            print(f"WARNING: discarded {self.discarded} sentences longer than the largest bucket.")  # noqa: T201
        self.data = [np.asarray(each, dtype) for each in rows if each]
        self.buckets = [bucket for bucket, each in zip(buckets, rows, strict=True) if each]
        self.data_name, self.label_name = data_name, label_name
        self.dtype, self.invalid_label, self.layout = dtype, invalid_label, layout
        self.default_bucket_key = max(self.buckets)
        shape = (batch_size, self.default_bucket_key)[:: 1 if self.major_axis == 0 else -1]
        self.provide_data = [DataDesc(data_name, shape, layout=layout)]
        self.provide_label = [DataDesc(label_name, shape, layout=layout)]
        self.idx = [
            (bucket, row)
            for bucket, each in enumerate(self.data)
            for row in range(0, len(each) - batch_size + 1, batch_size)
        ]
        self.reset()

    @property
    def major_axis(self) -> int:
        """Return the axis of the batch."""
        return self.layout.find("N")

    def reset(self) -> None:
        """Draw a new order, of batches and of the sentences of each bucket."""
        self.curr_idx = 0
        random.shuffle(self.idx)
        self.nddata, self.ndlabel = [], []
        for each in self.data:
            np.random.shuffle(each)
            label = np.full_like(each, self.invalid_label)
            label[:, :-1] = each[:, 1:]
            self.nddata.append(ndarray.array(each, dtype=self.dtype))
            self.ndlabel.append(ndarray.array(label, dtype=self.dtype))

    def next(self) -> DataBatch:
        """Return the next batch, with its bucket's length as `bucket_key`.

        Raises:
            StopIteration: the pass is over.
        """
        if self.curr_idx == len(self.idx):
            raise StopIteration
        bucket, row = self.idx[self.curr_idx]
        self.curr_idx += 1
        parts = [each[bucket][row : row + self.batch_size] for each in (self.nddata, self.ndlabel)]
        data, label = parts if self.major_axis == 0 else [part.T for part in parts]
        return DataBatch(
            [data],
            [label],
            pad=0,
            bucket_key=self.buckets[bucket],
            provide_data=[DataDesc(self.data_name, data.shape, layout=self.layout)],
            provide_label=[DataDesc(self.label_name, label.shape, layout=self.layout)],
        )


def __getattr__(name: str) -> Any:
    if name == "io" or name.startswith("__"):
        return module_elsewhere(__name__, name)
    return outside_class(f"mx.rnn.{name}")
