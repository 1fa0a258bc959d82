"""Tests of the size of chunks: few chunks while many batches are on their way, and no idle workers at either end."""

import heapq

from aioloader.foundation.types import ChunkResult
from aioloader.pipeline.dispatch import average_s, chunk_size
from tests.cases import with_cases


def number_of_chunks(samples, workers, sample_s, **place):
    return -(-samples // chunk_size(samples, workers, sample_s, **place))


@with_cases("workers", [2, 8, 32, 64, 128])
def test_a_batch_among_many_is_one_chunk(workers):
    ahead = 2 * workers - 1
    assert number_of_chunks(64, workers, 0.0004, ahead=ahead, left=10_000) == 1


@with_cases(("workers", "chunks"), [(8, 3), (32, 1), (128, 1)])
def test_more_workers_allow_a_chunk_more_time(workers, chunks):
    assert number_of_chunks(256, workers, 0.0004, ahead=2 * workers - 1, left=10_000) == chunks


def test_the_first_and_the_last_batch_have_a_chunk_for_every_worker():
    for place in ({"ahead": 0, "left": 100}, {"ahead": 63, "left": 0}, {"ahead": 0, "left": None}):
        assert chunk_size(64, 32, 0.01, **place) == 2


def test_no_more_chunks_are_made_than_save_time():
    chunks = number_of_chunks(256, 128, 0.0004, ahead=0, left=100)
    assert chunks == 22

    def latency_s(count):
        return 0.0002 * count + 256 * 0.0004 / count

    assert latency_s(chunks) < min(latency_s(chunks // 2), latency_s(2 * chunks))


def test_a_batch_has_more_chunks_the_fewer_batches_share_the_workers():
    chunks = [number_of_chunks(256, 32, 0.001, ahead=ahead, left=1000) for ahead in range(64)]
    assert chunks[0] == chunks[1] == 32
    assert chunks == sorted(chunks, reverse=True)
    assert chunks[31] == chunks[63] == 2  # 0.128 s of each


def test_the_end_of_an_epoch_mirrors_its_beginning():
    begin = [chunk_size(256, 32, 0.0004, ahead=number, left=1000) for number in range(64)]
    assert begin == [chunk_size(256, 32, 0.0004, ahead=1000, left=number) for number in range(64)]


def test_without_a_known_end_a_chunk_takes_45_ms_at_most():
    assert chunk_size(256, 128, 0.001, ahead=255, left=None) <= 45
    assert chunk_size(256, 128, 0.001, ahead=255, left=1000) == 256


def test_a_batch_of_little_work_is_one_chunk_wherever_it_is():
    assert chunk_size(64, 8, 0.0001, ahead=0, left=0) == 64


def test_until_a_sample_was_measured_it_is_taken_for_a_slow_one():
    assert chunk_size(64, 2, 0.0, ahead=3, left=100) == 16
    assert chunk_size(64, 32, 0.0, ahead=0, left=100) == 2


def test_the_time_of_other_programs_makes_no_chunk_smaller():
    busy = ChunkResult(decode_s=1.2, transform_s=0.8, cpu_s=0.1, pauses=2)
    assert average_s(0.0, busy, 100) == 0.001
    assert average_s(0.002, busy, 100) == 0.8 * 0.002 + 0.2 * 0.001


def test_samples_that_wait_take_a_worker_all_the_time():
    assert average_s(0.0, ChunkResult(decode_s=1.2, transform_s=0.8, cpu_s=0.1, pauses=11), 100) == 0.02
    unmeasured = ChunkResult(decode_s=1.2, transform_s=0.8)
    assert average_s(0.0, unmeasured, 100) == 0.02


@with_cases("sample_s", [0.0, 1e-6, 0.5, 100.0])
@with_cases("samples", [1, 7, 64])
def test_a_chunk_has_a_sample_and_no_more_than_the_batch(samples, sample_s):
    for workers in (1, 3, 1024):
        for ahead in (0, 5, 5000):
            assert 1 <= chunk_size(samples, workers, sample_s, ahead=ahead, left=ahead) <= samples


def simulate(size, *, workers, batch, batches, sample_s):
    """Return when each batch is delivered, in an epoch whose caller takes batches at once.

    The loop dispatches one chunk after the other, in 0.2 ms each.
    """
    queue, events, delivered, done = [], [], [], set()
    running = [[] for _ in range(workers)]
    missing = {}
    issued = now = loop = 0

    def begin(worker):
        _, _, samples, dispatched = running[worker][0]
        heapq.heappush(events, (max(now, dispatched) + samples * sample_s, worker))

    def fill():
        while queue:
            worker = min(range(workers), key=lambda each: len(running[each]))
            if len(running[worker]) == 2:
                return
            running[worker].append(heapq.heappop(queue))
            if len(running[worker]) == 1:
                begin(worker)

    while len(delivered) < batches:
        while issued < batches and issued - len(delivered) < 2 * workers:
            known = sample_s if delivered else 0.0
            most = size(batch, workers, known, ahead=issued - len(delivered), left=batches - issued - 1)
            starts = range(0, batch, most)
            missing[issued] = len(starts)
            for start in starts:
                loop = max(loop, now) + 0.0002
                heapq.heappush(queue, (issued, start, min(most, batch - start), loop))
            fill()
            issued += 1
        now, worker = heapq.heappop(events)
        number = running[worker].pop(0)[0]
        if running[worker]:
            begin(worker)
        missing[number] -= 1
        if not missing[number]:
            done.add(number)
        while len(delivered) in done:
            delivered.append(now)
        fill()
    return delivered


def for_every_worker(samples, workers, sample_s, *, ahead, left):
    """Return the size of chunks of 45 ms at most, and as many as there are workers, wherever the batch is."""
    return max(1, min(int(0.045 / sample_s) if sample_s else 16, -(-samples // workers)))


@with_cases(
    ("workers", "batch", "sample_s"), [(8, 256, 0.0004), (16, 64, 0.01), (32, 64, 0.002), (64, 256, 0.0004)]
)
@with_cases("batches", [1, 4, 20, 150])
def test_few_chunks_finish_an_epoch_as_early_as_many(workers, batch, sample_s, batches):
    kind = {"workers": workers, "batch": batch, "batches": batches, "sample_s": sample_s}
    few, many = simulate(chunk_size, **kind), simulate(for_every_worker, **kind)
    assert few[0] <= 1.001 * many[0]
    assert few[-1] <= 1.05 * many[-1]


def test_where_waits_are_not_counted_samples_take_the_time_of_a_clock(monkeypatch):
    waited = ChunkResult(decode_s=2.0, cpu_s=0.1, pauses=0)  # as it is counted there
    monkeypatch.setattr("sys.platform", "darwin")
    assert average_s(0.0, waited, 100) == 0.02
