"""Tests of records as rows of Ray Data: every record once, in order, one task for each span."""

import numpy as np
import pytest

import recordio
from tests.aioloader.cluster import local_cluster

pytestmark = [
    pytest.mark.ray,
    pytest.mark.filterwarnings("ignore"),  # Ray's own
]


@pytest.fixture
def records(tmp_path):
    """Write a file with records of very different lengths; return its path and {key: payload}."""
    draw = np.random.default_rng(0)
    path = tmp_path / "some.rec"
    payloads = {}
    with recordio.RecordWriter(path, tmp_path / "some.idx") as writer:
        for key in range(100, 160):
            payloads[key] = draw.bytes(int(draw.integers(0, 5000)))
            writer.write(payloads[key], key=key)
    return path, payloads


@pytest.fixture
def datasource():
    pytest.importorskip("ray.data", reason="needs Ray: pip install 'aioloader[ray]'")
    pytest.importorskip("pyarrow")
    from aioloader.interop import ray

    return ray


def rows(tasks):
    return [row for task in tasks for table in task() for row in table.to_pylist()]


@pytest.mark.parametrize("parallelism", [1, 3, 7, 60, 1000])
@pytest.mark.parametrize("indexed", [True, False])
def test_the_tasks_give_every_record_once(datasource, records, parallelism, indexed):
    path, payloads = records
    if not indexed:
        path.with_suffix(".idx").unlink()
        payloads = dict(enumerate(payloads.values()))
    source = datasource.RecordIODatasource(path)
    tasks = source.get_read_tasks(parallelism)
    assert {row["key"]: row["payload"] for row in rows(tasks)} == payloads
    assert [row["key"] for row in rows(tasks)] == list(payloads)
    assert sum(task.metadata.num_rows for task in tasks) == len(payloads)
    assert sum(task.metadata.size_bytes for task in tasks) == source.estimate_inmemory_data_size()
    assert len(tasks) <= min(parallelism, len(payloads))
    if parallelism < 10:
        assert len(tasks) == parallelism
        sizes = [task.metadata.size_bytes for task in tasks]
        assert max(sizes) - min(sizes) <= 2 * 5100  # at most one record too many at either end


def test_an_index_of_some_records_gives_those(datasource, records, tmp_path):
    path, payloads = records
    lines = path.with_suffix(".idx").read_text().splitlines()[::-3]
    (tmp_path / "part.idx").write_text("".join(f"name-{line}\n" for line in lines))
    source = datasource.RecordIODatasource(path, tmp_path / "part.idx")
    got = rows(source.get_read_tasks(4))
    expected = {f"name-{key}": payload for key, payload in list(payloads.items())[::-3][::-1]}
    assert [(row["key"], row["payload"]) for row in got] == list(expected.items())


def test_few_rows_a_block_where_ray_asks_for_it(datasource, records):
    path, _ = records
    (task,) = datasource.RecordIODatasource(path).get_read_tasks(1, per_task_row_limit=7)
    assert sum(len(table) for table in task()) == 7


def test_an_empty_file_has_no_tasks(datasource, tmp_path):
    with recordio.RecordWriter(tmp_path / "none.rec", tmp_path / "none.idx"):
        pass
    source = datasource.RecordIODatasource(tmp_path / "none.rec")
    assert source.get_read_tasks(5) == []
    assert source.estimate_inmemory_data_size() == 0


def test_ray_data_reads_it_on_a_cluster(records):
    path, payloads = records
    with local_cluster() as cluster:
        import ray.data

        from aioloader.interop.ray import RecordIODatasource

        source = RecordIODatasource(path)
        found = ray.data.read_datasource(source, override_num_blocks=4).take_all()
        assert cluster.ray is ray
    assert {row["key"]: row["payload"] for row in found} == payloads
