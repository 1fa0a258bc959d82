"""Tests of statistics in Prometheus and OpenTelemetry: a real scrape over HTTP, a real reader."""

from __future__ import annotations

import dataclasses
import gc
import re
import threading
import urllib.request
from concurrent.futures import ThreadPoolExecutor

import pytest

from aioloader import AsyncImageService, DataLoader, ImageService
from tests.aioloader.loader.samples import Numbers
from tests.aioloader.service.images import fails, numbered


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


def scrape(registry):
    from prometheus_client import generate_latest

    return values(generate_latest(registry).decode())


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
    halved = found['aioloader_stage_seconds_total{loader="train",stage="transform:halve"}']
    assert halved == pytest.approx(stats.transforms["halve"])
    assert found['aioloader_stage_seconds_total{loader="train",stage="decode"}'] == stats.decode_s > 0
    assert found['aioloader_starvation_ratio{loader="train"}'] == stats.starvation
    assert found['aioloader_memory_limit_bytes{loader="train"}'] == stats.memory_limit_bytes
    assert 'aioloader_failed_samples_total{loader="train",outcome="skipped"}' in found
    loader.close()


def test_ways_of_decoding_are_exported(prometheus, registry, photo_rec):
    from aioloader import ImageRecordDataset, transforms

    dataset = ImageRecordDataset(photo_rec).transform_first(transforms.Resize((32, 32)))
    loader = DataLoader(dataset, 8, num_workers=0)
    count = sum(len(labels) for _, labels in loader)
    prometheus.register(loader, "train", registry)
    found = scrape(registry)
    assert found['aioloader_decoded_images_total{loader="train",way="whole"}'] == count
    assert found['aioloader_decoded_images_total{loader="train",way="cut"}'] == 0
    assert found['aioloader_uncut_images_total{loader="train",reason="no crop"}'] == count
    loader.close()


UNITS = "samples|batches|images|bytes|seconds|ratio|restarts|requests|retries|hedges|workers|waits|lookups"


def test_names_follow_the_conventions(prometheus):
    for family in prometheus._Collector().describe():
        assert re.fullmatch(rf"aioloader_[a-z_]+_({UNITS})", family.name)
        assert family.documentation.endswith(".")
        assert not family.name.endswith("_total")  # the client adds it to counters


def test_loaders_share_a_registry_by_name(prometheus, registry):
    train, test = finished(), finished(8)
    prometheus.register(train, "train", registry)
    prometheus.register(test, "test", registry)
    prometheus.register(test, "test", registry)
    with pytest.raises(ValueError, match="another loader is registered as 'test'"):
        prometheus.register(train, "test", registry)
    found = scrape(registry)
    assert found['aioloader_delivered_samples_total{loader="train"}'] == 24
    assert found['aioloader_delivered_samples_total{loader="test"}'] == 8
    for _ in range(2):
        prometheus.unregister(test, "test", registry)
        assert not any('loader="test"' in name for name in scrape(registry))
    train.close()
    test.close()


def test_a_loader_that_is_gone_is_no_longer_reported(prometheus, registry):
    prometheus.register(finished(), "train", registry)
    gc.collect()
    assert scrape(registry) == {}
    loader = finished()
    prometheus.register(loader, "train", registry)  # the name is free again
    loader.close()
    assert scrape(registry) == {}
    again = finished()
    prometheus.register(loader, "train", registry)
    prometheus.register(again, "train", registry)  # a closed loader releases its name
    assert scrape(registry)['aioloader_delivered_samples_total{loader="train"}'] == 24
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
    with pytest.raises(TypeError, match="a loader or an image service was expected"):
        opentelemetry.register([1, 2], "train", provider)
    loader.close()


# -- image services ---


def used(service):
    """Make three images, of which one fails and one is there already."""
    service.get(numbered(2))
    service.get(numbered(2))
    with pytest.raises(ValueError, match="is odd"):
        try:
            service.get(numbered(3))
        except Exception as error:
            raise error.__cause__ from None


@pytest.fixture
def service():
    with ImageService(fails, num_workers=1, executor="thread", cache_limit=1 << 20) as service:
        used(service)
        yield service


