"""Tests of `explain` with given counters; `loader/test_bottlenecks.py` has running loaders."""

import dataclasses
import re

import numpy as np
import pytest

from aioloader import ArrayDataset, DataLoader
from aioloader.explain import explain
from aioloader.metrics import LoaderConfig, Metrics
from tests.cases import with_cases

WORDS = ("storage", "decode", "transform", "consumer", "workers", "memory")
QUIET = dataclasses.replace(
    Metrics().snapshot(2, 0, (0, 1 << 20, 1 << 30), None, LoaderConfig(cores=2, prefetch=4)),
    seconds=10.0,
    batches=10,
    samples=1000,
    wait_s=9.0,
    consumer_s=1.0,
)
BLUR = {"blur": 16.0, "flip": 1.0}
CASES = {
    "consumer": ("consumer", {"wait_s": 0.5, "consumer_s": 9.5, "decode_s": 9.0}),
    "consumer, mostly": ("consumer", {"wait_s": 3.0, "consumer_s": 7.0, "decode_s": 3.0}),
    "decode": ("decode", {"decode_s": 18.0, "transform_s": 1.0, "cpu_s": 18.0}),
    "decode, split transforms": (
        "decode",
        {"decode_s": 6.0, "transform_s": 10.0, "transforms": {"a": 5.0, "b": 5.0}},
    ),
    "transform": ("transform", {"decode_s": 2.0, "transform_s": 17.0, "transforms": BLUR}),
    "batchify": ("transform", {"decode_s": 2.0, "collate_s": 14.0, "batchify": "pad"}),
    "storage": ("storage", {"decode_s": 2.0, "fetch_s": 30.0, "waits": {"fetch": 8.0, "work": 1.0}}),
    "storage, from workers": (
        "storage",
        {
            "decode_s": 19.0,
            "work_s": 19.5,
            "cpu_s": 1.0,
            "pauses": 2000,
            "foreign": True,
            "waits": {"work": 9.0},
        },
    ),
    "storage, inline": ("storage", {"executor": "inline", "workers": 1, "fetch_s": 7.0, "decode_s": 1.5}),
    "storage, a source": (
        "storage",
        {"executor": "thread", "decode_s": 2.0, "waits": {"start": 8.0, "work": 1.0}},
    ),
    "transform, awaited": ("transform", {"decode_s": 2.0, "awaited": {"caption": 40.0, "tag": 3.0}}),
    "transform, awaited inline": (
        "transform",
        {"executor": "inline", "workers": 1, "decode_s": 2.0, "awaited": {"caption": 40.0}},
    ),
    "storage, a source without workers": (
        "storage",
        {"executor": "inline", "workers": 1, "waits": {"start": 8.0, "work": 1.0}},
    ),
    "transform, that holds the loop": (
        "transform",
        {"awaited": {"caption": 9.0}, "loop_held_s": 8.0, "loop_lag_p99_s": 0.1, "process_cpu_s": 8.0},
    ),
    "consumer, that holds the loop": (
        "consumer",
        {"decode_s": 1.0, "loop_held_s": 6.0, "loop_lag_p99_s": 0.1, "process_cpu_s": 6.0},
    ),
    "workers, short passes": ("workers", {"decode_s": 3.0, "passes": 5, "first_wait_s": 6.0}),
    "workers, none, and light work": (
        "workers",
        {"executor": "inline", "workers": 1, "work_s": 5.0, "transform_s": 0.5, "transforms": {"add": 0.5}},
    ),
    "storage, while opening": ("storage", {"executor": "thread", "decode_s": 3.0, "startup_s": 8.0}),
    "memory": ("memory", {"decode_s": 9.0, "memory_wait_s": 6.0, "waits": {"work": 9.0}}),
    "memory, arrays": ("memory", {"executor": "inline", "workers": 1, "collate_s": 6.0}),
    "workers, too few": ("workers", {"decode_s": 19.0, "cores": 8, "cpu_s": 19.0}),
    "workers, idle": ("workers", {"decode_s": 3.0}),
    "workers, starting": ("workers", {"decode_s": 3.0, "startup_s": 8.0}),
    "workers, none": ("workers", {"executor": "inline", "workers": 1, "decode_s": 1.0}),
    "decode, inline": ("decode", {"executor": "inline", "workers": 1, "decode_s": 8.0, "cpu_s": 8.0}),
    "consumer, inline": (
        "consumer",
        {"executor": "inline", "workers": 1, "decode_s": 3.0, "wait_s": 3.0, "consumer_s": 7.0},
    ),
}


