"""Tests of the settings of object stores: Amazon's files, the environment, and `configure`."""

from __future__ import annotations

import weakref
from functools import partial
from pathlib import Path
from typing import Any

import pytest

from aioloader.storage.remote import configure
from aioloader.storage.remote.stores import Stores, azure, google, options_for, s3, shared_profile


@pytest.fixture
def files(tmp_path: Path) -> dict[str, str]:
    (tmp_path / "credentials").write_text(
        "[default]\naws_access_key_id = A\naws_secret_access_key = B\n"
        "[work]\naws_access_key_id = C\naws_secret_access_key = D\naws_session_token = E\n"
    )
    (tmp_path / "config").write_text("[default]\nregion = eu-west-1\n[profile work]\nregion = us-west-2\n")
    return {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "config"),
    }


def test_the_default_profile(files: dict[str, str]) -> None:
    assert shared_profile(files) == {"access_key_id": "A", "secret_access_key": "B", "region": "eu-west-1"}


def test_a_profile_that_the_environment_names(files: dict[str, str]) -> None:
    found = shared_profile({**files, "AWS_PROFILE": "work"})
    assert found == {
        "access_key_id": "C",
        "secret_access_key": "D",
        "session_token": "E",
        "region": "us-west-2",
    }


def test_keys_in_the_environment_go_first(files: dict[str, str]) -> None:
    assert shared_profile({**files, "AWS_ACCESS_KEY_ID": "X", "AWS_REGION": "here"}) == {}


@pytest.mark.parametrize("text", [None, "no section", "[default]\naws_access_key_id = A\n"])
def test_files_that_say_nothing(tmp_path: Path, text: str | None) -> None:
    if text is not None:
        (tmp_path / "credentials").write_text(text)
    environment = {
        "AWS_SHARED_CREDENTIALS_FILE": str(tmp_path / "credentials"),
        "AWS_CONFIG_FILE": str(tmp_path / "x"),
    }
    assert shared_profile(environment) == {}


@pytest.mark.parametrize(
    ("given", "environment", "options", "endpoint"),
    [
        ({}, {}, {}, ""),
        (
            {},
            {
                "AZURE_STORAGE_CONNECTION_STRING": "AccountName=me;AccountKey=a2V5==;EndpointSuffix=core.windows.net"
            },
            {"account_name": "me", "account_key": "a2V5==", "endpoint": "https://me.blob.core.windows.net"},
            "https://me.blob.core.windows.net",
        ),
        (
            {},
            {
                "AZURE_STORAGE_CONNECTION_STRING": "BlobEndpoint=https://me.here/;SharedAccessSignature=sv=1&sig=%3D",
                "AZURE_STORAGE_ENDPOINT": "https://else.where",
            },
            {"sas_key": "sv=1&sig=%3D"},
            "https://else.where",
        ),
        (
            {"account_name": "mine", "endpoint": "http://said"},
            {"AZURE_STORAGE_CONNECTION_STRING": "AccountName=me;AccountKey=k;BlobEndpoint=http://not.said"},
            {"account_name": "mine", "account_key": "k", "endpoint": "http://said"},
            "http://said",
        ),
        ({}, {"AZURE_STORAGE_CONNECTION_STRING": "UseDevelopmentStorage=true"}, {"use_emulator": True}, ""),
    ],
)
def test_a_connection_string_of_azure(
    given: dict[str, Any], environment: dict[str, str], options: dict[str, Any], endpoint: str
) -> None:
    assert azure(given, environment) == endpoint
    assert given == options


@pytest.mark.parametrize(
    ("given", "environment", "options", "endpoint"),
    [
        ({}, {}, {}, ""),
        ({}, {"GOOGLE_BASE_URL": "http://a"}, {}, "http://a"),
        (
            {},
            {"STORAGE_EMULATOR_HOST": "a:1"},
            {"base_url": "http://a:1", "bearer_token": "emulator"},
            "http://a:1",
        ),
        (
            {"base_url": "https://b"},
            {"STORAGE_EMULATOR_HOST": "http://a:1"},
            {"base_url": "https://b"},
            "https://b",
        ),
    ],
)
def test_an_emulator_of_google(
    given: dict[str, Any], environment: dict[str, str], options: dict[str, Any], endpoint: str
) -> None:
    assert google(given, environment) == endpoint
    assert given == options


def test_an_endpoint_of_s3_is_that_of_the_program_before_that_of_the_environment() -> None:
    nowhere = {"AWS_CONFIG_FILE": "/nowhere", "AWS_SHARED_CREDENTIALS_FILE": "/nowhere"}
    assert s3({}, nowhere) == ""
    assert (
        s3({}, {**nowhere, "AWS_ENDPOINT_URL": "http://a", "AWS_ENDPOINT_URL_S3": "http://b"}) == "http://b"
    )
    options = {"endpoint": "http://c"}
    assert s3(options, {**nowhere, "AWS_ENDPOINT_URL": "http://a"}) == "http://c"
    assert options == {"endpoint": "http://c"}


def test_the_longest_prefix_counts_and_no_other(request: pytest.FixtureRequest) -> None:
    for prefix, options in (
        ("s3://", {"region": "a", "endpoint": "http://everywhere"}),
        ("s3://bucket/", {"region": "b"}),
        ("s3://bucket/deep/", {"region": "c"}),
    ):
        configure(prefix, **options)
        request.addfinalizer(partial(configure, prefix))
    assert options_for("s3://other/x") == {"region": "a", "endpoint": "http://everywhere"}
    assert options_for("s3://bucket/x") == {"region": "b"}
    assert options_for("s3://bucket/deep/x") == {"region": "c"}
    assert options_for("gs://bucket/deep/x") == {}
    options_for("s3://bucket/x")["region"] = "changed"
    assert options_for("s3://bucket/x") == {"region": "b"}
    configure("s3://bucket/deep/")
    assert options_for("s3://bucket/deep/x") == {"region": "b"}


def test_a_store_in_use_is_shared() -> None:
    pytest.importorskip("obstore", reason="needs obstore")
    url, place = "http://127.0.0.1:9/a", "http://127.0.0.1:9/"
    one, other = Stores(), Stores()
    store, _ = one.find(url)
    assert other.find(f"{place}b")[0] is store
    assert other.find(url, '"of a version"')[0] is not store
    configure(place, client_options={"default_headers": {"name": "value"}})
    try:
        assert Stores().find(url)[0] is not store
    finally:
        configure(place)
    used = weakref.ref(store)
    del store
    one.close()
    assert used() is not None
    other.close()
    assert used() is None
