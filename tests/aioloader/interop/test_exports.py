"""Tests of statistics in Prometheus and OpenTelemetry: a real scrape over HTTP, a real reader."""

from __future__ import annotations

import gc
import re
import urllib.request

import pytest

from aioloader import DataLoader
from tests.aioloader.loader.samples import Numbers


def halve(image, label):
    return image // 2, label


def finished(n=24):
    from aioloader.datasets import SimpleDataset

    loader = DataLoader(SimpleDataset(Numbers(n, 0.001)).transform(halve), 8, num_workers=0)
    for _ in loader:
        pass
    return loader


# -- prometheus ---


@pytest.fixture
def prometheus():
    pytest.importorskip("prometheus_client", reason="needs prometheus-client")
    from aioloader.interop import prometheus

    return prometheus


@pytest.fixture
def registry(prometheus):
    from prometheus_client import CollectorRegistry

    return CollectorRegistry()


def values(text):
    """Return every sample of an exposition, by name and labels."""
    found = {}
    for line in text.splitlines():
        if line and not line.startswith("#"):
            name, labels, value = re.fullmatch(r"(\w+)(\{.*\})? (\S+)", line).groups()
            found[name + (labels or "")] = float(value)
    return found


def test_ways_of_decoding_are_exported(prometheus, registry, photo_rec):
    from prometheus_client import generate_latest

    from aioloader import ImageRecordDataset, transforms

    dataset = ImageRecordDataset(photo_rec).transform_first(transforms.Resize((32, 32)))
    loader = DataLoader(dataset, 8, num_workers=0)
    count = sum(len(labels) for _, labels in loader)
    prometheus.register(loader, "train", registry)
    found = values(generate_latest(registry).decode())
    assert found['aioloader_decoded_images_total{loader="train",way="whole"}'] == count
    assert found['aioloader_decoded_images_total{loader="train",way="cut"}'] == 0
    assert found['aioloader_uncut_images_total{loader="train",reason="no crop"}'] == count
    loader.close()


def test_a_scrape_over_http_has_the_counters(prometheus, registry):
    from prometheus_client import start_http_server

    loader = finished()
    prometheus.register(loader, "train", registry)
    server, thread = start_http_server(0, "127.0.0.1", registry)
    try:
        with urllib.request.urlopen(f"http://127.0.0.1:{server.server_port}/metrics") as answer:
            found = values(answer.read().decode())
    finally:
        server.shutdown()
        server.server_close()
        thread.join()
    stats = loader.stats()
    assert found['aioloader_delivered_samples_total{loader="train"}'] == 24
    assert found['aioloader_delivered_batches_total{loader="train"}'] == 3
    assert found['aioloader_stage_seconds_total{loader="train",stage="transform:halve"}'] == pytest.approx(
        stats.transforms["halve"]
    )
    assert found['aioloader_stage_seconds_total{loader="train",stage="decode"}'] == stats.decode_s > 0
    assert found['aioloader_starvation_ratio{loader="train"}'] == stats.starvation
    assert found['aioloader_memory_limit_bytes{loader="train"}'] == stats.memory_limit_bytes
    assert 'aioloader_failed_samples_total{loader="train",outcome="skipped"}' in found
    loader.close()


def test_names_follow_the_conventions(prometheus, registry):
    for family in prometheus._Collector().describe():
        assert re.fullmatch(r"aioloader_[a-z_]+", family.name)
        unit = family.name.rpartition("_")[2]
        assert unit in (
            "samples",
            "batches",
            "images",
            "bytes",
            "seconds",
            "ratio",
            "restarts",
            "requests",
            "retries",
            "hedges",
            "workers",
        )
        assert family.documentation.endswith(".")
        assert not family.name.endswith("_total")  # the client adds it to counters