def case(name, **more):
    return dataclasses.replace(QUIET, **{**CASES[name][1], **more})


def named(text):
    first = text.partition(".")[0].lower()
    return [word for word in WORDS if word in first]


@with_cases("name", CASES)
def test_three_short_lines_name_the_limit_and_a_list_what_changes_would_give(name):
    text = explain(case(name))
    assert named(text) == [CASES[name][0]], text
    limit, rate, evidence, *items = text.split("\n")
    assert " the limit" in limit
    assert "samples/s" in rate
    assert max(len(limit.split()), len(rate.split()), len(evidence.split())) <= 25
    assert all(item.startswith("- ") for item in items)
    assert re.search(r"about \d+(\.\d)?x|hardly more", "".join(items))


DECODES = {
    ("cut", "indexed"): 2940,
    ("rectangle", "not in index"): 100,
    ("early stop", "refused: it is so small"): 15,
    ("early stop", "entry of other bytes"): 4,
    ("early stop", "damaged entry"): 2,
    ("early stop", "nearly all needed"): 1,
    ("whole", "decoded whole only"): 10,
}


def test_an_item_says_how_images_were_decoded_and_why():
    assert explain(case("decode", decodes=DECODES)).removeprefix(explain(case("decode"))) == (
        "\n- Of 3,072 images: 2,940 cut by the crop index, 100 decoded as rectangles by libjpeg-turbo 3 (not in the "
        "crop index), 22 stopped early, below the crop (15: no entry in the crop index: it is so small; 4: the entry "
        "belongs to other bytes; 2: damaged entry of the crop index; 1: other reasons), 10 decoded whole (a kind of "
        "JPEG that is always decoded whole)."
    )


@with_cases(
    ("decodes", "sentence"),
    [
        ({("cut", "indexed"): 1000}, "All 1,000 images were cut by the crop index."),
        ({("cut", "indexed"): 1}, "The one image was cut by the crop index."),
        ({("whole", "no crop"): 9}, "All 9 images were decoded whole (the first transform does not crop)."),
        ({("raw", "not a JPEG"): 9}, "All 9 images were stored as raw pixels (not a JPEG)."),
    ],
)
def test_images_decoded_in_one_way_need_no_list(decodes, sentence):
    assert explain(case("decode", decodes=decodes)).endswith(f"\n- {sentence}")


@with_cases(
    ("way", "crop", "read", "advice"),
    [
        ("early stop", 0.2, 1.0, "about 69% of"),
        ("rectangle", 0.2, 1.0, "about 62% of"),
        ("early stop", 0.5, 1.0, None),
        ("early stop", 1.0, 1.0, None),
    ],
)
def test_a_crop_index_is_recommended_where_it_saves_half_of_decoding(way, crop, read, advice):
    """1,000 crops of images of a megapixel; a cut costs 110 pixels for each row besides its own."""
    pixels = {"measured_crops": 20, "crop_pixels": int(crop * 2e7), "read_pixels": int(read * 2e7)}
    text = explain(case("decode", decodes={(way, "no index"): 1000}, **pixels))
    assert text.endswith(f"save {advice} the decoding time.") if advice else "--crops" not in text
    assert ("aioloader index --crops PATH" in text) == (advice is not None)
    # Where most images are in an index already, another one is of little use.
    more = explain(case("decode", decodes={(way, "no index"): 1000, ("cut", "indexed"): 9000}, **pixels))
    assert "--crops" not in more


KEPT = {
    "kept_samples": 300,
    "kept_items": 1000,
    "kept_bytes": 6_000_000_000,
    "kept_full": False,
    "kept_failed": False,
}