def test_a_service_and_a_loader_share_a_registry(prometheus, registry, service):
    loader = finished()
    prometheus.register(loader, "train", registry)
    prometheus.register(service, "train", registry)  # names are unique within a kind
    found = scrape(registry)
    assert found['aioloader_delivered_samples_total{loader="train"}'] == 24
    assert found['aioloader_service_ended_images_total{outcome="made",service="train"}'] == 1
    assert found['aioloader_service_ended_images_total{outcome="failed",service="train"}'] == 1
    assert found['aioloader_service_cache_lookups_total{result="hit",service="train"}'] == 1
    assert found['aioloader_service_pool_workers{service="train"}'] == 1
    assert found['aioloader_service_memory_limit_bytes{service="train"}'] == service.stats().memory_limit > 0
    work = service.stats().work_s
    assert found['aioloader_service_work_seconds{quantile="0.5",service="train"}'] == work[0] > 0
    assert all(("loader=" in name) != ("service=" in name) for name in found)
    with pytest.raises(ValueError, match="another service is registered as 'train'"):
        prometheus.register(AsyncImageService(), "train", registry)
    prometheus.unregister(service, "train", registry)
    assert not any("service=" in name for name in scrape(registry))
    loader.close()


def test_every_figure_of_a_service_is_exported(prometheus, registry, service, monkeypatch):
    figures, number = {}, 1000
    for field in dataclasses.fields(service.stats()):
        if field.name == "executor":
            figures[field.name] = "thread"
        elif field.name in ("read_s", "queue_s", "work_s"):
            figures[field.name] = (number + 1, number + 2)
            number += 2
        else:
            number += 1
            figures[field.name] = number
    stats = dataclasses.replace(service.stats(), **figures)
    monkeypatch.setattr(ImageService, "stats", lambda self: stats)
    prometheus.register(service, registry=registry)
    found = scrape(registry)
    assert sorted(found.values()) == list(range(1001, number + 1))
    assert all('service="service"' in name for name in found)


async def test_a_service_is_exported_while_it_is_open(prometheus, registry):
    service = AsyncImageService(num_workers=1, executor="thread")
    prometheus.register(service, "photos", registry)
    assert scrape(registry) == {}
    async with service:
        await service.get(numbered(1))
        assert scrape(registry)['aioloader_service_ended_images_total{outcome="made",service="photos"}'] == 1
        with pytest.raises(ValueError, match="another service is registered"):
            prometheus.register(AsyncImageService(), "photos", registry)
    assert service.closed
    assert scrape(registry) == {}
    prometheus.register(AsyncImageService(), "photos", registry)  # the name is free again


def test_a_scrape_never_disturbs_a_service(prometheus, registry):
    """Statistics are read in other threads than that of the loop."""
    with ImageService(fails, num_workers=1, executor="thread") as service, ThreadPoolExecutor(2) as threads:
        prometheus.register(service, "photos", registry)
        ended = threading.Event()

        def scrape_on():
            while not ended.is_set():
                assert scrape(registry)

        scraping = [threads.submit(scrape_on) for _ in range(2)]
        for draw in range(5):
            service.gather([numbered(2 * number) for number in range(60)], draw=draw)
        ended.set()
        for each in scraping:
            each.result()


def test_a_reader_sees_a_service(opentelemetry, reader, provider, service):
    loader = finished()
    opentelemetry.register(loader, "train", provider)
    opentelemetry.register(service, "photos", provider)
    found = observed(reader)
    mine = ("aioloader.service", "photos")
    unit, images = found["aioloader.service.ended.images"]
    assert unit == "{image}"
    assert images[tuple(sorted((("aioloader.outcome", "made"), mine)))] == 1
    assert found["aioloader.service.memory.limit.size"] == ("By", {(mine,): service.stats().memory_limit})
    assert found["aioloader.service.cache.lookups"][0] == "{lookup}"
    assert found["aioloader.service.work.time"][0] == "s"
    assert found["aioloader.delivered.samples"][1] == {(("aioloader.loader", "train"),): 24}
    opentelemetry.unregister(service, "photos", provider)
    assert "aioloader.service.ended.images" not in observed(reader)
    loader.close()