def test_loaders_share_a_registry_by_name(prometheus, registry):
    from prometheus_client import generate_latest

    train, test = finished(), finished(8)
    prometheus.register(train, "train", registry)
    prometheus.register(test, "test", registry)
    prometheus.register(test, "test", registry)
    with pytest.raises(ValueError, match="another loader is registered as 'test'"):
        prometheus.register(train, "test", registry)
    found = values(generate_latest(registry).decode())
    assert found['aioloader_delivered_samples_total{loader="train"}'] == 24
    assert found['aioloader_delivered_samples_total{loader="test"}'] == 8
    prometheus.unregister(test, "test", registry)
    prometheus.unregister(test, "test", registry)
    assert 'loader="test"' not in generate_latest(registry).decode()
    train.close()
    test.close()


def test_a_loader_that_is_gone_is_no_longer_reported(prometheus, registry):
    from prometheus_client import generate_latest

    prometheus.register(finished(), "train", registry)
    gc.collect()
    assert values(generate_latest(registry).decode()) == {}
    loader = finished()
    prometheus.register(loader, "train", registry)  # the name is free again
    loader.close()
    assert values(generate_latest(registry).decode()) == {}
    again = finished()
    prometheus.register(loader, "train", registry)
    prometheus.register(again, "train", registry)  # a closed loader releases its name
    assert (
        values(generate_latest(registry).decode())['aioloader_delivered_samples_total{loader="train"}'] == 24
    )
    again.close()


# -- opentelemetry ---


@pytest.fixture
def opentelemetry():
    pytest.importorskip("opentelemetry.sdk", reason="needs opentelemetry-sdk")
    from aioloader.interop import opentelemetry

    return opentelemetry


@pytest.fixture
def reader(opentelemetry):
    from opentelemetry.sdk.metrics.export import InMemoryMetricReader

    return InMemoryMetricReader()


@pytest.fixture
def provider(reader):
    from opentelemetry.sdk.metrics import MeterProvider

    provider = MeterProvider([reader])
    yield provider
    provider.shutdown()


def observed(reader):
    """Return every metric: its unit, and its points by attributes."""
    data = reader.get_metrics_data()
    found = {}
    for resource in data.resource_metrics if data is not None else ():
        for scope in resource.scope_metrics:
            assert scope.scope.name == "aioloader"
            for metric in scope.metrics:
                assert metric.name not in found
                points = {tuple(sorted(p.attributes.items())): p.value for p in metric.data.data_points}
                found[metric.name] = metric.unit, points
    return found


def test_a_reader_sees_the_counters(opentelemetry, reader, provider):
    loader = finished()
    opentelemetry.register(loader, "train", provider)
    found = observed(reader)
    stats = loader.stats()
    mine = ("aioloader.loader", "train")
    assert found["aioloader.delivered.samples"] == ("{sample}", {(mine,): 24})
    assert found["aioloader.wait.time"] == ("s", {(mine,): stats.wait_s})
    unit, stages = found["aioloader.stage.time"]
    assert unit == "s"
    assert stages[mine, ("aioloader.stage", "decode")] == stats.decode_s
    assert found["aioloader.read.size"][0] == found["aioloader.memory.limit.size"][0] == "By"
    assert found["aioloader.starvation.ratio"] == ("1", {(mine,): stats.starvation})
    loader.close()


def test_loaders_share_a_provider_by_name(opentelemetry, reader, provider):
    train, test = finished(), finished(8)
    opentelemetry.register(train, "train", provider)
    opentelemetry.register(test, "test", provider)
    _, samples = observed(reader)["aioloader.delivered.samples"]
    assert sorted(samples.values()) == [8, 24]
    with pytest.raises(ValueError, match="another loader is registered"):
        opentelemetry.register(train, "test", provider)
    opentelemetry.unregister(test, "test", provider)
    assert list(observed(reader)["aioloader.delivered.samples"][1].values()) == [24]
    train.close()
    test.close()


def test_only_loaders_are_taken(opentelemetry, provider):
    with pytest.raises(TypeError, match="a loader was expected"):
        opentelemetry.register([1, 2], "train", provider)