@with_cases(
    ("more", "sentence"),
    [
        ({}, "The others are kept when they are made."),
        (
            {"kept_full": True},
            "The limit of cache_samples() is reached, so the others are made in each epoch: about 20.0 GB would hold "
            "all.",
        ),
        ({"kept_full": True, "kept_failed": True}, "one could not be written (see the SampleCacheWarning)."),
        ({"kept_full": True, "kept_samples": 0}, "The limit of cache_samples() has room for none."),
        (
            {"kept_samples": 1000},
            "All 1,000 samples of the set are kept (6.0 GB); 700 were taken from there so far.",
        ),
    ],
)
def test_kept_samples_are_described(more, sentence):
    decodes = {("kept", "kept sample"): 700, ("whole", "to be kept"): 300}
    text = explain(case("decode", decodes=decodes, **KEPT | more))
    assert "All 300 images were decoded whole (to be kept).\n" in text
    assert text.endswith(sentence)
    assert more.get("kept_samples") == 1000 or "00 were taken from there so far. " in text


ROOM = {
    "measured_images": 20,
    "image_nbytes": 20_000_000,
    "dataset_samples": 5000,
    "available_memory_bytes": 10_000_000_000,
}


@with_cases(
    ("more", "advised"),
    [
        (
            {},
            'dataset.cache_samples("5.6GB"), before random transforms, would give about 6.8x from the second epoch',
        ),
        ({"ranks": 8}, 'dataset.cache_samples("5.6GB", folder="/dev/shm/NAME"), before'),
        ({"available_memory_bytes": 6_000_000_000}, None),
        ({"available_memory_bytes": None}, None),
        ({"measured_images": 0}, None),
        ({"dataset_samples": None}, None),
        ({"kept_samples": 0}, None),
        ({"consumer_s": 8.0, "wait_s": 2.0}, None),
        ({"decode_s": 3.0, "transforms": {"blur": 15.0}}, None),
    ],
)
def test_keeping_decoded_images_is_recommended_where_they_fit_and_decoding_costs_most(more, advised):
    text = explain(case("decode", **ROOM | more))
    assert (advised or "cache_samples(") in text if advised else "cache_samples(" not in text


@with_cases(
    ("transforms", "absence", "gain"),
    [
        ({"Resize > CenterCrop": 9.0}, "no compiler", "about 1.5x"),
        ({"RandomResizedCrop": 9.0}, "", None),
        ({"RandomResizedCrop": 0.5}, "no compiler", None),
        ({"blur": 9.0}, "no compiler", None),
    ],
)
def test_the_compiled_part_is_recommended_where_resizing_would_gain(transforms, absence, gain):
    text = explain(
        case("decode", decode_s=9.0, transform_s=9.0, transforms=transforms, native_absence=absence)
    )
    assert ("compiled part is not used (no compiler)" in text) == (gain is not None)
    assert gain is None or f"it would give {gain}" in text


def test_a_transform_is_named():
    assert explain(case("transform")).startswith("The transform blur is the limit.")
    assert explain(case("batchify")).startswith("The transform pad is the limit.")


def test_an_async_transform_is_named():
    text = explain(case("transform, awaited"))
    assert text.startswith(
        "The transform caption is the limit. It is awaited.\n100 samples/s; 2 workers had work for 10% of the time.\n"
        "A sample waits 40.0 ms for it, and 4.0 calls"
    )
    assert "prefetch=8 (now 4) would give about 2.0x" in text


def test_where_all_allowed_calls_are_under_way_more_are_to_be_allowed():
    text = explain(case("transform, awaited", concurrency={"caption": 4, "tag": 4}))
    assert "4.0 calls of 4 were under way on average" in text
    assert "a time, concurrency=8 (now 4) would give about 2.0x" in text
    text = explain(case("transform, awaited", concurrency={"caption": 4}, samples=5))
    assert "concurrency=8 (now 4) with prefetch=8 (now 4) would give about 2.0x" in text


def test_where_fewer_calls_are_under_way_than_allowed_more_samples_are_to_be_on_their_way():
    text = explain(case("transform, awaited", concurrency={"caption": 64}))
    assert "4.0 calls of 64 were under way on average" in text
    assert "a time, prefetch=8 (now 4), or larger batches, would give about 2.0x" in text


def test_an_async_transform_that_does_not_await_is_to_be_a_plain_one():
    text = explain(case("transform, that holds the loop"))
    assert text.startswith("The transform caption is the limit: it, or other code, blocks the event loop")
    assert "two of them would give about 2.9x" in text  # 8 s, less the consumer's second, in parallel


@with_cases("facts", [{"own_loop": True}, {"process_cpu_s": 1.0}])  # it is late because others have the cores
def test_a_loop_of_the_loaders_own_or_without_a_core_is_not_held_by_others(facts):
    assert named(explain(case("consumer, that holds the loop", **facts))) == ["workers"]


