"""Tests of chunks sent by value: a remote worker makes the same result as a local one."""

import pickle
from contextlib import asynccontextmanager

import numpy as np
import pytest

from aioloader import DataLoader, ImageRecordDataset, RecordFileDataset, SampleError, SimpleDataset
from aioloader.executors.process.child import pickled_program
from aioloader.executors.ray.worker import RayWorker, pack_request, write_rows
from aioloader.foundation.pytree import flatten
from aioloader.foundation.types import ChunkResult
from aioloader.transforms import Compose, RandomHorizontalFlip, RandomResizedCrop
from tests.aioloader.loader.samples import Numbers


class ByValue:
    """Worker of a cluster without the cluster: all messages in both directions are pickled."""

    workers = 2

    def open(self, program, memory):
        self.memory = memory
        self.worker = RayWorker()
        blob = self.worker.load(pickled_program(program))
        if blob is not None:
            raise pickle.loads(blob)

    @asynccontextmanager
    async def serving(self):
        yield

    async def run(self, chunks):
        result = ChunkResult()
        for chunk in chunks:
            try:
                request = pickle.loads(pickle.dumps(pack_request(chunk, self.memory)))
                response = pickle.loads(pickle.dumps(self.worker.run(*request)))
                result.merge(write_rows(response, chunk, self.memory))
            finally:
                chunk.release()
        return result

    def close(self):
        self.memory = None


class Mixed:
    """Dataset of a name and numbers; every seventh image has another dtype, which does not fit the rows."""

    def __len__(self):
        return 40

    def __getitem__(self, index):
        dtype = np.float64 if index % 7 == 3 else np.int64
        return {"name": f"item {index}", "image": np.full((4, 4), index, dtype), "score": index / 2}


class Ragged:
    """Dataset whose item i is an array of length i % 5 + 1."""

    def __len__(self):
        return 23

    def __getitem__(self, index):
        return np.arange(index % 5 + 1, dtype=np.float32)


def lengths_and_sum(samples):
    """Batchify to lengths and sum."""
    return [len(each) for each in samples], np.concatenate(samples)


def same(one, other):
    (structure, leaves), (structure_2, leaves_2) = flatten(one), flatten(other)
    assert structure == structure_2
    for leaf, leaf_2 in zip(leaves, leaves_2, strict=True):
        assert type(leaf) is type(leaf_2)
        if isinstance(leaf, np.ndarray):
            assert (leaf.dtype, leaf.shape) == (leaf_2.dtype, leaf_2.shape)
            assert leaf.tobytes() == leaf_2.tobytes()
        else:
            assert leaf == leaf_2


CHAIN = Compose([RandomResizedCrop(24), RandomHorizontalFlip()])
CASES = {
    "images": (lambda rec: ImageRecordDataset(rec).transform_first(CHAIN), {}),
    "payloads": (lambda rec: RecordFileDataset(rec), {}),
    "names and types": (lambda rec: Mixed(), {}),
    "batchify": (lambda rec: Ragged(), {"batchify_fn": lengths_and_sum}),
    "batchify, failures replaced": (
        lambda rec: SimpleDataset(list(range(20))).transform(lambda x: np.ones(12 // (x % 4))),
        {"batchify_fn": lengths_and_sum, "on_error": "replace"},
    ),
    "failures left out": (lambda rec: Numbers(30, fail=(4, 5, 17)), {"on_error": "skip"}),
    "failures replaced": (lambda rec: Numbers(30, fail=(4, 5, 17)), {"on_error": "replace"}),
}


@pytest.mark.parametrize("case", CASES)
def test_the_batches_are_those_made_here(case, photo_rec):
    make, options = CASES[case]
    options = {"shuffle": True, "seed": 4, **options}
    with (
        DataLoader(make(photo_rec), 6, num_workers=0, **options) as here,
        DataLoader(make(photo_rec), 6, executor=ByValue(), **options) as there,
    ):
        for _ in range(2):
            for one, other in zip(here, there, strict=True):
                same(one, other)
        assert [error.facts() for error in there.errors] == [error.facts() for error in here.errors]


def test_an_error_keeps_its_type_and_names_its_sample():
    with DataLoader(Numbers(30, fail=(17,)), 6, executor=ByValue()) as loader:
        batches = iter(loader)
        assert len([next(batches), next(batches)]) == 2
        with pytest.raises(SampleError) as caught:
            next(batches)
    assert caught.value.index == 17
    assert isinstance(caught.value.__cause__, LookupError)


def test_what_a_batchify_function_raises_is_the_error_of_its_batch():
    def refuse(samples):
        raise ZeroDivisionError("no batch today")

    with DataLoader(Numbers(30), 6, executor=ByValue(), batchify_fn=refuse) as loader:
        with pytest.raises(ZeroDivisionError, match="no batch today"):
            next(iter(loader))
