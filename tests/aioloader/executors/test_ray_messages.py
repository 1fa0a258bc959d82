"""Tests of chunks sent by value: a remote worker makes the same result as a local one."""

import pickle
from contextlib import asynccontextmanager
from types import SimpleNamespace

import numpy as np
import pytest

from aioloader import DataLoader, ImageRecordDataset, RecordFileDataset, SampleError, SimpleDataset
from aioloader.executors import RayExecutor
from aioloader.executors.process.child import pickled_program
from aioloader.executors.ray.worker import RayWorker, pack_request, write_rows
from aioloader.foundation.types import ChunkResult
from aioloader.transforms import Compose, RandomHorizontalFlip, RandomResizedCrop
from tests.aioloader.loader.samples import Made, Numbers, digest
from tests.cases import with_cases


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


def mix(index):
    """Return a name and numbers; every seventh image has another dtype, which does not fit the rows."""
    dtype = np.float64 if index % 7 == 3 else np.int64
    return {"name": f"item {index}", "image": np.full((4, 4), index, dtype), "score": index / 2}


RAGGED = Made(23, lambda index: np.arange(index % 5 + 1, dtype=np.float32))


def lengths_and_sum(samples):
    """Batchify to lengths and sum."""
    return [len(each) for each in samples], np.concatenate(samples)


CHAIN = Compose([RandomResizedCrop(24), RandomHorizontalFlip()])
CASES = {
    "images": (lambda rec: ImageRecordDataset(rec).transform_first(CHAIN), {}),
    "payloads": (lambda rec: RecordFileDataset(rec), {}),
    "names and types": (lambda rec: Made(40, mix), {}),
    "batchify": (lambda rec: RAGGED, {"batchify_fn": lengths_and_sum}),
    "batchify, failures replaced": (
        lambda rec: SimpleDataset(list(range(20))).transform(lambda x: np.ones(12 // (x % 4))),
        {"batchify_fn": lengths_and_sum, "on_error": "replace"},
    ),
    "failures left out": (lambda rec: Numbers(30, fail=(4, 5, 17)), {"on_error": "skip"}),
    "failures replaced": (lambda rec: Numbers(30, fail=(4, 5, 17)), {"on_error": "replace"}),
}


@with_cases("case", CASES)
def test_the_batches_are_those_made_here(case, photo_rec):
    make, options = CASES[case]
    options = {"shuffle": True, "seed": 4, **options}
    with (
        DataLoader(make(photo_rec), 6, num_workers=0, **options) as here,
        DataLoader(make(photo_rec), 6, executor=ByValue(), **options) as there,
    ):
        for _ in range(2):
            assert digest(here) == digest(there)
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


@with_cases(("num_cpus", "workers"), [(1, 7), (2, 3), (0, 7), (16, 1)])
def test_there_are_as_many_actors_as_free_processors_allow(monkeypatch, num_cpus, workers):
    ray = SimpleNamespace(available_resources=lambda: {"CPU": 7.0})
    monkeypatch.setattr("aioloader.executors.ray.executor.ray_in_use", lambda: ray)
    assert RayExecutor(num_cpus=num_cpus).workers == workers