def test_light_work_is_not_to_be_handed_to_workers():
    text = explain(case("workers, none, and light work", batches=10_000))
    assert "num_workers" not in text
    text = explain(case("decode, inline", batches=10_000))
    assert "about as long as sending it to a worker" in text
    assert "num_workers" not in text


@with_cases(("batches", "told"), [(1, "it is one batch"), (9, "it is nine batches"), (10, None)])
def test_few_batches_are_said_to_be_few(batches, told):
    text = explain(case("decode", batches=batches))
    assert ("ask again later" in text) is (told is not None)
    assert told is None or told in text


@with_cases("name", ["storage, while opening", "workers, starting"])
def test_a_loader_that_is_kept_for_its_epochs_is_not_advised_to_be(name):
    assert "Keep the loader for all epochs" in explain(case(name, passes=1))
    text = explain(case(name, passes=2))
    assert "Later epochs of this loader do not, which gives about" in text
    assert "Keep the loader" not in text


def test_one_more_worker_gives_its_share():
    text = explain(case("workers, too few"))
    assert "A third worker would give about 1.5x" in text
    assert "8 workers about 4.0x" in text


def test_more_workers_give_no_more_than_the_consumer_takes():
    text = explain(case("workers, too few", wait_s=3.0, consumer_s=7.0))
    assert "A third worker would give about 1.4x" in text
    assert "8 workers about 1.4x" in text


def test_more_workers_than_cores_are_said_to_be_too_many():
    text = explain(case("decode", cores=1, cpu_s=9.0))
    assert "2 workers share one core: num_workers=1 would give as much." in text
    assert "other programs" not in text


def test_cores_that_are_taken_are_not_free():
    busy = case("workers, too few", cores=4, process_cpu_s=21.0)
    assert named(explain(busy)) == ["decode"]


def test_cores_that_other_programs_use_are_not_free():
    # Two workers of one core each, for ten seconds on eight cores.
    full = explain(case("workers, too few", idle_cores=0.1))
    assert named(full) == ["decode"]
    assert "other programs use about 6.0 of them, so more workers would give hardly more" in full
    assert "num_workers" not in full
    assert "have a worker" not in full
    half = explain(case("workers, too few", idle_cores=2.0))
    assert "of 8 cores 2.0 were free, and other programs used 4.1" in half
    assert "A third worker would give about 1.5x, 4 workers about 2.0x" in half
    alone = case("workers, too few")
    assert explain(dataclasses.replace(alone, idle_cores=6.1)) == explain(alone)


def test_workers_are_advised_for_the_cores_that_others_leave():
    inline = case("decode, inline", cores=8, process_cpu_s=8.0)
    assert "num_workers=8 would give" in explain(inline)
    assert "num_workers=3 would give" in explain(dataclasses.replace(inline, idle_cores=2.2))
    assert "num_workers" not in explain(dataclasses.replace(inline, idle_cores=0.0))


def test_threads_that_hold_each_other_up_are_advised_to_be_processes():
    text = explain(case("transform", executor="thread", cpu_s=9.8, pauses=4000, work_s=19.5))
    assert text.startswith("The transform blur is the limit.")
    assert "executor='process' would give about 2.0x" in text


def test_a_transform_that_waits_is_advised_to_have_more_workers():
    text = explain(case("transform", work_s=19.5, cpu_s=0.4, pauses=1000))
    assert text.startswith("The transform blur is the limit.")
    assert "num_workers=4 would give about 2.0x" in text


def test_cores_that_others_take_are_reported_and_not_taken_for_the_lock():
    text = explain(case("transform", executor="thread", cpu_s=9.8, pauses=100, work_s=19.5))
    assert "Workers had a core for only 50% of that time" in text
    assert "lock" not in text


def test_half_a_decode_is_what_it_saves():
    text = explain(case("decode", cpu_s=19.0, work_s=20.0))
    assert "would give about 1.8x" in text  # 20 s of work without 9


def test_storage_at_hand_is_what_workers_could_do():
    text = explain(case("storage"))
    assert "prefetch=8 (now 4) would give about 2.0x" in text
    assert "Data that is available at once (a faster disk) would give about 10x" in text


def test_the_network_is_reported_in_numbers():
    text = explain(
        case("storage", requests=20, request_bytes=20 << 20, latency_p50_s=0.1, latency_p99_s=0.3, retries=2)
    )
    assert "20 requests for 1,024 KiB each, answered in 100 ms (p99 300 ms), 2 of them tried again" in text
    assert 'cache="DIR"' in text


@with_cases(
    ("facts", "advised"),
    [
        ({}, True),
        ({"hit_rate": 0.0}, False),  # a cache gets whole records
        ({"requests": 0}, False),
        ({"measured_crops": 0}, False),
        ({"decodes": {("early stop", "no index"): 400, ("cut", "indexed"): 600}}, False),
    ],
)
def test_a_crop_index_is_recommended_where_the_network_is_the_limit(facts, advised):
    crops = {"measured_crops": 20, "crop_pixels": 50, "read_pixels": 100}
    crops["decodes"] = {("early stop", "no index"): 1000}
    text = explain(case("storage", **{"requests": 20, "request_bytes": 20 << 20, **crops, **facts}))
    assert ("fetches only the rows that the crops need" in text) == advised


def test_enough_workers_are_counted_where_the_consumer_is_the_limit():
    text = explain(case("consumer", workers=8, decode_s=11.0))
    assert "Two of the 8 workers would do." in text


@with_cases("facts", [{"collate_s": 6.0, "executor": "inline", "workers": 1}, {"decode_s": 3.0}])
def test_workers_that_are_idle_are_not_to_be_more(facts):
    text = explain(dataclasses.replace(QUIET, **facts))
    assert "worker would give" not in text
    assert " 0%" not in text


def test_what_was_chosen_by_measurement_is_reported():
    text = explain(case("decode", tuning="By measurement 2 threads were chosen."))
    assert text.endswith("By measurement 2 threads were chosen.")


def test_data_in_memory_is_explained_without_workers():
    loader = DataLoader(ArrayDataset(np.zeros((20_000, 1000), np.uint8)), 256, shuffle=True)
    for _ in range(3):
        assert sum(len(batch) for batch in loader) == 20_000
    text = loader.explain()
    assert named(text) in (["memory"], ["consumer"])
    assert "num_workers" not in text


def test_before_the_first_batch_there_is_nothing_to_explain():
    assert "Nothing" in explain(Metrics().snapshot(2, 0, (0, 0, 0)))


@with_cases("name", CASES)
@with_cases("field", ["seconds", "wait_s", "consumer_s", "samples", "decode_s", "work_s", "cpu_s"])
def test_no_counters_make_it_fail(name, field):
    assert explain(case(name, **{field: 0}))
    assert explain(case(name, **{field: 1}))


@with_cases("workers", [1, 2])
def test_a_dataset_that_makes_its_samples_itself_does_not_decode(workers: int) -> None:
    inline = {"executor": "inline", "decode_s": 8.0, "cpu_s": 8.0} if workers == 1 else {}
    text = explain(case("decode", foreign=True, workers=workers, **inline))
    assert text.startswith("Decode (the dataset's own __getitem__) is the limit.\n")
    assert "A __getitem__ in half the time would give about " in text
    assert "dct_scaling" not in text


def test_too_few_workers_for_a_dataset_that_makes_its_samples_itself() -> None:
    name = next(name for name in CASES if "is decode; of " in explain(case(name)))
    assert "is decode (the dataset's own __getitem__); of " in explain(case(name, foreign=True))


@with_cases("startup_s", [0.0, 2.5])
def test_the_rate_the_cost_and_the_share_of_the_time_have_one_base(startup_s):
    """Workers times their share of the time, over the cost of a sample, is the rate."""
    steady = 10.0 - startup_s
    text = explain(
        case("decode", startup_s=startup_s, decode_s=1.9 * steady, transform_s=0.0, cpu_s=1.9 * steady)
    )
    rate = re.search(r"^([\d,]+) samples/s(.*); 2 workers had work for 95% of the time", text, re.MULTILINE)
    cost = re.search(r"the ([\d.]+) ms that a sample costs", text)
    assert rate is not None, text
    assert cost is not None, text
    assert float(rate[1].replace(",", "")) == pytest.approx(2 * 0.95 / (float(cost[1]) / 1e3), rel=0.02)
    assert rate[2] == (" since the start-up" if startup_s else "")
